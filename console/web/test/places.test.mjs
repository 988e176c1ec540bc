// Every place of the console, over a store of hostile names: in light and dark and at phone width, by axe, by the keyboard alone.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { close, launch, LOOKS, open, wear } from "./browser.mjs";
import { CLUSTER, hostileStore } from "./hostile.mjs";
import { PLACES, pagesOfSource, shapeOf } from "./places.mjs";
import { ROOT } from "./server.mjs";
import { go, looks, settled, signedIn, until } from "./steps.mjs";
import { walkDialogs, walkPage } from "./walk.mjs";

let store;
let sessions;
const links = new Map();
const pressed = new Map();

before(async () => {
  assert.ok(process.env.MARTLET_BIN, "MARTLET_BIN must name the binary");
  store = await hostileStore(process.env.MARTLET_BIN);
  await launch(store.server.url);
  sessions = { root: await signedIn(ROOT), user: await signedIn(store.user) };
  // An operator's change gives the audit trail a record with a session and a hostile target, and the jobs one that ended.
  const operator = await signedIn(store.server.key("operator"));
  await operator.page.evaluate(async () => {
    const headers = { "x-martlet-csrf": localStorage.getItem("martlet-csrf"), "content-type": "application/json" };
    await fetch("/api/admin/v1/jobs", { method: "POST", headers, body: JSON.stringify({ kind: "census", pause_ms: 0 }) });
    await fetch("/api/admin/v1/users", { method: "POST", headers, body: JSON.stringify({ tenant: `<img src=x onerror="window.hacked=1">`, user: "\u202ex", role: "admin", enabled: null }) });
  });
  await until("events are parked", async () => /parked/.test(await sessions.root.page.evaluate(async () => (await (await fetch("/api/admin/v1/events", { headers: { "x-martlet-csrf": localStorage.getItem("martlet-csrf") } })).text()))));
});

after(async () => {
  await close();
  await store?.end();
});

async function arrive(page, { path, steps = [] }) {
  await go(page, store.server, path.replace("VERSION", store.version));
  for (const name of steps) {
    await page.locator("main").getByRole("button", { name, exact: true }).first().click();
    await settled(page);
  }
}

test("the login is whole, and the keyboard reaches all of it", async () => {
  const { context, page, problems } = await open();
  await page.getByRole("button", { name: "Sign in" }).waitFor();
  await looks(page, "login");
  await walkPage(page, "login");
  assert.deepEqual(problems, []);
  await context.close();
});

for (const place of PLACES) {
  test(`${place.name} is whole in all looks and by keyboard, with hostile names`, async () => {
    const { page, problems } = sessions[place.as ?? "root"];
    problems.length = 0;
    await wear(page, LOOKS[0]);
    await arrive(page, place);
    assert.deepEqual(await page.locator("main .failure").allInnerTexts(), []);
    for (const href of await page.evaluate(() => [...document.querySelectorAll("a[href^='/']")].map((link) => link.getAttribute("href")))) links.set(shapeOf(href), place.name);
    await looks(page, place.name);
    await walkPage(page, place.name);
    // Buttons of one page are pressed once, though several lines lead there.
    const shape = `${place.as} ${shapeOf(place.path)}`;
    const tried = pressed.get(shape) ?? new Map();
    pressed.set(shape, tried);
    await walkDialogs(page, place.name, { tried, wanted: place.dialogs ?? [], again: () => arrive(page, place) });
    for (const wanted of place.dialogs ?? []) assert.ok(tried.get(wanted), `${wanted} opens no dialog in ${place.name}: ${[...tried.keys()]}`);
    assert.equal(await page.evaluate(() => window.hacked), undefined);
    assert.equal(await page.locator("main img:not(.picture)").count(), 0);
    assert.deepEqual(problems, []);
  });
}

// Names of nodes and devices come from rings, which a server alone doesn't have: their replies are made here.
test("nodes and devices with hostile names are whole in all looks", async () => {
  const { page, problems } = sessions.root;
  problems.length = 0;
  for (const name of ["capacity", "status", "dispersion"]) await page.route(`**/api/admin/v1/${name}`, (route) => route.fulfill({ json: CLUSTER[name] }));
  for (const path of ["/", "/devices", "/rings", "/census", "/settings"]) {
    await arrive(page, { path });
    assert.deepEqual(await page.locator("main .failure").allInnerTexts(), []);
    assert.ok((await page.locator("main").innerText()).includes("<img src=x"), path);
    await looks(page, `hostile-cluster${path.replace("/", "-")}`);
    await walkPage(page, `${path} of a hostile cluster`);
  }
  await page.unrouteAll();
  assert.equal(await page.evaluate(() => window.hacked), undefined);
  assert.equal(await page.locator("main img").count(), 0);
  assert.deepEqual(problems, []);
});

test("each page of the source, and each link of a page, has a line in the table", () => {
  const shapes = new Set(PLACES.map(({ path }) => shapeOf(path)));
  const pages = pagesOfSource();
  assert.ok(pages.length >= 14, `pages of the source: ${pages}`);
  for (const path of pages) assert.ok(shapes.has(path), `${path} is a page without a line in test/places.mjs`);
  assert.ok(links.size >= pages.length, "links were seen");
  for (const [shape, from] of links) assert.ok(shapes.has(shape) || shape.startsWith("/s3/") || shape.startsWith("/links"), `${from} links to ${shape}, which has no line in test/places.mjs`);
});
