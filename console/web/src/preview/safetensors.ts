// Header of a safetensors file: 8 bytes of length, and JSON of that length. Tensors are not read.
import { headerLength } from "./kind";
import type { Source } from "./source";

export interface Tensor {
  name: string;
  dtype: string;
  shape: number[];
  bytes: number;
}

export interface Header {
  tensors: Tensor[];
  metadata: [string, string][];
}

function numbers(value: unknown): number[] | undefined {
  return Array.isArray(value) && value.every((one) => typeof one === "number") ? value : undefined;
}

export function parseHeader(text: string): Header {
  const all = JSON.parse(text) as unknown;
  if (typeof all !== "object" || all === null || Array.isArray(all)) throw new Error("the header is no JSON object");
  const header: Header = { tensors: [], metadata: [] };
  for (const [name, value] of Object.entries(all as Record<string, unknown>)) {
    const entry = (typeof value === "object" && value !== null ? value : {}) as Record<string, unknown>;
    if (name === "__metadata__") {
      header.metadata = Object.entries(entry).map(([key, one]) => [key, String(one)]);
      continue;
    }
    const [shape, offsets] = [numbers(entry["shape"]), numbers(entry["data_offsets"])];
    const [from, to] = offsets ?? [];
    if (typeof entry["dtype"] !== "string" || !shape || from === undefined || to === undefined) throw new Error(`the tensor ${name} has no dtype, shape or offsets`);
    header.tensors.push({ name, dtype: entry["dtype"], shape, bytes: to - from });
  }
  return header;
}

export async function readHeader(source: Source): Promise<Header> {
  const length = headerLength(await source.read(0, 8));
  if (length > source.size - 8) throw new Error("the header is longer than the object");
  return parseHeader(new TextDecoder("utf-8", { fatal: true }).decode(await source.read(8, 8 + length)));
}
