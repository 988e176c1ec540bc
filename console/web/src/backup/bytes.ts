// Bytes as hexadecimal text, and the reverse.
const DIGITS = Array.from({ length: 256 }, (_, byte) => byte.toString(16).padStart(2, "0"));
/** Bytes that become text at a time. */
const PIECE = 32_768;

export function toHex(bytes: Uint8Array): string {
  let text = "";
  for (let at = 0; at < bytes.length; at += PIECE) text += Array.from(bytes.subarray(at, at + PIECE), (byte) => DIGITS[byte]).join("");
  return text;
}

/** Bytes of a text, or undefined if it is none of hexadecimal digits. */
export function fromHex(text: string): Uint8Array<ArrayBuffer> | undefined {
  if (text.length % 2 !== 0 || !/^[0-9a-fA-F]*$/.test(text)) return undefined;
  const bytes = new Uint8Array(text.length / 2);
  for (let at = 0; at < bytes.length; at += 1) bytes[at] = parseInt(text.slice(at * 2, at * 2 + 2), 16);
  return bytes;
}
