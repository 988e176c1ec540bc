// Pages of a list: of one whose reply names the next page, or of one that is in memory.
import type { ComponentChildren } from "preact";
import { useState } from "preact/hooks";

/** Cursors of the pages up to the current one. */
export function usePages() {
  const [cursors, setCursors] = useState<string[]>([]);
  return {
    after: cursors[cursors.length - 1],
    number: cursors.length + 1,
    first: () => setCursors([]),
    forward: (next: string) => setCursors([...cursors, next]),
    back: () => setCursors(cursors.slice(0, -1)),
  };
}

export function Pager({ pages, next }: { pages: ReturnType<typeof usePages>; next: string | null | undefined }) {
  if (pages.number === 1 && !next) return null;
  return (
    <nav class="pager" aria-label="Pages of the list">
      <button disabled={pages.number === 1} onClick={pages.back}>Previous</button>
      <span>Page {pages.number}</span>
      <button disabled={!next} onClick={() => next && pages.forward(next)}>Next</button>
    </nav>
  );
}

/** Shows `size` items of a list in memory at a time, so that the document stays small. */
export function Slices<T>({ items, size, label, children }: { items: readonly T[]; size: number; label: string; children: (shown: readonly T[]) => ComponentChildren }) {
  const [wanted, setWanted] = useState(0);
  const count = Math.max(1, Math.ceil(items.length / size));
  const at = Math.min(wanted, count - 1);
  return (
    <>
      {children(items.slice(at * size, (at + 1) * size))}
      {count > 1 && (
        <nav class="pager" aria-label={`Pages of ${label}`}>
          <button disabled={at === 0} onClick={() => setWanted(at - 1)}>Previous</button>
          <span>Page {at + 1} of {count}</span>
          <button disabled={at === count - 1} onClick={() => setWanted(at + 1)}>Next</button>
        </nav>
      )}
    </>
  );
}
