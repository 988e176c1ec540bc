// Builder of a ring as this tab has it: its file, the changes since, and the server's description of both. The server keeps
// nothing, and the builder is nowhere but in this tab and in the operator's files.
import { signal } from "@preact/signals";
import { change, Refusal } from "../api";
import { session, type Schemas } from "../session";

export type Reply = Schemas["RingBuilderReply"];
export type Step = Schemas["RingStep"];
export type Source = Schemas["BuilderSource"];
export type Plan = Schemas["PlanLine"];

const PATH = "/admin/v1/ring-builder";
/** Bytes of a builder file that fit in one request. */
export const FILE_BYTES_MAX = 30 << 20;

export interface Change {
  step: Step;
  /** Sentence of the server. */
  done: string;
}

export interface Work {
  /** Principal whose work this is. */
  owner: string;
  /** Number of the opening, by which a push finds its builder again. */
  opening: number;
  /** Name of the ring: `index`, `data-0` and so on. */
  ring: string;
  /** Epoch of the builder when it was opened, or that of the last ring of it that this tab has pushed. */
  opened: number;
  /** Content of the builder file before the changes. */
  base: string;
  changes: Change[];
  reply: Reply;
  /** True if a file of the operator has `base`. */
  kept: boolean;
  /** Sentences and notes of the last changes. */
  notes: string[];
}

/** Builder file and changes from which a reply is made. */
export type Basis = Pick<Work, "base" | "changes">;

const work = signal<Work | undefined>(undefined);
let openings = 0;

function principal(): string {
  return session.value?.principal?.key ?? "root";
}

/** The work of the principal that has signed in. */
export function current(): Work | undefined {
  return work.value?.owner === principal() ? work.value : undefined;
}

/** Returns true if the tab has changes that no file has. */
export const isUnkept = (of: Work | undefined): boolean => of !== undefined && (!of.kept || of.changes.length > 0);

export function drop(): void {
  work.value = undefined;
}

async function ask(body: Schemas["RingBuilderRequest"]): Promise<Reply> {
  return await change<Reply>("POST", PATH, {}, body);
}

const request = (source: Source, steps: Step[], more: Partial<Schemas["RingBuilderRequest"]> = {}): Schemas["RingBuilderRequest"] => ({
  source,
  steps,
  plan: null,
  rebalance: false,
  with_builder: false,
  with_ring: false,
  ...more,
});

const notesOf = (lines: Schemas["StepLine"][]): string[] => [...new Set(lines.flatMap((line) => line.notes))];

/** Name of the ring of a file such as `data-0.builder`, or that of the policy. */
function ringOf(file: string, reply: Reply): string {
  return /^(index|data-(?:0|[1-9][0-9]{0,4}))(?=[ .(]|$)/.exec(file)?.[1] ?? `data-${reply.settings.policy}`;
}

/** Opens a builder file, a new builder, or that of a ring file. */
export async function begin(source: Source, file: string): Promise<void> {
  const isFile = "builder" in source;
  const reply = await ask(request(source, [], { with_builder: !isFile }));
  const base = isFile ? source.builder : (reply.builder ?? "");
  openings += 1;
  work.value = { owner: principal(), opening: openings, ring: ringOf(file, reply), opened: reply.epoch, base, changes: [], reply, kept: isFile, notes: notesOf(reply.steps) };
}

function now(): Work {
  const found = current();
  if (!found) throw new Refusal("no builder is open: choose its file first");
  return found;
}

export function rename(ring: string): void {
  work.value = { ...now(), ring };
}

/**
 * Sentence about a ring in use that is later than the builder was when it was opened, or undefined. A ring of such a builder
 * gets a later epoch by rebalances, but lacks what the builders in between have changed.
 */
export function overtaken({ ring, opened }: Work, used: Schemas["RingSpread"] | undefined): string | undefined {
  if (!used || used.epoch <= opened) return undefined;
  const own = opened === 0 ? "this builder had no ring" : `this builder had epoch ${opened}`;
  return `The ring in use was made by a newer builder than this: epoch ${used.epoch} of ${ring} is in use, and ${own} when it was opened. A ring of it would lack the devices and changes of later epochs. Close it, and open the newest builder file; if that is lost, recreate it from the ring in use.`;
}

/** Notes that a ring of the builder was pushed: the ring in use may have its epoch from then on. */
export function pushed(of: Work): void {
  const at = current();
  if (at?.opening !== of.opening) return;
  work.value = { ...at, opened: Math.max(at.opened, of.reply.epoch) };
}

/** Throws if the builder has other changes than those of a request or a plan. */
function check({ base, changes }: Basis): void {
  const at = current();
  if (at?.changes !== changes || at.base !== base) throw new Refusal("the builder has changed in the meantime: look at its changes, and try again");
}

const stepsOf = ({ changes }: Basis): Step[] => changes.map((one) => one.step);

/** Adds changes after those so far. If one fails, none is added. */
export async function add(steps: Step[]): Promise<void> {
  const of = now();
  await apply(of, [...stepsOf(of), ...steps], steps.length);
}

const namesDevices = ({ step }: Step): boolean => step === "remove" || step === "set-weight" || step === "set-info" || step === "drain";

/** Removes a change, and applies those after it anew. */
export async function undo(at: number): Promise<void> {
  const of = now();
  const steps = stepsOf(of);
  // Added devices are numbered in their order: without these, later changes would name other devices.
  if (steps[at]?.step === "add" && steps.slice(at + 1).some(namesDevices)) throw new Refusal("later changes name devices by numbers that this change gives: undo the later changes of devices first");
  await apply(of, steps.filter((_, position) => position !== at), 0);
}

async function apply(of: Basis, steps: Step[], fresh: number): Promise<void> {
  const reply = await ask(request({ builder: of.base }, steps));
  check(of);
  const changes = steps.map((step, at) => ({ step, done: reply.steps[at]?.done ?? step.step }));
  work.value = { ...now(), changes, reply, notes: fresh > 0 ? notesOf(reply.steps.slice(-fresh)) : [] };
}

export interface PlanWishes {
  usage: Schemas["PlanOptions"]["usage"];
  bytes_per_s: number;
  high_water: number;
}

/** Rehearses a rebalance after the changes. Throws if the builder gets others before the reply. */
export async function plan(options: PlanWishes, of: Basis): Promise<Plan> {
  check(of);
  const reply = await ask(request({ builder: of.base }, stepsOf(of), { plan: options }));
  check(of);
  if (!reply.plan) throw new Refusal("the server sent no plan");
  return reply.plan;
}

/** Carries the changes of a plan and its rebalance out. The result is a builder that no file has yet. */
export async function rebalance(options: PlanWishes, of: Basis): Promise<void> {
  check(of);
  const reply = await ask(request({ builder: of.base }, stepsOf(of), { plan: options, rebalance: true, with_builder: true }));
  check(of);
  settle(reply, reply.steps.slice(-1));
}

function settle(reply: Reply, lines: Schemas["StepLine"][]): void {
  const { builder, ...rest } = reply;
  work.value = { ...now(), base: builder ?? "", changes: [], reply: rest, kept: false, notes: [...lines.map((line) => line.done), ...notesOf(lines)] };
}

/** Returns the builder file with all changes. From then on the changes are part of it. */
export async function builderFile(): Promise<string> {
  const of = now();
  const { changes, notes } = of;
  if (changes.length > 0) {
    const reply = await ask(request({ builder: of.base }, stepsOf(of), { with_builder: true }));
    check(of);
    settle(reply, []);
  }
  work.value = { ...now(), kept: true, notes };
  return now().base;
}

/** Returns the ring file in base64. */
export async function ringFile(): Promise<string> {
  const of = now();
  const reply = await ask(request({ builder: of.base }, stepsOf(of), { with_ring: true }));
  return reply.ring?.file ?? "";
}

/** Saves bytes as a file of the browser. */
export function save(name: string, content: BlobPart, type: string): void {
  const url = URL.createObjectURL(new Blob([content], { type }));
  const link = document.createElement("a");
  link.href = url;
  link.download = name;
  link.click();
  // The browser reads the bytes after the click.
  setTimeout(() => URL.revokeObjectURL(url), 60_000);
}

export const bytesOf = (base64: string): Uint8Array<ArrayBuffer> => Uint8Array.from(atob(base64), (char) => char.charCodeAt(0));

/** Number of a text, with the words of `martlet ring` for a weight. */
export function weightOf(text: string): number {
  const value = text.trim() === "" ? NaN : Number(text);
  if (Number.isNaN(value)) throw new Refusal(`\`${text}\` is not a weight: write a number such as 4000`);
  return value;
}

export function numberOf(text: string, what: string): number {
  const value = text.trim() === "" ? NaN : Number(text);
  if (Number.isNaN(value)) throw new Refusal(`"${text}" is no number: ${what}`);
  return value;
}

/** Devices of a text with a place, a weight and metadata on each line, as `martlet ring BUILDER add --from` reads it. */
export function devicesOf(text: string): Schemas["NewRingDevice"][] {
  const lines = text.split("\n").map((line, at) => ({ line: line.trim(), at }));
  return lines
    .filter(({ line }) => line !== "" && !line.startsWith("#"))
    .map(({ line, at }) => {
      const [, place = "", weight = "", meta = ""] = /^(\S+)\s*(\S*)\s*(.*)$/.exec(line) ?? [];
      try {
        return { place, weight: weightOf(weight), meta };
      } catch (thrown) {
        throw new Refusal(`line ${at + 1}: ${thrown instanceof Error ? thrown.message : String(thrown)}`);
      }
    });
}
