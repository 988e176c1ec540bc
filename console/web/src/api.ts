// Requests to the admin API, and values that refresh themselves.
import { signal, type Signal } from "@preact/signals";
import { useEffect, useMemo } from "preact/hooks";
import { CSRF, farewell, sentence, session } from "./session";

export type Query = Record<string, string | number | boolean | null | undefined>;

export class Refusal extends Error {}

/** Path of a request. Those of the console itself begin with `/own/`, and all others are the admin API's. */
function target(path: string, query: Query): string {
  const pairs = Object.entries(query).filter(([, value]) => value !== undefined && value !== null && value !== "");
  const text = new URLSearchParams(pairs.map(([name, value]) => [name, String(value)])).toString();
  return `${path.startsWith("/own/") ? "" : "/api"}${path}${text ? `?${text}` : ""}`;
}

async function send(method: string, path: string, query: Query, body?: unknown, signal?: AbortSignal): Promise<Response> {
  const headers: Record<string, string> = { [CSRF]: session.value?.csrf ?? "" };
  if (body !== undefined) headers["content-type"] = "application/json";
  let reply: Response;
  try {
    reply = await fetch(target(path, query), { method, headers, body: body === undefined ? null : JSON.stringify(body), signal: signal ?? null });
  } catch {
    throw new Refusal("the server does not answer: this page tries again");
  }
  if (reply.status === 401) {
    farewell.value = "The session is over. Sign in again.";
    session.value = null;
  }
  // A process that isn't ready answers 503 with its reasons.
  if (!reply.ok && path !== "/readyz") throw new Refusal(await sentence(reply));
  return reply;
}

export async function get<T>(path: string, query: Query = {}, signal?: AbortSignal): Promise<T> {
  return (await (await send("GET", path, query, undefined, signal)).json()) as T;
}

export async function text(path: string, query: Query = {}): Promise<string> {
  return await (await send("GET", path, query)).text();
}

/** Sends a request whose reply is a file. */
export async function file(path: string, query: Query): Promise<Response> {
  return await send("POST", path, query);
}

export async function change<T>(method: "POST" | "PUT" | "DELETE", path: string, query: Query, body?: unknown): Promise<T> {
  return (await (await send(method, path, query, body)).json()) as T;
}

/** Value of a request: the last reply, and the error since then. */
export interface Live<T> {
  value: Signal<T | undefined>;
  error: Signal<string>;
  at: Signal<number>;
  reload: () => Promise<void>;
  /** Shows a value that was saved, and reads it again. A read that began before the save can't bring the old value back. */
  saved: (value: T) => Promise<void>;
}

/** One round of requests for a value. */
export interface Round<T> {
  /** Shows a part of the first value. Later values replace the last one when they are whole. */
  show: (part: () => T) => void;
  /** Ends with the page, and with the next round. */
  signal: AbortSignal;
}

/** Requests again every `everyMs` while the page is visible. Zero requests once. */
export function useLive<T>(load: (round: Round<T>) => Promise<T>, everyMs: number, deps: readonly unknown[]): Live<T> {
  const live = useMemo(() => {
    const value = signal<T | undefined>(undefined);
    const error = signal("");
    const at = signal(0);
    let turn = 0;
    let ending = new AbortController();
    /** Ends the round that is under way. Its reply is ignored. */
    const leave = () => {
      turn++;
      ending.abort();
    };
    const reload = async () => {
      leave();
      const own = turn;
      ending = new AbortController();
      const isFirst = at.value === 0;
      const show = (part: () => T) => {
        if (own === turn && isFirst) value.value = part();
      };
      try {
        const got = await load({ show, signal: ending.signal });
        if (own !== turn) return;
        value.value = got;
        error.value = "";
        at.value = Date.now();
      } catch (thrown) {
        if (own === turn) error.value = thrown instanceof Error ? thrown.message : String(thrown);
      }
    };
    const saved = async (kept: T) => {
      value.value = kept;
      await reload();
    };
    return { value, error, at, reload, saved, leave };
  }, deps);
  useEffect(() => {
    let ended = false;
    let timer = 0;
    const round = async () => {
      if (!document.hidden) await live.reload();
      if (!ended && everyMs > 0) timer = window.setTimeout(() => void round(), everyMs);
    };
    void round();
    return () => {
      ended = true;
      window.clearTimeout(timer);
      live.leave();
    };
  }, [live]);
  return live;
}
