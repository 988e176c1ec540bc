// A new backup: rings, added files and all records of the cluster, page by page, sealed in this page.
import { change, get, text } from "../api";
import type { Schemas } from "../session";
import { toHex } from "./bytes";
import { parseExact } from "./exact";
import { BackupWriter, type Counts, type Record_ } from "./lines";
import { newHead } from "./sealed";
import type { Secret } from "./secret";

/** Items of a page. A bucket takes 100 KiB at most. */
const PAGE = 200;
/** Longest file that is added. */
const FILE_BYTES_MAX = 16 << 20;

export interface Made {
  file: Blob;
  counts: Counts;
  made_ms: number;
}

/** Records of one kind that a backup has so far. */
export interface Step {
  kind: string;
  /** Number of the kind, from 1, and number of all kinds. */
  number: number;
  kinds: number;
  records: number;
  /** Estimated records of the kind, if they have an estimate. */
  total: number | undefined;
  began_ms: number;
}

/** Makes a backup. `noted` receives the counts so far and the kind under way, and returns true to stop. */
export async function create(secret: Secret, included: File[], noted: (counts: Counts, step?: Step) => boolean): Promise<Made> {
  for (const file of included) if (file.size > FILE_BYTES_MAX) throw new Error(`${file.name} is larger than 16 MiB: leave the file out`);
  const begun = await change<Schemas["BackupLine"]>("POST", "/admin/v1/backup", {});
  const { head, key } = await newHead(secret, begun.version, begun.made_ms);
  const writer = new BackupWriter(head, key);
  const note = (step?: Step) => {
    if (noted({ ...writer.counts }, step)) throw new Error("stopped: no backup was made");
  };
  try {
    for (const name of begun.rings) {
      const { ring, epoch, file } = await get<Schemas["RingFile2"]>("/admin/v1/backup/ring", { ring: name });
      await writer.push({ file: { name: `${ring}.ring`, epoch, content: file } });
      note();
    }
    for (const file of included) {
      await writer.push({ file: { name: file.name, content: toHex(new Uint8Array(await file.arrayBuffer())) } });
      note();
    }
    for (const [at, kind] of begun.kinds.entries()) {
      const began_ms = Date.now();
      let after: string | null | undefined;
      let records = 0;
      do {
        const page = parseExact<{ items: Record_[]; next?: string | null }>(await text("/admin/v1/backup/records", { kind, limit: PAGE, after }));
        for (const record of page.items) await writer.push({ record });
        records += page.items.length;
        const expected = begun.expected[kind];
        // An estimate that was exceeded is none.
        const total = expected !== undefined && expected >= records ? expected : undefined;
        note({ kind, number: at + 1, kinds: begun.kinds.length, records, total, began_ms });
        after = page.next;
      } while (after);
    }
    return { file: await writer.finish(), counts: writer.counts, made_ms: begun.made_ms };
  } catch (thrown) {
    writer.abort(thrown);
    throw thrown;
  }
}
