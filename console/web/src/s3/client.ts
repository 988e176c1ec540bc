// Requests to S3 through the console, which signs them: one place for paths, errors and documents.
import { CSRF, farewell, sentence, session } from "../session";
import { Refusal } from "../api";
import { crc32 } from "./crc32";
import { parse, text, type Xml } from "./xml";

export type Query = Record<string, string | number | undefined>;
export interface Target {
  bucket?: string;
  key?: string;
}

/** Refusal of S3, with its code. */
export class S3Refusal extends Refusal {
  constructor(readonly code: string, readonly status: number, message: string) {
    super(message);
  }
}

/** Base64 of a text, in the alphabet of URLs. Browsers would resolve a key such as `../x` in a path. */
export function base64url(value: string): string {
  let bytes = "";
  for (const byte of new TextEncoder().encode(value)) bytes += String.fromCharCode(byte);
  return btoa(bytes).replaceAll("+", "-").replaceAll("/", "_").replace(/=+$/, "");
}

/** True for names that a bucket may have. Browsers resolve `.` and `..` in paths. */
export function isBucket(name: string): boolean {
  return /^[A-Za-z0-9][A-Za-z0-9._-]{0,79}$/.test(name);
}

/** Path of a target at the console. */
export function path({ bucket, key }: Target, query: Query = {}): string {
  const pairs = Object.entries(query).filter((pair): pair is [string, string | number] => pair[1] !== undefined);
  const encoded = pairs.map(([name, value]) => `${encodeURIComponent(name)}=${encodeURIComponent(value)}`).join("&");
  const of = bucket === undefined ? "" : `/${encodeURIComponent(bucket)}${key === undefined ? "" : `/${base64url(key)}`}`;
  return `/s3${of}${encoded ? `?${encoded}` : ""}`;
}

/** Path of a link that saves an object. Links have no headers, so that the query has the token. */
export function download(target: Target, query: Query = {}): string {
  return path(target, { ...query, [CSRF]: session.value?.link_token });
}

/** Error of a refused request: the console's sentence, or S3's own words. */
export async function refusal(status: number, type: string | null, body: () => Promise<string>): Promise<Refusal> {
  if (status === 401) {
    farewell.value = "The session is over. Sign in again.";
    session.value = null;
  }
  const text_ = await body();
  if (type?.startsWith("application/json")) return new Refusal(await sentence(new Response(text_, { status })));
  return ofDocument(status, text_);
}

function ofDocument(status: number, body: string): Refusal {
  try {
    const error = parse(body);
    const code = text(error, "Code");
    if (code) return new S3Refusal(code, status, `${text(error, "Message") || code} (${code})`);
  } catch {
    // HEAD has no body, and other replies may be no XML.
  }
  const words: Record<number, string> = { 403: "Access Denied", 404: "There is no such object, bucket or version.", 405: "The version is a delete marker, or does not allow this." };
  return new S3Refusal("", status, words[status] ?? `S3 replied ${status}`);
}

interface Options {
  query?: Query;
  headers?: Record<string, string>;
  body?: Blob | string;
  signal?: AbortSignal;
}

/** Sends a request, and returns its reply. A refusal is thrown. */
export async function send(method: string, target: Target, { query, headers, body, signal }: Options = {}): Promise<Response> {
  const all: Record<string, string> = { ...headers, [CSRF]: session.value?.csrf ?? "" };
  let reply: Response;
  try {
    reply = await fetch(path(target, query), { method, headers: all, body: body ?? null, signal: signal ?? null, cache: "no-store" });
  } catch (thrown) {
    if (signal?.aborted) throw thrown;
    throw new Refusal("the server does not answer: check the network, and try again");
  }
  if (!reply.ok) throw await refusal(reply.status, reply.headers.get("content-type"), () => reply.text());
  return reply;
}

/** Sends a request whose reply is a document. */
export async function ask(method: string, target: Target, options: Options = {}): Promise<Xml> {
  const reply = await send(method, target, options);
  const document = parse(await reply.text());
  // S3 answers 200 before it completes an upload, and may add an error afterwards.
  if (document.name === "Error") throw new S3Refusal(text(document, "Code"), reply.status, `${text(document, "Message")} (${text(document, "Code")})`);
  return document;
}

/** Headers of a document that S3 compares with its checksum. */
export function checked(document: string): { headers: Record<string, string>; body: string } {
  const sum = crc32(new TextEncoder().encode(document));
  return { headers: { "content-type": "application/xml", "x-amz-sdk-checksum-algorithm": "CRC32", "x-amz-checksum-crc32": sum }, body: document };
}

/** Document of a bucket or an object, or undefined where none is set. */
export async function setting(target: Target, query: Query, missing: readonly string[]): Promise<Xml | undefined> {
  try {
    return await ask("GET", target, { query });
  } catch (thrown) {
    if (thrown instanceof S3Refusal && missing.includes(thrown.code)) return undefined;
    throw thrown;
  }
}

/** First `count` bytes of an object from `from`, fewer at its end. */
export async function range(target: Target, version: string | undefined, from: number, count: number): Promise<Uint8Array> {
  const headers = { range: `bytes=${from}-${from + count - 1}` };
  const reply = await send("GET", target, { query: { versionId: version }, headers });
  return new Uint8Array(await reply.arrayBuffer());
}

/** Document of a setting of a bucket; empty if S3 refuses with the code `missing`, which says that none is set. */
export async function storedDocument(bucket: string, query: string, missing: string): Promise<string> {
  try {
    return await (await send("GET", { bucket }, { query: { [query]: "" } })).text();
  } catch (thrown) {
    if (thrown instanceof S3Refusal && thrown.code === missing) return "";
    throw thrown;
  }
}
