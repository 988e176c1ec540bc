// Rewraps in a real browser, over a real server whose master key was replaced.
import assert from "node:assert/strict";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { close, launch, LOOKS, open, SHOTS, signIn, violations } from "./browser.mjs";
import { done } from "./s3.mjs";
import { HOSTILE, ROOT, start } from "./server.mjs";

const [OLD, NEW, OTHER] = ["0a", "0b", "0c"].map((byte) => byte.repeat(32));
/** Versions on the first page of a run. One more is on the second. */
const PAGE = 200;
let server;
let viewer;

/** Starts the server with these master keys, with the data of the last one. */
async function startWith(keys) {
  const folder = server?.folder;
  await server?.end(true);
  server = await start(process.env.MARTLET_BIN, { MARTLET_SSE_MASTER_KEY: keys.join(",") }, { kept: folder });
}

before(async () => {
  assert.ok(process.env.MARTLET_BIN, "MARTLET_BIN must name the binary");
  await startWith([OLD]);
  viewer = server.key("viewer");
  server.ask("tenant", "create", "research");
  const key = server.accessKey("--tenant", "research");
  await done(server, key, "PUT", "vault");
  const headers = { "x-amz-server-side-encryption": "AES256" };
  const names = [...Array(PAGE).keys()].map((number) => `k${String(number).padStart(3, "0")}`);
  for (const name of [...names, `z${HOSTILE}`]) await done(server, key, "PUT", "vault", name, { body: name, headers });
  await startWith([NEW, OLD]);
  await launch(server.url);
});

after(async () => {
  await close();
  await server?.end();
});

async function signedIn(principal = ROOT, look = LOOKS[0]) {
  const opened = await open(look, server.url);
  await signIn(opened.page, principal);
  await opened.page.goto(`${server.url}/buckets?bucket=vault`);
  await opened.page.getByRole("heading", { name: "Rewrap", exact: true }).waitFor();
  return opened;
}

const jobs = () => JSON.parse(server.ask("job", "list", "--json")).filter((job) => job.kind === "rewrap");

/** Card of the newest rewrap. */
const newest = (page) => page.locator(".card", { has: page.getByRole("heading", { name: "rewrap of vault" }) }).first();

test("a rewrap goes on without its page, and is cancelled from another one by the keyboard", async () => {
  const first = await signedIn();
  await first.page.getByLabel("Versions per second").focus();
  await first.page.keyboard.type("0");
  await first.page.keyboard.press("Enter");
  await first.page.getByText("at least 1 version per second").waitFor();
  await first.page.keyboard.press("Backspace");
  await first.page.keyboard.type("1");
  await first.page.keyboard.press("Enter");
  await first.page.getByText(/^200\b.* examined, 200 rewrapped, 0 failed/).waitFor();
  assert.deepEqual(await violations(first.page), []);
  await first.context.close();
  assert.deepEqual(jobs().map((job) => [job.state, job.progress.done]), [["running", PAGE]]);

  const { context, page, problems } = await signedIn();
  await newest(page).getByText("running", { exact: true }).waitFor();
  assert.ok(await page.getByRole("button", { name: "Rewrap the keys" }).isDisabled(), "one rewrap of a bucket runs at a time");
  await newest(page).getByRole("button", { name: "Cancel" }).focus();
  await page.keyboard.press("Enter");
  const dialog = page.getByRole("dialog");
  await dialog.getByText("Versions that were rewrapped stay so.").waitFor();
  assert.deepEqual(await violations(page), []);
  await dialog.getByRole("button", { name: "Cancel the job" }).focus();
  await page.keyboard.press("Enter");
  await newest(page).getByText("cancelled", { exact: true }).waitFor();
  await newest(page).getByText("the rewrap was stopped").waitFor();
  await newest(page).getByText(/^200\b.* examined, 200 rewrapped/).waitFor();
  assert.deepEqual(jobs().map((job) => [job.state, job.eta_s]), [["cancelled", null]]);

  await page.getByRole("button", { name: "Rewrap the keys" }).click();
  await newest(page).getByText("done", { exact: true }).waitFor();
  await newest(page).getByText(/^201\b.* examined, 1 rewrapped, 0 failed/).waitFor();
  await newest(page).getByText("Report", { exact: true }).click();
  await newest(page).locator("dt").getByText("rewrapped", { exact: true }).waitFor();
  assert.deepEqual([...problems, ...first.problems], []);
  await context.close();
});

test("a viewer sees rewraps and starts none", async () => {
  const { context, page, problems } = await signedIn(viewer);
  await newest(page).getByText("done", { exact: true }).waitFor();
  assert.equal(await page.locator("main").getByRole("button", { name: /^(Rewrap|Cancel)/ }).count(), 0);
  assert.deepEqual(problems, []);
  await context.close();
});

test("keys that are left fail the rewrap, and a hostile name is text", async () => {
  await startWith([OTHER]);
  const { context, page, problems } = await signedIn();
  await page.getByRole("button", { name: "Rewrap the keys" }).click();
  await newest(page).getByText("failed", { exact: true }).waitFor();
  await newest(page).getByText("201 versions still need the old master key: rewrap again later").waitFor();
  await newest(page).getByText("Report", { exact: true }).click();
  await newest(page).locator("dd").getByText(`z${HOSTILE}`, { exact: false }).first().waitFor();
  assert.equal(await page.evaluate(() => window.hacked), undefined);
  assert.deepEqual(problems, []);
  await context.close();
});

for (const look of LOOKS) {
  test(`rewraps are whole in ${look.name}`, async () => {
    const { context, page, problems } = await signedIn(ROOT, look);
    await newest(page).getByText("Report", { exact: true }).click();
    await newest(page).locator("dd").first().waitFor();
    await page.screenshot({ path: join(SHOTS, `rewrap-${look.name}.png`), fullPage: true });
    assert.deepEqual(await violations(page), []);
    const overflow = await page.evaluate(() => document.documentElement.scrollWidth - window.innerWidth);
    assert.ok(overflow <= 0, `${overflow} pixels too wide`);
    assert.deepEqual(problems, []);
    await context.close();
  });
}
