// Rings that are built in the console, over a cluster of real processes: a change of devices, its dry run, the files, the push,
// and the running change on the page of the rings until its end.
import assert from "node:assert/strict";
import { execFileSync, spawn } from "node:child_process";
import { createServer } from "node:net";
import { copyFileSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { close, excess, launch, LOOKS, open, SHOTS, signIn, violations, visit } from "./browser.mjs";
import { HOSTILE, ROOT } from "./server.mjs";

/** Name of a device without the slash, which places of devices can't have. */
const NAME = HOSTILE.replaceAll("/", "");
let folder;
let child;
let ended;
let url;

async function freePort() {
  const holder = createServer();
  await new Promise((resolve) => holder.listen(0, "127.0.0.1", resolve));
  const { port } = holder.address();
  await new Promise((resolve) => holder.close(resolve));
  return port;
}

const env = () => ({ PATH: process.env.PATH, HOME: folder, USER: "tester", MARTLET_ROOT_ACCESS_KEY: ROOT.key, MARTLET_ROOT_SECRET_KEY: ROOT.secret, MARTLET_CLUSTER_DIR: join(folder, "cluster") });
const martlet = (...args) => execFileSync(process.env.MARTLET_BIN, args, { env: env(), encoding: "utf8" });
const cluster = (...args) => martlet("cluster", ...args);
const admin = () => /^admin_address = "(.*)"$/m.exec(readFileSync(of("p1/proxy.toml"), "utf8"))[1];
const of = (name) => join(folder, "cluster", name);
const ring = (file, ...args) => JSON.parse(martlet("ring", join(folder, file), "--json", ...args));

async function until(what, condition, patienceMs = 120_000) {
  const deadline = Date.now() + patienceMs;
  for (;;) {
    try {
      if (await condition()) return;
    } catch {
      // Not yet.
    }
    assert.ok(Date.now() < deadline, what);
    await new Promise((resolve) => setTimeout(resolve, 200));
  }
}

before(async () => {
  assert.ok(process.env.MARTLET_BIN, "MARTLET_BIN must name the binary");
  folder = mkdtempSync(join(tmpdir(), "martlet-console-rings-"));
  const shape = ["--nodes", "4", "--devices-per-node", "1", "--zones", "2", "--s3-port", String(await freePort())];
  child = spawn(process.env.MARTLET_BIN, ["cluster", "up", ...shape], { env: env(), stdio: ["ignore", "pipe", "pipe"] });
  let text = "";
  for (const stream of [child.stdout, child.stderr]) stream.on("data", (bytes) => (text += bytes));
  ended = new Promise((resolve) => child.once("exit", resolve));
  await until("the cluster starts", () => {
    if (child.exitCode !== null) assert.fail(text);
    return cluster("status", "--json").includes("running") && text.includes("martlet cluster");
  });
  const settings = of("p1/proxy.toml");
  const port = await freePort();
  cluster("stop", "p1");
  writeFileSync(settings, `console_address = "127.0.0.1:${port}"\n${readFileSync(settings, "utf8")}`);
  // Another process of this machine may have the port for a moment.
  await until("the proxy starts", () => cluster("start", "p1") !== undefined);
  url = `http://127.0.0.1:${port}`;
  await until("the console answers", async () => (await fetch(url)).status > 0);
  await launch(url);
});

after(async () => {
  await close();
  child?.kill("SIGTERM");
  await ended;
  if (folder) rmSync(folder, { recursive: true, force: true });
});

async function build(look) {
  const opened = await open(look);
  await signIn(opened.page, ROOT);
  await visit(opened.page, "/rings");
  await opened.page.getByRole("link", { name: "Build a ring" }).click();
  await opened.page.getByRole("heading", { name: "Build a ring" }).waitFor();
  return opened;
}

async function choose(page, file) {
  await page.getByLabel("Builder file").setInputFiles(file);
  await page.getByRole("region", { name: "Devices of the builder" }).waitFor();
}

async function fill(dialog, fields) {
  for (const [label, value] of Object.entries(fields)) await dialog.getByLabel(label, { exact: true }).fill(value);
}

async function save(page, button, name) {
  const [download] = await Promise.all([page.waitForEvent("download"), page.getByRole("button", { name: button }).click()]);
  assert.equal(download.suggestedFilename(), name);
  const to = join(folder, `downloaded-${name}`);
  await download.saveAs(to);
  return to;
}

for (const look of LOOKS) {
  test(`the page is whole in ${look.name}, with a hostile name of a device`, async () => {
    const { context, page, problems } = await build(look);
    assert.deepEqual(await violations(page), []);
    await choose(page, of("data-0.builder"));
    await page.getByText("in your file", { exact: true }).waitFor();
    assert.deepEqual(await violations(page), []);
    await page.getByRole("button", { name: "Add a device" }).click();
    const dialog = page.getByRole("dialog");
    assert.deepEqual(await violations(page), [], "the dialog");
    await fill(dialog, { Region: "1", Zone: "1", Node: "n9", "Address of the node": "127.0.0.1:9", "Name of the device": NAME, Weight: "100", Metadata: HOSTILE });
    await dialog.getByRole("button", { name: "Add" }).click();
    await dialog.waitFor({ state: "detached" });
    await page.getByText(NAME).first().waitFor();
    await page.getByText("not downloaded", { exact: true }).waitFor();
    await page.getByRole("button", { name: "Show the plan" }).click();
    await page.getByRole("region", { name: "Plan", exact: true }).getByText(/would make the ring of epoch/).waitFor();
    await page.getByText("History of the builder").click();
    for (const name of ["Set the weight", "Drain", "Remove"]) assert.ok(await page.getByRole("button", { name, exact: true }).isDisabled(), name);
    assert.deepEqual(await violations(page), []);
    const overflow = await page.evaluate(() => document.documentElement.scrollWidth - window.innerWidth);
    assert.ok(overflow <= 0, `${overflow} pixels too wide`);
    await page.screenshot({ path: join(SHOTS, `ring-build-${look.name}.png`), fullPage: true });
    assert.equal(await page.evaluate(() => window.hacked), undefined);
    assert.deepEqual(problems, []);
    await context.close();
  });
}

test("places whose replicas are too close together are those of the command, in all looks", async () => {
  const file = join(folder, "crowded.builder");
  martlet("ring", file, "create", "--part-power", "6", "--replicas", "2");
  // Zone 1 is entitled to more than one replica of each partition.
  martlet("ring", file, "add", "r1z1-a@127.0.0.1:1/sda", "300", "r1z1-b@127.0.0.1:2/sda", "300", "r1z2-c@127.0.0.1:3/sda", "100");
  martlet("ring", file, "rebalance");
  const { crowded } = ring("crowded.builder", "dispersion");
  assert.ok(crowded.length > 0);
  const expected = crowded.map(({ place, partitions, most }) => [place, String(partitions), String(most)]);
  for (const look of LOOKS) {
    const { context, page, problems } = await build(look);
    await choose(page, file);
    const rows = page.getByRole("region", { name: "Crowded places of data-0" }).locator("tbody tr");
    await rows.first().waitFor();
    assert.deepEqual(await rows.evaluateAll((all) => all.map((row) => [...row.cells].map((cell) => cell.textContent))), expected);
    assert.deepEqual(await violations(page), []);
    assert.ok((await excess(page)) <= 0, `too wide in ${look.name}`);
    assert.deepEqual(problems, []);
    await context.close();
  }
});

test("bad input is refused with the words of the command, and nothing of it stays", async () => {
  const { context, page, problems } = await build();
  await page.getByLabel("Builder file").setInputFiles({ name: "index.builder", mimeType: "application/json", buffer: Buffer.from("{}") });
  await page.getByRole("alert").getByText(/not a builder file/).waitFor();
  const edited = readFileSync(of("index.builder"), "utf8").replace('"weight": 100', '"weight": 101');
  await page.getByLabel("Builder file").setInputFiles({ name: "index.builder", mimeType: "application/json", buffer: Buffer.from(edited) });
  await page.getByRole("alert").getByText(/the builder file was edited/).waitFor();
  await choose(page, of("index.builder"));
  const dialog = page.getByRole("dialog");
  await page.getByRole("button", { name: "Add many" }).click();
  copyFileSync(of("index.builder"), join(folder, "bad.builder"));
  const words = (...args) => {
    try {
      martlet("ring", join(folder, "bad.builder"), ...args);
    } catch (thrown) {
      return String(thrown.stderr).trim().replace(/^martlet: /, "");
    }
    return assert.fail("the command was not refused");
  };
  for (const [line, said] of [
    ["nowhere 100", words("add", "nowhere", "100")],
    ["r1z1-n9@127.0.0.1:9/a/b 100", words("add", "r1z1-n9@127.0.0.1:9/a/b", "100")],
    ["r1z1-n9@127.0.0.1:9/a -5", words("add", "r1z1-n9@127.0.0.1:9/a", "-5")],
    ["r1z1-n9@127.0.0.1:9/a heavy", words("add", "r1z1-n9@127.0.0.1:9/a", "heavy")],
  ]) {
    await dialog.getByLabel("Devices").fill(line);
    await dialog.getByRole("button", { name: "Add" }).click();
    await dialog.getByRole("alert").getByText(said).waitFor();
  }
  assert.deepEqual(await violations(page), []);
  await page.keyboard.press("Escape");
  await page.getByRole("button", { name: "Change the settings" }).click();
  await dialog.getByLabel("Overload").fill("-1");
  await dialog.getByRole("button", { name: "Change" }).click();
  await dialog.getByRole("alert").getByText(words("set-overload", "-1")).waitFor();
  await page.keyboard.press("Escape");
  assert.equal(await page.getByRole("list", { name: "Changes of the builder" }).count(), 0);
  await page.getByText("in your file", { exact: true }).waitFor();
  assert.deepEqual(problems, []);
  await context.close();
});

test("a new ring is made by keyboard alone, and equals that of the commands", async () => {
  const { context, page, problems } = await build();
  const press = async (name) => {
    await page.getByRole("button", { name, exact: true }).focus();
    await page.keyboard.press("Enter");
  };
  const type = async (label, text) => {
    await page.getByRole("dialog").getByLabel(label, { exact: true }).focus();
    await page.keyboard.press("Control+A");
    await page.keyboard.type(text);
  };
  const changed = page.getByRole("list", { name: "Changes of the builder" });
  await press("New ring");
  await type("Part power", "6");
  await page.keyboard.press("Enter");
  await page.getByRole("heading", { name: "Build data-0" }).waitFor();
  const places = [1, 2, 3].map((zone) => `r1z${zone}-n${zone}@127.0.0.1:${zone}/sda`);
  await press("Add many");
  await page.getByRole("dialog").getByLabel("Devices").focus();
  await page.keyboard.type(places.map((place) => `${place} 100`).join("\n"));
  await page.keyboard.press("Tab");
  await page.keyboard.press("Tab");
  await page.keyboard.press("Enter");
  await page.getByRole("list", { name: "Changes of the builder" }).getByText("added 3 devices, d0 to d2", { exact: true }).first().waitFor();
  await page.getByLabel("d2").focus();
  await page.keyboard.press("Space");
  await press("Set the weight");
  await type("Weight", "50");
  await page.keyboard.press("Enter");
  await changed.getByText(/^weight of d2 .* is now 50$/).first().waitFor();
  await page.getByRole("button", { name: /^Undo weight of d2/ }).focus();
  await page.keyboard.press("Enter");
  await changed.getByText(/weight of d2 .* is now 50/).first().waitFor({ state: "detached" });
  await press("Show the plan");
  await page.getByText("would make the ring of epoch 1: 0 replicas moved, 192 placed").first().waitFor();
  await press("Rebalance");
  await page.getByRole("dialog").getByRole("button", { name: "Rebalance" }).focus();
  await page.keyboard.press("Enter");
  await page.getByText(/^made the ring of epoch 1/).first().waitFor();
  assert.ok(await page.getByRole("button", { name: "Push to all nodes" }).isDisabled(), "no file has the builder yet");
  const builder = await save(page, "Download the builder", "data-0.builder");
  const file = JSON.parse(readFileSync(builder, "utf8"));
  assert.deepEqual(file.history.map((line) => line.who), ["root", "root", "root"]);
  assert.equal(martlet("ring", builder, "validate").includes("the builder is valid"), true);
  const data = await save(page, "Download the ring", "data-0.ring");
  martlet("ring", builder, "write-ring", join(folder, "same.ring"));
  assert.ok(readFileSync(data).equals(readFileSync(join(folder, "same.ring"))), "the ring is that of the command");
  await page.getByText("in your file", { exact: true }).waitFor();
  assert.deepEqual(problems, []);
  await context.close();
});

test("a lost builder comes back from its ring, and unsaved work is kept and warned of", async () => {
  const { context, page, problems } = await build();
  await page.getByRole("button", { name: "The builder is lost" }).click();
  await page.getByRole("dialog").getByLabel("Ring file in use").setInputFiles(of("data-0.ring"));
  await page.getByRole("dialog").getByRole("button", { name: "Recreate" }).click();
  await page.getByText("a ring file lacks min-part-hours").waitFor();
  await page.getByText("not downloaded", { exact: true }).waitFor();
  // Other pages lose nothing, and name the open builder.
  await visit(page, "/census");
  await visit(page, "/rings");
  await page.getByText("is open in this tab, with changes that no file has").waitFor();
  await page.getByRole("link", { name: "Go on with it" }).click();
  await page.getByRole("heading", { name: "Build data-0" }).waitFor();
  let warned = 0;
  page.on("dialog", async (dialog) => {
    warned += dialog.type() === "beforeunload" ? 1 : 0;
    await dialog.dismiss();
  });
  // Browsers warn only after a gesture on the page, which the clicks above were.
  await page.close({ runBeforeUnload: true });
  await until("the browser warns", () => warned === 1, 10_000);
  await page.getByRole("button", { name: "Close the builder" }).click();
  assert.deepEqual(await violations(page), []);
  await page.getByRole("dialog").getByRole("button", { name: "Close without a file" }).click();
  await page.getByRole("heading", { name: "Open a builder" }).waitFor();
  await page.close({ runBeforeUnload: true });
  await until("a page without a builder closes", () => page.isClosed(), 10_000);
  assert.equal(warned, 1);
  assert.deepEqual(problems, []);
  await context.close();
});

test("a viewer sees the rings, and builds none", async () => {
  const file = join(folder, "viewer.key");
  martlet("admin", "--admin-address", admin(), "key", "create", "--role", "viewer", "--name", "viewer", "--key-file", file);
  const value = (name) => new RegExp(`^${name}=(.*)$`, "m").exec(readFileSync(file, "utf8"))[1];
  const { context, page, problems } = await open();
  await signIn(page, { key: value("MARTLET_ADMIN_KEY"), secret: value("MARTLET_ADMIN_SECRET") });
  await visit(page, "/rings");
  assert.equal(await page.getByRole("link", { name: "Build a ring" }).count(), 0);
  await page.goto(`${url}/rings?view=build`);
  await page.getByRole("heading", { name: "Rings", exact: true, level: 1 }).waitFor();
  const status = await page.evaluate(async () => {
    const csrf = localStorage.getItem("martlet-csrf");
    const body = JSON.stringify({ source: { create: {} } });
    return (await fetch("/api/admin/v1/ring-builder", { method: "POST", headers: { "x-martlet-csrf": csrf, "content-type": "application/json" }, body })).status;
  });
  assert.equal(status, 403);
  assert.deepEqual(problems, []);
  await context.close();
});

/** Opens the builder of a ring on the page, adds a device to it, and weighs another one anew. */
async function grow(page, file, name) {
  const dialog = page.getByRole("dialog");
  await choose(page, file);
  await page.getByRole("heading", { name: `Build ${name}` }).waitFor();
  await page.getByRole("button", { name: "Add a device" }).click();
  const address = ring(`cluster/${name}.builder`, "search", "d0").devices[0].node.address;
  await fill(dialog, { Region: "1", Zone: "1", Node: "n1", "Address of the node": address, "Name of the device": "d2", Weight: "100" });
  await dialog.getByRole("button", { name: "Add" }).click();
  await dialog.waitFor({ state: "detached" });
  await page.getByLabel("d1", { exact: true }).check();
  await page.getByRole("button", { name: "Set the weight" }).click();
  await dialog.getByLabel("Weight").fill("50");
  await dialog.getByRole("button", { name: "Set" }).click();
  await dialog.waitFor({ state: "detached" });
  assert.deepEqual(await page.getByRole("list", { name: "Changes of the builder" }).locator("li > span > span").allInnerTexts(), ["added d4", "weight of d1 (r1z2-n2/d1) is now 50"]);
}

/** Downloads the builder of the page, and pushes its ring. */
async function push(page, name, epoch) {
  await save(page, "Download the builder", `${name}.builder`);
  await page.getByRole("button", { name: "Push to all nodes" }).click();
  const dialog = page.getByRole("dialog");
  await dialog.getByText(`epoch ${epoch - 1} → ${epoch}`).waitFor();
  assert.deepEqual(await violations(page), []);
  await dialog.getByRole("button", { name: "Push to all nodes" }).click();
  const job = page.locator(".card", { has: page.getByRole("heading", { name: new RegExp(`^ring-push of ${name}-${epoch}-`) }) });
  await job.getByText(/4 of 4 nodes: 4 accepted/).waitFor();
}

test("a new device is built, pushed and followed until it has its replicas, and settled after a clean census", async () => {
  const { context, page, problems } = await build();
  const dialog = page.getByRole("dialog");
  const changes = page.locator(".card", { has: page.getByRole("heading", { name: "Changes", exact: true }) });
  const line = changes.locator(".change", { hasText: "receivers have all of theirs" });
  for (const name of ["data-0", "index"]) {
    const epoch = ring(`cluster/${name}.builder`, "show").epoch;
    await grow(page, of(`${name}.builder`), name);
    assert.ok(await page.getByRole("button", { name: "Rebalance", exact: true }).isDisabled(), "the plan comes first");
    await page.getByRole("button", { name: "Show the plan" }).click();
    const plan = page.getByRole("region", { name: "Plan", exact: true });
    await plan.getByText(new RegExp(`would make the ring of epoch ${epoch + 1}`)).waitFor();
    assert.equal(await plan.getByText(/^unknown/).count(), 0, "bytes and hours are known");
    const moves = await plan.getByRole("region", { name: "Moves of the plan" }).locator("tbody tr").allInnerTexts();
    assert.ok(moves.some((text) => text.startsWith("d4")) && moves.some((text) => text.startsWith("d1")), moves.join("\n"));
    await page.screenshot({ path: join(SHOTS, "ring-build-plan.png"), fullPage: true });
    await page.getByRole("button", { name: "Rebalance", exact: true }).click();
    await dialog.getByRole("button", { name: "Rebalance" }).click();
    await dialog.waitFor({ state: "detached" });
    await push(page, name, epoch + 1);
    if (name === "index") break;
    await page.getByRole("link", { name: "Go on with it" }).click();
    await page.getByRole("button", { name: "Close the builder" }).click();
  }
  // The device isn't there yet: the change waits for it, and the page shows that.
  await line.getByText("phase old").waitFor();
  await line.getByText("0 of 1 receivers have all of theirs").first().waitFor();
  await line.getByText("The holders before the move decide until the receivers have their votes.").waitFor();
  await line.getByText(/replicas move/).waitFor();
  // The time left is that of the workers that the page read last: worker-figures.test.mjs has each case of it.
  const movers = /^(replicate-index|replicate-data|reconstruct|sync|update|ring-change)$/;
  await until("the time left follows from the workers", async () => {
    const reply = await page.waitForResponse((one) => one.url().endsWith("/admin/v1/workers"));
    const all = (await reply.json()).flatMap((one) => one.workers).filter((one) => movers.test(one.worker));
    const busy = all.filter((one) => !one.idle || one.backlog + one.ahead > 0 || one.error);
    assert.ok(all.length > 0, "the cluster has workers");
    const kind = busy.length === 0 ? "nothing left of this pass" : busy.some((one) => typeof one.eta_s === "number") ? "left at the present rate" : "time left is not known yet";
    await changes.getByText(kind).waitFor({ timeout: 2_000 });
    const table = changes.getByRole("region", { name: "Workers that move replicas" }).locator("tbody tr");
    return (await table.count()) === Math.min(50, busy.length);
  });
  assert.deepEqual(await violations(page), []);
  await page.screenshot({ path: join(SHOTS, "rings-change.png"), fullPage: true });
  const settings = of("n1/storage-node.toml");
  const text = readFileSync(settings, "utf8");
  writeFileSync(settings, text.replace(/^d1 = "(.*)\/d1"$/m, '$&\nd2 = "$1/d2"'));
  mkdirSync(of("n1/d2"));
  cluster("stop", "1");
  cluster("start", "1");
  await line.getByText("phase new").waitFor({ timeout: 240_000 });
  await line.getByText("1 of 1 receivers have all of theirs").first().waitFor();
  // A clean census, and then the rings that forget the previous holders.
  const census = async () => JSON.parse(execFileSync(process.env.MARTLET_BIN, ["admin", "--admin-address", admin(), "census", "--json"], { env: env(), encoding: "utf8" }));
  await until("a census is clean", async () => (await census()).clean, 240_000);
  for (const name of ["index", "data-0"]) {
    await page.getByRole("link", { name: "Go on with it" }).or(page.getByRole("link", { name: "Build a ring" })).first().click();
    if (name === "data-0") {
      await page.getByRole("button", { name: "Close the builder" }).click();
      await choose(page, join(folder, "downloaded-data-0.builder"));
    }
    await page.getByRole("button", { name: "Settle the moves" }).click();
    await dialog.getByRole("button", { name: "Settle" }).click();
    await page.getByText(/recorded \d+ replicas as moved/).first().waitFor();
    const { epoch } = ring(`downloaded-${name}.builder`, "show");
    await push(page, name, epoch + 1);
  }
  await changes.getByText("Nothing moves").waitFor({ timeout: 120_000 });
  // A ring that was pushed since the page was opened is seen by the dialog, and by the push.
  await page.getByRole("link", { name: "Go on with it" }).click();
  await page.getByText(/ of data-0 is in use, and this builder has epoch /).waitFor();
  await page.route("**/admin/v1/dispersion", async (route) => {
    const response = await route.fetch();
    await route.fulfill({ response, json: (await response.json()).map((one) => ({ ...one, epoch: one.epoch + 1 })) });
  });
  await page.getByRole("button", { name: "Push to all nodes" }).click();
  await dialog.getByText(/^The ring in use was made by a newer builder than this: /).waitFor();
  assert.deepEqual(await violations(page), []);
  await dialog.getByRole("button", { name: "Push to all nodes" }).click();
  await dialog.getByRole("alert").getByText(/newer builder than this/).waitFor();
  await dialog.getByRole("button", { name: "Cancel" }).click();
  await page.unroute("**/admin/v1/dispersion");
  // The builder of before all that makes no more rings.
  await page.getByRole("button", { name: "Close the builder" }).click();
  await choose(page, of("data-0.builder"));
  await page.getByRole("alert").getByText(/^The ring in use was made by a newer builder than this: /).waitFor();
  assert.ok(await page.getByRole("button", { name: "Push to all nodes" }).isDisabled(), "a newer ring is in use");
  assert.deepEqual(await violations(page), []);
  assert.deepEqual(problems, []);
  await context.close();
});
