// List of which only the visible rows are in the document, for any number of rows.
import type { ComponentChildren } from "preact";
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";

/** Browsers limit the height of an element. Beyond this one the scroll bar is a scale, and not a sum of rows. */
const HEIGHT_MAX = 8_000_000;
/** Rows above and below the visible ones. */
const SPARE = 8;

export interface Window {
  from: number;
  to: number;
}

interface Props {
  label: string;
  count: number;
  rowHeight: number;
  head: ComponentChildren;
  row: (at: number) => ComponentChildren;
  /** Receives the visible rows after each change. */
  seen: (window: Window) => void;
}

/** Rows that a list of this height shows at a scroll position. */
export function visible(top: number, height: number, count: number, rowHeight: number): { first: number; shift: number; whole: number } {
  const all = count * rowHeight;
  const whole = Math.min(all, HEIGHT_MAX);
  if (all <= HEIGHT_MAX) return { first: Math.floor(top / rowHeight), shift: Math.floor(top / rowHeight) * rowHeight, whole };
  const share = Math.min(1, Math.max(0, top / (whole - height)));
  const position = share * (all - height);
  const first = Math.floor(position / rowHeight);
  // Rows stand where the scale puts them, so that the last one meets the end.
  return { first, shift: top - (position - first * rowHeight), whole };
}

/** Scroll position at which a row is the first one. */
function topOf(at: number, height: number, count: number, rowHeight: number): number {
  const all = count * rowHeight;
  if (all <= HEIGHT_MAX) return at * rowHeight;
  return ((at * rowHeight) / (all - height)) * (HEIGHT_MAX - height);
}

export function VirtualList({ label, count, rowHeight, head, row, seen }: Props) {
  const box = useRef<HTMLDivElement>(null);
  const wanted = useRef<number>();
  const [place, setPlace] = useState({ top: 0, height: 600 });
  const read = () => box.current && setPlace({ top: box.current.scrollTop, height: box.current.clientHeight || 600 });
  useEffect(() => {
    const element = box.current;
    if (!element) return undefined;
    const observer = new ResizeObserver(read);
    observer.observe(element);
    return () => observer.disconnect();
  }, []);
  const { first, shift, whole } = visible(place.top, place.height, count, rowHeight);
  const from = Math.max(0, first - SPARE);
  const to = Math.min(count, first + Math.ceil(place.height / rowHeight) + SPARE);
  useEffect(() => seen({ from, to }), [from, to, count]);
  useLayoutEffect(() => {
    if (wanted.current === undefined) return;
    const target = box.current?.querySelector<HTMLElement>(`[aria-rowindex="${wanted.current + 2}"] [data-main]`);
    if (target) {
      wanted.current = undefined;
      target.focus({ preventScroll: true });
    }
  });
  const keyed = (event: KeyboardEvent) => {
    const step = event.key === "ArrowDown" ? 1 : event.key === "ArrowUp" ? -1 : 0;
    const at = Number((event.target as HTMLElement).closest("[aria-rowindex]")?.getAttribute("aria-rowindex")) - 2;
    const next = at + step;
    if (step === 0 || !(at >= 0) || next < 0 || next >= count || !box.current) return;
    event.preventDefault();
    wanted.current = next;
    const last = first + Math.floor((place.height - rowHeight) / rowHeight) - 1;
    if (next <= first) box.current.scrollTop = topOf(next, place.height, count, rowHeight);
    else if (next > last) box.current.scrollTop = topOf(first + (next - last), place.height, count, rowHeight);
    setPlace({ top: box.current.scrollTop, height: box.current.clientHeight });
  };
  const rows = [];
  for (let at = from; at < to; at += 1) rows.push(row(at));
  return (
    <div class="virtual" ref={box} role="region" aria-label={label} tabIndex={0} onScroll={read} onKeyDown={keyed}>
      <div role="table" aria-label={label} aria-rowcount={count + 1}>
        {head}
        <div role="rowgroup" style={{ height: `${whole}px` }}>
          <div role="presentation" style={{ transform: `translateY(${shift - (first - from) * rowHeight}px)` }}>{rows}</div>
        </div>
      </div>
    </div>
  );
}
