// JSON with places: the tree of a document, or the first fault with its offset. A name that occurs twice in one object is a
// fault, as the server decides.

export interface Node {
  kind: "object" | "array" | "string" | "number" | "word";
  from: number;
  to: number;
  /** Text of a string. */
  text?: string;
  items?: Node[];
  members?: Member[];
}

export interface Member {
  name: string;
  at: number;
  value: Node;
}

export class JsonFault extends Error {
  constructor(readonly at: number, message: string) {
    super(message);
  }
}

/** Depth at which the server refuses a document. */
const DEPTH_MAX = 127;
const SPACE = /[ \t\r\n]*/y;
const NUMBER = /-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?/y;
const WORD = /true|false|null/y;
const PIECE = /[^"\\\u0000-\u001f]+/y;
const ESCAPE = /\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4})/y;

class Scanner {
  at = 0;

  constructor(readonly text: string) {}

  take(pattern: RegExp): string | undefined {
    pattern.lastIndex = this.at;
    const found = pattern.exec(this.text)?.[0];
    if (found !== undefined) this.at += found.length;
    return found;
  }

  fault(message: string): JsonFault {
    return new JsonFault(this.at, this.at >= this.text.length ? `the document ends, but ${message}` : message);
  }

  /** Takes a sign, with the white space before it. */
  sign(sign: string): boolean {
    this.take(SPACE);
    if (this.text[this.at] !== sign) return false;
    this.at += 1;
    return true;
  }

  string(): string {
    const from = this.at;
    this.at += 1;
    while (this.text[this.at] !== '"') {
      if (this.take(PIECE) !== undefined || this.take(ESCAPE) !== undefined) continue;
      if (this.at >= this.text.length) throw new JsonFault(from, "a text begins here and has no end: add \"");
      if (this.text[this.at] === "\\") throw this.fault("this escape does not exist: a backslash is written \\\\");
      throw new JsonFault(this.text[this.at] === "\n" ? from : this.at, "a text has no line break and no control character: close it with \", or write \\n");
    }
    this.at += 1;
    return JSON.parse(this.text.slice(from, this.at)) as string;
  }

  value(depth: number): Node {
    this.take(SPACE);
    const from = this.at;
    if (depth > DEPTH_MAX) throw this.fault("the document is too deep");
    const sign = this.text[from];
    if (sign === "{") return this.object(from, depth);
    if (sign === "[") return this.array(from, depth);
    if (sign === '"') return { kind: "string", from, text: this.string(), to: this.at };
    if (sign === "'") throw this.fault('texts stand in double quotes: "…"');
    if (this.take(NUMBER)) return { kind: "number", from, to: this.at };
    if (this.take(WORD)) return { kind: "word", from, to: this.at };
    throw this.fault("a value is missing: a text in double quotes, a list in [ ], or an object in { }");
  }

  array(from: number, depth: number): Node {
    const items: Node[] = [];
    this.at += 1;
    if (this.sign("]")) return { kind: "array", from, to: this.at, items };
    for (;;) {
      this.take(SPACE);
      if (items.length > 0 && this.text[this.at] === "]") throw this.fault("no comma stands before ]");
      items.push(this.value(depth + 1));
      if (this.sign("]")) return { kind: "array", from, to: this.at, items };
      if (!this.sign(",")) throw this.fault("a comma or ] is missing here");
    }
  }

  object(from: number, depth: number): Node {
    const members: Member[] = [];
    const names = new Set<string>();
    this.at += 1;
    if (this.sign("}")) return { kind: "object", from, to: this.at, members };
    for (;;) {
      this.take(SPACE);
      const at = this.at;
      if (members.length > 0 && this.text[at] === "}") throw this.fault("no comma stands before }");
      if (this.text[at] !== '"') throw this.fault('a name in double quotes is missing here');
      const name = this.string();
      if (names.has(name)) throw new JsonFault(at, `the name "${name}" occurs twice in one object`);
      names.add(name);
      if (!this.sign(":")) throw this.fault("a colon is missing after the name");
      members.push({ name, at, value: this.value(depth + 1) });
      if (this.sign("}")) return { kind: "object", from, to: this.at, members };
      if (!this.sign(",")) throw this.fault("a comma or } is missing here");
    }
  }
}

/** Reads a document. Throws JsonFault at the first fault. */
export function scan(text: string): Node {
  const scanner = new Scanner(text);
  const node = scanner.value(0);
  scanner.take(SPACE);
  if (scanner.at < text.length) throw scanner.fault("the document is over before this: remove the rest");
  return node;
}

export interface Place {
  line: number;
  column: number;
}

/** Line and column of an offset, both from 1. */
export function placeOf(text: string, at: number): Place {
  const before = text.slice(0, at);
  const line = before.split("\n").length;
  return { line, column: at - before.lastIndexOf("\n") };
}

/** Offset of a line and column, within the text. */
export function offsetOf(text: string, { line, column }: Place): number {
  let start = 0;
  for (let at = 1; at < line; at += 1) {
    const end = text.indexOf("\n", start);
    if (end < 0) return text.length;
    start = end + 1;
  }
  return Math.min(text.length, start + Math.max(0, column - 1));
}

export function member(node: Node | undefined, name: string): Member | undefined {
  return node?.members?.find((one) => one.name === name);
}
