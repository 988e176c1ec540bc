// Pages over a cluster of real processes with a dead node.
import assert from "node:assert/strict";
import { execFileSync, spawn } from "node:child_process";
import { createServer } from "node:net";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { close, launch, open, SHOTS, signIn, violations, visit } from "./browser.mjs";
import { ROOT } from "./server.mjs";
import { looks } from "./steps.mjs";

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

const env = () => ({ PATH: process.env.PATH, HOME: folder, MARTLET_ROOT_ACCESS_KEY: ROOT.key, MARTLET_ROOT_SECRET_KEY: ROOT.secret, MARTLET_CLUSTER_DIR: join(folder, "cluster") });
const cluster = (...args) => execFileSync(process.env.MARTLET_BIN, ["cluster", ...args], { env: env(), encoding: "utf8" });

async function until(what, condition) {
  const deadline = Date.now() + 120_000;
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
  folder = mkdtempSync(join(tmpdir(), "martlet-console-cluster-"));
  const shape = ["--nodes", "4", "--devices-per-node", "1", "--zones", "2", "--s3-port", String(await freePort())];
  child = spawn(process.env.MARTLET_BIN, ["cluster", "up", ...shape], { env: env(), stdio: ["ignore", "pipe", "pipe"] });
  let text = "";
  for (const stream of [child.stdout, child.stderr]) stream.on("data", (bytes) => (text += bytes));
  ended = new Promise((resolve) => child.once("exit", resolve));
  await until("the cluster starts", () => {
    if (child.exitCode !== null) assert.fail(text);
    return cluster("status", "--json").includes("running") && text.includes("martlet cluster");
  });
  // The console of the proxy needs a port of its own.
  const settings = join(folder, "cluster/p1/proxy.toml");
  const port = await freePort();
  cluster("stop", "p1");
  writeFileSync(settings, `console_address = "127.0.0.1:${port}"\n${readFileSync(settings, "utf8")}`);
  cluster("start", "p1");
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

test("rings are pushed to all nodes, with the answer of each", async () => {
  const { context, page, problems } = await open();
  await signIn(page, ROOT);
  await visit(page, "/rings");
  await page.getByRole("button", { name: "Push rings" }).click();
  const files = ["index", "data-0"].map((name) => join(folder, `cluster/${name}.ring`));
  await page.getByLabel("Ring files").setInputFiles(files);
  await page.getByRole("region", { name: "Chosen rings" }).getByText("data-0").waitFor();
  await page.getByRole("dialog").getByText("is in use already").first().waitFor();
  assert.deepEqual(await violations(page), []);
  await page.screenshot({ path: join(SHOTS, "rings-push.png") });
  await page.getByRole("button", { name: "Push to all nodes" }).click();
  await page.getByRole("heading", { name: /^ring-push of / }).waitFor();
  await page.getByText("Report", { exact: true }).first().click();
  const answers = page.getByRole("region", { name: "Answers of nodes" }).locator("tbody tr");
  await answers.first().waitFor();
  await until("all nodes answer", async () => {
    if (await page.getByRole("button", { name: "Show the newest figures" }).count()) await page.getByRole("button", { name: "Show the newest figures" }).click();
    return (await answers.count()) === 8;
  });
  for (const row of await answers.allInnerTexts()) assert.match(row, /known/);
  assert.deepEqual(problems, []);
  await context.close();
});

test("a dead node is seen on the overview, among the devices and the rings", async () => {
  cluster("kill", "2");
  const { context, page, problems } = await open();
  await signIn(page, ROOT);
  await page.getByText("Node n2 does not answer.").waitFor({ timeout: 60_000 });
  await page.getByText("3 of 4 answer").waitFor();
  await looks(page, "overview-dead");
  await visit(page, "/devices");
  await page.getByRole("heading", { name: "Without a report" }).waitFor();
  await page.locator("main .badge").getByText("n2", { exact: true }).waitFor();
  for (const name of ["n1", "n3", "n4"]) await page.getByRole("region", { name: `Node ${name}` }).waitFor();
  await looks(page, "devices-dead");
  await visit(page, "/rings");
  const first = page.getByRole("region", { name: "Rings of the nodes" }).locator("tbody tr").first();
  assert.match(await first.innerText(), /n2[\s\S]*silent/);
  await looks(page, "rings-dead");
  // Pages that show every process, or ask every device, are whole too.
  for (const path of ["/census", "/workers", "/settings", "/policies"]) {
    await visit(page, path);
    await looks(page, `${path.slice(1)}-dead`);
  }
  assert.deepEqual(problems, []);
  await context.close();
});

test("a dead node that comes back is whole again, without a reload", async () => {
  const { context, page, problems } = await open();
  await signIn(page, ROOT);
  await page.getByText("Node n2 does not answer.").waitFor({ timeout: 60_000 });
  cluster("start", "2");
  await page.getByText("4 of 4 answer").waitFor({ timeout: 60_000 });
  await page.getByText("Node n2 does not answer.").waitFor({ state: "detached" });
  assert.deepEqual(problems, []);
  await context.close();
});
