// Places of the objects' pages, as tests open them.
import assert from "node:assert/strict";
import { join } from "node:path";
import { open, SHOTS, signIn, violations } from "./browser.mjs";

/** Opens a place of the objects' page and waits for its content. */
export async function go(page, url, place) {
  await page.goto(`${url}/objects?${new URLSearchParams(place)}`);
  await page.locator("main h1").waitFor();
  await settled(page);
}

export async function settled(page) {
  await page.waitForFunction(() => !document.querySelector("main .loading"));
}

export async function signedIn(principal, look, url) {
  const opened = await open(look, url);
  await signIn(opened.page, principal);
  return opened;
}

/** Checks accessibility and width of a page, and leaves a screenshot. */
export async function whole(page, name, look) {
  await page.screenshot({ path: join(SHOTS, `${name}-${look.name}.png`), fullPage: true });
  assert.deepEqual(await violations(page), [], `${name} in ${look.name}`);
  const overflow = await page.evaluate(() => document.documentElement.scrollWidth - window.innerWidth);
  assert.ok(overflow <= 0, `${name} in ${look.name} is ${overflow} pixels too wide`);
}

/** Moves the focus by the keyboard to the element whose name or text is wanted. */
export async function focus(page, wanted, presses = 120) {
  for (let at = 0; at < presses; at += 1) {
    await page.keyboard.press("Tab");
    const found = await page.evaluate(() => [document.activeElement?.getAttribute("aria-label"), document.activeElement?.textContent?.trim()]);
    if (found.includes(wanted)) return;
  }
  assert.fail(`the keyboard does not reach ${wanted}`);
}
