// Steps that tests of pages have in common: a login, a place of the console, a request beside the page, a wait for the server.
import assert from "node:assert/strict";
import { join } from "node:path";
import { excess, LOOKS, open, SHOTS, signIn, violations, wear } from "./browser.mjs";

export async function signedIn(principal, look) {
  const opened = await open(look);
  await signIn(opened.page, principal);
  return opened;
}

/** Opens an address of the console and waits for its content. */
export async function go(page, server, path) {
  await page.goto(`${server.url}${path}`);
  await settled(page);
}

/** Waits until no part of the page is loading. */
export async function settled(page) {
  await page.locator("main h1").waitFor();
  await page.waitForFunction(() => !document.querySelector("main .loading"));
}

/** Tests a page, or its open dialog, in all looks: no violation of axe's rules, no line wider than the screen. Leaves the first look. */
export async function looks(page, name) {
  for (const look of LOOKS) {
    await wear(page, look);
    assert.deepEqual(await violations(page), [], `${name} in ${look.name}`);
    const wide = await excess(page);
    assert.ok(wide <= 0, `${name} in ${look.name} is ${wide} pixels too wide`);
    await page.screenshot({ path: join(SHOTS, `${name}-${look.name}.png`), fullPage: true });
  }
  await wear(page, LOOKS[0]);
}

/** Waits until a condition of the server holds, for 20 seconds at most. */
export async function until(what, condition) {
  const deadline = Date.now() + 20_000;
  for (;;) {
    const found = await condition();
    if (found) return found;
    assert.ok(Date.now() < deadline, what);
    await new Promise((resolve) => setTimeout(resolve, 100));
  }
}

/** Reply of the admin API to the session of a page: status, and the body of JSON. */
export async function api(page, path) {
  return await page.evaluate(async (path) => {
    const reply = await fetch(`/api/admin/v1/${path}`, { headers: { "x-martlet-csrf": localStorage.getItem("martlet-csrf") } });
    return { status: reply.status, body: await reply.json() };
  }, path);
}

/** Reads key and secret of a dialog that shows them once, and closes it. */
export async function kept(page) {
  const dialog = page.getByRole("dialog");
  await dialog.getByText("The secret is shown this once").waitFor();
  const [key, secret] = await dialog.locator("code").allInnerTexts();
  await dialog.getByRole("button", { name: "I have kept it" }).click();
  await dialog.waitFor({ state: "detached" });
  assert.ok(!(await page.locator("main").innerText()).includes(secret), "the secret is gone from the page");
  return { key, secret };
}
