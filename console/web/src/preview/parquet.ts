// Schema and first rows of a Parquet file. This file and its libraries are loaded with the first such preview.
import { parquetMetadataAsync, parquetReadObjects, parquetSchema, type SchemaTree } from "hyparquet";
import { decoders } from "./codecs";
import { COLUMNS, ROWS } from "./limits";
import { OverBudget, type Source } from "./source";

/** Bytes that the first rows may unpack to, by the file's own account. */
const UNPACKED_MAX = 256 << 20;
/** Bytes at the end of a file that are read for its footer at first. */
const FOOTER = 64 << 10;
/** Bytes of the largest footer that is decoded: each may become an object of many bytes. */
const FOOTER_MAX = 8 << 20;
/** Bytes behind the footer: its length, and PAR1. */
const TAIL = 8;

export interface Column {
  name: string;
  type: string;
}

export interface Preview {
  rows: number;
  groups: number;
  columns: Column[];
  /** Values of the first rows, or undefined if the budget does not suffice. */
  first: string[][] | undefined;
  /** Bytes that the first rows need. */
  needed: number;
}

function leaves(tree: SchemaTree, path: string[]): Column[] {
  const here = path.concat(tree.element.name);
  if (tree.children.length > 0) return tree.children.flatMap((one) => leaves(one, here));
  const { type, logical_type: logical, converted_type: converted, repetition_type: repetition } = tree.element;
  const named = logical?.type ?? converted;
  return [{ name: here.join("."), type: [type, named, repetition?.toLowerCase()].filter(Boolean).join(" ") }];
}

function shown(value: unknown): string {
  if (value === undefined || value === null) return "";
  if (value instanceof Date) return value.toISOString();
  if (typeof value === "object") return JSON.stringify(value, (_, inner: unknown) => (typeof inner === "bigint" ? String(inner) : inner)).slice(0, 200);
  return String(value as string | number | bigint).slice(0, 200);
}

/** Refuses a footer that is longer than the file, or too long to be decoded here. */
async function checkFooter(source: Source): Promise<void> {
  const tail = await source.read(source.size - TAIL, source.size);
  if (tail.length < TAIL || String.fromCharCode(...tail.subarray(4)) !== "PAR1") throw new Error("the file has no footer of Parquet at its end");
  const length = new DataView(tail.buffer, tail.byteOffset).getUint32(0, true);
  if (length > source.size - TAIL - 4) throw new Error("the footer is longer than the file");
  if (length > FOOTER_MAX) throw new Error(`the footer has ${length} bytes, and a preview decodes ${FOOTER_MAX} at most: download the object, or query it with DuckDB`);
}

/**
 * Reads the schema, and the first rows if `wanted`: the library trusts counts in the file, so that a hostile file can use
 * up the memory of its tab.
 */
export async function preview(source: Source, wanted: boolean): Promise<Preview> {
  const file = {
    byteLength: source.size,
    slice: async (from: number, to?: number) => {
      const bytes = await source.read(from, to ?? source.size);
      return bytes.buffer as ArrayBuffer;
    },
  };
  await checkFooter(source);
  const metadata = await parquetMetadataAsync(file, { initialFetchSize: FOOTER });
  const columns = parquetSchema(metadata).children.flatMap((one) => leaves(one, []));
  const [group] = metadata.row_groups;
  const names = parquetSchema(metadata).children.slice(0, COLUMNS).map((one) => one.element.name);
  const chunks = (group?.columns ?? []).filter((one) => names.includes(one.meta_data?.path_in_schema[0] ?? ""));
  const needed = chunks.reduce((sum, one) => sum + Number(one.meta_data?.total_compressed_size ?? 0), 0);
  const described = { rows: Number(metadata.num_rows), groups: metadata.row_groups.length, columns, needed };
  if (!wanted) return { ...described, first: undefined };
  const unpacked = chunks.reduce((sum, one) => sum + Number(one.meta_data?.total_uncompressed_size ?? 0), 0);
  if (unpacked > UNPACKED_MAX) throw new Error("the first rows unpack to too many bytes for a preview");
  const compressors = await decoders(chunks.map((one) => one.meta_data?.codec ?? "UNCOMPRESSED"));
  try {
    const rowEnd = Math.min(ROWS, Number(group?.num_rows ?? 0));
    const read = rowEnd === 0 ? [] : await parquetReadObjects({ file, metadata, columns: names, rowStart: 0, rowEnd, compressors, useOffsetIndex: true });
    return { ...described, first: read.map((row) => names.map((name) => shown(row[name]))) };
  } catch (thrown) {
    if (thrown instanceof OverBudget) return { ...described, first: undefined };
    throw thrown;
  }
}
