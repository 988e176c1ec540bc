// Pixels that the head of a raster image announces. An image of few bytes may unpack to gigabytes.

/** Pixels of the largest image that a preview decodes: 200 MB as RGBA. */
export const PIXELS_MAX = 50_000_000;
/** Frames of an animation multiply what is decoded: few of the largest are read ahead. */
const SEGMENTS_MAX = 4096;

function view(bytes: Uint8Array): DataView {
  return new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
}

const text = (bytes: Uint8Array, from: number, to: number): string => String.fromCharCode(...bytes.subarray(from, to));

function png(bytes: Uint8Array): number | undefined {
  return bytes.length < 24 || text(bytes, 12, 16) !== "IHDR" ? undefined : view(bytes).getUint32(16) * view(bytes).getUint32(20);
}

/** The screen, or a larger frame of an animation. */
function gif(bytes: Uint8Array): number | undefined {
  if (bytes.length < 13) return undefined;
  const data = view(bytes);
  let most = data.getUint16(6, true) * data.getUint16(8, true);
  const palette = (flags: number) => ((flags & 0x80) === 0 ? 0 : 3 << ((flags & 7) + 1));
  const blocks = (from: number): number => {
    let at = from;
    while (at < bytes.length && bytes[at] !== 0) at += (bytes[at] ?? 0) + 1;
    return at + 1;
  };
  let at = 13 + palette(bytes[10] ?? 0);
  while (at + 9 < bytes.length) {
    if (bytes[at] === 0x2c) {
      const [left, top, width, height] = [1, 3, 5, 7].map((offset) => data.getUint16(at + offset, true)) as [number, number, number, number];
      most = Math.max(most, (left + width) * (top + height));
      at = blocks(at + 11 + palette(bytes[at + 9] ?? 0));
    } else if (bytes[at] === 0x21) {
      at = blocks(at + 2);
    } else {
      break;
    }
  }
  return most;
}

/** The frame header, which stands behind any number of segments. */
function jpeg(bytes: Uint8Array): number | undefined {
  const data = view(bytes);
  let most: number | undefined;
  let at = 2;
  for (let segment = 0; segment < SEGMENTS_MAX && at + 9 < bytes.length; segment += 1) {
    if (bytes[at] !== 0xff) return most;
    const marker = bytes[at + 1] ?? 0;
    if (marker === 0xff || marker === 0x01 || (marker >= 0xd0 && marker <= 0xd8)) {
      at += marker === 0xff ? 1 : 2;
      continue;
    }
    // Frame headers are C0 to CF, but for tables and arithmetic conditions.
    if (marker >= 0xc0 && marker <= 0xcf && ![0xc4, 0xc8, 0xcc].includes(marker)) most = Math.max(most ?? 0, data.getUint16(at + 5) * data.getUint16(at + 7));
    if (marker === 0xda || marker === 0xd9) return most;
    at += 2 + data.getUint16(at + 2);
  }
  return most;
}

function webp(bytes: Uint8Array): number | undefined {
  if (bytes.length < 30) return undefined;
  const data = view(bytes);
  const three = (at: number) => data.getUint16(at, true) + ((bytes[at + 2] ?? 0) << 16) + 1;
  switch (text(bytes, 12, 16)) {
    case "VP8X":
      return three(24) * three(27);
    case "VP8L": {
      const bits = data.getUint32(21, true);
      return ((bits & 0x3fff) + 1) * (((bits >>> 14) & 0x3fff) + 1);
    }
    case "VP8 ":
      return (data.getUint16(26, true) & 0x3fff) * (data.getUint16(28, true) & 0x3fff);
    default:
      return undefined;
  }
}

/** The largest of the sizes (`ispe`) that the boxes of an AVIF announce. */
function avif(bytes: Uint8Array): number | undefined {
  const data = view(bytes);
  let most: number | undefined;
  // The boxes lie deep. A false find in other bytes refuses an image at worst.
  for (let at = 4; at + 16 <= bytes.length; at += 1) {
    if (bytes[at] === 0x69 && text(bytes, at, at + 4) === "ispe") most = Math.max(most ?? 0, data.getUint32(at + 8) * data.getUint32(at + 12));
  }
  return most;
}

const READERS: Record<string, (bytes: Uint8Array) => number | undefined> = { "image/png": png, "image/gif": gif, "image/jpeg": jpeg, "image/webp": webp, "image/avif": avif };

/** Pixels of an image, or undefined if its head doesn't announce them. */
export function pixels(bytes: Uint8Array, type: string): number | undefined {
  return READERS[type]?.(bytes);
}
