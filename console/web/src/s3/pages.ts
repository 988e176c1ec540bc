// Rows of a listing of any length: pages near the visible rows are kept, and the others are read again by their tokens.
import { signal } from "@preact/signals";
import { list, type Page, type Row, type Selection } from "./listing";

/** Pages whose rows are kept, so that memory is bounded whatever the length. */
export const KEPT = 24;

interface Known {
  token: Record<string, string> | undefined;
  /** Index of the first row. */
  first: number;
  count: number;
  rows: Row[] | undefined;
}

export class Pages {
  readonly count = signal(0);
  readonly ended = signal(false);
  readonly error = signal("");
  /** Rises when rows arrive. */
  readonly turn = signal(0);
  readonly busy = signal(false);
  private known: Known[] = [];
  private next: Record<string, string> | undefined;
  private readonly stop = new AbortController();
  private window = { from: 0, to: 0 };

  constructor(private readonly of: Selection, private readonly load: (of: Selection, token: Record<string, string> | undefined, signal: AbortSignal) => Promise<Page> = list) {}

  /** Row, or undefined while its page is read. */
  row(at: number): Row | undefined {
    const page = this.pageOf(at);
    return page?.rows?.[at - page.first];
  }

  /** Rows that are in memory. */
  get held(): Row[] {
    return this.known.flatMap((page) => page.rows ?? []);
  }

  end(): void {
    this.stop.abort();
  }

  /** Reads what the visible rows need, and the next page when they near the end. */
  async see(window: { from: number; to: number }): Promise<void> {
    this.window = window;
    if (this.busy.value || this.error.value) return;
    this.busy.value = true;
    try {
      for (let missing = this.missing(); missing && !this.stop.signal.aborted; missing = this.missing()) await missing();
    } catch (thrown) {
      if (!this.stop.signal.aborted) this.error.value = thrown instanceof Error ? thrown.message : String(thrown);
    } finally {
      this.busy.value = false;
    }
  }

  async again(): Promise<void> {
    this.error.value = "";
    await this.see(this.window);
  }

  private pageOf(at: number): Known | undefined {
    let [low, high] = [0, this.known.length - 1];
    while (low <= high) {
      const middle = (low + high) >> 1;
      const page = this.known[middle];
      if (!page) return undefined;
      if (at < page.first) high = middle - 1;
      else if (at >= page.first + page.count) low = middle + 1;
      else return page;
    }
    return undefined;
  }

  private missing(): (() => Promise<void>) | undefined {
    const { from, to } = this.window;
    for (const page of this.near()) if (!page.rows) return () => this.reload(page);
    const margin = Math.max(100, to - from);
    return !this.ended.value && to + margin >= this.count.value ? () => this.extend() : undefined;
  }

  private near(): Known[] {
    const [first, last] = [this.pageOf(this.window.from), this.pageOf(Math.max(this.window.from, this.window.to - 1))];
    return [first, last].filter((page) => page !== undefined);
  }

  private async reload(page: Known): Promise<void> {
    const { rows } = await this.load(this.of, page.token, this.stop.signal);
    // The listing may have changed: the page keeps its place, and shows what is there now.
    page.rows = rows.slice(0, page.count);
    this.forget();
  }

  private async extend(): Promise<void> {
    const token = this.next;
    const { rows, next } = await this.load(this.of, token, this.stop.signal);
    if (this.stop.signal.aborted) return;
    if (rows.length > 0) this.known.push({ token, first: this.count.value, count: rows.length, rows });
    this.next = next;
    this.count.value += rows.length;
    this.ended.value = next === undefined;
    this.forget();
  }

  /** Drops the rows of the pages that are farthest from the visible ones. */
  private forget(): void {
    const middle = (this.window.from + this.window.to) / 2;
    const held = this.known.filter((page) => page.rows);
    held.sort((one, other) => Math.abs(one.first - middle) - Math.abs(other.first - middle));
    const near = this.near();
    for (const page of held.slice(KEPT)) if (!near.includes(page)) page.rows = undefined;
    this.turn.value += 1;
  }
}
