// Pages of a list whose reply names the next one.
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
