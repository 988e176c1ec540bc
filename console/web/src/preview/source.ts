// Bytes of one object for a preview, within a budget.
import { range } from "../s3/client";

/** Bytes that a preview reads unless more are asked for. */
export const FREE = 1 << 20;

/** More bytes are needed than the preview may read. */
export class OverBudget extends Error {
  constructor(readonly bytes: number) {
    super("the preview needs more bytes");
  }
}

export class Source {
  private left: number;

  constructor(readonly bucket: string, readonly key: string, readonly version: string | undefined, readonly size: number, budget: number) {
    this.left = budget;
  }

  /** Bytes from `from` up to `to`. Throws OverBudget before it reads too many. */
  async read(from: number, to: number): Promise<Uint8Array> {
    const [first, end] = [Math.max(0, from), Math.min(to, this.size)];
    if (end <= first) return new Uint8Array();
    if (end - first > this.left) throw new OverBudget(end - first);
    this.left -= end - first;
    const bytes = await range({ bucket: this.bucket, key: this.key }, this.version, first, end - first);
    if (bytes.length !== end - first) throw new Error("the object has changed meanwhile: open it again");
    return bytes;
  }
}
