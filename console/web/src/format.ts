// Figures as people read them.
const BINARY = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];

export function bytes(count: number): string {
  let at = 0;
  while (count >= 1024 && at < BINARY.length - 1) {
    count /= 1024;
    at += 1;
  }
  return `${at === 0 || count >= 100 ? Math.round(count) : count.toFixed(1)} ${BINARY[at]}`;
}

const NUMBER = new Intl.NumberFormat("en");
const COMPACT = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 });
const DATE = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "short" });
const EXACT = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "medium" });

export const count = (value: number): string => NUMBER.format(value);
export const compact = (value: number): string => (value < 10_000 ? NUMBER.format(Math.round(value * 10) / 10) : COMPACT.format(value));
export const percent = (share: number): string => `${(share * 100).toFixed(share < 0.1 ? 1 : 0)} %`;
export const date = (ms: number): string => DATE.format(ms);
export const exact = (ms: number): string => EXACT.format(ms);

export function span(seconds: number): string {
  const [days, hours, minutes] = [Math.floor(seconds / 86_400), Math.floor(seconds / 3600) % 24, Math.floor(seconds / 60) % 60];
  if (days > 0) return `${days} d ${hours} h`;
  if (hours > 0) return `${hours} h ${minutes} min`;
  if (minutes > 0) return `${minutes} min ${Math.floor(seconds % 60)} s`;
  return `${seconds < 10 ? Math.round(seconds * 10) / 10 : Math.round(seconds)} s`;
}

export const ago = (ms: number): string => `${span(Math.max(0, ms) / 1000)} ago`;

/** Upper bound of a time, infinite above the last bucket of a histogram. `martlet top` has the same words. */
export function latency(seconds: number): string {
  if (seconds === Infinity) return "above all buckets";
  if (seconds < 0.001) return `${Math.round(seconds * 1e6)} µs`;
  return seconds < 1 ? `${(seconds * 1000).toFixed(seconds < 0.01 ? 1 : 0)} ms` : `${seconds.toFixed(1)} s`;
}
