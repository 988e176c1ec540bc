// Files that a page makes, saved by the browser.

/** Time for which a file stays in memory, so that a browser that asks for its place can write it. */
const KEPT_MS = 300_000;

/** Saves a file under a name, as a download. */
export function save(file: Blob, name: string): void {
  const url = URL.createObjectURL(file);
  const link = document.createElement("a");
  link.href = url;
  link.download = name;
  link.click();
  window.setTimeout(() => URL.revokeObjectURL(url), KEPT_MS);
}

/** Time for names of files, such as `2026-11-28T09-30-00Z`. */
export const stamp = (ms: number): string => new Date(ms).toISOString().replace(/\.\d+/, "").replace(/:/g, "-");
