// Modal dialogs: opened with their first render. The focus returns to the element that had it, also after a change that succeeded.
import { useLayoutEffect, useRef, type MutableRef } from "preact/hooks";

/** Elements that had the focus before each open dialog. */
const openers = new WeakMap<Element, Element | null>();
/** Opener of a dialog that has just gone, and whose focus nothing has yet. */
let waiting: Element | null = null;

/** Opener of a new dialog. One that opens over another dialog or in its place, as a new secret does, has the opener of that one. */
function opener(): Element | null {
  const outer = [...document.querySelectorAll("dialog[open]")].pop();
  if (outer) return openers.get(outer) ?? null;
  return document.activeElement === document.body ? waiting : document.activeElement;
}

/** Gives the focus to an element, or to the page's heading, unless something has the focus. */
function restore(to: Element | null): void {
  waiting = null;
  if (document.querySelector("dialog[open]") || (document.activeElement && document.activeElement !== document.body)) return;
  const usable = to instanceof HTMLElement && to.isConnected && !to.matches(":disabled");
  (usable ? to : document.querySelector<HTMLElement>("main h1"))?.focus({ preventScroll: !usable });
}

/** Opens a dialog as a modal one, and returns the focus when it goes. */
export function useDialog(): MutableRef<HTMLDialogElement | null> {
  const dialog = useRef<HTMLDialogElement>(null);
  useLayoutEffect(() => {
    const element = dialog.current;
    if (!element) return undefined;
    const before = opener();
    openers.set(element, before);
    element.showModal();
    return () => {
      waiting = before;
      // By then, another dialog or the next page is in the document.
      requestAnimationFrame(() => restore(before));
    };
  }, []);
  return dialog;
}
