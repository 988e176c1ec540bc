// Texts that were typed and not saved. They outlive a reload of the page and the end of a session, in this tab alone.
import { session } from "../session";

const PREFIX = "martlet-draft ";

function key(id: string): string {
  const { principal, s3 } = session.value ?? {};
  return `${PREFIX}${principal?.key ?? s3?.access_key ?? "root"} ${id}`;
}

export function draft(id: string): string | undefined {
  return sessionStorage.getItem(key(id)) ?? undefined;
}

export function keep(id: string, text: string): void {
  try {
    sessionStorage.setItem(key(id), text);
  } catch {
    // The storage is full: the text is in the field, and stays until the tab is closed.
  }
}

export function drop(id: string): void {
  sessionStorage.removeItem(key(id));
}
