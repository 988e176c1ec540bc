// The focus of a person with a keyboard alone: after a change that succeeded, after a refusal, after a login, by the skip link.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { close, launch, open } from "./browser.mjs";
import { ROOT, start } from "./server.mjs";
import { go, signedIn } from "./steps.mjs";

let server;

before(async () => {
  assert.ok(process.env.MARTLET_BIN, "MARTLET_BIN must name the binary");
  server = await start(process.env.MARTLET_BIN);
  server.ask("tenant", "create", "research");
  await launch(server.url);
});

after(async () => {
  await close();
  await server?.end();
});

/** Words of the element with the focus. */
const focused = (page) => page.evaluate(() => document.activeElement?.getAttribute("aria-label") ?? document.activeElement?.textContent?.trim());
const gets = (page, wanted) => page.waitForFunction((wanted) => (document.activeElement?.getAttribute("aria-label") ?? document.activeElement?.textContent?.trim()) === wanted && document.activeElement !== document.body, wanted);

/** Moves the focus by Tab to an element with these words. */
async function tabTo(page, wanted) {
  for (let presses = 0; presses < 80; presses += 1) {
    await page.keyboard.press("Tab");
    if ((await focused(page)) === wanted) return;
  }
  assert.fail(`the keyboard does not reach ${wanted}`);
}

async function press(page, wanted) {
  await tabTo(page, wanted);
  await page.keyboard.press("Enter");
}

test("a change gives the focus back to its button, and a refusal leaves it in the dialog", async () => {
  const { context, page, problems } = await signedIn(ROOT);
  await go(page, server, "/accounts");
  await press(page, "New tenant");
  await page.keyboard.type("no name/");
  await press(page, "Create");
  await page.getByRole("dialog").getByRole("alert").waitFor();
  assert.equal(await focused(page), "Create", "the refused button keeps the focus");
  await page.keyboard.press("Shift+Tab");
  assert.equal(await focused(page), "Cancel");
  for (let fields = 0; fields < 3; fields += 1) await page.keyboard.press("Shift+Tab");
  await page.keyboard.press("Control+A");
  await page.keyboard.type("brief");
  await page.keyboard.press("Enter");
  await page.getByRole("dialog").waitFor({ state: "detached" });
  await gets(page, "New tenant");
  await page.getByRole("button", { name: "brief", exact: true }).waitFor();

  // A secret opens over the dialog that made it.
  await press(page, "research");
  await page.getByRole("heading", { name: "Access keys of research" }).waitFor();
  await press(page, "New access key");
  await press(page, "Create");
  await page.getByRole("dialog").getByText("The secret is shown this once").waitFor();
  await page.waitForFunction(() => document.querySelectorAll("dialog").length === 1);
  await press(page, "I have kept it");
  await page.getByRole("dialog").waitFor({ state: "detached" });
  await gets(page, "New access key");

  // The button of a deleted line is gone: the page's heading gets the focus.
  await go(page, server, "/accounts");
  await press(page, "Delete brief");
  await press(page, "Delete");
  await page.getByRole("dialog").waitFor({ state: "detached" });
  await gets(page, "Accounts");
  assert.equal(await page.evaluate(() => document.activeElement.tagName), "H1");
  assert.deepEqual(problems, []);
  await context.close();
});

test("the skip link leads past the pages, and a page by its link has the focus at its heading", async () => {
  const { context, page, problems } = await signedIn(ROOT);
  await go(page, server, "/jobs");
  await page.keyboard.press("Tab");
  assert.equal(await focused(page), "Skip to the page");
  const box = await page.getByRole("link", { name: "Skip to the page" }).boundingBox();
  assert.ok(box.x >= 0 && box.y >= 0, "the link is seen while it has the focus");
  await page.keyboard.press("Enter");
  await page.keyboard.press("Tab");
  assert.ok(await page.evaluate(() => document.activeElement.closest("main")), "the next stop is in the page");
  await go(page, server, "/jobs");
  await press(page, "Workers");
  await gets(page, "Workers");
  assert.equal(await page.evaluate(() => document.activeElement.tagName), "H1");
  assert.deepEqual(problems, []);
  await context.close();
});

test("a refused login keeps the focus in its form", async () => {
  const { context, page, problems } = await open();
  await page.waitForFunction(() => document.activeElement?.tagName === "INPUT");
  await page.keyboard.type("nobody");
  await page.keyboard.press("Tab");
  await page.keyboard.type("wrong");
  await press(page, "Sign in");
  await page.getByRole("alert").waitFor();
  assert.ok(await page.evaluate(() => document.activeElement.closest("form")), "the focus is in the form");
  await page.keyboard.press("Shift+Tab");
  await page.keyboard.type(ROOT.secret);
  await page.keyboard.press("Shift+Tab");
  await page.keyboard.press("Control+A");
  await page.keyboard.type(ROOT.key);
  await page.keyboard.press("Enter");
  await page.getByRole("navigation", { name: "Pages", exact: true }).waitFor();
  assert.deepEqual(problems, []);
  await context.close();
});
