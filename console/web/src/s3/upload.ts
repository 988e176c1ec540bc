// Uploads of files: several at once, large ones in parts. An interrupted upload goes on where the server has no parts yet.
import { effect, signal, type Signal } from "@preact/signals";
import { Refusal } from "../api";
import { session } from "../session";
import { ask, send, S3Refusal } from "./client";
import { crc32OfBlob } from "./crc32";
import { parts, type Part } from "./listing";
import { Cut, put } from "./put";
import { element, text } from "./xml";

const MIB = 1 << 20;
/** Largest file that is sent in one request, and the least size of a part. */
export const PART = 16 * MIB;
const PARTS_MAX = 10_000;
const FILES_AT_ONCE = 2;
const PARTS_AT_ONCE = 3;
const TRIES = 3;

export type State = "waiting" | "running" | "interrupted" | "failed" | "done" | "cancelled";

export interface Transfer {
  bucket: string;
  key: string;
  file: File;
  /** True if an object of this key may be replaced. */
  replace: boolean;
  upload: string | undefined;
  state: Signal<State>;
  sent: Signal<number>;
  error: Signal<string>;
  stop: AbortController;
}

/** Transfers of this page, newest last. */
export const transfers = signal<Transfer[]>([]);
/** Rises when all transfers have ended, so that listings refresh themselves once. */
export const completed = signal(0);

let owner: string | undefined;
effect(() => {
  const key = session.value?.s3?.access_key;
  // A session that ended keeps its transfers for the next one of its key, and for no other key.
  if (key === undefined || key === owner) return;
  owner = key;
  for (const { stop, state } of transfers.peek()) {
    stop.abort();
    state.value = "cancelled";
  }
  transfers.value = [];
});

interface Wanted {
  bucket: string;
  key: string;
  file: File;
  replace: boolean;
  /** Unfinished upload that goes on. */
  upload?: string;
}

export function add({ bucket, key, file, replace, upload }: Wanted): void {
  const transfer: Transfer = { bucket, key, file, replace, upload, state: signal<State>("waiting"), sent: signal(0), error: signal(""), stop: new AbortController() };
  transfers.value = [...transfers.value, transfer];
  pump();
}

export function resume(transfer: Transfer): void {
  transfer.stop = new AbortController();
  transfer.error.value = "";
  transfer.state.value = "waiting";
  pump();
}

/** Stops a transfer, and removes its parts from the server. */
export async function cancel(transfer: Transfer): Promise<void> {
  transfer.stop.abort();
  transfer.state.value = "cancelled";
  const { bucket, key, upload } = transfer;
  transfer.upload = undefined;
  if (upload) {
    try {
      await abandon(bucket, key, upload);
    } catch (thrown) {
      transfer.error.value = `The parts are still on the server: ${words(thrown)}`;
    }
  }
  pump();
}

export async function abandon(bucket: string, key: string, upload: string): Promise<void> {
  await send("DELETE", { bucket, key }, { query: { uploadId: upload } });
}

/** Removes transfers that have ended from the list, but for those with parts on the server. */
export function clear(): void {
  transfers.value = transfers.value.filter(({ state, upload }) => {
    const keepsParts = state.value === "failed" && upload !== undefined;
    return keepsParts || !["done", "cancelled", "failed"].includes(state.value);
  });
}

const words = (thrown: unknown): string => (thrown instanceof Error ? thrown.message : String(thrown));

function pump(): void {
  const running = transfers.value.filter(({ state }) => state.value === "running").length;
  const waiting = transfers.value.filter(({ state }) => state.value === "waiting");
  for (const transfer of waiting.slice(0, Math.max(0, FILES_AT_ONCE - running))) void run(transfer);
  if (running === 0 && waiting.length === 0) completed.value += 1;
}

async function run(transfer: Transfer): Promise<void> {
  transfer.state.value = "running";
  transfer.sent.value = 0;
  const { stop } = transfer;
  try {
    await (transfer.file.size > PART || transfer.upload ? inParts(transfer) : whole(transfer));
    transfer.sent.value = transfer.file.size;
    transfer.state.value = "done";
  } catch (thrown) {
    // A cancelled transfer has its state already, and may run again.
    if (stop.signal.aborted) return;
    transfer.error.value = explain(thrown);
    transfer.state.value = thrown instanceof Cut ? "interrupted" : "failed";
    if (thrown instanceof S3Refusal && thrown.code === "NoSuchUpload") transfer.upload = undefined;
  } finally {
    pump();
  }
}

function explain(thrown: unknown): string {
  if (thrown instanceof S3Refusal && thrown.code === "PreconditionFailed") return "An object of this name exists. Allow replacement, or choose another name.";
  if (thrown instanceof S3Refusal && thrown.code === "NoSuchUpload") return "The server has this upload no more: it was removed, or is complete. Resume begins anew.";
  // A file that changes or vanishes can't be read.
  if (thrown instanceof DOMException) return `The file can't be read: ${thrown.message}`;
  return words(thrown);
}

function conditions({ replace }: Transfer): Record<string, string> {
  return replace ? {} : { "if-none-match": "*" };
}

async function whole(transfer: Transfer): Promise<void> {
  const { bucket, key, file, stop } = transfer;
  const headers: Record<string, string> = { ...conditions(transfer), "x-amz-checksum-crc32": await crc32OfBlob(file) };
  if (file.type) headers["content-type"] = file.type;
  await put({ bucket, key }, {}, file, headers, (sent) => (transfer.sent.value = sent), stop.signal);
}

/** Size of parts: 16 MiB, or more in whole MiB where there would be too many. */
export const partSize = (size: number): number => Math.max(PART, Math.ceil(size / PARTS_MAX / MIB) * MIB);

async function inParts(transfer: Transfer): Promise<void> {
  const { bucket, key, file, stop } = transfer;
  let known: Part[] = [];
  if (transfer.upload) known = await parts(bucket, key, transfer.upload, stop.signal);
  else {
    await refuseExisting(transfer);
    transfer.upload = await begin(transfer);
  }
  const upload = transfer.upload;
  const size = sizeOf(known, file.size);
  const count = Math.max(1, Math.ceil(file.size / size));
  const of = new Map(known.map((part) => [part.number, part]));
  const sent = new Array<number>(count).fill(0);
  const note = (at: number, bytes: number) => {
    sent[at] = bytes;
    transfer.sent.value = sent.reduce((sum, one) => sum + one, 0);
  };
  const made: Part[] = [];
  let next = 0;
  const lane = async () => {
    while (next < count) {
      const at = next;
      next += 1;
      const blob = file.slice(at * size, (at + 1) * size);
      made[at] = await part(transfer, upload, at + 1, blob, of.get(at + 1), (bytes) => note(at, bytes));
      note(at, blob.size);
    }
  };
  // A failed lane stops the others, which would send parts in vain.
  const lanes = Array.from({ length: Math.min(PARTS_AT_ONCE, count) }, lane);
  try {
    await Promise.all(lanes);
  } catch (thrown) {
    next = count;
    await Promise.allSettled(lanes);
    throw thrown;
  }
  await complete(transfer, upload, made);
}

/** Refuses an existing object before its parts are sent. The condition of the completion decides. */
async function refuseExisting({ bucket, key, replace, stop }: Transfer): Promise<void> {
  if (replace) return;
  try {
    await send("HEAD", { bucket, key }, { signal: stop.signal });
  } catch (thrown) {
    // A missing object, or one that the key may not read.
    if (thrown instanceof S3Refusal) return;
    throw thrown instanceof Refusal ? new Cut() : thrown;
  }
  throw new S3Refusal("PreconditionFailed", 412, "the object exists");
}

async function begin(transfer: Transfer): Promise<string> {
  const { bucket, key, file, stop } = transfer;
  const headers: Record<string, string> = { "x-amz-checksum-algorithm": "CRC32", "x-amz-checksum-type": "COMPOSITE" };
  if (file.type) headers["content-type"] = file.type;
  const reply = await networked(() => ask("POST", { bucket, key }, { query: { uploads: "" }, headers, signal: stop.signal }));
  return text(reply, "UploadId");
}

/** Size of an unfinished upload's parts: that of its first one, unless this is the last one too. */
function sizeOf(known: Part[], bytes: number): number {
  const first = known.find(({ number }) => number === 1);
  const usable = first && first.size >= 5 * MIB && Math.ceil(bytes / first.size) <= PARTS_MAX;
  return usable && first.size % MIB === 0 ? first.size : partSize(bytes);
}

async function part(transfer: Transfer, upload: string, number: number, blob: Blob, known: Part | undefined, note: (sent: number) => void): Promise<Part> {
  const { bucket, key, stop } = transfer;
  const crc32 = await crc32OfBlob(blob);
  if (known && known.size === blob.size && known.crc32 === crc32) return known;
  for (let tries = 1; ; tries += 1) {
    try {
      const headers = await put({ bucket, key }, { partNumber: number, uploadId: upload }, blob, { "x-amz-checksum-crc32": crc32 }, note, stop.signal);
      return { number, size: blob.size, etag: headers.get("etag") ?? "", crc32 };
    } catch (thrown) {
      note(0);
      if (!(thrown instanceof Cut) || tries === TRIES) throw thrown;
      await new Promise((resolve) => setTimeout(resolve, 500 * 2 ** tries));
      if (stop.signal.aborted) throw thrown;
    }
  }
}

async function complete(transfer: Transfer, upload: string, made: Part[]): Promise<void> {
  const { bucket, key, stop } = transfer;
  const list = made.map((one) => element("Part", [element("PartNumber", String(one.number)), element("ETag", one.etag), element("ChecksumCRC32", one.crc32)]));
  const headers = { ...conditions(transfer), "content-type": "application/xml" };
  await networked(() => ask("POST", { bucket, key }, { query: { uploadId: upload }, headers, body: element("CompleteMultipartUpload", list), signal: stop.signal }));
}

/** A silent server interrupts a transfer, and a refusal of S3 ends it. */
async function networked<T>(run: () => Promise<T>): Promise<T> {
  try {
    return await run();
  } catch (thrown) {
    if (thrown instanceof Refusal && !(thrown instanceof S3Refusal)) throw new Cut();
    throw thrown;
  }
}
