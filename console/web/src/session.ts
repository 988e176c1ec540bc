// Session of this browser: login, logout, and the roles of its principal.
import { signal } from "@preact/signals";
import { ROLES } from "./generated/roles";
import type { components } from "./generated/api";

export type Schemas = components["schemas"];
export interface Session {
  principal: Schemas["PrincipalLine"];
  csrf: string;
  version: string;
}

/** Session; undefined until the server has replied, null without one. */
export const session = signal<Session | null | undefined>(undefined);
/** Reason for the end of a session, shown at the login. */
export const farewell = signal("");

/** Returns the sentence of a refusal. */
export async function sentence(reply: Response): Promise<string> {
  try {
    const body = (await reply.json()) as { error?: string };
    if (body.error) return body.error;
  } catch {
    // The body is no JSON: the status has to do.
  }
  return `the server replied ${reply.status}`;
}

export async function resume(): Promise<void> {
  try {
    const reply = await fetch("/session");
    session.value = reply.ok ? ((await reply.json()) as Session) : null;
  } catch {
    session.value = null;
    farewell.value = "The server does not answer.";
  }
}

/** Signs in. Returns a sentence if that fails. */
export async function login(key: string, secret: string): Promise<string> {
  try {
    const reply = await fetch("/session", {
      method: "POST",
      headers: { "content-type": "application/json" },
      body: JSON.stringify({ key, secret }),
    });
    if (!reply.ok) return await sentence(reply);
    farewell.value = "";
    session.value = (await reply.json()) as Session;
    return "";
  } catch {
    return "the server does not answer: check that it runs";
  }
}

export async function logout(): Promise<void> {
  const csrf = session.value?.csrf ?? "";
  try {
    const reply = await fetch("/session", { method: "DELETE", headers: { "x-martlet-csrf": csrf } });
    farewell.value = reply.ok ? "" : await sentence(reply);
  } catch {
    farewell.value = "The server did not answer, so the session may last until its end.";
  }
  session.value = null;
}

/** Returns true if the principal's role is among those that the route's description names. */
export function may(route: keyof typeof ROLES): boolean {
  const role = session.value?.principal.role;
  return role !== undefined && (ROLES[route]?.includes(role) ?? false);
}
