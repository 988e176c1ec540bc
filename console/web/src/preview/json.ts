// Indented JSON. Tokens stay as they are written: numbers beyond 2^53, and names that occur twice.

/** Depth beyond which, and growth above which, a document is shown as it is: white space would fill the memory. */
const DEPTH_MAX = 32;
const GROWTH_MAX = 3;
const TOKENS = /"(?:[^"\\]|\\.)*"|[^\s{}[\],:"]+|[{}[\],:]/g;

/** Returns the document with one value on each line, or the text itself if it is no JSON or too deep. */
export function indented(text: string): string {
  try {
    JSON.parse(text);
  } catch {
    // Lines of JSON and broken documents are shown as they are.
    return text;
  }
  const bound = text.length * GROWTH_MAX + 1024;
  let [made, depth, before] = ["", 0, ""];
  for (const [token] of text.matchAll(TOKENS)) {
    const closes = token === "}" || token === "]";
    if (closes) depth -= 1;
    const opened = before === "{" || before === "[";
    if (opened ? !closes : before === "," || closes) made += `\n${"  ".repeat(depth)}`;
    made += token === ":" ? ": " : token;
    if (token === "{" || token === "[") depth += 1;
    if (depth > DEPTH_MAX || made.length > bound) return text;
    before = token;
  }
  return made;
}
