// Sealed files, as `martlet admin backup` writes them: a header in clear, and chunks that are encrypted and authenticated.
// The nonce of a chunk is its number and the mark of the last one; the hash of the header is authenticated with each.
import { blake3 } from "@noble/hashes/blake3.js";
import { fromHex, toHex } from "./bytes";
import { fileKey, formOf, type FileKey, type KeyForm, type Secret } from "./secret";

const MAGIC = "martlet-backup\n";
const FORMAT = 1;
const CHUNK = 64 << 10;
const TAG = 16;
const LAST = 2 ** 31;
const HEADER_BYTES_MAX = 4096;
/** Bytes that are read from a file at a time. */
const READ = 1 << 20;
/** Bytes after which the parts of a new file become one, which the browser may keep on its disk. */
const SETTLED = 8 << 20;

export interface Header {
  format: number;
  martlet: string;
  made_ms: number;
  salt: string;
  key: KeyForm;
  check: string;
}

/** Header with its bytes, as they stand in the file. */
export interface FileHead {
  header: Header;
  bytes: Uint8Array<ArrayBuffer>;
}

/** Makes the head of a new file, and its key. */
export async function newHead(secret: Secret, martlet: string, made_ms: number): Promise<{ head: FileHead; key: FileKey }> {
  const [salt, form] = [crypto.getRandomValues(new Uint8Array(32)), formOf(secret)];
  const key = await fileKey(secret, form, salt);
  const header: Header = { format: FORMAT, martlet, made_ms, salt: toHex(salt), key: form, check: key.check };
  return { head: { header, bytes: new TextEncoder().encode(`${MAGIC}${JSON.stringify(header)}\n`) }, key };
}

/** Reads the head of a file. Throws a sentence if the file is no backup, or one of a later release. */
export async function readHead(file: Blob): Promise<FileHead> {
  const start = new Uint8Array(await file.slice(0, MAGIC.length + HEADER_BYTES_MAX).arrayBuffer());
  const text = new TextDecoder().decode(start);
  if (!text.startsWith(MAGIC)) throw new Error("the file is no backup: choose one that martlet admin backup create or this page made");
  const end = start.indexOf(10, MAGIC.length);
  let header: Header | undefined;
  try {
    if (end > 0) header = JSON.parse(text.slice(MAGIC.length, text.indexOf("\n", MAGIC.length))) as Header;
  } catch {
    // As without an end.
  }
  if (typeof header?.format !== "number") throw new Error("the header of the backup is damaged");
  if (header.format > FORMAT) throw new Error(`the backup has format ${header.format}, and this release reads formats up to ${FORMAT}: use the release that made it, or a later one`);
  return { header, bytes: start.slice(0, end + 1) };
}

/** Returns the key of a file. Throws a sentence if the secret isn't that of the file. */
export async function openHead({ header }: FileHead, secret: Secret): Promise<FileKey> {
  const salt = fromHex(header.salt);
  if (salt?.length !== 32) throw new Error("the header of the backup is damaged");
  const key = await fileKey(secret, header.key, salt);
  if (key.check !== header.check) throw new Error("the passphrase or key isn't that of this backup: name the one with which the backup was made");
  return key;
}

function parameters(head: FileHead, number: number, last: boolean): AesGcmParams {
  const iv = new Uint8Array(12);
  new DataView(iv.buffer).setBigUint64(0, BigInt(number));
  iv[8] = last ? 1 : 0;
  return { name: "AES-GCM", iv, additionalData: blake3(head.bytes), tagLength: TAG * 8 };
}

/** Seals bytes to their end, and returns the file. */
export async function seal(from: ReadableStream<Uint8Array>, head: FileHead, key: FileKey): Promise<Blob> {
  let settled = new Blob([head.bytes]);
  let parts: BlobPart[] = [];
  let [bytes, number] = [0, 0];
  let rest = new Uint8Array(0);
  const write = async (chunk: Uint8Array<ArrayBuffer>, last: boolean) => {
    const sealed = await crypto.subtle.encrypt(parameters(head, number, last), key.cipher, chunk);
    number += 1;
    const word = new Uint8Array(4);
    new DataView(word.buffer).setUint32(0, sealed.byteLength + (last ? LAST : 0));
    parts.push(word, sealed);
    bytes += sealed.byteLength;
    if (bytes >= SETTLED || last) [settled, parts, bytes] = [new Blob([settled, ...parts]), [], 0];
  };
  const reader = from.getReader();
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) break;
      const all = new Uint8Array(rest.length + value.length);
      all.set(rest);
      all.set(value, rest.length);
      let at = 0;
      // The last chunk isn't empty, unless the file is.
      for (; all.length - at > CHUNK; at += CHUNK) await write(all.slice(at, at + CHUNK), false);
      rest = all.slice(at);
    }
    await write(rest, true);
    return settled;
  } catch (thrown) {
    // Writers that wait for this reader end, too.
    reader.cancel(thrown).catch(() => {});
    throw thrown;
  }
}

/** Opens the chunks after the head. Its bytes are authenticated, and it has no end before the last chunk. */
export async function* opened(file: Blob, head: FileHead, key: FileKey): AsyncGenerator<Uint8Array<ArrayBuffer>> {
  let [at, number] = [head.bytes.length, 0];
  let [held, from] = [new Uint8Array(0), at];
  /** Bytes of the file at `at`, or undefined if the file ends before. */
  const take = async (length: number): Promise<Uint8Array<ArrayBuffer> | undefined> => {
    if (at + length > file.size) return undefined;
    if (at < from || at + length > from + held.length) {
      held = new Uint8Array(await file.slice(at, at + Math.max(READ, length)).arrayBuffer());
      from = at;
    }
    const bytes = held.slice(at - from, at - from + length);
    at += length;
    return bytes;
  };
  for (;;) {
    const cut = () => new Error(`the backup is cut within chunk ${number + 1}: use another copy`);
    const damaged = () => new Error(`chunk ${number + 1} of the backup is damaged: use another copy`);
    const head4 = await take(4);
    if (!head4) throw cut();
    const word = new DataView(head4.buffer).getUint32(0);
    const [last, length] = [word >= LAST, word % LAST];
    if (length < TAG || length > CHUNK + TAG) throw damaged();
    const chunk = await take(length);
    if (!chunk) throw cut();
    let plain: ArrayBuffer;
    try {
      plain = await crypto.subtle.decrypt(parameters(head, number, last), key.cipher, chunk);
    } catch {
      throw damaged();
    }
    if (last && at < file.size) throw new Error("bytes follow the end of the backup: use another copy");
    number += 1;
    yield new Uint8Array(plain);
    if (last) return;
  }
}
