// Session of this browser: login, logout, and the roles of its principal.
import { signal } from "@preact/signals";
import { ROLES } from "./generated/roles";
import type { components } from "./generated/api";

export type Schemas = components["schemas"];
export interface Session {
  /** Principal at the admin API, if the key has rights there. */
  principal: Schemas["PrincipalLine"] | null;
  /** Access key at S3, and how clients reach the store. */
  s3: { access_key: string; arn: string; name: string | null; expires_ms: number | null; endpoint: string; region: string } | null;
  csrf: string;
  /** Token of links that save an object, which nothing else accepts. */
  link_token: string;
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

/** Name under which this origin keeps the CSRF token. Alone it is of no use: the cookie can't be read. */
const KEPT = "martlet-csrf";
/** Header with the CSRF token, which every request repeats. */
export const CSRF = "x-martlet-csrf";

/** Name under which this tab keeps the time at which a person began a login by the identity provider. */
const BEGUN = "martlet-login-begun";
/** Time in which such a login must end, as at the server. */
const BEGUN_MS = 600_000;

/** Notes that a person begins a login by the identity provider in this tab. */
export function beginLogin(): void {
  sessionStorage.setItem(BEGUN, String(Date.now()));
}

/**
 * Returns the CSRF token that a login by an identity provider left in the fragment, and removes it from the address. A
 * fragment of a link, for which no login was begun in this tab, is ignored: it could lead into a session of a stranger.
 */
function handedOver(): string | undefined {
  const token = /^#signed-in=([0-9a-f]{32})$/.exec(location.hash)?.[1];
  if (!token) return undefined;
  history.replaceState(null, "", location.pathname);
  const since = Date.now() - Number(sessionStorage.getItem(BEGUN) ?? NaN);
  sessionStorage.removeItem(BEGUN);
  return since >= 0 && since < BEGUN_MS ? token : undefined;
}

async function opened(csrf: string): Promise<Session | null> {
  const reply = await fetch("/session", { headers: { [CSRF]: csrf } });
  return reply.ok ? ((await reply.json()) as Session) : null;
}

export async function resume(): Promise<void> {
  const [fresh, kept] = [handedOver(), localStorage.getItem(KEPT)];
  try {
    let found = fresh ? await opened(fresh) : null;
    // A token of a link that opens nothing changes nothing.
    if (found === null && kept !== null) found = await opened(kept);
    if (found !== null) localStorage.setItem(KEPT, found.csrf);
    session.value = found;
  } catch {
    session.value = null;
    farewell.value = "The server does not answer.";
  }
}

/** Returns the name of the identity provider, if this console has one. */
export async function provider(): Promise<string | null> {
  try {
    const reply = await fetch("/login/options");
    return reply.ok ? ((await reply.json()) as { oidc: string | null }).oidc : null;
  } catch {
    return null;
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
    localStorage.setItem(KEPT, session.value.csrf);
    return "";
  } catch {
    return "the server does not answer: check that it runs";
  }
}

export async function logout(): Promise<void> {
  const csrf = session.value?.csrf ?? "";
  localStorage.removeItem(KEPT);
  try {
    const reply = await fetch("/session", { method: "DELETE", headers: { [CSRF]: csrf } });
    farewell.value = reply.ok ? "" : await sentence(reply);
  } catch {
    farewell.value = "The server did not answer, so the session may last until its end.";
  }
  session.value = null;
}

/** Returns true if the principal's role is among those that the route's description names. */
export function may(route: keyof typeof ROLES): boolean {
  const role = session.value?.principal?.role;
  return role !== undefined && (ROLES[route]?.includes(role) ?? false);
}
