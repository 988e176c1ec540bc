// Server of the tests, with tenants, keys and jobs, on free ports of the loopback.
import { execFileSync, spawn } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

export const ROOT = { key: "rootkey", secret: "1234567890123456" };
/** Name that would run a script if a page wrote it as HTML. */
export const HOSTILE = `<img src=x onerror="window.hacked=1"><script>window.hacked=1</script>`;

/**
 * Starts a server with its data in a folder of this name, within a new folder unless one is given. Returns its addresses, a way
 * to run `martlet admin`, its process, and its end, which removes the folder unless it is to be kept.
 */
export async function start(binary, more = {}, { kept, name = "data" } = {}) {
  const folder = kept ?? mkdtempSync(join(tmpdir(), "martlet-console-"));
  const data = join(folder, name);
  const env = { PATH: process.env.PATH, HOME: folder, MARTLET_ROOT_ACCESS_KEY: ROOT.key, MARTLET_ROOT_SECRET_KEY: ROOT.secret, ...more };
  const anywhere = ["--s3-address", "127.0.0.1:0", "--admin-address", "127.0.0.1:0", "--console-address", "127.0.0.1:0"];
  const child = spawn(binary, ["server", "--data-dir", data, "--reserve", "64MiB", ...anywhere], { env, stdio: ["ignore", "pipe", "pipe"] });
  let text = "";
  for (const stream of [child.stdout, child.stderr]) stream.on("data", (bytes) => (text += bytes));
  const ended = new Promise((resolve) => child.once("exit", resolve));
  const deadline = Date.now() + 30_000;
  let found;
  while (!found) {
    if (Date.now() > deadline || child.exitCode !== null) throw new Error(`the server did not start:\n${text}`);
    await new Promise((resolve) => setTimeout(resolve, 50));
    const url = /Console for browsers: (http:\S+)/.exec(text)?.[1];
    const admin = / address=(127\.0\.0\.1:\d+)/.exec(text)?.[1];
    const s3 = /Martlet serves S3 at (http:\S+)/.exec(text)?.[1];
    if (url && admin && s3) found = { url, admin, s3 };
  }
  const ask = (...args) => execFileSync(binary, ["admin", "--admin-address", found.admin, ...args], { env, encoding: "utf8" });
  const key = (role, ...args) => {
    const file = join(folder, `${role}.key`);
    ask("key", "create", "--role", role, "--name", role, "--key-file", file, ...args);
    const pairs = readFileSync(file, "utf8").trim().split("\n").map((line) => line.split("="));
    const of = Object.fromEntries(pairs.map(([name, ...rest]) => [name, rest.join("=")]));
    return { key: of.MARTLET_ADMIN_KEY, secret: of.MARTLET_ADMIN_SECRET };
  };
  /** Access key of a tenant or of one of its users. */
  const accessKey = (...args) => {
    const made = JSON.parse(ask("key", "create", "--json", ...args));
    const line = Array.isArray(made) ? made[0] : made;
    return { key: line.access_key, secret: line.secret_key };
  };
  const end = async (keep = false) => {
    child.kill("SIGTERM");
    await ended;
    if (!keep) rmSync(folder, { recursive: true, force: true });
  };
  return { ...found, pid: child.pid, folder, ask, key, accessKey, end };
}
