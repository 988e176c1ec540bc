// Cluster of real processes for tests, with a console at its proxy.
import assert from "node:assert/strict";
import { execFileSync, spawn } from "node:child_process";
import { createServer } from "node:net";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { ROOT } from "./server.mjs";

async function freePort() {
  const holder = createServer();
  await new Promise((resolve) => holder.listen(0, "127.0.0.1", resolve));
  const { port } = holder.address();
  await new Promise((resolve) => holder.close(resolve));
  return port;
}

/** Waits two minutes at most until a condition holds. An error counts as not yet. */
export async function until(what, condition) {
  const deadline = Date.now() + 120_000;
  let last;
  for (;;) {
    try {
      if (await condition()) return;
    } catch (error) {
      last = error;
    }
    assert.ok(Date.now() < deadline, `${what}: ${last ?? "it did not happen"}`);
    await new Promise((resolve) => setTimeout(resolve, 200));
  }
}

/** Starts a cluster. Returns its addresses, ways to run `martlet cluster` and `martlet admin`, and its end. */
export async function startCluster(binary, shape) {
  assert.ok(binary, "MARTLET_BIN must name the binary");
  const folder = mkdtempSync(join(tmpdir(), "martlet-console-cluster-"));
  const env = { PATH: process.env.PATH, HOME: folder, MARTLET_ROOT_ACCESS_KEY: ROOT.key, MARTLET_ROOT_SECRET_KEY: ROOT.secret, MARTLET_CLUSTER_DIR: join(folder, "cluster") };
  const cluster = (...args) => execFileSync(binary, ["cluster", ...args], { env, encoding: "utf8" });
  const nodes = [];
  /** Starts a stopped node beside `cluster up`, which would wait until the node is ready. */
  const startNode = (name) => {
    const home = { PATH: process.env.PATH, HOME: folder };
    const node = spawn(binary, ["storage-node", "--config", join(folder, `cluster/${name}/storage-node.toml`)], { env: home, stdio: "ignore" });
    nodes.push({ node, ended: new Promise((resolve) => node.once("exit", resolve)) });
  };
  const s3Port = await freePort();
  const child = spawn(binary, ["cluster", "up", ...shape, "--s3-port", String(s3Port)], { env, stdio: ["ignore", "pipe", "pipe"] });
  let text = "";
  for (const stream of [child.stdout, child.stderr]) stream.on("data", (bytes) => (text += bytes));
  const ended = new Promise((resolve) => child.once("exit", resolve));
  const end = async () => {
    child.kill("SIGTERM");
    for (const { node } of nodes) node.kill("SIGTERM");
    await Promise.all([ended, ...nodes.map((one) => one.ended)]);
    rmSync(folder, { recursive: true, force: true });
  };
  try {
    return await opened();
  } catch (error) {
    await end();
    throw error;
  }

  async function opened() {
    await until("the cluster starts", () => {
      if (child.exitCode !== null) assert.fail(text);
      return cluster("status", "--json").includes("running") && text.includes("martlet cluster");
    });
    // The console of the proxy needs a port of its own.
    const file = join(folder, "cluster/p1/proxy.toml");
    const settings = readFileSync(file, "utf8");
    const port = await freePort();
    cluster("stop", "p1");
    writeFileSync(file, `console_address = "127.0.0.1:${port}"\n${settings}`);
    cluster("start", "p1");
    const url = `http://127.0.0.1:${port}`;
    await until("the console answers", async () => (await fetch(url)).status > 0);
    const [, admin] = /^admin_address = "([^"]+)"/m.exec(settings) ?? [];
    assert.ok(admin, settings);
    const ask = (...args) => execFileSync(binary, ["admin", "--admin-address", admin, ...args], { env, encoding: "utf8" });
    return { folder, url, s3: `http://127.0.0.1:${s3Port}`, admin, cluster, startNode, ask, end };
  }
}
