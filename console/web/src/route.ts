// Address of the page: its path, and the parameters of pages that have some.
import { signal } from "@preact/signals";

export const path = signal(location.pathname);
export const parameters = signal(new URLSearchParams(location.search));

function read(): void {
  path.value = location.pathname;
  parameters.value = new URLSearchParams(location.search);
}

window.addEventListener("popstate", read);

/** Opens a page of the console. */
export function open(to: string): void {
  history.pushState(null, "", to);
  read();
  window.scrollTo(0, 0);
  requestAnimationFrame(() => document.querySelector("h1")?.focus({ preventScroll: true }));
}

/** Follows a link within the page, unless another tab is meant. */
export function follow(event: MouseEvent, to: string): void {
  if (event.button !== 0 || event.metaKey || event.ctrlKey || event.shiftKey) return;
  event.preventDefault();
  open(to);
}

export type Place = { bucket?: string | undefined; prefix?: string | undefined; key?: string | undefined; version?: string | undefined; view?: string | undefined };

/** Address of a place in the objects' page. */
export function objects(place: Place): string {
  const pairs = Object.entries(place).filter((pair): pair is [string, string] => pair[1] !== undefined && pair[1] !== "");
  const query = new URLSearchParams(pairs).toString();
  return `/objects${query ? `?${query}` : ""}`;
}

/** Address of a bucket's page for operators. */
export const bucketPath = (bucket: string): string => `/buckets?${new URLSearchParams({ bucket }).toString()}`;
