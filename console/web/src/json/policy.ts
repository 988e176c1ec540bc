// Faults of policies and trust documents: their place in the text, and what to do about them.
import { JsonFault, member, offsetOf, scan, type Node } from "./scan";

/** Elements of a statement that a sentence of the server is about. */
const ELEMENTS: [RegExp, string[]][] = [
  [/action/i, ["Action", "NotAction"]],
  [/resource/i, ["Resource", "NotResource"]],
  [/effect/i, ["Effect"]],
  [/principal/i, ["Principal", "NotPrincipal"]],
  [/condition|variable/i, ["Condition", "Resource", "NotResource"]],
];

const ADVICE: [RegExp, string][] = [
  [/invalid Json/, "The text is no JSON. The mark shows where a reader stops."],
  [/first byte must be/, "A document begins with { and ends with }."],
  [/maximum allowed size|at most [0-9]+ bytes/, "Join statements that differ in one element only, or use * in names."],
  [/valid version string/, 'Write "Version": "2012-10-17".'],
  [/Missing required field (\w+)/, "Add the element. A statement needs Effect, Action and, except in trust documents, Resource."],
  [/Unknown field/, "Names are written as S3 does, with capitals. A statement has Sid, Effect, Action or NotAction, Resource or NotResource, and Condition."],
  [/Statement is empty/, "Add a statement, or remove the document instead."],
  [/must be unique/, "Two statements have one Sid. Change or remove one of them."],
  [/should not specify a principal/, "This document applies to its holder. Principal belongs to policies of buckets and to trust documents."],
  [/invalid principal/i, 'Write "Principal": {"AWS": "TENANT"}, or the ARN of a user or role.'],
  [/names a principal that does not exist/, "Create the tenant, user or role first, or correct its name."],
  [/invalid action/i, "Actions are written s3:GetObject, s3:List* or *. In trust documents: sts:AssumeRole or sts:AssumeRoleWithWebIdentity."],
  [/invalid resource/i, 'Resources are ARNs: "arn:aws:s3:::BUCKET" for the bucket, and "arn:aws:s3:::BUCKET/*" for its objects.'],
  [/Invalid effect/, "Effect is Allow or Deny."],
  [/condition key/, "The server does not know this key of a condition. Keys are written s3:prefix or aws:SourceIp, for instance."],
  [/condition type/, "Operators are written StringEquals, StringLike, IpAddress or NumericLessThan, for instance."],
  [/value in a condition/, "The value does not fit its operator: a network for IpAddress, a number for Numeric…, a time for Date…"],
  [/invalid variable/, "Variables such as ${aws:username} need the version 2012-10-17, and only some keys may stand in them."],
  [/policy syntax/, "An element has a value of another kind than S3 permits: a text where a list stands, for instance."],
];

/** Advice about a sentence of the server, or an empty text. */
export function advice(sentence: string): string {
  return ADVICE.find(([pattern]) => pattern.test(sentence))?.[1] ?? "";
}

function tree(text: string): Node | undefined {
  try {
    return scan(text);
  } catch {
    return undefined;
  }
}

function statements(root: Node | undefined): Node[] {
  const all = member(root, "Statement")?.value;
  return all === undefined ? [] : (all.items ?? [all]);
}

/** Offset of a name or value that the sentence quotes within a node. */
function quoted(node: Node, sentence: string): number | undefined {
  const unknown = /Unknown field (.+?)(?: \(statement \d+\))?$/.exec(sentence)?.[1];
  if (unknown !== undefined) return member(node, unknown)?.at;
  for (const [pattern, names] of ELEMENTS) {
    if (!pattern.test(sentence)) continue;
    const found = names.map((name) => member(node, name)).find((one) => one !== undefined);
    if (found) return found.value.from;
  }
  return undefined;
}

/** Offset of the second statement with an id that occurred before. */
function twice(all: Node[]): number | undefined {
  const seen = new Set<string>();
  for (const one of all) {
    const sid = member(one, "Sid")?.value;
    if (sid?.text && seen.has(sid.text)) return sid.from;
    if (sid?.text) seen.add(sid.text);
  }
  return undefined;
}

/** Offset of the fault that a sentence of the server is about, or undefined if the sentence has no place. */
export function locate(text: string, sentence: string): number | undefined {
  const at = /\(line (\d+), column (\d+)\)$/.exec(sentence);
  if (at) return offsetOf(text, { line: Number(at[1]), column: Number(at[2]) });
  const root = tree(text);
  const number = /\(statement (\d+)\)$/.exec(sentence)?.[1];
  if (number !== undefined) {
    const statement = statements(root)[Number(number) - 1];
    return statement && (quoted(statement, sentence) ?? statement.from);
  }
  if (/must be unique/.test(sentence)) return twice(statements(root));
  if (/version string/.test(sentence)) return member(root, "Version")?.value.from ?? root?.from;
  if (/Statement is empty/.test(sentence)) return member(root, "Statement")?.value.from;
  // Some sentences name no statement: S3's have no places. A single statement needs no number.
  const [only, more] = statements(root);
  const within = only && !more ? quoted(only, sentence) : undefined;
  return within ?? (root && quoted(root, sentence));
}

/** Fault of a text that is no JSON object, with its offset. */
export function faultOf(text: string): JsonFault | undefined {
  try {
    const root = scan(text);
    return root.kind === "object" ? undefined : new JsonFault(root.from, "the document is one object, in { }");
  } catch (thrown) {
    return thrown instanceof JsonFault ? thrown : new JsonFault(0, String(thrown));
  }
}
