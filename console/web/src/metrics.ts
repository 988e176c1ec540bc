// Figures of the process's metrics page, and rates between two readings of it.
export interface Reading {
  atMs: number;
  requests: number;
  errors: number;
  bytesIn: number;
  bytesOut: number;
  /** Cumulative counts of the time to the first byte, by upper bound in seconds. */
  buckets: Map<number, number>;
}

export interface Rates {
  atMs: number;
  requests: number;
  errors: number;
  bytesIn: number;
  bytesOut: number;
  p50: number | null;
  p99: number | null;
}

const LINE = /^(martlet_[a-z_0-9]+)(?:\{(.*)\})? ([0-9.eE+-]+|\+Inf)/;

/** Reads a metrics page. */
export function read(page: string, atMs: number): Reading {
  const reading: Reading = { atMs, requests: 0, errors: 0, bytesIn: 0, bytesOut: 0, buckets: new Map() };
  for (const line of page.split("\n")) {
    const found = LINE.exec(line);
    if (!found) continue;
    const [, name, labels = "", text] = found;
    const value = Number(text);
    switch (name) {
      case "martlet_requests_total":
        reading.requests += value;
        if (/status="5/.test(labels)) reading.errors += value;
        break;
      case "martlet_request_body_bytes_total":
        reading.bytesIn += value;
        break;
      case "martlet_reply_body_bytes_total":
        reading.bytesOut += value;
        break;
      case "martlet_request_first_byte_seconds_bucket": {
        const bound = /le="([^"]*)"/.exec(labels)?.[1] ?? "";
        const at = bound === "+Inf" ? Infinity : Number(bound);
        reading.buckets.set(at, (reading.buckets.get(at) ?? 0) + value);
        break;
      }
    }
  }
  return reading;
}

/** Upper bound of the bucket in which the quantile lies; null without requests. */
function quantile(before: Reading, after: Reading, share: number): number | null {
  const bounds = [...after.buckets.keys()].sort((a, b) => a - b);
  const since = (bound: number) => (after.buckets.get(bound) ?? 0) - (before.buckets.get(bound) ?? 0);
  const all = since(Infinity);
  if (all <= 0) return null;
  return bounds.find((bound) => since(bound) >= share * all) ?? null;
}

/** Returns true if a counter fell, as it does when its process restarts. */
function fell(before: Reading, after: Reading): boolean {
  const counters = (["requests", "errors", "bytesIn", "bytesOut"] as const).some((name) => after[name] < before[name]);
  return counters || [...before.buckets].some(([bound, count]) => (after.buckets.get(bound) ?? 0) < count);
}

/** Rates between two readings; null if the process has restarted. */
export function between(before: Reading, after: Reading): Rates | null {
  const seconds = (after.atMs - before.atMs) / 1000;
  if (seconds <= 0 || fell(before, after)) return null;
  const rate = (of: (reading: Reading) => number) => (of(after) - of(before)) / seconds;
  return {
    atMs: after.atMs,
    requests: rate((it) => it.requests),
    errors: rate((it) => it.errors),
    bytesIn: rate((it) => it.bytesIn),
    bytesOut: rate((it) => it.bytesOut),
    p50: quantile(before, after, 0.5),
    p99: quantile(before, after, 0.99),
  };
}
