// All copies of the index of a cluster are lost, and objects come back from their extents, by the console alone.
import assert from "node:assert/strict";
import { rmSync } from "node:fs";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { close, launch, LOOKS, open, SHOTS, signIn, violations, visit } from "./browser.mjs";
import { startCluster, until } from "./cluster.mjs";
import { done, s3 } from "./s3.mjs";
import { HOSTILE, ROOT } from "./server.mjs";

const NODES = 3;
/** Objects above 8 KiB: smaller ones lie in the index. */
const KEYS = [HOSTILE, ...Array.from({ length: 11 }, (_, at) => `run/${at}.bin`)];
const BODY = "martlet ".repeat(2500);
let server;
let id;

before(async () => {
  server = await startCluster(process.env.MARTLET_BIN, ["--nodes", String(NODES), "--devices-per-node", "1"]);
  await until("the bucket is made", async () => (await s3(server, ROOT, "PUT", "train")).status === 200);
  for (const key of KEYS) await done(server, ROOT, "PUT", "train", key, { body: BODY });
  ({ id } = json("bucket", "show", "train"));
  await launch(server.url);
});

after(async () => {
  await close();
  await server?.end();
});

const json = (...args) => JSON.parse(server.ask(...args, "--json"));

async function signedIn(principal = ROOT, look) {
  const opened = await open(look);
  await signIn(opened.page, principal);
  await visit(opened.page, "/index");
  return opened;
}

/** Checks the page, or its dialog, for faults of access and for its width. */
async function whole(page, what) {
  assert.deepEqual(await violations(page), [], what);
  const overflow = await page.evaluate(() => document.documentElement.scrollWidth - window.innerWidth);
  assert.ok(overflow <= 0, `${what}: ${overflow} pixels too wide`);
}

/** Presses Tab until an element has the focus, as people without a mouse do. */
async function tabTo(page, locator) {
  for (let presses = 0; presses < 120; presses += 1) {
    if (await locator.evaluate((element) => element === document.activeElement)) return;
    await page.keyboard.press("Tab");
  }
  assert.fail(`the keyboard doesn't reach ${locator}`);
}

test("an index that is not lost has nothing to accept, and a hold begins and ends", async () => {
  for (const look of LOOKS) {
    const { context, page, problems } = await signedIn(ROOT, look);
    await page.getByText("Collection is not held").waitFor();
    await page.getByText("No loss to accept:").waitFor();
    assert.equal(await page.getByRole("button", { name: "Accept the loss" }).count(), 0);
    await whole(page, `the page in ${look.name}`);
    for (const name of ["Hold collection", "Make a lost bucket", "Write the entries"]) {
      await page.getByRole("button", { name, exact: true }).first().click();
      await page.getByRole("dialog").waitFor();
      await whole(page, `${name} in ${look.name}`);
      await page.keyboard.press("Escape");
    }
    await page.screenshot({ path: join(SHOTS, `index-${look.name}.png`), fullPage: true });
    assert.deepEqual(problems, []);
    await context.close();
  }
  const { context, page, problems } = await signedIn();
  await page.getByRole("button", { name: "Hold collection" }).click();
  await page.getByRole("dialog").getByRole("button", { name: "Hold it" }).click();
  await page.getByText("Collection is held").waitFor();
  assert.ok(json("index", "status").held_since_ms > 0);
  // Nothing was lost, so that a rebuild is refused, in the words of the server.
  await page.getByRole("button", { name: "Start a dry run" }).click();
  await page.getByText(/no loss was accepted: name a partition/).first().waitFor();
  await page.getByLabel("Partition").fill("many");
  await page.getByRole("button", { name: "Start a dry run" }).click();
  await page.getByText(`"many" is not a whole number`).waitFor();
  await page.getByRole("button", { name: "End the hold" }).click();
  await page.getByRole("dialog").getByText(/No rebuild has ended in this process|left out/).waitFor();
  await page.getByLabel("No rebuild is needed any more").check();
  await page.getByRole("dialog").getByRole("button", { name: "End the hold" }).click();
  await page.getByText("Collection is not held").waitFor();
  assert.equal(json("index", "status").held_since_ms, null);
  assert.deepEqual(problems, []);
  await context.close();
});

test("viewers see the state, and no step", async () => {
  const made = JSON.parse(server.ask("key", "create", "--role", "viewer", "--name", "v", "--json"));
  const line = Array.isArray(made) ? made[0] : made;
  const { context, page, problems } = await signedIn({ key: line.key, secret: line.secret });
  await page.getByText("Collection is not held").waitFor();
  for (const name of ["Hold collection", "Make a lost bucket", "Start a dry run", "Write the entries"]) {
    assert.equal(await page.getByRole("button", { name, exact: true }).count(), 0, name);
  }
  await whole(page, "the page of a viewer");
  assert.deepEqual(problems, []);
  await context.close();
});

test("a rebuild that runs shows its share and the time that is left", async () => {
  const { context, page, problems } = await signedIn();
  const progress = { done: 300, total: 1200, unit: "copies", text: "pass 1 of at least 2: 300 of about 1200 copies listed" };
  const job = { id: "00ff", kind: "index-rebuild", subject: "apply, bucket train", state: "running", started_ms: Date.now() - 60_000, ended_ms: null, eta_s: 180, error: null, detail: null, progress };
  await page.route("**/api/admin/v1/jobs", (route) => route.fulfill({ json: { items: [job], next: null } }));
  await page.getByRole("heading", { name: "index-rebuild of apply, bucket train" }).waitFor();
  await page.getByText("3 min 0 s left").waitFor();
  await page.getByRole("img", { name: "25 % done" }).waitFor();
  await page.getByText("300 of about 1200 copies listed").waitFor();
  await page.getByRole("button", { name: "Cancel", exact: true }).click();
  await page.getByText("Objects that are back stay.").waitFor();
  await whole(page, "a running rebuild");
  assert.deepEqual(problems, []);
  await context.close();
});

/** Waits until the last rebuild has ended without an error. */
async function ended() {
  await until("the rebuild ends", () => {
    const job = json("job", "list").find((one) => one.kind === "index-rebuild");
    assert.notEqual(job.state, "failed", JSON.stringify(job));
    return job.state === "done";
  });
}

/** Takes the index of every device away, as a loss of all disks of the index does. */
function loseTheIndex() {
  const names = Array.from({ length: NODES }, (_, at) => `n${at + 1}`);
  for (const name of names) server.cluster("stop", name);
  for (const name of names) rmSync(join(server.folder, `cluster/${name}/d1/index`), { recursive: true });
  for (const name of names) server.startNode(name);
}

test("a lost index is accepted, a bucket made, and objects rebuilt, by the keyboard alone", async () => {
  loseTheIndex();
  const { context, page, problems } = await signedIn();
  const accept = page.getByRole("button", { name: "Accept the loss" });
  await page.getByText("d0, d1, d2 have no votes").waitFor({ timeout: 60_000 });
  await tabTo(page, accept);
  await page.keyboard.press("Enter");
  const dialog = page.getByRole("dialog");
  await dialog.getByText("a rebuild brings back in part").waitFor();
  await whole(page, "the dialog of the acceptance");
  await page.screenshot({ path: join(SHOTS, "index-accept.png") });
  // Without the consent nothing begins.
  await dialog.getByRole("button", { name: "Accept the loss" }).focus();
  await page.keyboard.press("Enter");
  assert.equal(await dialog.count(), 1);
  assert.equal(json("job", "list").filter((job) => job.kind === "index-accept-loss").length, 0);
  const sure = dialog.getByLabel("These disks don't come back");
  await tabTo(page, sure);
  await page.keyboard.press("Space");
  await tabTo(page, dialog.getByRole("button", { name: "Accept the loss" }));
  await page.keyboard.press("Enter");
  await page.getByRole("heading", { name: "index-accept-loss" }).waitFor();
  await until("the loss is accepted", async () => {
    const job = json("job", "list").find((one) => one.kind === "index-accept-loss");
    if (job.state === "running") return false;
    if (job.state === "done") return true;
    // A device that opens once more does not answer for a moment.
    await accept.click();
    await sure.check();
    await dialog.getByRole("button", { name: "Accept the loss" }).click();
    await dialog.waitFor({ state: "detached" });
    return false;
  });
  await page.getByText(/Accepted: d0, d1, d2 lost the registers of/).waitFor({ timeout: 60_000 });
  await page.getByText("Collection is held").waitFor();

  // The dry run names the bucket, by one of its keys.
  const dry = page.getByRole("button", { name: "Start a dry run" });
  await tabTo(page, dry);
  await page.keyboard.press("Enter");
  await ended();
  await page.getByRole("region", { name: "Lost buckets" }).getByText(id).waitFor({ timeout: 60_000 });
  const make = page.getByRole("button", { name: `Make the bucket ${id}` });
  await tabTo(page, make);
  await page.keyboard.press("Enter");
  await whole(page, "the dialog of a lost bucket");
  await page.keyboard.type("train");
  await tabTo(page, dialog.getByLabel("Versioning that the bucket had"));
  await page.keyboard.type("off");
  await tabTo(page, dialog.getByRole("button", { name: "Make the bucket" }));
  await page.keyboard.press("Enter");
  // An id that the server refuses would leave the dialog open, with the reason.
  await dialog.waitFor({ state: "detached" }).catch(async () => assert.fail(await dialog.innerText()));
  await page.getByText(`The bucket train was made under the id ${id}.`).waitFor();
  assert.equal(json("bucket", "show", "train").id, id);
  assert.equal((await s3(server, ROOT, "GET", "train", KEYS[1])).status, 404);

  await page.getByLabel("Bucket", { exact: true }).fill("train");
  await tabTo(page, dry);
  await page.keyboard.press("Enter");
  await ended();
  const objects = page.getByText(`${KEYS.length}, ${Math.round((KEYS.length * BODY.length) / 1024)} KiB`);
  await objects.waitFor({ timeout: 60_000 });
  await page.getByText("Dry run: nothing was written").waitFor();
  assert.equal((await s3(server, ROOT, "GET", "train", KEYS[1])).status, 404, "a dry run");
  await page.getByText(/\d+ findings/).click();
  await page.getByText(HOSTILE, { exact: false }).first().waitFor();
  assert.equal(await page.evaluate(() => window.hacked), undefined);
  await whole(page, "the report");
  await page.screenshot({ path: join(SHOTS, "index-report.png"), fullPage: true });
  assert.deepEqual(problems, []);
  await context.close();
});

test("the report is whole in each look, and a dry run of another scope is no dry run of this one", async () => {
  for (const look of LOOKS) {
    const { context, page, problems } = await signedIn(ROOT, look);
    await page.getByText("Dry run: nothing was written").waitFor();
    await page.getByText(/\d+ findings/).click();
    await whole(page, `the report in ${look.name}`);
    await page.getByLabel("Bucket", { exact: true }).fill("train");
    await page.getByRole("button", { name: "Write the entries" }).click();
    await page.getByText(`The last dry run of this scope found ${KEYS.length} objects`).waitFor();
    await whole(page, `the dialog in ${look.name}`);
    await page.keyboard.press("Escape");
    await page.getByLabel("Over older").check();
    await page.getByRole("button", { name: "Write the entries" }).click();
    await page.getByText("was no dry run of this scope (bucket train, over older)").waitFor();
    await page.getByText("Older entries are lost").waitFor();
    await page.screenshot({ path: join(SHOTS, `index-lost-${look.name}.png`), fullPage: true });
    assert.deepEqual(problems, []);
    await context.close();
  }
});

test("objects come back, and the end of the hold names what stays away", async () => {
  const { context, page, problems } = await signedIn();
  await page.getByLabel("Bucket", { exact: true }).fill("train");
  await page.getByRole("button", { name: "Write the entries" }).click();
  await page.getByRole("dialog").getByRole("button", { name: "Write the entries" }).click();
  await ended();
  await page.getByText("Entries were written").waitFor({ timeout: 60_000 });
  for (const key of KEYS) {
    const reply = await s3(server, ROOT, "GET", "train", key);
    assert.equal(reply.status, 200, key);
    assert.equal(String(reply.body), BODY, key);
  }
  // Jobs show the same report, with the end of its bar.
  await visit(page, "/jobs");
  await page.getByRole("heading", { name: "index-rebuild of apply, bucket train" }).waitFor();
  await page.getByText("Report", { exact: true }).first().click();
  await page.getByText("Entries were written").waitFor();
  const last = json("job", "list").find((job) => job.subject === "apply, bucket train");
  assert.ok(last.progress.total >= last.progress.done && last.progress.done > 0, JSON.stringify(last.progress));
  assert.match(last.progress.text, /^pass 1 of at least 1: \d+ of about \d+ copies listed/);
  await visit(page, "/index");
  await page.getByRole("button", { name: "End the hold" }).click();
  const dialog = page.getByRole("dialog");
  await dialog.getByText(/The last rebuild of this process \(apply, bucket train\) left out/).waitFor();
  await whole(page, "the dialog of the release");
  await page.screenshot({ path: join(SHOTS, "index-release.png") });
  await dialog.getByLabel("No rebuild is needed any more").check();
  await dialog.getByRole("button", { name: "End the hold" }).click();
  await page.getByText("Collection is not held").waitFor();
  assert.equal(json("index", "status").held_since_ms, null);
  assert.equal((await s3(server, ROOT, "GET", "train", KEYS[0])).status, 200);
  assert.deepEqual(problems, []);
  await context.close();
});
