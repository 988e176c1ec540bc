// Document of checkpoint rules: one more rule, or another retention of the rule for the same folders.

export interface RetentionForm {
  pattern: string;
  profile: string;
  /** Number of generations; empty for all. */
  keep: string;
  /** Hours; empty for none. */
  minAge: string;
  abandonAfter: string;
}

type Rule = Record<string, unknown>;

function whole(name: string, text: string): number | undefined {
  if (text.trim() === "") return undefined;
  if (!/^[0-9]+$/.test(text.trim())) throw new Error(`${name}: a whole number, or nothing`);
  return Number(text);
}

const seconds = (hours: number | undefined): number | undefined => (hours === undefined ? undefined : hours * 3600);

/** Rules of a document, and its other members. */
function parts(document: string): { rest: Rule; rules: Rule[] } {
  let read: unknown;
  try {
    read = document.trim() === "" ? {} : JSON.parse(document);
  } catch {
    throw new Error("The document is no JSON: mend it first, then add the rule.");
  }
  const { rules, ...rest } = read as { rules?: unknown };
  if (rules !== undefined && !Array.isArray(rules)) throw new Error('The document has no list "rules": mend it first.');
  return { rest, rules: (rules ?? []) as Rule[] };
}

/** Document with the rule of a form. A rule with the same pattern keeps its other fields, such as its markers. */
export function withRetention(document: string, form: RetentionForm): string {
  if (!form.pattern.endsWith("/")) throw new Error("Folders: the pattern ends in a slash, such as run-7/step-1000/ or run-*/step-*/");
  const wanted: Rule = {
    keep: whole("Generations to keep", form.keep),
    min_age: seconds(whole("Kept at least", form.minAge)),
    abandon_after: seconds(whole("Abandoned after", form.abandonAfter)),
  };
  const { rest, rules } = parts(document);
  const same = rules.find((rule) => rule["pattern"] === form.pattern);
  const { keep: _, min_age: __, abandon_after: ___, ...base } = same ?? { pattern: form.pattern };
  // JSON leaves out what is undefined.
  const rule = { ...base, profile: form.profile, ...wanted };
  const all = same ? rules.map((one) => (one === same ? rule : one)) : [...rules, rule];
  return JSON.stringify({ ...rest, rules: all }, null, 2);
}
