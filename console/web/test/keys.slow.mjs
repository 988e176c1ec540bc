// A bucket of MARTLET_TEST_KEYS real keys (100,000) in a real store, scrolled to the end: `make test-console-keys`. million.test.mjs
// has a million keys from a source of pages in place of the store, and some thousands in a store.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { close, launch, SHOTS, violations } from "./browser.mjs";
import { done } from "./s3.mjs";
import { start } from "./server.mjs";
import { signedIn } from "./steps.mjs";

const KEYS = Number(process.env.MARTLET_TEST_KEYS ?? 100_000);
/** Concurrent requests that make the keys. */
const LANES = 128;
/** Rows of the list that the document has at most, and bytes of the page's heap. */
const ROWS_MAX = 60;
const HEAP_MAX = 128 << 20;
let server;
let key;

const name = (at) => `shard-${String(at).padStart(7, "0")}.bin`;
const text = KEYS.toLocaleString("en-US");
/** Memory of the server in MiB: the present one and the largest so far. */
const memory = () => ["VmRSS", "VmHWM"].map((name) => Math.round(new RegExp(`${name}:\\s+(\\d+)`).exec(readFileSync(`/proc/${server.pid}/status`, "utf8"))[1] / 1024));

before(async () => {
  assert.ok(process.env.MARTLET_BIN, "MARTLET_BIN must name the binary");
  assert.ok(Number.isSafeInteger(KEYS) && KEYS >= 5000, "MARTLET_TEST_KEYS must be a whole number of 5000 at least");
  server = await start(process.env.MARTLET_BIN);
  server.ask("tenant", "create", "research");
  key = server.accessKey("--tenant", "research");
  await done(server, key, "PUT", "large");
  const began = Date.now();
  let next = 0;
  const lane = async () => {
    for (let at = next++; at < KEYS; at = next++) await done(server, key, "PUT", "large", name(at), { body: "x" });
  };
  await Promise.all(Array.from({ length: LANES }, lane));
  const seconds = (Date.now() - began) / 1000;
  console.log(`${text} keys in ${seconds.toFixed(0)} s, ${Math.round(KEYS / seconds)} a second; the server has ${memory()[0]} MiB`);
  await launch(server.url);
});

after(async () => {
  await close();
  await server?.end();
});

test(`${text} real keys are scrolled to the end, with a bounded page`, { timeout: 3_600_000 }, async () => {
  const usage = JSON.parse(server.ask("bucket", "usage", "large", "--now", "--json"));
  assert.equal(usage.objects, KEYS, JSON.stringify(usage));
  const { context, page, problems } = await signedIn(key);
  const pages = [];
  page.on("response", (reply) => reply.url().includes("list-type=2") && pages.push(reply.status()));
  const began = Date.now();
  await page.goto(`${server.url}/objects?bucket=large`);
  await page.getByRole("link", { name: name(0), exact: true }).waitFor();
  console.log(`the first rows after ${Date.now() - began} ms`);
  const list = page.getByRole("region", { name: "Objects of large" });
  const total = page.getByText(`${text} entries`);
  while ((await total.count()) === 0) {
    const before = pages.length;
    await list.evaluate((box) => (box.scrollTop = box.scrollHeight));
    for (let waits = 0; pages.length === before && (await total.count()) === 0; waits += 1) {
      assert.ok(waits < 3000, `the list stays at page ${pages.length}`);
      await page.waitForTimeout(10);
    }
    assert.ok((await page.locator("[role=row]").count()) < ROWS_MAX, "rows in the document");
  }
  await list.evaluate((box) => (box.scrollTop = box.scrollHeight));
  await page.getByRole("link", { name: name(KEYS - 1), exact: true }).waitFor();
  assert.ok(pages.every((status) => status === 200) && pages.length >= KEYS / 1000, `${pages.length} pages`);
  const cdp = await context.newCDPSession(page);
  await cdp.send("HeapProfiler.collectGarbage");
  const { usedSize } = await cdp.send("Runtime.getHeapUsage");
  console.log(`${pages.length} pages to the end in ${((Date.now() - began) / 1000).toFixed(0)} s, a heap of ${(usedSize / 2 ** 20).toFixed(0)} MiB; the server has ${memory().join(" MiB, at most ")} MiB`);
  assert.ok(usedSize < HEAP_MAX, `the heap has ${usedSize} bytes`);
  assert.deepEqual(await violations(page), []);
  await page.screenshot({ path: join(SHOTS, "objects-real-keys.png") });

  // Rows that were dropped from memory are read again, and a search goes to its place at once.
  await list.evaluate((box) => (box.scrollTop = 0));
  await page.getByRole("link", { name: name(0), exact: true }).waitFor();
  await list.evaluate((box) => (box.scrollTop = box.scrollHeight));
  await page.getByRole("link", { name: name(KEYS - 1), exact: true }).waitFor();
  const middle = Math.floor(KEYS / 2);
  await page.getByLabel("Keys that begin with").fill(name(middle).slice(0, -5));
  await page.getByText("10 entries").waitFor();
  await page.getByRole("link", { name: name(middle), exact: true }).waitFor();
  assert.deepEqual(problems, []);
  await context.close();
});
