// CRC-32 of uploads and documents, in the form of S3's headers. Browsers have no MD5, and SHA-256 over TLS alone.
const TABLE = new Uint32Array(256).map((_, at) => {
  let value = at;
  for (let bit = 0; bit < 8; bit += 1) value = value & 1 ? (value >>> 1) ^ 0xedb88320 : value >>> 1;
  return value;
});
/** Bytes that are read at once, so that the page stays responsive. */
const STEP = 1 << 20;

function update(crc: number, bytes: Uint8Array): number {
  for (let at = 0; at < bytes.length; at += 1) crc = (TABLE[(crc ^ (bytes[at] ?? 0)) & 255] ?? 0) ^ (crc >>> 8);
  return crc;
}

function base64(crc: number): string {
  const value = ~crc >>> 0;
  return btoa(String.fromCharCode(value >>> 24, (value >>> 16) & 255, (value >>> 8) & 255, value & 255));
}

export const crc32 = (bytes: Uint8Array): string => base64(update(-1, bytes));

export async function crc32OfBlob(blob: Blob): Promise<string> {
  let crc = -1;
  for (let at = 0; at < blob.size; at += STEP) crc = update(crc, new Uint8Array(await blob.slice(at, at + STEP).arrayBuffer()));
  return base64(crc);
}
