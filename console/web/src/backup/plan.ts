// Comparison of a backup with the cluster, and its restore, by the requests of `martlet admin backup restore`.
import { change } from "../api";
import type { Schemas } from "../session";
import { lines, type Counts, type FileLine, type Record_ } from "./lines";
import type { FileHead } from "./sealed";
import type { FileKey } from "./secret";

type Verdict = Schemas["RecordVerdict"];
export type VerdictState = Verdict["state"];

/** Most records of a comparison, and the bytes of their requests: a request may have 1 MiB. */
const PAGE_MAX = 500;
const BATCH_BYTES_MAX = 512 << 10;
/** Requests under way that restore records. */
const WRITES_AT_ONCE = 8;
/** Items that are named, of each state and of failures. */
const EXAMPLES_MAX = 20;

/** Backup that its secret has opened. */
export interface OpenBackup {
  file: File;
  head: FileHead;
  key: FileKey;
  /** Items by kind, and the files, once the whole file was read. */
  counts: Counts;
  files: FileLine[];
}

export interface Example {
  kind: string;
  name: string;
  state: VerdictState;
  reason: string | null | undefined;
}

/** Records by kind and state, and the first ones that aren't plain. */
export interface Plan {
  kinds: Record<string, Partial<Record<VerdictState, number>>>;
  examples: Example[];
}

export interface Outcome {
  restored: number;
  failed: number;
  failures: string[];
}

/** What a restore writes. */
export interface Scope {
  accounts: boolean;
  buckets: boolean;
  /** True to undo changes and deletions that are later than the backup. */
  replace: boolean;
}

/** Progress of a pass over the file. Returns true to stop. */
export type Progress = (bytes: number) => boolean;

export class Stopped extends Error {
  constructor() {
    super("stopped: what was restored stays, and another run goes on");
  }
}

export function isWritten(state: VerdictState, replace: boolean): boolean {
  return state === "missing" || state === "older" || (replace && (state === "newer" || state === "deleted"));
}

/** Reads the whole file, and hands on its records in batches of one kind. */
async function batches(backup: Pick<OpenBackup, "file" | "head" | "key">, scope: Scope, progress: Progress, take: (records: Record_[]) => Promise<void>): Promise<void> {
  const check = (at: number) => {
    if (progress(at)) throw new Stopped();
  };
  let [batch, bytes] = [[] as Record_[], 0];
  for await (const line of lines(backup.file, backup.head, backup.key, check)) {
    if (!("record" in line)) continue;
    const { record } = line;
    if (!(record.kind === "bucket" ? scope.buckets : scope.accounts)) continue;
    const length = new TextEncoder().encode(JSON.stringify(record)).length;
    if (batch.length > 0 && (batch[0]?.kind !== record.kind || batch.length === PAGE_MAX || bytes + length > BATCH_BYTES_MAX)) {
      await take(batch);
      [batch, bytes] = [[], 0];
    }
    batch.push(record);
    bytes += length;
  }
  if (batch.length > 0) await take(batch);
}

async function compared(records: Record_[]): Promise<Verdict[]> {
  const { verdicts } = await change<Schemas["CompareReply"]>("POST", "/admin/v1/backup/compare", {}, { records });
  if (verdicts.length !== records.length) throw new Error("the process compares as another version: reload this page");
  return verdicts;
}

/** Compares all records with the cluster. Nothing is changed. */
export async function plan(backup: OpenBackup, scope: Scope, progress: Progress): Promise<Plan> {
  const found: Plan = { kinds: {}, examples: [] };
  const known: Partial<Record<VerdictState, number>> = {};
  await batches(backup, scope, progress, async (records) => {
    const verdicts = await compared(records);
    records.forEach(({ kind, name }, at) => {
      const { state, reason } = verdicts[at]!;
      const tally = (found.kinds[kind] ??= {});
      tally[state] = (tally[state] ?? 0) + 1;
      if (state === "same" || state === "missing" || (known[state] ?? 0) >= EXAMPLES_MAX) return;
      known[state] = (known[state] ?? 0) + 1;
      found.examples.push({ kind, name, state, reason });
    });
  });
  return found;
}

/** Restores what differs, one request for each record. `noted` receives the outcome so far. */
export async function restore(backup: OpenBackup, scope: Scope, progress: Progress, noted: (outcome: Outcome) => void): Promise<Outcome> {
  const outcome: Outcome = { restored: 0, failed: 0, failures: [] };
  const { replace } = scope;
  const put = async (record: Record_) => {
    const { kind, name } = record;
    try {
      await change<Verdict>("PUT", "/admin/v1/backup/record", {}, { kind, name, replace, record });
      outcome.restored += 1;
    } catch (thrown) {
      outcome.failed += 1;
      if (outcome.failures.length < EXAMPLES_MAX) outcome.failures.push(`${kind} ${name}: ${thrown instanceof Error ? thrown.message : String(thrown)}`);
    }
    noted({ ...outcome });
  };
  await batches(backup, scope, progress, async (records) => {
    const verdicts = await compared(records);
    const waiting = records.filter((_, at) => isWritten(verdicts[at]!.state, replace));
    await Promise.all(
      Array.from({ length: WRITES_AT_ONCE }, async () => {
        for (let next = waiting.shift(); next; next = waiting.shift()) await put(next);
      }),
    );
  });
  return outcome;
}
