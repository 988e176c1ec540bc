// Numbers, sizes and spans of time as the commands of `martlet admin` read them.
import { Refusal } from "./api";

const FACTORS: Record<string, number> = {
  "": 1, b: 1,
  kib: 2 ** 10, k: 2 ** 10, mib: 2 ** 20, m: 2 ** 20, gib: 2 ** 30, g: 2 ** 30, tib: 2 ** 40, t: 2 ** 40, pib: 2 ** 50, p: 2 ** 50,
  kb: 1e3, mb: 1e6, gb: 1e9, tb: 1e12, pb: 1e15,
};
const SPANS: Record<string, number> = { ms: 1, s: 1000, m: 60_000, min: 60_000, h: 3_600_000, d: 86_400_000 };

function parse(text: string, factors: Record<string, number>): number | undefined {
  const [, digits = "", unit = ""] = /^([0-9]{1,16})\s*([A-Za-z]*)$/.exec(text.trim()) ?? [];
  const factor = factors[unit.toLowerCase()];
  const value = factor === undefined || digits === "" ? NaN : Number(digits) * factor;
  return Number.isSafeInteger(value) ? value : undefined;
}

/** Bytes of a size such as `4096`, `64MiB` or `5GB`. */
export function parseBytes(text: string): number {
  const bytes = parse(text, FACTORS);
  if (bytes === undefined) throw new Refusal(`"${text}" is not a number of bytes: write 4096, 64MiB or 5GB`);
  return bytes;
}

/** Milliseconds of a span such as `500ms`, `30s` or `12h`. */
export function parseSpan(text: string): number {
  const ms = parse(text, SPANS);
  if (ms === undefined) throw new Refusal(`"${text}" is not a time: write 500ms, 30s, 5m, 1h or 7d`);
  return ms;
}

export function parseCount(text: string): number {
  const count = parse(text, { "": 1 });
  if (count === undefined) throw new Refusal(`"${text}" is not a whole number`);
  return count;
}

function isNetwork(text: string): boolean {
  const [, address = "", bits = "0"] = /^([0-9A-Fa-f.:]+)(?:\/([0-9]{1,3}))?$/.exec(text) ?? [];
  if (!address.includes(":")) return Number(bits) <= 32 && /^((25[0-5]|2[0-4]\d|1?\d?\d)(\.(?!$)|$)){4}$/.test(address) && !/(^|\.)0\d/.test(address);
  try {
    return Number(bits) <= 128 && new URL(`http://[${address}]/`) !== null;
  } catch {
    return false;
  }
}

/** Networks that a text names, separated by commas or white space. The server's refusal would name a column alone. */
export function parseNetworks(text: string): string[] {
  const networks = text.split(/[\s,]+/).filter(Boolean);
  const wrong = networks.find((one) => !isNetwork(one));
  if (wrong !== undefined) throw new Refusal(`"${wrong}" is not a network: write 10.0.0.0/8, 2001:db8::/32 or one address`);
  return networks;
}

export type Bound = "none" | { at: number };

/** New bound that a text names, or null if it is the old one. Empty and `none` mean no bound. */
export function bound(text: string, before: string, parse: (text: string) => number): Bound | null {
  const wanted = text.trim();
  if (wanted === before) return null;
  return wanted === "" || wanted === "none" ? "none" : { at: parse(wanted) };
}

const SIZES = ["PiB", "TiB", "GiB", "MiB", "KiB"];

/** Exact size in the largest unit that divides it, as `parseBytes` reads it. */
export function sizeText(bytes: number | null | undefined): string {
  if (bytes === null || bytes === undefined) return "none";
  const unit = SIZES.find((one) => bytes > 0 && bytes % (FACTORS[one.toLowerCase()] ?? 1) === 0);
  return unit === undefined ? String(bytes) : `${bytes / (FACTORS[unit.toLowerCase()] ?? 1)}${unit}`;
}

export const countText = (count: number | null | undefined): string => (count === null || count === undefined ? "none" : String(count));
