// Profiles of a process and the archive for support, saved by a real browser from a real server.
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { gunzipSync } from "node:zlib";
import { close, launch, LOOKS, open, SHOTS, signIn, violations, visit } from "./browser.mjs";
import { done } from "./s3.mjs";
import { HOSTILE, ROOT, start } from "./server.mjs";

let server;
let operator;
let viewer;
let load;

before(async () => {
  assert.ok(process.env.MARTLET_BIN, "MARTLET_BIN must name the binary");
  server = await start(process.env.MARTLET_BIN);
  [operator, viewer] = [server.key("operator"), server.key("viewer")];
  server.ask("tenant", "create", "canary-tenant");
  await done(server, ROOT, "PUT", "canary-bucket");
  await done(server, ROOT, "PUT", "canary-bucket", HOSTILE, { body: "x".repeat(20_000) });
  // Something to be sampled.
  let busy = true;
  const work = (async () => {
    while (busy) await done(server, ROOT, "GET", "canary-bucket", HOSTILE);
  })();
  load = async () => {
    busy = false;
    await work;
  };
  await launch(server.url);
});

after(async () => {
  await close();
  await load?.();
  await server?.end();
});

async function signedIn(principal = ROOT, look) {
  const opened = await open(look);
  await signIn(opened.page, principal);
  return opened;
}

/** Clicks, and returns the file that the browser saves, with its name. */
async function saved(page, button) {
  const [download] = await Promise.all([page.waitForEvent("download", { timeout: 120_000 }), button.click()]);
  return { name: download.suggestedFilename(), bytes: readFileSync(await download.path()), path: await download.path() };
}

for (const look of LOOKS) {
  test(`the page is whole in ${look.name}`, async () => {
    const { context, page, problems } = await signedIn(ROOT, look);
    await visit(page, "/diagnostics");
    await page.getByRole("region", { name: "Mappings" }).getByText("anonymous", { exact: true }).waitFor();
    await page.getByText(/for its cache/).waitFor();
    assert.deepEqual(await violations(page), []);
    const overflow = await page.evaluate(() => document.documentElement.scrollWidth - window.innerWidth);
    assert.ok(overflow <= 0, `${overflow} pixels too wide`);
    await page.screenshot({ path: join(SHOTS, `diagnostics-${look.name}.png`), fullPage: true });
    assert.deepEqual(problems, []);
    await context.close();
  });
}

test("a profile is taken by the keyboard, and saved in both formats", async () => {
  const { context, page, problems } = await signedIn(operator);
  await visit(page, "/diagnostics");
  const form = page.getByRole("form", { name: "Processor time" });
  await form.getByLabel("Seconds", { exact: true }).fill("61");
  await form.getByRole("button", { name: "Take a profile" }).click();
  await page.getByText("a profile takes 1 to 60 seconds").waitFor();
  await form.getByLabel("Seconds", { exact: true }).fill("3");
  await form.getByLabel("Samples per second").fill("5000");
  await form.getByRole("button", { name: "Take a profile" }).click();
  await page.getByText("frequency must be a number from 1 to 999").waitFor();
  await form.getByLabel("Samples per second").fill("200");
  const waits = page.waitForEvent("download", { timeout: 120_000 });
  await form.getByLabel("Seconds", { exact: true }).focus();
  await page.keyboard.press("Enter");
  await page.getByRole("progressbar", { name: "Sampling" }).waitFor();
  await page.getByText(/sampling, [123] s left/).waitFor();
  assert.deepEqual(await violations(page), []);
  const download = await waits;
  assert.match(download.suggestedFilename(), /^martlet-cpu-.*Z\.pb\.gz$/);
  assert.ok(gunzipSync(readFileSync(await download.path())).length > 100);
  await page.getByText(/[1-9][0-9]* samples/).waitFor();
  await form.getByLabel("Format").selectOption("folded");
  const folded = await saved(page, form.getByRole("button", { name: "Take a profile" }));
  assert.match(folded.name, /\.folded$/);
  assert.match(String(folded.bytes), /^\S.*martlet.* [0-9]+$/m);
  assert.deepEqual(problems, []);
  await context.close();
});

test("a profile of the heap is taken and saved in both formats", async () => {
  const { context, page, problems } = await signedIn(operator);
  await visit(page, "/diagnostics");
  const form = page.getByRole("form", { name: "Heap" });
  const take = form.getByRole("button", { name: "Take a profile of the heap" });
  await form.getByLabel("Seconds", { exact: true }).fill("2");
  await form.getByLabel("Bytes between two samples").fill("1");
  await take.click();
  await form.getByText(/interval must be a number of bytes from 16384/).waitFor();
  await form.getByLabel("Bytes between two samples").fill("16384");
  const made = await saved(page, take);
  assert.match(made.name, /^martlet-heap-.*Z\.pb\.gz$/);
  assert.ok(gunzipSync(made.bytes).includes("inuse_space"));
  await form.getByLabel("Format").selectOption("folded");
  const folded = await saved(page, take);
  assert.match(String(folded.bytes), /^(in use|freed);.*martlet.* [0-9]+$/m);
  assert.deepEqual(await violations(page), []);
  assert.deepEqual(problems, []);
  await context.close();
});

test("the archive for support is saved, without names of customers", async () => {
  const { context, page, problems } = await signedIn(operator);
  await visit(page, "/census");
  await page.getByRole("button", { name: "Start a census" }).click();
  await page.getByRole("dialog").getByRole("button", { name: "Start" }).click();
  await page.getByRole("region", { name: "Counts of the census" }).waitFor({ timeout: 60_000 });
  await visit(page, "/diagnostics");
  const made = await saved(page, page.getByRole("button", { name: "Make the archive" }));
  assert.match(made.name, /^martlet-support-.*Z\.tar\.gz$/);
  await page.getByText(`${made.name} has`).waitFor();
  const tar = (...flags) => execFileSync("tar", [...flags, made.path], { encoding: "utf8" });
  const index = JSON.parse(execFileSync("tar", ["-xzOf", made.path, "--wildcards", "*/index.json"], { encoding: "utf8" }));
  const missing = index.parts.filter((part) => part.missing).map((part) => part.name);
  assert.deepEqual(missing, ["doctor.json", "logs"]);
  const text = tar("-tzf") + tar("-xzOf");
  for (const part of ["census.json", "processes/server/settings.json", "processes/server/metrics.txt"]) assert.ok(text.includes(part), part);
  for (const canary of ["canary-bucket", "canary-tenant", "window.hacked", ROOT.key, ROOT.secret, operator.secret]) assert.ok(!text.includes(canary), canary);
  assert.match(server.ask("audit", "--json"), /POST \/admin\/v1\/support-bundle/);
  assert.deepEqual(problems, []);
  await context.close();
});

test("viewers have no diagnostics, and no route of them", async () => {
  const { context, page, problems } = await signedIn(viewer);
  assert.equal(await page.locator('nav a[href="/diagnostics"]').count(), 0);
  await page.goto(`${server.url}/diagnostics`);
  await page.getByRole("heading", { name: "No such page" }).waitFor();
  const statuses = await page.evaluate(async () => {
    const csrf = localStorage.getItem("martlet-csrf");
    const ask = (method, path) => fetch(`/api/admin/v1/${path}`, { method, headers: { "x-martlet-csrf": csrf } });
    return [(await ask("POST", "support-bundle")).status, (await ask("POST", "profile/cpu?seconds=1")).status, (await ask("POST", "profile/heap?seconds=1")).status, (await ask("GET", "profile/memory")).status];
  });
  assert.deepEqual(statuses, [403, 403, 403, 403]);
  assert.deepEqual(problems, []);
  await context.close();
});
