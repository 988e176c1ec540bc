// XML of S3: elements and text. The browser's own parser takes text as HTML, which Trusted Types refuse in these pages.

/** Element of a document. */
export interface Xml {
  name: string;
  text: string;
  children: Xml[];
}

const NAMED: Record<string, string> = { amp: "&", lt: "<", gt: ">", quot: '"', apos: "'" };
const DEPTH_MAX = 32;

function plain(text: string): string {
  return text.replace(/&(#x[0-9a-f]+|#[0-9]+|[a-z]+);/gi, (whole, name: string) => {
    if (!name.startsWith("#")) return NAMED[name] ?? whole;
    const code = name[1]?.toLowerCase() === "x" ? parseInt(name.slice(2), 16) : parseInt(name.slice(1), 10);
    return code <= 0x10ffff ? String.fromCodePoint(code) : whole;
  });
}

/** Parses a document. Throws if its elements don't fit each other. Attributes, comments and namespaces are dropped. */
export function parse(document: string): Xml {
  const root: Xml = { name: "", text: "", children: [] };
  const open = [root];
  const tags = /<(?:\?[^>]*\?|!--[\s\S]*?--|(\/?)([A-Za-z][\w.:-]*)((?:[^>"']|"[^"]*"|'[^']*')*))>|<!\[CDATA\[([\s\S]*?)\]\]>/g;
  let read = 0;
  const add = (text: string) => {
    const top = open[open.length - 1];
    if (top) top.text += text;
  };
  for (let tag = tags.exec(document); tag; tag = tags.exec(document)) {
    add(plain(document.slice(read, tag.index)));
    read = tags.lastIndex;
    const [, slash, given, rest, data] = tag;
    if (data !== undefined) add(data);
    if (given === undefined) continue;
    const name = given.slice(given.indexOf(":") + 1);
    if (slash) {
      if (open.length < 2 || open.pop()?.name !== name) throw new Error(`the reply has a wrong </${name}>`);
      continue;
    }
    const element: Xml = { name, text: "", children: [] };
    open[open.length - 1]?.children.push(element);
    if (rest?.endsWith("/")) continue;
    open.push(element);
    if (open.length > DEPTH_MAX) throw new Error("the reply is nested too deeply");
  }
  const [element] = root.children;
  if (open.length !== 1 || !element) throw new Error("the reply is no whole XML document");
  return element;
}

export const child = (of: Xml, name: string): Xml | undefined => of.children.find((one) => one.name === name);
export const children = (of: Xml, name: string): Xml[] => of.children.filter((one) => one.name === name);
/** Text of a child, or an empty text. */
export const text = (of: Xml, name: string): string => child(of, name)?.text ?? "";

/** Returns true if XML can represent all characters of a text. */
export const representable = (value: string): boolean => !/[\u0000-\u0008\u000b\u000c\u000e-\u001f\ufffe\uffff]/.test(value);

/** Text within an element. Throws for characters that XML can't represent. */
export function escape(value: string): string {
  if (!representable(value)) throw new Error("the text has a control character, which XML can't represent");
  return value.replace(/[&<>"\r]/g, (char) => `&#${char.charCodeAt(0)};`);
}

/** Element with text or elements within. Undefined children are left out. */
export function element(name: string, content: string | (string | undefined)[]): string {
  const inner = typeof content === "string" ? escape(content) : content.join("");
  return `<${name}>${inner}</${name}>`;
}
