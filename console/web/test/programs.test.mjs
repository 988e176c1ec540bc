// Programs of the page "Use from programs", run as they are shown.
import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { existsSync } from "node:fs";
import { homedir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { promisify } from "node:util";
import { close, launch, open, signIn } from "./browser.mjs";
import { done } from "./s3.mjs";
import { start } from "./server.mjs";

const run = promisify(execFile);
/** Environments of `make clients`, which `make test-console` makes. */
const CLIENTS = process.env.MARTLET_CLIENTS ?? join(homedir(), ".cache/martlet/clients");
let server;
let key;

before(async () => {
  assert.ok(process.env.MARTLET_BIN, "MARTLET_BIN must name the binary");
  server = await start(process.env.MARTLET_BIN);
  server.ask("tenant", "create", "research");
  key = server.accessKey("--tenant", "research");
  await done(server, key, "PUT", "train");
  await done(server, key, "PUT", "train", "folder/one.bin", { body: "x" });
  await launch(server.url);
});

after(async () => {
  await close();
  await server?.end();
});

async function program(client, endpoint) {
  const { context, page, problems } = await open();
  await signIn(page, key);
  await page.goto(`${server.url}/objects?bucket=train&view=clients`);
  await page.getByLabel("Client").selectOption(client);
  if (endpoint) await page.getByLabel("Endpoint").fill(endpoint);
  const text = await page.getByLabel(`Program for ${client}`).textContent();
  assert.ok(!text.includes(key.secret) && text.includes(key.key), text);
  assert.deepEqual(problems, []);
  await context.close();
  return text;
}

/** Folder of a client's environment. A program that can't be run is a failure. */
function installed(name) {
  const folder = join(CLIENTS, name);
  assert.ok(existsSync(join(folder, ".installed")), `${folder} is missing: clients/run.sh --prepare ${name} makes it`);
  return folder;
}

const environment = (folder) => ({ PATH: `${folder}/bin:${process.env.PATH}`, HOME: server.folder, AWS_SECRET_ACCESS_KEY: key.secret });

for (const [client, name, expected] of [["boto3", "boto3", "folder/one.bin 1"], ["PyTorch (s3torchconnector)", "s3torchconnector", "1"], ["DuckDB", "duckdb", "s3://train/folder/one.bin"]]) {
  test(`the program for ${client} works as pasted`, async () => {
    const folder = installed(name);
    let text = await program(client);
    // The tests reach no network: the extension comes from its package.
    if (name === "duckdb") text = text.replace("INSTALL httpfs; LOAD httpfs", "LOAD '{}'").replace(`"LOAD '{}'"`, `"LOAD '" + str(next(__import__("pathlib").Path(__import__("duckdb_extension_httpfs").__path__[0]).rglob("httpfs.duckdb_extension"))) + "'"`);
    const { stdout } = await run(join(folder, "bin/python"), ["-c", text], { env: environment(folder) });
    assert.ok(stdout.includes(expected), stdout);
  });
}

test("the program for awscli works as pasted", async () => {
  const folder = installed("awscli");
  const text = await program("awscli");
  const child = run("bash", ["-c", text], { env: { ...environment(folder), AWS_SECRET_ACCESS_KEY: "" } });
  child.child.stdin.end(`${key.secret}\n`);
  assert.match((await child).stdout, /PRE folder\//);
});

test("each client of the page is run here", async () => {
  const { context, page } = await open();
  await signIn(page, key);
  await page.goto(`${server.url}/objects?bucket=train&view=clients`);
  assert.deepEqual((await page.getByLabel("Client").locator("option").allInnerTexts()).sort(), ["DuckDB", "PyTorch (s3torchconnector)", "awscli", "boto3"]);
  await context.close();
});

test("a hostile endpoint stays a text in every program", async () => {
  const endpoint = `http://x'"$(touch hacked)\`touch hacked\`\\{1}`;
  for (const client of ["boto3", "PyTorch (s3torchconnector)", "DuckDB"]) {
    const text = await program(client, endpoint);
    const check = "import ast, sys; tree = ast.parse(sys.argv[1]); print([ast.unparse(n.func) for n in ast.walk(tree) if isinstance(n, ast.Call)])";
    const { stdout } = await run("python3", ["-c", check, text]);
    assert.ok(!stdout.includes("touch"), stdout);
  }
  const bash = (await program("awscli", endpoint)).split("\n").slice(0, 2).join("\n");
  const { stdout } = await run("bash", ["-c", `${bash}\nprintf %s "$AWS_ENDPOINT_URL"`], { cwd: server.folder });
  assert.equal(stdout, endpoint);
  assert.ok(!existsSync(join(server.folder, "hacked")));
});
