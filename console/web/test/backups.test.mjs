// Backups in a real browser over real servers: made, checked, compared and restored, beside `martlet admin backup`.
import assert from "node:assert/strict";
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { close, launch, LOOKS, open, SHOTS, signIn, violations, visit } from "./browser.mjs";
import { done } from "./s3.mjs";
import { HOSTILE, ROOT, start } from "./server.mjs";

const PASSPHRASE = "correct horse battery staple";
const MASTER = { MARTLET_MASTER_KEYS: "5a".repeat(32) };
/** Name of an added file; files have no slash in their name. */
const NAME = HOSTILE.replaceAll("/", "");
let server;
let fresh;
let viewer;
let secret;
let keyFile;

before(async () => {
  assert.ok(process.env.MARTLET_BIN, "MARTLET_BIN must name the binary");
  [server, fresh] = await Promise.all([start(process.env.MARTLET_BIN, MASTER), start(process.env.MARTLET_BIN, MASTER)]);
  server.ask("tenant", "create", "research");
  for (const user of ["trainer", "reader"]) server.ask("user", "create", "--tenant", "research", user, "--role", "read-write");
  const key = server.accessKey("--tenant", "research");
  for (let at = 0; at < 30; at += 1) await done(server, key, "PUT", `bucket-${at}`);
  viewer = server.key("viewer");
  [secret, keyFile] = [join(server.folder, "passphrase"), join(server.folder, "backup.key")];
  writeFileSync(secret, `${PASSPHRASE}\n`, { mode: 0o600 });
  writeFileSync(keyFile, "7b".repeat(32), { mode: 0o600 });
  await launch(server.url);
});

after(async () => {
  await close();
  await server?.end();
  await fresh?.end();
});

const json = (of, ...args) => JSON.parse(of.ask(...args, "--json"));

async function opened(of = server, look = undefined) {
  const found = await open(look, of.url);
  const sent = [];
  found.page.on("request", (request) => sent.push(`${request.method()} ${request.url()} ${request.postData() ?? ""}`));
  await signIn(found.page, ROOT);
  await visit(found.page, "/backups");
  return { ...found, sent };
}

async function whole(page, what) {
  assert.deepEqual(await violations(page), [], what);
  const overflow = await page.evaluate(() => document.documentElement.scrollWidth - window.innerWidth);
  assert.ok(overflow <= 0, `${what}: ${overflow} pixels too wide`);
}

/** Makes a backup on the page, and returns its path. */
async function make(page, more = async () => {}) {
  await page.getByLabel("Passphrase of the backup").fill(PASSPHRASE);
  await page.getByLabel("Passphrase again").fill(PASSPHRASE);
  await more();
  const [download] = await Promise.all([page.waitForEvent("download", { timeout: 60_000 }), page.getByRole("button", { name: "Make the backup" }).click()]);
  assert.match(download.suggestedFilename(), /^martlet-\d{4}-\d\d-\d\d\.backup$/);
  const path = join(server.folder, `${Date.now()}.backup`);
  await download.saveAs(path);
  return path;
}

async function show(page, path) {
  await page.getByLabel("File of the backup").setInputFiles(path);
  await page.getByLabel("Passphrase of this file").fill(PASSPHRASE);
  await page.getByRole("button", { name: "Show the contents" }).click();
  await page.getByText("The backup is whole").waitFor({ timeout: 60_000 });
}

/** Numbers of a row of the plan: same, to create, to change, later, refused. */
async function planned(page, kind) {
  const row = page.getByRole("region", { name: "Plan of the restore" }).locator("tr", { has: page.getByRole("rowheader", { name: kind, exact: true }) });
  await row.waitFor({ timeout: 60_000 });
  return (await row.locator("td").allInnerTexts()).map(Number);
}

async function compare(page) {
  await page.getByRole("button", { name: "Compare", exact: true }).click();
  await page.getByText("Dry run: nothing was changed").waitFor({ timeout: 60_000 });
}

let made;

test("a backup of the page is one of the command, and its passphrase stays in the page", async () => {
  const { context, page, problems, sent } = await opened();
  await page.getByLabel("Passphrase of the backup").fill("short");
  await page.getByLabel("Passphrase again").fill("short");
  await page.getByRole("button", { name: "Make the backup" }).click();
  await page.getByText("fewer than 12 bytes").waitFor();
  await page.getByLabel("Passphrase again").fill("other");
  await page.getByRole("button", { name: "Make the backup" }).click();
  await page.getByText("the two passphrases differ").waitFor();
  made = await make(page, async () => {
    await page.getByLabel("Files to add").setInputFiles({ name: NAME, mimeType: "application/octet-stream", buffer: Buffer.from("builder") });
  });
  await page.getByText("30 of kind bucket").waitFor();
  assert.equal(await page.getByLabel("Passphrase of the backup").inputValue(), "", "it is forgotten");
  const all = sent.join("\n");
  assert.ok(all.includes("/backup/records"), "the records were read");
  assert.ok(!all.includes(PASSPHRASE) && !all.includes(encodeURIComponent(PASSPHRASE)), "the passphrase was sent");
  const shown = json(server, "backup", "show", "--passphrase-file", secret, made);
  const counts = Object.fromEntries(shown.counts);
  assert.deepEqual([counts.bucket, counts.tenant, counts.user, counts.key, counts["admin-key"]], [30, 1, 2, 1, 1]);
  assert.deepEqual(shown.files.at(-1), NAME);
  assert.ok(!readFileSync(made).includes("research"), "nothing is in clear");
  const plan = json(server, "backup", "restore", "--passphrase-file", secret, made, "--dry-run").plan;
  for (const [kind, tally] of Object.entries(plan)) assert.deepEqual(Object.keys(tally), ["same"], kind);
  assert.deepEqual(problems, []);
  await context.close();
});

test("a kind with an estimate shows its share and the time left, and a stop makes no file", async () => {
  for (const look of LOOKS) {
    const { context, page, problems } = await opened(server, look);
    const bucket = await page.evaluate(async () => await (await fetch("/api/admin/v1/backup/records?kind=bucket&limit=20", { headers: { "x-martlet-csrf": localStorage.getItem("martlet-csrf") } })).text());
    assert.equal(JSON.parse(bucket).items.length, 20);
    await page.route("**/api/admin/v1/backup", async (route) => {
      const reply = await route.fetch();
      await route.fulfill({ response: reply, json: { ...(await reply.json()), expected: { bucket: 80 } } });
    });
    let proceed;
    const second = new Promise((resolve) => (proceed = resolve));
    await page.route(/backup\/records\?.*kind=bucket/, async (route) => {
      if (!route.request().url().includes("after=")) return await route.fulfill({ contentType: "application/json", body: bucket });
      await second;
      return await route.continue();
    });
    await page.getByLabel("Passphrase of the backup").fill(PASSPHRASE);
    await page.getByLabel("Passphrase again").fill(PASSPHRASE);
    await page.getByRole("button", { name: "Make the backup" }).click();
    await page.getByRole("img", { name: "25 % of the records of kind bucket" }).waitFor();
    await page.getByText(/^Kind \d of \d, bucket: 20 of about 80 records, .* left$/).waitFor();
    await whole(page, `a backup under way in ${look.name}`);
    await page.getByRole("button", { name: "Stop" }).click();
    proceed();
    await page.getByText("stopped: no backup was made").waitFor();
    assert.equal(await page.getByRole("img", { name: /of the records/ }).count(), 0);
    assert.deepEqual(problems, []);
    await context.close();
  }
});

test("a backup is made by the keyboard alone", async () => {
  const { context, page, problems } = await opened();
  await page.getByLabel("The backup is sealed by").focus();
  await page.keyboard.press("Tab");
  await page.keyboard.type(PASSPHRASE);
  await page.keyboard.press("Tab");
  await page.keyboard.type(PASSPHRASE);
  const waits = page.waitForEvent("download", { timeout: 60_000 });
  await page.keyboard.press("Enter");
  assert.match((await waits).suggestedFilename(), /\.backup$/);
  assert.deepEqual(problems, []);
  await context.close();
});

test("contents and plan are whole in each look, with hostile names", async () => {
  for (const look of LOOKS) {
    const { context, page, problems } = await opened(server, look);
    await whole(page, `the page in ${look.name}`);
    await show(page, made);
    await page.getByRole("region", { name: "Files of the backup" }).getByText(NAME).waitFor();
    await compare(page);
    assert.deepEqual(await planned(page, "bucket"), [30, 0, 0, 0, 0]);
    await page.getByText("nothing is to be restored").waitFor();
    assert.ok(await page.getByRole("button", { name: "Restore", exact: true }).isDisabled());
    await whole(page, `the plan in ${look.name}`);
    await page.screenshot({ path: join(SHOTS, `backups-${look.name}.png`), fullPage: true });
    assert.equal(await page.evaluate(() => window.hacked), undefined);
    const [download] = await Promise.all([page.waitForEvent("download"), page.getByRole("button", { name: "Save index.ring" }).click()]);
    assert.equal(String(readFileSync(await download.path()).subarray(0, 8)), "MRTLRING");
    assert.deepEqual(problems, []);
    await context.close();
  }
});

test("a backup of the command is opened by its key, and no other file", async () => {
  const path = join(server.folder, "command.backup");
  server.ask("backup", "create", "--backup-key-file", keyFile, path);
  const { context, page, problems } = await opened();
  await page.getByLabel("File of the backup").setInputFiles(path);
  await page.getByLabel("Passphrase of this file").fill(PASSPHRASE);
  await page.getByRole("button", { name: "Show the contents" }).click();
  await page.getByText("the backup was made with a key file: choose it").waitFor();
  await page.getByLabel("This file is sealed by").selectOption("a key file");
  await page.getByLabel("Key of this file").setInputFiles({ name: "wrong", mimeType: "text/plain", buffer: Buffer.from("7c".repeat(32)) });
  await page.getByRole("button", { name: "Show the contents" }).click();
  await page.getByText("isn't that of this backup").waitFor();
  await page.getByLabel("Key of this file").setInputFiles(keyFile);
  await page.getByRole("button", { name: "Show the contents" }).click();
  await page.getByText("The backup is whole").waitFor();
  await page.getByText("sealed by a key file").waitFor();
  await page.getByRole("region", { name: "Contents of the backup" }).locator("tr", { hasText: "bucket" }).getByText("30").waitFor();
  const damaged = readFileSync(path);
  damaged[damaged.length - 40] ^= 1;
  for (const [name, buffer, sentence] of [["damaged", damaged, /chunk \d+ of the backup is damaged/], ["cut", damaged.subarray(0, 600), /is cut within chunk 1/], ["other", Buffer.from("hello"), /the file is no backup/]]) {
    await page.getByLabel("File of the backup").setInputFiles({ name, mimeType: "application/octet-stream", buffer });
    await page.getByRole("button", { name: "Show the contents" }).click();
    await page.getByText(sentence).waitFor();
    assert.equal(await page.getByText("The backup is whole").count(), 0, name);
  }
  assert.deepEqual(problems, []);
  await context.close();
});

test("what is later than a backup stays, unless the restore replaces it", async () => {
  server.ask("user", "set", "--tenant", "research", "trainer", "--role", "read-only");
  server.ask("user", "delete", "--tenant", "research", "reader");
  const { context, page, problems } = await opened();
  await show(page, made);
  await compare(page);
  assert.deepEqual(await planned(page, "user"), [0, 0, 0, 2, 0]);
  await page.getByText("user research/reader: deleted since, and stays").waitFor();
  await page.getByText("user research/trainer: changed since, and stays").waitFor();
  await page.getByLabel("Replace").check();
  assert.equal(await page.getByText("Dry run: nothing was changed").count(), 0, "another scope has another plan");
  await page.getByLabel("Buckets").uncheck();
  // The parts are those that are compared, until the end.
  let go;
  const held = new Promise((resolve) => (go = resolve));
  await page.route("**/admin/v1/backup/compare", async (route) => {
    await held;
    await route.continue();
  });
  await page.getByRole("button", { name: "Compare", exact: true }).click();
  await page.getByText(/^Comparing: /).waitFor();
  const parts = page.getByRole("group", { name: "Parts" }).getByRole("checkbox");
  assert.equal(await parts.count(), 3);
  for (const part of await parts.all()) assert.ok(await part.isDisabled());
  await whole(page, "a comparison under way");
  go();
  await page.getByText("Dry run: nothing was changed").waitFor({ timeout: 60_000 });
  for (const part of await parts.all()) assert.ok(await part.isEnabled());
  await page.getByText("user research/reader: deleted since, and will be made again").waitFor();
  assert.equal(await page.getByRole("region", { name: "Plan of the restore" }).getByText("bucket").count(), 0);
  await page.getByRole("button", { name: "Restore", exact: true }).click();
  const dialog = page.getByRole("dialog", { name: "Restore 2 records" });
  await dialog.getByText("2 were changed or deleted after the backup: these changes are lost.").waitFor();
  await whole(page, "the dialog of the restore");
  await page.screenshot({ path: join(SHOTS, "backups-restore.png") });
  await dialog.getByRole("button", { name: "Restore" }).click();
  await page.getByText("2 restored, 0 failed", { exact: true }).waitFor();
  assert.equal(json(server, "user", "show", "--tenant", "research", "trainer").role, "read-write");
  assert.equal(json(server, "user", "show", "--tenant", "research", "reader").user, "reader");
  assert.match(server.ask("audit", "--json"), /PUT \/admin\/v1\/backup\/record/);
  assert.deepEqual(problems, []);
  await context.close();
});

test("an empty server gets all of it, and a second run nothing", async () => {
  const { context, page, problems } = await opened(fresh);
  await show(page, made);
  await compare(page);
  const kinds = { tenant: 1, user: 2, key: 1, bucket: 30 };
  for (const [kind, count] of Object.entries(kinds)) assert.deepEqual(await planned(page, kind), [0, count, 0, 0, 0], kind);
  await page.getByRole("button", { name: "Restore", exact: true }).click();
  await page.getByRole("dialog").getByRole("button", { name: "Restore" }).click();
  await page.getByText(/^3[0-9] restored, 0 failed$/).waitFor({ timeout: 60_000 });
  assert.deepEqual(json(fresh, "user", "list", "--tenant", "research").map((one) => one.user).sort(), ["reader", "trainer"]);
  assert.equal(json(fresh, "bucket", "show", "bucket-29").bucket, "bucket-29");
  await compare(page);
  await page.getByText("nothing is to be restored").waitFor();
  assert.deepEqual(problems, []);
  await context.close();
});

test("viewers have no backups", async () => {
  const { context, page, problems } = await open(undefined, server.url);
  await signIn(page, viewer);
  assert.equal(await page.locator('nav a[href="/backups"]').count(), 0);
  await page.goto(`${server.url}/backups`);
  await page.getByRole("heading", { name: "No such page" }).waitFor();
  assert.deepEqual(problems, []);
  await context.close();
});
