// The list of items in quarantine: of a real damaged object, and of hostile names in all looks.
import assert from "node:assert/strict";
import { readdirSync, readFileSync, statSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { close, launch, LOOKS, open, SHOTS, signIn, violations, visit } from "./browser.mjs";
import { done, s3 } from "./s3.mjs";
import { HOSTILE, ROOT, start } from "./server.mjs";

let server;
let viewer;

/** Files of extents below a folder, the longest first. */
function filesOf(folder) {
  const entries = readdirSync(folder, { withFileTypes: true, recursive: true });
  const paths = entries.filter((entry) => entry.isFile() && entry.parentPath.includes("/extents")).map((entry) => join(entry.parentPath, entry.name));
  return paths.sort((one, other) => statSync(other).size - statSync(one).size);
}

before(async () => {
  assert.ok(process.env.MARTLET_BIN, "MARTLET_BIN must name the binary");
  server = await start(process.env.MARTLET_BIN);
  viewer = server.key("viewer");
  await done(server, ROOT, "PUT", "damaged");
  await done(server, ROOT, "PUT", "damaged", "object", { body: "x".repeat(2_000_000) });
  const [file] = filesOf(server.folder);
  const bytes = readFileSync(file);
  bytes[1000] ^= 1;
  writeFileSync(file, bytes);
  // The read fails, and moves the file into quarantine.
  await s3(server, ROOT, "GET", "damaged", "object").then((reply) => reply.arrayBuffer()).catch(() => undefined);
  await launch(server.url);
});

after(async () => {
  await close();
  await server?.end();
});

test("a damaged file is listed with its extent, by the keyboard and for viewers", async () => {
  const { context, page, problems } = await open();
  await signIn(page, viewer);
  await visit(page, "/census");
  const show = page.getByRole("button", { name: /^Show the quarantine of / });
  await show.focus();
  await page.keyboard.press("Enter");
  const row = page.getByRole("region", { name: /^Items of / }).locator("tbody tr");
  await row.first().waitFor();
  assert.equal(await row.count(), 1);
  assert.match(await row.first().innerText(), /^[0-9a-f]{32}\s+file of an extent\s/);
  assert.deepEqual(await violations(page), []);
  await page.getByRole("button", { name: "Close the list" }).click();
  await row.first().waitFor({ state: "detached" });
  assert.deepEqual(problems, []);
  await context.close();
});

for (const look of LOOKS) {
  test(`pages of hostile names are whole in ${look.name}`, async () => {
    const { context, page, problems } = await open(look);
    const items = (at) => [
      { name: `${HOSTILE}${at}`, kind: "other", bytes: 5 },
      { name: `volume-3-8192-${at}`, kind: "record", volume: 3, offset: 8192, bytes: 4096, since_ms: 1_700_000_000_000 },
      { name: `index-${at}`, kind: "index", generation: at, bytes: null, since_ms: null },
    ];
    await context.route("**/api/admin/v1/devices/quarantine?*", (route) => {
      const after = new URL(route.request().url()).searchParams.get("after");
      return after === null ? route.fulfill({ json: { items: items(1), next: "index-1" } }) : route.fulfill({ status: 503, json: { error: `the node of device 0 doesn't list its quarantine: ${HOSTILE}` } });
    });
    await signIn(page, ROOT);
    await visit(page, "/census");
    await page.getByRole("button", { name: /^Show the quarantine of / }).click();
    await page.getByText("volume 3 at 8,192").waitFor();
    await page.getByText("generation 1", { exact: true }).waitFor();
    assert.deepEqual(await violations(page), []);
    const overflow = await page.evaluate(() => document.documentElement.scrollWidth - window.innerWidth);
    assert.ok(overflow <= 0, `${overflow} pixels too wide`);
    await page.screenshot({ path: join(SHOTS, `quarantine-${look.name}.png`), fullPage: true });
    await page.getByRole("button", { name: "Next" }).click();
    await page.getByText(/doesn't list its quarantine/).waitFor();
    assert.equal(await page.evaluate(() => window.hacked), undefined);
    assert.deepEqual(problems, []);
    await context.close();
  });
}
