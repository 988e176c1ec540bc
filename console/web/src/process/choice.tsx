// Choice of the process whose state a page shows, and requests to one process or to all of them.
import { useState } from "preact/hooks";
import { get, Refusal, useLive, type Query, type Round } from "../api";
import { may, type Schemas } from "../session";
import { Select } from "../ui/parts";

export type ProcessName = Schemas["ProcessName"];
const OWN = "this process";
const ALL = "all processes";
/** Requests of processes that are under way at once. */
const AT_ONCE = 4;
/** Processes without a reply that are named one by one. */
const NAMED_MAX = 20;

/** Reply of a process. One that is waited for has neither a value nor an error. */
export interface ProcessReply<T> {
  process: ProcessName;
  value?: T;
  error?: string;
}

/** Processes that a page shows; undefined for this process, whose name isn't needed. */
export interface ProcessChoice {
  chosen: ProcessName[] | undefined;
  /** Option that is chosen. */
  value: string;
  /** The choice with its processes, for effects that depend on it. */
  name: string;
  options: string[];
  choose: (name: string) => void;
}

/** Offers the processes of the cluster that have a route. `all` offers all of them together. */
export function useProcesses(route: string, all: boolean): ProcessChoice {
  const readable = may("get /admin/v1/processes");
  const live = useLive(async () => (readable ? await get<ProcessName[]>("/admin/v1/processes") : []), 15_000, [readable]);
  const [name, setName] = useState(OWN);
  const having = (live.value.value ?? []).filter((one) => one.routes.includes(route));
  const others = having.filter((one) => !one.own);
  // A process that has left the list stays chosen, so that its error is shown.
  const gone = name !== OWN && name !== ALL && others.every((one) => one.process !== name);
  const left: ProcessName[] = gone ? [{ process: name, roles: [], own: false, routes: [route], silent: "no process of the cluster reports this name any more" }] : [];
  const chosen = name === OWN ? undefined : name === ALL ? having : [...others.filter((one) => one.process === name), ...left];
  const options = [OWN, ...(all ? [ALL] : []), ...others.map((one) => one.process), ...left.map((one) => one.process)];
  return { chosen, value: name, name: `${name} ${(chosen ?? []).map((one) => one.process).join(" ")}`, options: others.length + left.length > 0 ? options : [], choose: setName };
}

/** Field with the choice. A process without others has none. */
export function ProcessSelect({ choice }: { choice: ProcessChoice }) {
  if (choice.options.length === 0) return null;
  return <Select label="Process" value={choice.value} options={choice.options} on={choice.choose} />;
}

/** Reads a route of a process. */
export async function getOf<T>(process: ProcessName | undefined, route: string, query: Query = {}, signal?: AbortSignal): Promise<T> {
  if (process === undefined || process.own) return await get<T>(route, query, signal);
  if (process.silent) throw new Refusal(`${process.process}: ${process.silent}`);
  const pairs = Object.entries(query).filter(([, value]) => value !== undefined && value !== null && value !== "");
  const text = new URLSearchParams(pairs.map(([name, value]) => [name, String(value)])).toString();
  return await get<T>("/admin/v1/processes/reply", { process: process.process, route, query: text }, signal);
}

/**
 * Reads a route of many processes, some at once. A process that fails hides no other. `made` makes a value of the
 * replies, which the round shows with each reply that comes.
 */
export async function getOfAll<T, V>(processes: readonly ProcessName[], route: string, queryOf: (process: ProcessName) => Query, round: Round<V>, made: (replies: ProcessReply<T>[]) => V): Promise<V> {
  const replies: ProcessReply<T>[] = processes.map((process) => ({ process }));
  let next = 0;
  const work = async () => {
    for (let at = next++; at < replies.length && !round.signal.aborted; at = next++) {
      const reply = replies[at] as ProcessReply<T>;
      try {
        reply.value = await getOf<T>(reply.process, route, queryOf(reply.process), round.signal);
      } catch (thrown) {
        reply.error = thrown instanceof Error ? thrown.message : String(thrown);
      }
      round.show(() => made([...replies]));
    }
  };
  await Promise.all(Array.from({ length: AT_ONCE }, work));
  round.signal.throwIfAborted();
  return made(replies);
}

/** Counts processes whose replies are waited for. */
export function waiting(replies: readonly ProcessReply<unknown>[]): number {
  return replies.filter(({ value, error }) => value === undefined && error === undefined).length;
}

/** Processes without a reply, with their reasons. */
export function MissingProcesses({ replies }: { replies: readonly ProcessReply<unknown>[] }) {
  const missing = replies.filter((reply) => reply.error !== undefined);
  const awaited = waiting(replies);
  return (
    <>
      {awaited > 0 && <p class="quiet" role="status">{awaited === 1 ? "One process has" : `${awaited} processes have`} not replied yet.</p>}
      {missing.length > 0 && (
        <div class="failure" role="alert">
          <div>
            <p>{missing.length === 1 ? "One process is" : `${missing.length} processes are`} missing here:</p>
            <ul>
              {missing.slice(0, NAMED_MAX).map(({ process, error }) => <li><b>{process.process}</b>: {error}</li>)}
              {missing.length > NAMED_MAX && <li>and {missing.length - NAMED_MAX} further ones</li>}
            </ul>
          </div>
        </div>
      )}
    </>
  );
}
