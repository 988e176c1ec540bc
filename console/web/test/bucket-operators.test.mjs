// Work of operators on one bucket and its jobs in a real browser, over a real server: checkpoint sets and their retention, settings,
// censuses and their end. Effects are read by the admin API and by S3.
import assert from "node:assert/strict";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { close, launch, SHOTS, violations, visit } from "./browser.mjs";
import { done, s3 } from "./s3.mjs";
import { HOSTILE, ROOT, start } from "./server.mjs";
import { api, go, signedIn, until } from "./steps.mjs";

/** A rule of the test: the newest set of a series is kept, and others for an hour after their commit. */
const RULES = { rules: [{ pattern: "runs/*/", profile: "custom", markers: ["DONE"], keep: 1, min_age: 3600 }] };
/** Sets of the bucket. A set's name is a folder of the client's choice. */
const [FIRST, SECOND, EVIL] = ["runs/step-1/", "runs/step-2/", `runs/${HOSTILE.replaceAll("/", "|")}/`];
let server;
let tenant;

before(async () => {
  assert.ok(process.env.MARTLET_BIN, "MARTLET_BIN must name the binary");
  server = await start(process.env.MARTLET_BIN);
  server.ask("tenant", "create", "research");
  tenant = server.accessKey("--tenant", "research");
  for (const bucket of ["runs", "plain"]) await done(server, tenant, "PUT", bucket);
  await done(server, tenant, "PUT", "runs", "", { query: { versioning: "" }, body: "<VersioningConfiguration><Status>Enabled</Status></VersioningConfiguration>" });
  await done(server, tenant, "PUT", "runs", "", { query: { checkpoints: "" }, body: JSON.stringify(RULES) });
  for (let at = 0; at < 40; at += 1) await done(server, tenant, "PUT", "plain", `object-${at}`, { body: "x" });
  // Rules hold for writes that begin a second later.
  await until("the rules hold", async () => {
    await done(server, tenant, "PUT", "runs", `${FIRST}part`, { body: "weights of the first" });
    return (await saved(FIRST)) === "committed";
  });
  await launch(server.url);
});

after(async () => {
  await close();
  await server?.end();
});

/** Writes the marker of a set. Returns the state of the generation. */
async function saved(set) {
  const { headers } = await done(server, tenant, "PUT", "runs", `${set}DONE`, { body: "" });
  return (headers["x-martlet-checkpoint"] ?? "").split(";")[0];
}

async function save(set, text) {
  await done(server, tenant, "PUT", "runs", `${set}part`, { body: text });
  assert.equal(await saved(set), "committed");
}

const json = (...args) => JSON.parse(server.ask(...args, "--json"));
/** State of each generation of a set, by the command. */
function generations(set) {
  const listed = json("checkpoints", "list", "runs");
  const sets = Array.isArray(listed) ? listed : listed.sets;
  return sets.find((one) => one.set === set)?.generations.map((one) => `${one.generation} ${one.state}`) ?? [];
}
/** Text of a set's part in the view, or the status without one. */
async function seen(set) {
  const reply = await s3(server, tenant, "GET", "runs--committed", `${set}part`);
  return reply.status === 200 ? String(reply.body) : reply.status;
}

test("checkpoint sets are listed, and the dry run of retention names what goes and when", async () => {
  await save(SECOND, "weights of the second");
  await save(EVIL, "weights of a hostile name");
  const { context, page, problems } = await signedIn(ROOT);
  await go(page, server, "/buckets?bucket=runs");
  const rows = page.getByRole("region", { name: "Checkpoint sets" }).locator("tbody tr");
  await rows.first().waitFor();
  const shown = await rows.allInnerTexts();
  for (const set of [FIRST, SECOND, EVIL]) assert.ok(shown.some((row) => row.includes(set) && /committed/.test(row)), `${set} in ${shown}`);
  const look = page.getByRole("button", { name: "What retention will withdraw" });
  assert.equal(await look.getAttribute("aria-expanded"), "false");
  await look.click();
  assert.equal(await look.getAttribute("aria-expanded"), "true");
  const planned = page.getByRole("region", { name: "Withdrawals" }).locator("tbody tr");
  await planned.first().waitFor();
  const dry = json("checkpoints", "retention", "runs");
  const wanted = Array.isArray(dry) ? dry : dry.withdrawals;
  const lines = await planned.allInnerTexts();
  assert.equal(lines.length, wanted.length);
  assert.ok(wanted.length >= 2 && wanted.every((one) => one.due_ms > Date.now() && one.due_ms < Date.now() + 3_600_000), JSON.stringify(wanted));
  for (const one of wanted) assert.ok(lines.some((line) => line.includes(one.set) && line.includes(one.reason)), `${one.set}: ${lines}`);
  assert.ok(!lines.some((line) => line.includes(EVIL)), "the newest set stays");
  assert.deepEqual(await violations(page), []);
  await page.screenshot({ path: join(SHOTS, "checkpoint-retention.png"), fullPage: true });
  await look.click();
  await page.getByRole("region", { name: "Withdrawals" }).waitFor({ state: "detached" });
  for (const set of [FIRST, SECOND, EVIL]) assert.notEqual(await seen(set), 404, "a dry run changes nothing");
  assert.equal(await page.evaluate(() => window.hacked), undefined);
  assert.deepEqual(problems, []);
  await context.close();
});

test("one generation is withdrawn and the one before is seen, then all of a set with their objects", async () => {
  await save(SECOND, "second weights of the second");
  const number = Math.max(...generations(SECOND).map((one) => parseInt(one, 10)));
  const { context, page, problems } = await signedIn(ROOT);
  await go(page, server, "/buckets?bucket=runs");
  const dialog = page.getByRole("dialog");
  await page.getByRole("button", { name: `Withdraw generation ${number} of ${SECOND}` }).click();
  await dialog.getByText(/^1 generation leaves the view: \d+ objects/).waitFor();
  assert.deepEqual(await violations(page), []);
  // Escape changes nothing.
  await page.keyboard.press("Escape");
  assert.equal(await seen(SECOND), "second weights of the second");
  await page.getByRole("button", { name: `Withdraw generation ${number} of ${SECOND}` }).click();
  await dialog.getByRole("button", { name: "Withdraw", exact: true }).click();
  await dialog.waitFor({ state: "detached" });
  await until("the generation before is in the view", async () => (await seen(SECOND)) === "weights of the second");
  assert.ok(!generations(SECOND).includes(`${number} committed`), generations(SECOND));
  assert.equal(String((await done(server, tenant, "GET", "runs", `${SECOND}part`)).body), "second weights of the second", "objects stay in the bucket");

  const first = generations(FIRST).filter((one) => one.endsWith("committed"));
  await page.getByRole("button", { name: `Withdraw generation ${first[0].split(" ")[0]} of ${FIRST}` }).click();
  await dialog.getByLabel("All generations that are listed").check();
  await dialog.getByRole("heading", { name: `Withdraw all generations of ${FIRST}` }).waitFor();
  await dialog.getByLabel("Delete their objects too, after the grace time").check();
  const asked = [];
  page.on("request", (request) => request.method() === "DELETE" && asked.push(new URL(request.url()).searchParams));
  await dialog.getByRole("button", { name: "Withdraw", exact: true }).click();
  await dialog.waitFor({ state: "detached" });
  await until("the set leaves the view", async () => (await seen(FIRST)) === 404);
  assert.ok(asked.length >= first.length && asked.every((one) => one.get("set") === FIRST && one.get("delete_objects") === "true"), String(asked));
  assert.ok(generations(FIRST).every((one) => !one.endsWith("committed")), generations(FIRST));
  await page.locator("tr", { hasText: FIRST }).getByText("removing", { exact: true }).first().waitFor();
  assert.equal((await done(server, tenant, "GET", "runs", `${FIRST}part`)).status, 200, "objects go after the grace time alone");
  assert.match(server.ask("audit", "--json"), /bucket\/checkpoints\/sets/);
  assert.deepEqual(problems, []);
  await context.close();
});

test("a set with a hostile name is withdrawn by its dialog", async () => {
  const { context, page, problems } = await signedIn(ROOT);
  await go(page, server, "/buckets?bucket=runs");
  const dialog = page.getByRole("dialog");
  await page.getByRole("button", { name: `of ${EVIL}` }).first().click();
  await dialog.getByText(EVIL).waitFor();
  assert.equal(await page.locator("main img, dialog img").count(), 0);
  await dialog.getByRole("button", { name: "Withdraw", exact: true }).click();
  await dialog.waitFor({ state: "detached" });
  await until("the set leaves the view", async () => (await seen(EVIL)) === 404);
  assert.equal(await page.evaluate(() => window.hacked), undefined);
  assert.deepEqual(problems, []);
  await context.close();
});

test("a viewer sees sets and the dry run, and withdraws nothing", async () => {
  const { context, page, problems } = await signedIn(server.key("viewer"));
  await go(page, server, "/buckets?bucket=runs");
  await page.getByRole("heading", { name: "Checkpoint sets" }).waitFor();
  assert.equal(await page.getByRole("button", { name: /^Withdraw/ }).count(), 0);
  await page.getByRole("button", { name: "What retention will withdraw" }).click();
  await page.getByRole("region", { name: "What retention will withdraw" }).waitFor();
  const forced = await page.evaluate(async (set) => (await fetch(`/api/admin/v1/bucket/checkpoints/sets?${new URLSearchParams({ bucket: "runs", set })}`, { method: "DELETE", headers: { "x-martlet-csrf": localStorage.getItem("martlet-csrf") } })).status, SECOND);
  assert.equal(forced, 403);
  assert.equal(await seen(SECOND), "weights of the second");
  assert.deepEqual(problems, []);
  await context.close();
});

test("a running census is cancelled, and its counts are lost", async () => {
  const { context, page, problems } = await signedIn(ROOT);
  await visit(page, "/jobs");
  const dialog = page.getByRole("dialog");
  const census = () => json("job", "list").find((job) => job.kind === "census");
  await page.getByRole("button", { name: "Start a census" }).click();
  await dialog.getByLabel("Pause").fill("61s");
  await dialog.getByRole("button", { name: "Start" }).click();
  await dialog.getByRole("alert").waitFor();
  await dialog.getByLabel("Pause").fill("60s");
  await dialog.getByRole("button", { name: "Start" }).click();
  await dialog.waitFor({ state: "detached" });
  await page.locator("main").getByText("running", { exact: true }).waitFor();
  assert.equal(census().state, "running");
  const cancel = page.locator("section.card").filter({ hasText: "census" }).getByRole("button", { name: "Cancel" });
  await cancel.click();
  await dialog.getByText("Its counts are lost. Nothing else changes.").waitFor();
  assert.deepEqual(await violations(page), []);
  await page.screenshot({ path: join(SHOTS, "job-cancel.png") });
  await dialog.getByRole("button", { name: "Cancel", exact: true }).click();
  await dialog.waitFor({ state: "detached" });
  assert.equal(census().state, "running", "the job goes on");
  await cancel.click();
  await dialog.getByRole("button", { name: "Cancel the job" }).click();
  await page.locator("main").getByText("cancelled", { exact: true }).waitFor();
  await until("the job ends", () => census().state === "cancelled");
  assert.equal(await cancel.count(), 0);
  assert.deepEqual((await api(page, `job?id=${census().id}`)).body.state, "cancelled");
  assert.deepEqual(problems, []);
  await context.close();
});
