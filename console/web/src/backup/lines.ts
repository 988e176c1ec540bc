// Contents of a backup: a line of JSON for each record and file, and a last line with their counts and hash. Compressed, then
// sealed.
import { blake3 } from "@noble/hashes/blake3.js";
import type { Schemas } from "../session";
import { toHex } from "./bytes";
import { parseExact } from "./exact";
import { opened, seal, type FileHead } from "./sealed";
import type { FileKey } from "./secret";

/** Longest line. */
const LINE_BYTES_MAX = 64 << 20;
/** Bytes of a chunk in the file beside those that it seals: its length and its tag. */
const CHUNK_BYTES_MORE = 20;

export type Record_ = Schemas["RecordLine"];
export interface FileLine {
  name: string;
  epoch?: number;
  /** Contents in hexadecimal. */
  content: string;
}
interface EndLine {
  counts: Counts;
  blake3: string;
}
export type Counts = Record<string, number>;
export type Line = { record: Record_ } | { file: FileLine };
type AnyLine = Line | { end: EndLine };

const kindOf = (line: Line): string => ("record" in line ? line.record.kind : "file");

function count(counts: Counts, line: Line): void {
  const kind = kindOf(line);
  counts[kind] = (counts[kind] ?? 0) + 1;
}

/** Writer of a backup. */
export class BackupWriter {
  readonly counts: Counts = {};
  readonly #hasher = blake3.create();
  readonly #to: WritableStreamDefaultWriter<BufferSource>;
  readonly #file: Promise<Blob>;
  /** Ends the write under way. */
  #fail: (reason: unknown) => void = () => {};
  #failure: { reason: unknown } | undefined;

  constructor(head: FileHead, key: FileKey) {
    const gzip = new CompressionStream("gzip");
    this.#to = gzip.writable.getWriter();
    this.#file = seal(gzip.readable, head, key);
    // Nothing reads after a failure, and a write would wait for ever.
    this.#file.catch((reason: unknown) => {
      this.#failure = { reason };
      this.#fail(reason);
      this.abort(reason);
    });
  }

  /** Ends the work without a file. */
  abort(reason: unknown): void {
    this.#to.abort(reason).catch(() => {});
  }

  /** Waits for a write, or for the failure of the file. A race with `#file` would keep each write until the end. */
  async #settled(write: Promise<void>): Promise<void> {
    await new Promise<void>((resolve, reject) => {
      this.#fail = reject;
      write.then(resolve, reject);
      if (this.#failure) reject(this.#failure.reason);
    });
  }

  async push(line: Line): Promise<void> {
    count(this.counts, line);
    const bytes = new TextEncoder().encode(`${JSON.stringify(line)}\n`);
    this.#hasher.update(bytes);
    await this.#settled(this.#to.write(bytes));
  }

  /** Writes the last line, and returns the file. */
  async finish(): Promise<Blob> {
    // Counts are sorted, as those that other releases write.
    const counts = Object.fromEntries(Object.entries(this.counts).sort(([a], [b]) => (a < b ? -1 : 1)));
    const end = { end: { counts, blake3: toHex(this.#hasher.digest()) } };
    await this.#settled(this.#to.write(new TextEncoder().encode(`${JSON.stringify(end)}\n`)));
    await this.#settled(this.#to.close());
    return await this.#file;
  }
}

/** Opened bytes of a backup as a stream. `at` receives the bytes that were read, and `failed` the reason of its end. */
function plain(file: Blob, head: FileHead, key: FileKey, at: (bytes: number) => void, failed: (error: unknown) => void): ReadableStream<Uint8Array<ArrayBuffer>> {
  const chunks = opened(file, head, key);
  let read = head.bytes.length;
  return new ReadableStream({
    async pull(controller) {
      try {
        const { done, value } = await chunks.next();
        if (done) return controller.close();
        read += value.length + CHUNK_BYTES_MORE;
        at(read);
        controller.enqueue(value);
      } catch (error) {
        failed(error);
        controller.error(error);
      }
    },
  });
}

/** Lines of bytes that arrive in pieces, each without its end. */
async function* split(from: ReadableStream<Uint8Array>): AsyncGenerator<Uint8Array> {
  let parts: Uint8Array[] = [];
  let length = 0;
  const reader = from.getReader();
  const joined = (): Uint8Array => {
    const line = new Uint8Array(length);
    let at = 0;
    for (const part of parts) {
      line.set(part, at);
      at += part.length;
    }
    [parts, length] = [[], 0];
    return line;
  };
  for (;;) {
    const { done, value } = await reader.read();
    if (done) break;
    let begin = 0;
    for (let end = value.indexOf(10); end >= 0; end = value.indexOf(10, begin)) {
      parts.push(value.subarray(begin, end));
      length += end - begin;
      yield joined();
      begin = end + 1;
    }
    parts.push(value.slice(begin));
    length += value.length - begin;
    if (length > LINE_BYTES_MAX) throw malformed();
  }
  if (length > 0) throw malformed();
}

const malformed = () => new Error("the backup has a line that this release can't read: use the release that made it, or a later one");
const mixed = () => new Error("the backup's lines aren't those that were written: use another copy");

/**
 * Reads a backup, and checks it to its end. Throws a sentence if the file is damaged, cut, or has a line of a later release.
 * `at` receives the bytes that were read so far, about.
 */
export async function* lines(file: Blob, head: FileHead, key: FileKey, at: (bytes: number) => void = () => {}): AsyncGenerator<Line> {
  const counts: Counts = {};
  const hasher = blake3.create();
  let end: EndLine | undefined;
  // An error of the compressed bytes has no sentence of its own.
  let failure: unknown;
  const from = plain(file, head, key, at, (error) => (failure = error));
  try {
    for await (const bytes of split(from.pipeThrough(new DecompressionStream("gzip")))) {
      if (end) throw mixed();
      const line = decode(bytes);
      if ("end" in line) {
        end = line.end;
        continue;
      }
      hasher.update(bytes).update(Uint8Array.of(10));
      count(counts, line);
      yield line;
    }
  } catch (thrown) {
    if (failure) throw failure;
    throw thrown instanceof TypeError ? mixed() : thrown;
  }
  if (!end || toHex(hasher.digest()) !== end.blake3 || !equal(counts, end.counts)) throw mixed();
}

function decode(bytes: Uint8Array): AnyLine {
  let line: unknown;
  try {
    line = parseExact(new TextDecoder("utf-8", { fatal: true }).decode(bytes));
  } catch (thrown) {
    if (thrown instanceof SyntaxError || thrown instanceof TypeError) throw malformed();
    throw thrown;
  }
  const { record, file, end } = (line ?? {}) as { record?: Record_; file?: FileLine; end?: EndLine };
  if (typeof record?.kind === "string" && typeof record.name === "string") return { record };
  if (typeof file?.name === "string" && typeof file.content === "string") return { file };
  if (typeof end?.blake3 === "string" && end.counts) return { end };
  throw malformed();
}

function equal(one: Counts, other: Counts): boolean {
  const names = new Set([...Object.keys(one), ...Object.keys(other)]);
  return [...names].every((name) => one[name] === other[name]);
}
