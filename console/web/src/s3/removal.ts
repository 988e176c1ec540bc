// Deletion of objects and versions, a thousand in each request.
import { Refusal } from "../api";
import { ask, checked, send } from "./client";
import { children, element, representable, text } from "./xml";

export interface Doomed {
  key: string;
  version?: string | undefined;
}

const BATCH = 1000;

/** Deletes objects until `stop`. Returns S3's words about those that it refused. */
export async function remove(bucket: string, all: Doomed[], progress: (done: number) => void, stop: AbortSignal): Promise<string[]> {
  const refused: string[] = [];
  const named = all.filter((one) => representable(one.key));
  for (let from = 0; from < named.length && !stop.aborted; from += BATCH) {
    const objects = named.slice(from, from + BATCH).map((one) => element("Object", [element("Key", one.key), one.version === undefined ? undefined : element("VersionId", one.version)]));
    const reply = await ask("POST", { bucket }, { query: { delete: "" }, ...checked(element("Delete", [element("Quiet", "true"), ...objects])) });
    refused.push(...children(reply, "Error").map((one) => `${text(one, "Key")}: ${text(one, "Message")} (${text(one, "Code")})`));
    progress(Math.min(from + BATCH, named.length));
  }
  // A document can't name the other keys.
  for (const { key, version } of all.filter((one) => !representable(one.key))) {
    if (stop.aborted) break;
    try {
      await send("DELETE", { bucket, key }, { query: { versionId: version } });
    } catch (thrown) {
      if (!(thrown instanceof Refusal)) throw thrown;
      refused.push(`${key}: ${thrown.message}`);
    }
  }
  if (!stop.aborted) progress(all.length);
  return refused;
}
