// Listings of buckets, objects, versions and uploads, page by page. Keys come percent-encoded, because XML can't represent all of them.
import { ask } from "./client";
import { child, children, text, type Xml } from "./xml";

/** Keys of a page. */
export const PAGE = 1000;

export interface Bucket {
  name: string;
  created: string;
}

/** Row of a listing: a folder, an object, or a version. */
export interface Row {
  key: string;
  folder: boolean;
  size: number;
  modified: string;
  etag: string;
  version?: string;
  latest?: boolean;
  marker?: boolean;
}

/** Page of a listing. `next` is what follows it, as a query. */
export interface Page {
  rows: Row[];
  next: Record<string, string> | undefined;
}

export interface Selection {
  bucket: string;
  prefix: string;
  /** True for folders, false for all keys. */
  folders: boolean;
  versions: boolean;
}

export async function buckets(prefix: string, after: string | undefined): Promise<{ items: Bucket[]; next: string }> {
  const page = await ask("GET", {}, { query: { "max-buckets": 100, prefix: prefix || undefined, "continuation-token": after } });
  const items = children(child(page, "Buckets") ?? page, "Bucket");
  return { items: items.map((one) => ({ name: text(one, "Name"), created: text(one, "CreationDate") })), next: text(page, "ContinuationToken") };
}

function decoded(value: string): string {
  return decodeURIComponent(value.replaceAll("+", "%20"));
}

function entry(one: Xml): Row {
  return { key: decoded(text(one, "Key")), folder: false, size: Number(text(one, "Size")), modified: text(one, "LastModified"), etag: text(one, "ETag").replaceAll('"', "") };
}

function folders(page: Xml): Row[] {
  const prefixes = children(page, "CommonPrefixes").map((one) => decoded(text(one, "Prefix")));
  return prefixes.map((key) => ({ key, folder: true, size: 0, modified: "", etag: "" }));
}

/** Order of keys in S3: by their bytes in UTF-8, which is the order of code points. */
function before(one: Row, other: Row): number {
  const [left, right] = [[...one.key], [...other.key]];
  for (let at = 0; at < Math.min(left.length, right.length); at += 1) {
    const difference = (left[at]?.codePointAt(0) ?? 0) - (right[at]?.codePointAt(0) ?? 0);
    if (difference !== 0) return difference;
  }
  return left.length - right.length;
}

/** Page of objects or versions after `token`, the `next` of the page before. */
export async function list(of: Selection, token: Record<string, string> = {}, signal?: AbortSignal): Promise<Page> {
  const shared = { prefix: of.prefix || undefined, delimiter: of.folders ? "/" : undefined, "max-keys": PAGE, "encoding-type": "url" };
  const query = of.versions ? { versions: "", ...shared, ...token } : { "list-type": 2, ...shared, ...token };
  const page = await ask("GET", { bucket: of.bucket }, signal ? { query, signal } : { query });
  const more = text(page, "IsTruncated") === "true";
  if (!of.versions) {
    const rows = [...children(page, "Contents").map(entry), ...folders(page)];
    if (of.folders) rows.sort(before);
    return { rows, next: more ? { "continuation-token": text(page, "NextContinuationToken") } : undefined };
  }
  const found = page.children.filter((one) => one.name === "Version" || one.name === "DeleteMarker");
  const rows = found.map((one) => ({ ...entry(one), version: text(one, "VersionId"), latest: text(one, "IsLatest") === "true", marker: one.name === "DeleteMarker" }));
  const marker = { "key-marker": decoded(text(page, "NextKeyMarker")), "version-id-marker": text(page, "NextVersionIdMarker") };
  const next = marker["version-id-marker"] ? marker : { "key-marker": marker["key-marker"] };
  return { rows: [...folders(page), ...rows], next: more ? next : undefined };
}

/** Upload that is not complete. */
export interface Unfinished {
  key: string;
  id: string;
  began: string;
  checksum: string;
}

export async function uploads(bucket: string, prefix: string): Promise<{ items: Unfinished[]; more: boolean }> {
  const page = await ask("GET", { bucket }, { query: { uploads: "", prefix: prefix || undefined, "max-uploads": 1000, "encoding-type": "url" } });
  const items = children(page, "Upload").map((one) => ({ key: decoded(text(one, "Key")), id: text(one, "UploadId"), began: text(one, "Initiated"), checksum: text(one, "ChecksumAlgorithm") }));
  return { items, more: text(page, "IsTruncated") === "true" };
}

/** Part of an upload. */
export interface Part {
  number: number;
  size: number;
  etag: string;
  crc32: string;
}

/** All parts of an upload: 10,000 at most, in pages of 1,000. */
export async function parts(bucket: string, key: string, id: string, signal?: AbortSignal): Promise<Part[]> {
  const found: Part[] = [];
  for (let after = "0"; after; ) {
    const query = { uploadId: id, "part-number-marker": after, "max-parts": 1000 };
    const page = await ask("GET", { bucket, key }, signal ? { query, signal } : { query });
    for (const one of children(page, "Part")) {
      found.push({ number: Number(text(one, "PartNumber")), size: Number(text(one, "Size")), etag: text(one, "ETag"), crc32: text(one, "ChecksumCRC32") });
    }
    after = text(page, "IsTruncated") === "true" ? text(page, "NextPartNumberMarker") : "";
  }
  return found;
}
