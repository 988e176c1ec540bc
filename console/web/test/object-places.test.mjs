// Places of objects' bytes, and what retention will do with checkpoints, in a real browser over real stores.
import assert from "node:assert/strict";
import { randomBytes } from "node:crypto";
import { after, before, test } from "node:test";
import { close, launch, LOOKS, violations } from "./browser.mjs";
import { focus, go, settled, signedIn, whole } from "./object-pages.mjs";
import { done, s3 } from "./s3.mjs";
import { HOSTILE, start } from "./server.mjs";

const MIB = 1 << 20;
const VERSIONING = "<VersioningConfiguration><Status>Enabled</Status></VersioningConfiguration>";
const RULES = '{"rules":[{"pattern":"run/*/","profile":"custom","markers":["DONE"],"keep":1,"min_age":7200}]}';
let server;
let tenant;
let reader;
let stranger;

before(async () => {
  assert.ok(process.env.MARTLET_BIN, "MARTLET_BIN must name the binary");
  server = await start(process.env.MARTLET_BIN, { MARTLET_DATA_ADDRESS: "127.0.0.1:0" });
  server.ask("tenant", "create", "research");
  server.ask("tenant", "create", "other");
  server.ask("user", "create", "--tenant", "research", "reader", "--role", "read-only");
  tenant = server.accessKey("--tenant", "research");
  reader = server.accessKey("--tenant", "research", "--user", "reader");
  stranger = server.accessKey("--tenant", "other");
  await done(server, tenant, "PUT", "train");
  await done(server, tenant, "PUT", "train", "small.txt", { body: "few bytes" });
  await done(server, tenant, "PUT", "train", "empty", { body: "" });
  await done(server, tenant, "PUT", "train", "packed.bin", { body: randomBytes(100_000) });
  await done(server, tenant, "PUT", "train", HOSTILE, { body: randomBytes(3 * MIB) });
  await done(server, tenant, "PUT", "train", "sealed.bin", { body: randomBytes(100_000), headers: { "x-amz-server-side-encryption": "AES256" } });
  await launch(server.url);
});

after(async () => {
  await close();
  await server?.end();
});

const panel = (page) => page.locator("section", { has: page.getByRole("heading", { name: "Where the bytes lie" }) });

async function look(page, key, version) {
  await go(page, server.url, { bucket: "train", key, ...(version && { version }) });
  await page.getByRole("button", { name: "Look up the places" }).click();
  await panel(page).getByRole("status").and(page.locator("p")).waitFor();
}

test("the places of an object are shown, and no token reaches the browser", async () => {
  const { context, page, problems } = await signedIn(reader);
  const replies = [];
  page.on("response", async (reply) => {
    if (reply.url().includes("/own/layout")) replies.push(reply.text());
  });
  await look(page, HOSTILE);
  await panel(page).getByText("can be read in place").waitFor();
  await panel(page).getByText("3.0 MiB in 1 extent: copies.").waitFor();
  const row = panel(page).locator("tbody tr");
  assert.equal(await row.count(), 1);
  const text = await row.innerText();
  assert.match(text, /3,145,728/);
  assert.match(text, /127\.0\.0\.1:\d+/);
  // The store itself sends a token to a client of the same key, and the page has none.
  const located = JSON.parse(String((await done(server, reader, "GET", "train", HOSTILE, { query: { locate: "" } })).body));
  const [holder] = located.extents[0].pieces[0].holders;
  assert.ok(holder.token.length > 20);
  assert.match(text, new RegExp(located.extents[0].id));
  assert.match(text, new RegExp(new URL(holder.url).host));
  const sent = (await Promise.all(replies)).join();
  assert.ok(sent.includes(located.extents[0].id) && !/token|host_id|stamp|expires/.test(sent), sent);
  const kept = await page.evaluate(() => document.documentElement.outerHTML + JSON.stringify({ ...localStorage, ...sessionStorage }));
  assert.ok(!kept.includes("/x/") && !kept.includes(holder.token.slice(0, 12)));
  assert.equal(await page.evaluate(() => window.hacked), undefined);
  // Scripts of the page can't get one by S3's own path either.
  const status = await page.evaluate(async () => (await fetch("/s3/train/ZW1wdHk?locate=", { headers: { "x-martlet-csrf": localStorage.getItem("martlet-csrf") } })).status);
  assert.equal(status, 400);
  assert.deepEqual(problems, []);
  await context.close();
});

test("objects that are not read in place say why", async () => {
  const { context, page, problems } = await signedIn(tenant);
  await look(page, "small.txt");
  await panel(page).getByText("its bytes lie inline").waitFor();
  await look(page, "sealed.bin");
  await panel(page).getByText("stored encrypted").waitFor();
  await look(page, "empty");
  await panel(page).getByText("The object is empty.").waitFor();
  await look(page, "packed.bin");
  await panel(page).getByText("copies, packed").first().waitFor();
  assert.deepEqual(await violations(page), []);
  // A later version of the key has other places.
  const before = await panel(page).locator("tbody th").innerText();
  await done(server, tenant, "PUT", "train", "packed.bin", { body: randomBytes(200_000) });
  await look(page, "packed.bin");
  assert.notEqual(await panel(page).locator("tbody th").innerText(), before);
  // The object was deleted while its page was open.
  await go(page, server.url, { bucket: "train", key: "packed.bin" });
  await done(server, tenant, "DELETE", "train", "packed.bin");
  await page.getByRole("button", { name: "Look up the places" }).click();
  await panel(page).getByRole("alert").getByText("The specified key does not exist").waitFor();
  assert.deepEqual(problems, []);
  await context.close();
});

test("a key that may not read an object learns no place of it", async () => {
  const { context, page, problems } = await signedIn(stranger);
  const reply = await page.evaluate(async () => {
    const headers = { "x-martlet-csrf": localStorage.getItem("martlet-csrf") };
    const sent = await fetch("/own/layout?bucket=train&key=small.txt", { headers });
    return [sent.status, await sent.text()];
  });
  assert.deepEqual(reply, [403, JSON.stringify({ error: "Access Denied" })]);
  assert.deepEqual(problems, []);
  await context.close();
});

/** Page of a layout under an erasure code, of an object with more extents than a page has. */
function coded(from) {
  const extents = Array.from({ length: 60 }, (_, at) => ({
    id: `${from + at}`.padStart(32, "0"), offset: from + at * 16 * MIB, length: 16 * MIB, blake3: HOSTILE.padEnd(64), code: { k: 2, m: 1 },
    pieces: [0, 1].map((piece) => ({ piece, id: `${HOSTILE}${from}-${at}-${piece}`, from: piece * 8 * MIB, length: 8 * MIB, holders: at === 0 && piece === 1 ? [] : [{ url: `http://10.0.0.${piece}:9002` }] })),
  }));
  return { size: 120 * 16 * MIB, etag: '"e&e"', direct: true, reason: null, extents, next: from === 0 ? 60 * 16 * MIB : null };
}

for (const look_ of LOOKS) {
  test(`layouts of erasure codes are paged, in ${look_.name}`, async () => {
    const { context, page, problems } = await signedIn(tenant, look_);
    const asked = [];
    await page.route("**/own/layout?**", (route) => {
      const query = new URL(route.request().url()).searchParams;
      asked.push([query.get("key"), query.get("from"), query.get("etag")]);
      return route.fulfill({ json: coded(Number(query.get("from") ?? 0)) });
    });
    await look(page, "empty");
    await panel(page).getByText("1.9 GiB in 60 extents on this page: coded 2+1.").waitFor();
    await panel(page).getByText("none found: GET reconstructs it").waitFor();
    assert.equal(await panel(page).locator("tbody tr").count(), 50);
    await whole(page, "object-places", look_);
    await panel(page).getByRole("navigation", { name: "Pages of the extents" }).getByRole("button", { name: "Next" }).click();
    assert.equal(await panel(page).locator("tbody tr").count(), 50);
    await panel(page).getByRole("navigation", { name: "Pages of the list" }).getByRole("button", { name: "Next" }).click();
    await panel(page).getByText("Page 2", { exact: true }).waitFor();
    await panel(page).getByText("in 60 extents: coded 2+1.").waitFor();
    assert.deepEqual(asked, [["empty", null, null], ["empty", String(60 * 16 * MIB), '"e&e"']]);
    assert.equal(await page.evaluate(() => window.hacked), undefined);
    assert.deepEqual(problems, []);
    await context.close();
  });
}

test("accounts with a limit on bytes, and stores without data ports, get a sentence", async () => {
  const { context, page, problems } = await signedIn(tenant);
  await page.route("**/own/layout?**", (route) => route.fulfill({ json: { ...coded(0), direct: false, reason: "rate-limited", extents: [], next: null } }));
  await look(page, "empty");
  await panel(page).getByText("has a limit on bytes per second").waitFor();
  assert.deepEqual(problems, []);
  await context.close();
  const plain = await start(process.env.MARTLET_BIN);
  try {
    plain.ask("tenant", "create", "research");
    const key = plain.accessKey("--tenant", "research");
    await done(plain, key, "PUT", "train");
    await done(plain, key, "PUT", "train", "k", { body: "x" });
    const other = await signedIn(key, LOOKS[0], plain.url);
    await go(other.page, plain.url, { bucket: "train", key: "k" });
    await other.page.getByRole("button", { name: "Look up the places" }).click();
    await panel(other.page).getByRole("alert").getByText("no node of this store has a data port").waitFor();
    assert.deepEqual(await violations(other.page), []);
    assert.deepEqual(other.problems, []);
    await other.context.close();
  } finally {
    await plain.end();
  }
});

test("the keyboard alone looks up the places", async () => {
  const { context, page, problems } = await signedIn(tenant);
  await go(page, server.url, { bucket: "train", key: HOSTILE });
  await focus(page, "Look up the places");
  await page.keyboard.press("Enter");
  await panel(page).getByText("can be read in place").waitFor();
  assert.deepEqual(problems, []);
  await context.close();
});

/** Saves three sets of a series, and the last one twice. Returns the time of the first commit. */
async function saveSets() {
  await done(server, tenant, "PUT", "runs");
  await done(server, tenant, "PUT", "runs", "", { query: { versioning: "" }, body: VERSIONING });
  await done(server, tenant, "PUT", "runs", "", { query: { checkpoints: "" }, body: RULES });
  // Rules hold for writes that begin a second later.
  for (let tries = 0; ; tries += 1) {
    const marked = await done(server, tenant, "PUT", "runs", "run/0/DONE", { body: "" });
    if (marked.headers["x-martlet-checkpoint"]) break;
    assert.ok(tries < 100, "the rules hold for no write");
    await new Promise((resolve) => setTimeout(resolve, 100));
  }
  for (const set of ["run/1/", `run/${HOSTILE.replaceAll("/", "")}/`, "run/2/"]) {
    await done(server, tenant, "PUT", "runs", `${set}part.bin`, { body: "weights" });
    const marked = await done(server, tenant, "PUT", "runs", `${set}DONE`, { body: "" });
    assert.match(marked.headers["x-martlet-checkpoint"], /^committed/);
  }
}

test("a set shows which of its generations retention withdraws, and when", async () => {
  await saveSets();
  const { context, page, problems } = await signedIn(reader);
  await go(page, server.url, { bucket: "runs", prefix: "run/1/" });
  const row = page.getByRole("region", { name: "Generations" }).locator("tbody tr");
  await row.getByText("later generations of the series are enough").waitFor();
  assert.match(await row.innerText(), /Withdrawn (?!at the next pass).+objects\s*deleted/s);
  const set = JSON.parse(String((await done(server, reader, "GET", "runs", "", { query: { checkpoint: "run/1/" } })).body));
  const plan = JSON.parse(String((await done(server, reader, "GET", "runs", "", { query: { checkpoints: "", retention: "", prefix: "run/1/" } })).body));
  assert.equal(plan.withdrawals.length, 1);
  assert.equal(plan.withdrawals[0].due_ms, set.generations[0].changed_ms + 7_200_000);
  await go(page, server.url, { bucket: "runs", prefix: "run/2/" });
  await page.getByRole("region", { name: "Generations" }).getByText("stays", { exact: true }).waitFor();
  // A key that may read sets but not list has the words of S3, beside the generations.
  const policy = { Version: "2012-10-17", Statement: [{ Effect: "Allow", Principal: { AWS: "other" }, Action: "martlet:GetCheckpoint", Resource: "arn:aws:s3:::runs" }] };
  await done(server, tenant, "PUT", "runs", "", { query: { policy: "" }, body: JSON.stringify(policy) });
  const asked = async () => (await s3(server, stranger, "GET", "runs", "", { query: { checkpoint: "run/1/" } })).status;
  for (let tries = 0; (await asked()) !== 200; tries += 1) {
    assert.ok(tries < 50, "the policy holds within a second");
    await new Promise((resolve) => setTimeout(resolve, 100));
  }
  const other = await signedIn(stranger);
  await go(other.page, server.url, { bucket: "runs", prefix: "run/1/" });
  await other.page.getByRole("alert").getByText("What retention will do is not known: Access Denied").waitFor();
  assert.equal(await other.page.getByRole("region", { name: "Generations" }).locator("tbody tr").count(), 1);
  assert.deepEqual(other.problems, []);
  await other.context.close();
  assert.deepEqual(problems, []);
  await context.close();
});

for (const look_ of LOOKS) {
  test(`the dry run of a bucket is shown in its settings, in ${look_.name}`, async () => {
    const { context, page, problems } = await signedIn(reader, look_);
    await go(page, server.url, { bucket: "runs", prefix: "run/1/" });
    await page.getByRole("region", { name: "Generations" }).getByText("later generations").waitFor();
    await whole(page, "checkpoint-fates", look_);
    await go(page, server.url, { bucket: "runs", view: "settings" });
    await focus(page, "What retention will withdraw");
    await page.keyboard.press("Enter");
    const rows = page.getByRole("region", { name: "Withdrawals" }).locator("tbody tr");
    await rows.first().waitFor();
    // Sets of a series, in the order of their commits, without the newest.
    assert.equal(await rows.count(), 3);
    assert.ok((await rows.allInnerTexts()).some((text) => text.includes("window.hacked")));
    await whole(page, "retention-plan", look_);
    assert.equal(await page.evaluate(() => window.hacked), undefined);
    assert.deepEqual(problems, []);
    await context.close();
  });
}

test("pages of the dry run go on after the last set", async () => {
  const { context, page, problems } = await signedIn(tenant);
  const asked = [];
  await page.route("**/s3/runs?**retention=**", (route) => {
    const after = new URL(route.request().url()).searchParams.get("after");
    asked.push(after);
    const body = after ? { withdrawals: [{ set: "run/9/", generation: 4, reason: "no rule covers the set", due_ms: 0, deletes_objects: false }] } : { withdrawals: [], next: HOSTILE };
    return route.fulfill({ json: body });
  });
  await go(page, server.url, { bucket: "runs", view: "settings" });
  await page.getByRole("button", { name: "What retention will withdraw" }).click();
  await page.getByText("Nothing of these sets").waitFor();
  await page.getByRole("button", { name: "Next" }).click();
  const row = page.getByRole("region", { name: "Withdrawals" }).locator("tbody tr");
  await row.waitFor();
  assert.match(await row.innerText(), /at the next pass[\s\S]*kept[\s\S]*no rule covers the set/);
  assert.deepEqual(asked, [null, HOSTILE]);
  await settled(page);
  assert.deepEqual(problems, []);
  await context.close();
});
