// Pages over the processes of a real cluster: one of them, all of them, and those that don't answer.
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { close, launch, LOOKS, open, SHOTS, signIn, violations, visit } from "./browser.mjs";
import { startCluster, until } from "./cluster.mjs";
import { HOSTILE, ROOT } from "./server.mjs";

let started;
let operator;
let viewer;

/** Makes an admin key of the cluster. */
function keyOf(role) {
  const file = join(started.folder, `${role}.key`);
  started.ask("key", "create", "--role", role, "--name", role, "--key-file", file);
  const pairs = readFileSync(file, "utf8").trim().split("\n").map((line) => line.split("="));
  const of = Object.fromEntries(pairs.map(([name, ...rest]) => [name, rest.join("=")]));
  return { key: of.MARTLET_ADMIN_KEY, secret: of.MARTLET_ADMIN_SECRET };
}

before(async () => {
  started = await startCluster(process.env.MARTLET_BIN, ["--nodes", "3", "--devices-per-node", "1", "--zones", "1", "--proxies", "2"]);
  [operator, viewer] = [keyOf("operator"), keyOf("viewer")];
  const settings = readFileSync(join(started.folder, "cluster/p2/proxy.toml"), "utf8");
  const [, second] = /^admin_address = "([^"]+)"/m.exec(settings) ?? [];
  assert.ok(second, settings);
  const env = { PATH: process.env.PATH, HOME: started.folder, MARTLET_ROOT_ACCESS_KEY: ROOT.key, MARTLET_ROOT_SECRET_KEY: ROOT.secret };
  const atSecond = (...args) => execFileSync(process.env.MARTLET_BIN, ["admin", "--admin-address", second, ...args], { env, encoding: "utf8" });
  atSecond("tenant", "create", "made-at-the-second");
  atSecond("census");
  started.ask("tenant", "create", "made-at-the-first");
  await launch(started.url);
});

after(async () => {
  await close();
  await started?.end();
});

async function signedIn(principal, look) {
  const opened = await open(look);
  await signIn(opened.page, principal);
  return opened;
}

async function choose(page, name) {
  await page.locator(`select option:text-is("${name}")`).first().waitFor({ state: "attached" });
  await page.getByLabel("Process", { exact: true }).selectOption(name);
}

test("records and jobs of another process and of all are shown", async () => {
  const { context, page, problems } = await signedIn(operator);
  await visit(page, "/audit");
  const changes = page.getByRole("region", { name: "Changes" });
  await changes.getByText("=made-at-the-first").first().waitFor();
  assert.equal(await changes.getByText("=made-at-the-second").count(), 0);
  await choose(page, "proxy p2");
  await changes.getByText("=made-at-the-second").first().waitFor();
  assert.equal(await changes.getByText("=made-at-the-first").count(), 0);
  await choose(page, "all processes");
  await changes.getByText("=made-at-the-first").first().waitFor();
  await changes.getByText("=made-at-the-second").first().waitFor();
  const times = await changes.locator("tbody tr td:first-child").allInnerTexts();
  assert.deepEqual(times, [...times].sort(), "records of both are joined by time");
  assert.deepEqual(await violations(page), []);
  await page.screenshot({ path: join(SHOTS, "audit-all.png"), fullPage: true });
  await visit(page, "/jobs");
  await page.getByText("No jobs").waitFor();
  await choose(page, "all processes");
  await page.getByRole("heading", { name: "census" }).waitFor();
  await page.getByText(/^proxy p2, /).waitFor();
  await page.getByText("Report", { exact: true }).click();
  await page.getByRole("region", { name: "Counts of the census" }).waitFor();
  assert.deepEqual(await violations(page), []);
  assert.deepEqual(problems, []);
  await context.close();
});

test("settings and event targets of other roles are shown", async () => {
  const { context, page, problems } = await signedIn(viewer);
  await visit(page, "/settings");
  const settings = page.getByRole("region", { name: "Settings" });
  await settings.getByText("console_address").waitFor();
  await choose(page, "storage node n1");
  await settings.getByText("cluster_key_file").first().waitFor();
  await until("the settings are those of the node", async () => (await settings.getByText("console_address").count()) === 0);
  await visit(page, "/events");
  await choose(page, "all processes");
  await page.getByText("No event targets").waitFor();
  assert.deepEqual(await violations(page), []);
  assert.deepEqual(problems, []);
  await context.close();
});

test("a viewer reads no records of any process", async () => {
  const { context, page, problems } = await signedIn(viewer);
  const statuses = await page.evaluate(async () => {
    const csrf = localStorage.getItem("martlet-csrf");
    const ask = async (route) => (await fetch(`/api/admin/v1/processes/reply?${new URLSearchParams({ process: "proxy p2", route })}`, { headers: { "x-martlet-csrf": csrf } })).status;
    return [await ask("/admin/v1/audit"), await ask("/admin/v1/events/parked"), await ask("/admin/v1/jobs"), await ask("/admin/v1/tenants")];
  });
  assert.deepEqual(statuses, [403, 403, 200, 400]);
  assert.deepEqual(problems, []);
  await context.close();
});

test("the root key, which has no sessions, reads its own process alone", async () => {
  const { context, page, problems } = await signedIn(ROOT);
  await visit(page, "/settings");
  await choose(page, "proxy p2");
  await page.getByText(/proxy p2: other processes are .* for admin keys alone/).waitFor();
  assert.deepEqual(problems, []);
  await context.close();
});

test("a dead process is named beside the records of the others", async () => {
  started.cluster("kill", "p2");
  const { context, page, problems } = await signedIn(operator);
  await visit(page, "/audit");
  await choose(page, "all processes");
  await page.getByRole("region", { name: "Changes" }).getByText("=made-at-the-first").first().waitFor();
  const missing = page.getByRole("alert");
  await missing.getByText("One process is missing here:").waitFor();
  await missing.getByText(/no server answers at/).waitFor();
  assert.deepEqual(await violations(page), []);
  assert.deepEqual(problems, []);
  await context.close();
});

for (const path of ["/audit", "/jobs", "/events"]) {
  test(`replies are shown as they come on ${path}, and requests end with the page`, async () => {
    const { context, page, problems } = await open(LOOKS[0]);
    const names = ["proxy p1", "proxy p2", "proxy slow"];
    const route = { "/audit": "/admin/v1/audit", "/jobs": "/admin/v1/jobs", "/events": "/admin/v1/events" }[path];
    await context.route("**/api/admin/v1/processes", (one) => one.fulfill({ json: names.map((process, at) => ({ process, own: at === 0, routes: [route], silent: null })) }));
    const items = {
      "/audit": [{ v: 1, id: "1", time_ms: Date.now(), process: "x", who: { kind: "key", key: "K", name: "n", role: "operator" }, operation: "of-the-quick", target: {}, outcome: "done", status: 200 }],
      "/jobs": [{ id: "j1", kind: "of-the-quick", state: "done", subject: null, started_ms: Date.now(), ended_ms: Date.now(), progress: { done: 1, total: 1, unit: "x", text: "" } }],
      "/events": [{ target: "of-the-quick", waiting_bytes: 0, delivered: 0, failures: 0, refused: 0, lost: 0, parked: [] }],
    }[path];
    let slow;
    await context.route("**/api/admin/v1/processes/reply?*", (one) => {
      const process = new URL(one.request().url()).searchParams.get("process");
      if (process === "proxy slow") slow = one.request();
      else void one.fulfill({ json: { items, next: "c", more: false } });
    });
    await signIn(page, operator);
    await visit(page, path);
    await choose(page, "all processes");
    await page.getByText("of-the-quick").first().waitFor();
    await page.getByText("One process has not replied yet.").waitFor();
    assert.deepEqual(await violations(page), []);
    const [failed] = await Promise.all([page.waitForEvent("requestfailed", (one) => one === slow), visit(page, "/settings")]);
    assert.match(failed.failure().errorText, /ERR_ABORTED/);
    assert.deepEqual(problems, []);
    await context.close();
  });
}

test("of many silent processes the first are named", async () => {
  const { context, page, problems } = await open(LOOKS[0]);
  const list = Array.from({ length: 31 }, (_, at) => ({ process: `proxy p${at}`, own: at === 0, routes: ["/admin/v1/audit"], silent: at > 0 ? "it listens elsewhere" : null }));
  await context.route("**/api/admin/v1/processes", (route) => route.fulfill({ json: list }));
  await signIn(page, operator);
  await visit(page, "/audit");
  await choose(page, "all processes");
  await page.getByText("30 processes are missing here:").waitFor();
  assert.equal(await page.getByText("it listens elsewhere").count(), 20);
  await page.getByText("and 10 further ones").waitFor();
  assert.deepEqual(await violations(page), []);
  assert.deepEqual(problems, []);
  await context.close();
});

for (const look of LOOKS) {
  test(`hostile records of many processes are whole in ${look.name}`, async () => {
    const opened = await open(look);
    const { context, page, problems } = opened;
    const names = ["proxy p1", `proxy ${HOSTILE}`, "proxy p3"];
    await context.route("**/api/admin/v1/processes", (route) => route.fulfill({ json: names.map((process, at) => ({ process, own: at === 0, routes: ["/admin/v1/audit"], silent: at === 2 ? `it is ${HOSTILE}` : null })) }));
    const record = { v: 1, id: "1", time_ms: Date.now(), process: "proxy forged", who: { kind: "key", key: "K", name: HOSTILE, role: "operator" }, operation: HOSTILE, target: { name: HOSTILE.repeat(5) }, outcome: "done", status: 200 };
    await context.route("**/api/admin/v1/processes/reply?*", (route) => route.fulfill({ json: { items: [record], next: "c1", more: true } }));
    await signIn(page, operator);
    await visit(page, "/audit");
    await choose(page, "all processes");
    await page.getByRole("region", { name: "Changes" }).getByText(names[1], { exact: true }).first().waitFor();
    await page.getByText(`proxy p3: it is ${HOSTILE}`).waitFor();
    assert.equal(await page.getByText("proxy forged").count(), 0, "a record is shown with the process that was read");
    assert.deepEqual(await violations(page), []);
    const overflow = await page.evaluate(() => document.documentElement.scrollWidth - window.innerWidth);
    assert.ok(overflow <= 0, `${overflow} pixels too wide`);
    await page.screenshot({ path: join(SHOTS, `audit-hostile-${look.name}.png`), fullPage: true });
    // The next page has the records of those alone that have more.
    const [request] = await Promise.all([page.waitForRequest(/processes\/reply/), page.getByRole("button", { name: "Next" }).click()]);
    assert.match(new URL(request.url()).searchParams.get("query"), /after=c1/);
    await page.getByText("Page 2").waitFor();
    assert.equal(await page.evaluate(() => window.hacked), undefined);
    assert.deepEqual(problems, []);
    await context.close();
  });
}
