// Pages over a large cluster, whose replies stand in for those of the server: 60,000 devices, 1,000 nodes, hostile names.
import assert from "node:assert/strict";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { close, launch, open, SHOTS, signIn, violations, visit } from "./browser.mjs";
import { HOSTILE, ROOT, start } from "./server.mjs";

const NODES = 1000;
const PER_NODE = 60;
let server;

before(async () => {
  assert.ok(process.env.MARTLET_BIN, "MARTLET_BIN must name the binary");
  server = await start(process.env.MARTLET_BIN);
  await launch(server.url);
});

after(async () => {
  await close();
  await server?.end();
});

const node = (at) => (at === 7 ? HOSTILE : `n${at}`);
const device = (at) => ({ device: at, name: `d${at % PER_NODE}`, node: node(Math.floor(at / PER_NODE)), region: 1, zone: Math.floor(at / PER_NODE) % 4, total_bytes: 1e13, used_bytes: 5e12, extent_bytes: 5e12, reserve_bytes: 0, replicas: 100, replicas_coming: 0, replicas_going: 0, bytes_in: 0, bytes_out: 0, fullness: 0.5, fullness_projected: 0.5, fullness_peak: at === 59_999 ? 0.97 : 0.5, high_water: 0.98 });
const capacity = { devices: Array.from({ length: NODES * PER_NODE }, (_, at) => device(at)), replicas: 3, redundancy: "replicated", total_bytes: 1e17, used_bytes: 5e16, extent_bytes: 5e16, writable_until_first_full_bytes: 1, writable_until_all_full_bytes: 1, warnings: Array.from({ length: 500 }, (_, at) => `warning ${at} ${HOSTILE}`), silent: ["n999", HOSTILE] };
const line = (at) => ({ device: at, name: `d${at % PER_NODE}`, path: `/mnt/${HOSTILE}/d${at}`, health: "ready", voting: true, total_bytes: 1e13, free_bytes: 5e12, extents: 1, extent_bytes: 1, quarantined: at % 100 === 0 ? at + 1 : 0, hints: 0 });
const rings = [{ name: "index", epoch: 3, hash: "aa" }, { name: "data-0", epoch: 5, hash: "bb" }];
const status = {
  version: "0", role: "proxy p1", ready: true, reasons: [], members: [], moves: [{ ring: "data-0", epoch: 5, partitions: 65_536, replicas: 196_608, partitions_moving: 900, replicas_moving: 900 }],
  nodes: Array.from({ length: NODES }, (_, at) => ({ name: node(at), address: `10.0.0.1:${at}`, answers: at !== 999, replies: 1, silences: 0, latency_us: 1, rings: at === 500 ? [{ ...rings[0], epoch: 2 }, rings[1]] : rings, report: at === 999 ? undefined : { version: "0", role: `storage-node n${at}`, ready: true, reasons: [], devices: Array.from({ length: PER_NODE }, (_, of) => line(at * PER_NODE + of)) } })),
};

test("sixty thousand devices are paged, filtered and searched, with few elements", async () => {
  const { context, page, problems } = await open();
  await signIn(page, ROOT);
  const reply = (body) => (route) => route.fulfill({ json: body });
  await page.route("**/api/admin/v1/capacity", reply(capacity));
  await page.route("**/api/admin/v1/status", reply(status));
  await visit(page, "/devices");
  await page.getByText("Page 1 of 500").waitFor();
  const elements = async () => await page.locator("main *").count();
  assert.ok((await elements()) < 5000, `${await elements()} elements`);
  assert.equal(await page.locator("article.tile").count(), 120);
  await page.getByRole("navigation", { name: "Pages of the devices" }).getByRole("button", { name: "Next" }).click();
  await page.getByText("Page 2 of 500").waitFor();
  await page.getByLabel("Node, device or zone").fill("n123");
  await page.waitForFunction((count) => document.querySelectorAll("article.tile").length === count, PER_NODE);
  await page.getByLabel("Node, device or zone").fill("");
  await page.getByLabel("Devices", { exact: true }).selectOption("near the mark or above it");
  await page.waitForFunction(() => document.querySelectorAll("article.tile").length === 1);
  await page.getByLabel("Devices", { exact: true }).selectOption("not ready");
  await page.waitForFunction((count) => document.querySelectorAll("article.tile").length === count, PER_NODE);
  await page.getByLabel("Devices", { exact: true }).selectOption("all");
  assert.deepEqual(await violations(page), []);
  await page.screenshot({ path: join(SHOTS, "devices-60000.png") });
  await visit(page, "/");
  await page.getByText("Node n999 does not answer.").waitFor();
  assert.ok((await page.locator(".reasons li").count()) < 60);
  await visit(page, "/census");
  await page.getByRole("region", { name: "Quarantine" }).waitFor();
  assert.equal(await page.getByRole("region", { name: "Quarantine" }).locator("tbody tr").count(), 50);
  await page.getByText(`${line(59_900).path}/quarantine`).waitFor();
  await page.getByText("One node does not report, and may have more.").waitFor();
  assert.deepEqual(await violations(page), []);
  await page.screenshot({ path: join(SHOTS, "quarantine.png") });
  await visit(page, "/rings");
  const first = page.getByRole("region", { name: "Rings of the nodes" }).locator("tbody tr");
  assert.equal(await first.count(), 50);
  assert.match(await first.nth(0).innerText(), /n999[\s\S]*silent/);
  assert.match(await first.nth(1).innerText(), /n500[\s\S]*old/);
  await visit(page, "/settings");
  assert.ok((await elements()) < 5000);
  assert.equal(await page.locator("main img").count(), 0);
  assert.equal(await page.evaluate(() => window.hacked), undefined);
  assert.deepEqual(problems, []);
  await context.close();
});

test("a quarantine and findings of a census with faults are told apart from a clean one", async () => {
  const { context, page, problems } = await open();
  await signIn(page, ROOT);
  const counts = { things: 10, copies: 29, missing: 1, older: 2, stray: 3 };
  const detail = { partitions: 4, registers: counts, extents: counts, lost: 2, hints: 0, moving: 0, silent: [4], without_votes: [], findings: Array.from({ length: 120 }, (_, at) => `d${at} lacks ${HOSTILE}`), clean: false };
  const job = { id: "j1", kind: "census", subject: "", state: "done", started_ms: 1, ended_ms: 2000, progress: { done: 1, total: 1, unit: "items", text: "" } };
  await page.route("**/api/admin/v1/jobs", (route) => route.fulfill({ json: { items: [job] } }));
  await page.route("**/api/admin/v1/job?*", (route) => route.fulfill({ json: { ...job, detail } }));
  await visit(page, "/census");
  await page.getByText("Not clean", { exact: true }).waitFor();
  await page.getByText("2 extents are lost:").waitFor();
  await page.getByText("Devices without an answer: d4.").waitFor();
  assert.equal(await page.locator(".findings li").count(), 50);
  assert.deepEqual(await violations(page), []);
  await page.screenshot({ path: join(SHOTS, "census-findings.png"), fullPage: true });
  assert.equal(await page.evaluate(() => window.hacked), undefined);
  assert.deepEqual(problems, []);
  await context.close();
});
