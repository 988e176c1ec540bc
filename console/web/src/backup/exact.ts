// JSON whose numbers stay as they are written. Numbers of the server have up to 64 bits, and those of this language 53.

/** Number of a document, which `JSON.stringify` writes as it was read. */
interface Source {
  source?: string;
}

interface Json {
  parse(text: string, revive: (name: string, value: unknown, context?: Source) => unknown): unknown;
  /** Absent in browsers from before 2025. */
  rawJSON?: (text: string) => unknown;
}

/** Reads a document. Throws a sentence if the browser can't keep one of its numbers. */
export function parseExact<T>(text: string): T {
  const json = JSON as Json;
  const revive = (_: string, value: unknown, context?: Source): unknown => {
    if (typeof value !== "number" || Number.isSafeInteger(value) || context?.source === String(value)) return value;
    // Fractions keep their shortest form, as the server writes them.
    if (context?.source === undefined && !Number.isInteger(value)) return value;
    if (context?.source === undefined || !json.rawJSON) throw new Error("this browser rounds a large number of the records: use a later one, or martlet admin backup");
    return json.rawJSON(context.source);
  };
  return json.parse(text, revive) as T;
}
