// A person with a keyboard alone: Tab, Shift-Tab, Enter and Escape through a page and its dialogs.
import assert from "node:assert/strict";
import { excess, LOOKS, violations, wear } from "./browser.mjs";

/** Prepares a page for walks. Its functions are of the page's own world, and change nothing there. */
async function equip(page) {
  await page.evaluate(() => {
    const can = (it) => !it.matches(":disabled") && it.tabIndex >= 0 && it.getClientRects().length > 0 && it.checkVisibility({ visibilityProperty: true }) && !it.closest("[inert]");
    const name = (it) => `${it.tagName.toLowerCase()} ${(it.getAttribute("aria-label") ?? it.labels?.[0]?.textContent ?? it.textContent ?? "").trim().slice(0, 60)}`;
    const stops = [];
    window.walk = {
      begin: () => void stops.splice(0),
      /** Elements of a part of the page that the keyboard must reach. */
      reachable: (within) => [...document.querySelectorAll(`${within} :is(a[href], button, input, select, textarea, summary, [tabindex])`)].filter(can),
      missed: (within) => window.walk.reachable(within).filter((it) => !stops.includes(it)).map(name),
      /** Notes the element with the focus. Returns its faults; undefined for the document itself. */
      stop: (within) => {
        const it = document.activeElement;
        if (!it || it === document.body || it === document.documentElement) return undefined;
        const found = { name: name(it), faults: [], before: stops.indexOf(it), at: stops.length };
        if (found.before < 0) stops.push(it);
        const { outlineStyle, outlineWidth, outlineColor } = getComputedStyle(it);
        const drawn = outlineStyle !== "none" && parseFloat(outlineWidth) >= 2 && !/, 0\)$|transparent/.test(outlineColor);
        if (!it.matches(":focus-visible") || !drawn) found.faults.push("has no visible focus");
        const box = it.getClientRects()[0];
        const [left, right, top, bottom] = [Math.max(1, box.left + 1), Math.min(innerWidth - 1, box.right - 1), Math.max(1, box.top + 1), Math.min(innerHeight - 1, box.bottom - 1)];
        const points = [[(left + right) / 2, (top + bottom) / 2], [left, top], [right, top], [left, bottom], [right, bottom], [left, (top + bottom) / 2], [right, (top + bottom) / 2]];
        const seen = left <= right && top <= bottom && points.some(([x, y]) => it.contains(document.elementFromPoint(x, y)));
        if (!seen) found.faults.push("is out of sight or covered");
        if (within && !it.closest(within)) found.faults.push(`is outside of ${within}`);
        return found;
      },
    };
  });
}

/**
 * Walks by a key until the focus comes round. Fails where the focus is not visible, if an element holds it, and if one is not
 * reached.
 * A dialog holds the focus: only the browser itself, and thus the document, may have it between the last element and the first.
 */
async function round(page, key, { within = "body", what, holds = false }) {
  await page.evaluate(() => window.walk.begin());
  const missed = async () => await page.evaluate((within) => window.walk.missed(within), within);
  const most = 2 * (await missed()).length + 40;
  for (let presses = 1; presses <= most; presses += 1) {
    await page.keyboard.press(key);
    const stop = await page.evaluate((within) => window.walk.stop(within), holds ? within : undefined);
    assert.deepEqual(stop?.faults ?? [], [], `${what}: ${stop?.name} ${stop?.faults}`);
    const isRound = stop === undefined || stop.before === 0;
    if (isRound && (await missed()).length === 0) return;
  }
  assert.fail(`${what}: ${key} does not come round, or does not reach ${await missed()}`);
}

/** Walks through a page forwards in one look, and backwards at phone width. */
export async function walkPage(page, what) {
  await equip(page);
  await wear(page, LOOKS[0]);
  await blur(page);
  await round(page, "Tab", { what });
  await wear(page, LOOKS[2]);
  await blur(page);
  await round(page, "Shift+Tab", { what: `${what} at phone width` });
  await wear(page, LOOKS[0]);
}

/** Takes the focus from all elements, and lets the next walk begin at the document's start. */
async function blur(page) {
  await page.evaluate(() => {
    document.activeElement?.blur?.();
    const range = document.createRange();
    range.setStart(document.body, 0);
    getSelection().removeAllRanges();
    getSelection().addRange(range);
    getSelection().removeAllRanges();
  });
}

/** Tests an open dialog: it is whole in all looks, holds the focus, and gives it back to its button after Escape. */
async function walkDialog(page, opener, what) {
  await equip(page);
  assert.ok(await page.evaluate(() => document.querySelector("dialog[open]").contains(document.activeElement)), `${what}: the focus is in the dialog`);
  assert.ok(await page.evaluate(() => document.querySelector("dialog[open]").matches(":modal")), `${what} is modal`);
  for (const look of LOOKS) {
    await wear(page, look);
    assert.deepEqual(await violations(page, "dialog[open]"), [], `${what} in ${look.name}`);
    assert.ok((await excess(page)) <= 0, `${what} in ${look.name} is too wide`);
  }
  await round(page, "Tab", { within: "dialog[open]", what, holds: true });
  await wear(page, LOOKS[0]);
  await round(page, "Shift+Tab", { within: "dialog[open]", what, holds: true });
  await page.keyboard.press("Escape");
  await page.waitForFunction(() => !document.querySelector("dialog"));
  assert.ok(await opener.evaluate((it) => document.activeElement === it), `${what}: Escape gives the focus back to its button`);
}

/** Returns true if a dialog is open once the page has drawn what a press changed. */
async function drawn(page) {
  await page.evaluate(() => new Promise((resolve) => requestAnimationFrame(() => requestAnimationFrame(() => setTimeout(resolve, 20)))));
  return (await page.locator("dialog[open]").count()) > 0;
}

/**
 * Presses each kind of button of a place by Enter, but for those in `tried`, and tests the dialogs that open. Adds the buttons to
 * `tried`, each with true if it opened a dialog; those in `wanted` must open one.
 */
export async function walkDialogs(page, what, { tried, wanted, again }) {
  for (;;) {
    const buttons = await page.$$("main button:not(:disabled)");
    let next;
    for (const button of buttons) {
      const label = await button.evaluate((it) => (it.form === null || it.type === "button" ? it.textContent.trim() : ""));
      if (label !== "" && !tried.has(label)) {
        next = { button, label };
        break;
      }
    }
    if (!next) return;
    await next.button.focus();
    await page.keyboard.press("Enter");
    const opened = wanted.includes(next.label) ? await page.waitForSelector("dialog[open]") : await drawn(page);
    tried.set(next.label, !!opened);
    if (opened) {
      await walkDialog(page, next.button, `${what}, dialog of ${next.label}`);
    } else {
      assert.equal(await page.evaluate(() => window.hacked), undefined, `${what}, ${next.label}`);
      await again();
    }
  }
}
