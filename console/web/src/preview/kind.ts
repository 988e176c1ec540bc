// Kind of an object's content, by its first bytes. The type that an object claims does not matter.

export type Kind =
  | { kind: "empty" }
  | { kind: "image"; type: string }
  | { kind: "parquet" }
  | { kind: "safetensors" }
  | { kind: "json" }
  | { kind: "text" }
  | { kind: "binary" };

const latin1 = (bytes: Uint8Array, from: number, to: number): string => String.fromCharCode(...bytes.slice(from, to));

/** Raster images alone: an SVG is a document, which may have scripts. */
function image(bytes: Uint8Array): string | undefined {
  if (latin1(bytes, 0, 8) === "\x89PNG\r\n\x1a\n") return "image/png";
  if (latin1(bytes, 0, 3) === "\xff\xd8\xff") return "image/jpeg";
  if (/^GIF8[79]a$/.test(latin1(bytes, 0, 6))) return "image/gif";
  if (latin1(bytes, 0, 4) === "RIFF" && latin1(bytes, 8, 12) === "WEBP") return "image/webp";
  if (latin1(bytes, 4, 12) === "ftypavif") return "image/avif";
  return undefined;
}

/** Text of bytes that may end within a character, or undefined if they are no UTF-8. */
export function textOf(bytes: Uint8Array): string | undefined {
  try {
    // A stream may end within a character.
    const text = new TextDecoder("utf-8", { fatal: true }).decode(bytes, { stream: true });
    return text.includes("\0") ? undefined : text;
  } catch {
    return undefined;
  }
}

/** Kind of an object of `size` bytes that begins with `bytes`. */
export function kindOf(bytes: Uint8Array, size: number, key: string): Kind {
  if (size === 0) return { kind: "empty" };
  const type = image(bytes);
  if (type) return { kind: "image", type };
  if (latin1(bytes, 0, 4) === "PAR1") return { kind: "parquet" };
  if (headerLength(bytes) <= size - 8 && bytes[8] === 0x7b && (/\.safetensors$/i.test(key) || (bytes[6] === 0 && bytes[7] === 0))) return { kind: "safetensors" };
  const text = textOf(bytes);
  if (text === undefined) return { kind: "binary" };
  return /\.json$/i.test(key) || /^\s*[{[]/.test(text) ? { kind: "json" } : { kind: "text" };
}

/** Length of the header of a safetensors file. */
export function headerLength(bytes: Uint8Array): number {
  if (bytes.length < 8) return Infinity;
  return Number(new DataView(bytes.buffer, bytes.byteOffset).getBigUint64(0, true));
}
