// A bucket of a million keys, from a source of pages in place of S3, and one of some thousands in a real store.
import assert from "node:assert/strict";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { close, launch, open, SHOTS, signIn, violations } from "./browser.mjs";
import { done } from "./s3.mjs";
import { start } from "./server.mjs";

const MILLION = 1_000_000;
const REAL = 3_500;
let server;
let key;

before(async () => {
  assert.ok(process.env.MARTLET_BIN, "MARTLET_BIN must name the binary");
  server = await start(process.env.MARTLET_BIN);
  server.ask("tenant", "create", "research");
  key = server.accessKey("--tenant", "research");
  await done(server, key, "PUT", "large");
  await launch(server.url);
});

after(async () => {
  await close();
  await server?.end();
});

const name = (at) => `shard-${String(at).padStart(7, "0")}.bin`;

function page(from) {
  const keys = Array.from({ length: Math.min(1000, MILLION - from) }, (_, at) => `<Contents><Key>${name(from + at)}</Key><LastModified>2026-11-28T00:00:00.000Z</LastModified><ETag>"0"</ETag><Size>${from + at}</Size></Contents>`);
  const more = from + 1000 < MILLION;
  return `<ListBucketResult><IsTruncated>${more}</IsTruncated>${more ? `<NextContinuationToken>${from + 1000}</NextContinuationToken>` : ""}${keys.join("")}</ListBucketResult>`;
}

test("a million keys are scrolled to the end, with a bounded page", async () => {
  const { context, page: tab, problems } = await open();
  await signIn(tab, key);
  let pages = 0;
  await tab.route("**/s3/large?list-type=2**", (route) => {
    pages += 1;
    const token = new URL(route.request().url()).searchParams.get("continuation-token");
    return route.fulfill({ body: page(Number(token ?? 0)), contentType: "application/octet-stream" });
  });
  await tab.goto(`${server.url}/objects?bucket=large`);
  await tab.getByRole("link", { name: name(0), exact: true }).waitFor();
  const list = tab.getByRole("region", { name: "Objects of large" });
  for (let before = pages; pages < MILLION / 1000; before = pages) {
    // A page that is asked for may arrive after the list was at its end.
    for (let waits = 0; pages === before; waits += 1) {
      assert.ok(waits < 1000, `the list stays at page ${pages}`);
      await list.evaluate((box) => (box.scrollTop = box.scrollHeight));
      await tab.waitForTimeout(10);
    }
    assert.ok((await tab.locator("[role=row]").count()) < 60, "rows in the document");
  }
  await tab.getByText("1,000,000 entries").waitFor();
  await list.evaluate((box) => (box.scrollTop = box.scrollHeight));
  await tab.getByRole("link", { name: name(MILLION - 1), exact: true }).waitFor();
  assert.deepEqual(await violations(tab), []);
  await tab.screenshot({ path: join(SHOTS, "objects-million.png") });
  // The middle was dropped from memory, and is read again.
  await list.evaluate((box) => (box.scrollTop = box.scrollHeight / 2));
  await tab.waitForFunction(() => /shard-0[45]/.test(document.querySelector("[data-main]")?.textContent ?? ""));
  await list.evaluate((box) => (box.scrollTop = 0));
  await tab.getByRole("link", { name: name(0), exact: true }).waitFor();
  await tab.getByRole("link", { name: name(0), exact: true }).focus();
  for (let presses = 0; presses < 40; presses += 1) await tab.keyboard.press("ArrowDown");
  assert.equal(await tab.evaluate(() => document.activeElement?.textContent), name(40));
  assert.equal(await tab.getByText("1,000,000 entries").count(), 1);
  assert.deepEqual(problems, []);
  await context.close();
});

test("thousands of real keys come page by page, with folders and a search", async () => {
  const lanes = Array.from({ length: 8 }, async (_, lane) => {
    for (let at = lane; at < REAL; at += 8) await done(server, key, "PUT", "large", `${at % 2 ? "odd" : "even"}/${name(at)}`, { body: "x" });
  });
  await Promise.all(lanes);
  const { context, page: tab, problems } = await open();
  await signIn(tab, key);
  await tab.goto(`${server.url}/objects?bucket=large`);
  await tab.getByText("2 entries").waitFor();
  await tab.getByLabel("All keys, without folders").check();
  await tab.getByText("1,000 or more keys").waitFor();
  const list = tab.getByRole("region", { name: "Objects of large" });
  await list.focus();
  for (const count of ["2,000 or more", "3,000 or more", "3,500"]) {
    await list.evaluate((box) => (box.scrollTop = box.scrollHeight));
    await tab.getByText(`${count} keys`).waitFor();
  }
  await list.evaluate((box) => (box.scrollTop = box.scrollHeight));
  await tab.getByRole("link", { name: `odd/${name(REAL - 1)}`, exact: true }).waitFor();
  await tab.getByLabel("Keys that begin with").fill("even/shard-00034");
  await tab.getByText("50 keys").waitFor();
  assert.deepEqual(problems, []);
  await context.close();
});
