// Decoders of compressed pages of Parquet. Each is loaded with the first file that needs it: the dictionary of Brotli alone
// is larger than a page of the console.

/** Returns the bytes of a page; `bytes` is their number by the file's own account. */
export type Decoder = (packed: Uint8Array, bytes: number) => Uint8Array;

/** Bytes that one page may unpack to. */
const PAGE_BYTES_MAX = 64 << 20;

const LOADERS: Record<string, () => Promise<Decoder>> = {
  ZSTD: async () => {
    const { decompress } = await import("fzstd");
    return (packed, bytes) => decompress(packed, new Uint8Array(bytes));
  },
  // The browser's own decoder of GZIP gives its bytes later, and the reader of pages needs them at once.
  GZIP: async () => {
    const { gunzip } = await import("hyparquet-compressors/src/gzip.js");
    return (packed, bytes) => gunzip(packed, new Uint8Array(bytes));
  },
  BROTLI: async () => (await import("hyparquet-compressors/src/brotli.js")).decompressBrotli,
  LZ4: async () => (await import("hyparquet-compressors/src/lz4.js")).decompressLz4,
  LZ4_RAW: async () => (await import("hyparquet-compressors/src/lz4.js")).decompressLz4Raw,
};
/** Codecs that the reader of pages has itself. */
const OWN = ["UNCOMPRESSED", "SNAPPY"];

function bounded(decoder: Decoder): Decoder {
  return (packed, bytes) => {
    if (!(bytes >= 0 && bytes <= PAGE_BYTES_MAX)) throw new Error("a page of the file is too large for a preview");
    const unpacked = decoder(packed, bytes);
    if (unpacked.length !== bytes) throw new Error(`a page of the file unpacks to ${unpacked.length} bytes instead of ${bytes}`);
    return unpacked;
  };
}

/** Loads the decoders of some codecs. Throws for a codec that no preview decodes. */
export async function decoders(codecs: readonly string[]): Promise<Record<string, Decoder>> {
  const loaded: Record<string, Decoder> = {};
  for (const codec of new Set(codecs)) {
    if (OWN.includes(codec)) continue;
    const load = Object.hasOwn(LOADERS, codec) ? LOADERS[codec] : undefined;
    if (!load) throw new Error(`the columns are compressed by ${codec}, which a preview doesn't decode: download the object, or query it with DuckDB`);
    loaded[codec] = bounded(await load());
  }
  return loaded;
}
