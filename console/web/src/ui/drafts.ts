// Texts that were typed and not saved, with the documents that they began from. They outlive a reload of the page and the
// end of a session, in this tab alone.
import { session } from "../session";

const PREFIX = "martlet-draft ";

export interface Draft {
  text: string;
  /** Stored document when the text was begun. */
  base?: string;
}

function key(id: string): string {
  const { principal, s3 } = session.value ?? {};
  return `${PREFIX}${principal?.key ?? s3?.access_key ?? "root"} ${id}`;
}

export function draft(id: string): Draft | undefined {
  try {
    const kept = sessionStorage.getItem(key(id));
    return kept === null ? undefined : (JSON.parse(kept) as Draft);
  } catch {
    return undefined;
  }
}

export function keep(id: string, draft: Draft): void {
  try {
    sessionStorage.setItem(key(id), JSON.stringify(draft));
  } catch {
    // The storage is full: the text is in the field, and stays until the tab is closed.
  }
}

export function drop(id: string): void {
  sessionStorage.removeItem(key(id));
}
