// What S3 knows about one object or version.
import { ask, checked, send, setting } from "./client";
import { child, children, element, text } from "./xml";

export interface Details {
  size: number;
  type: string;
  etag: string;
  modified: string;
  version: string | undefined;
  /** User metadata, without its prefix. */
  metadata: [string, string][];
  /** Other headers that describe the object, by name. */
  others: [string, string][];
  lockMode: string;
  lockedUntil: string;
  held: boolean;
}

const META = "x-amz-meta-";
const OTHERS: Record<string, string> = {
  "x-object-content-encoding": "Content-Encoding",
  "x-object-content-language": "Content-Language",
  "x-object-content-disposition": "Content-Disposition",
  "x-object-cache-control": "Cache-Control",
  "x-amz-server-side-encryption": "Encryption",
  "x-amz-storage-class": "Storage class",
  "x-amz-mp-parts-count": "Parts",
  "x-amz-expiration": "Expires",
  "x-amz-checksum-crc64nvme": "CRC64NVME",
  "x-amz-checksum-crc32": "CRC32",
  "x-amz-checksum-sha256": "SHA-256",
  "x-martlet-consistency": "Consistency of this reply",
};

export async function head(bucket: string, key: string, version: string | undefined): Promise<Details> {
  const { headers } = await send("HEAD", { bucket, key }, { query: { versionId: version }, headers: { "x-amz-checksum-mode": "ENABLED" } });
  const of = (name: string) => headers.get(name) ?? "";
  return {
    size: Number(of("content-length")),
    type: of("x-object-content-type"),
    etag: of("etag").replaceAll('"', ""),
    modified: of("last-modified"),
    version: headers.get("x-amz-version-id") ?? undefined,
    metadata: [...headers].filter(([name]) => name.startsWith(META)).map(([name, value]) => [name.slice(META.length), value]),
    others: Object.entries(OTHERS).flatMap(([name, title]): [string, string][] => (of(name) ? [[title, of(name)]] : [])),
    lockMode: of("x-amz-object-lock-mode"),
    lockedUntil: of("x-amz-object-lock-retain-until-date"),
    held: of("x-amz-object-lock-legal-hold") === "ON",
  };
}

export async function tags(bucket: string, key: string, version: string | undefined): Promise<[string, string][]> {
  const document = await ask("GET", { bucket, key }, { query: { tagging: "", versionId: version } });
  const set = child(document, "TagSet");
  return set ? children(set, "Tag").map((one) => [text(one, "Key"), text(one, "Value")]) : [];
}

export async function setTags(bucket: string, key: string, version: string | undefined, pairs: [string, string][]): Promise<void> {
  const set = pairs.map(([name, value]) => element("Tag", [element("Key", name), element("Value", value)]));
  const document = element("Tagging", [element("TagSet", set)]);
  await send("PUT", { bucket, key }, { query: { tagging: "", versionId: version }, ...checked(document) });
}

/** State of a bucket's versioning and object lock, with its default retention. */
export interface LockState {
  versioning: string;
  locked: boolean;
  mode: string;
  days: string;
  years: string;
}

export async function lockState(bucket: string): Promise<LockState> {
  const versioning = await ask("GET", { bucket }, { query: { versioning: "" } });
  const lock = await setting({ bucket }, { "object-lock": "" }, ["ObjectLockConfigurationNotFoundError"]);
  const rule = lock && child(lock, "Rule");
  const retention = rule && child(rule, "DefaultRetention");
  const of = (name: string) => (retention ? text(retention, name) : "");
  return { versioning: text(versioning, "Status") || "off", locked: lock !== undefined && text(lock, "ObjectLockEnabled") === "Enabled", mode: of("Mode"), days: of("Days"), years: of("Years") };
}
