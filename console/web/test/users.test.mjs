// Pages of users in a real browser, over a real store: buckets, objects, uploads, links, previews, hostile content.
import assert from "node:assert/strict";
import { createHash, randomBytes } from "node:crypto";
import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { parquetWriteBuffer } from "hyparquet-writer";
import { close, launch, LOOKS, open, SHOTS, signIn, violations, visit } from "./browser.mjs";
import { wire } from "./cut.mjs";
import { done, s3 } from "./s3.mjs";
import { HOSTILE, ROOT, start } from "./server.mjs";
import { looks } from "./steps.mjs";

const MIB = 1 << 20;
/** Document that would take over the console if a browser ran it in this origin. */
const PAGE = `<!doctype html><script>window.hacked=1;fetch("/session")</script><img src=x onerror="window.hacked=1">`;
const SVG = `<svg xmlns="http://www.w3.org/2000/svg" onload="window.hacked=1"><script>window.hacked=1</script></svg>`;
const KEYS = ["../../session", "..", "a/../../b", HOSTILE, "javascript:alert(1)", "ctrl\u0001key", "space and+plus%20é🐦", "evil.html", "evil.svg"];
const PNG = Buffer.from("iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==", "base64");
let server;
let trainer;
let tenant;
let reader;
let evil;

before(async () => {
  assert.ok(process.env.MARTLET_BIN, "MARTLET_BIN must name the binary");
  server = await start(process.env.MARTLET_BIN);
  server.ask("tenant", "create", "research");
  server.ask("tenant", "create", "evil");
  server.ask("user", "create", "--tenant", "research", "trainer", "--role", "read-write");
  server.ask("user", "create", "--tenant", "research", "reader", "--role", "read-only");
  tenant = server.accessKey("--tenant", "research");
  trainer = server.accessKey("--tenant", "research", "--user", "trainer");
  reader = server.accessKey("--tenant", "research", "--user", "reader");
  evil = server.accessKey("--tenant", "evil");
  await done(server, tenant, "PUT", "train");
  await done(server, tenant, "PUT", "locked", "", { headers: { "x-amz-bucket-object-lock-enabled": "true" } });
  await done(server, tenant, "PUT", "train", "data/part-0.txt", { body: "first lines\nsecond line\n", headers: { "content-type": "text/plain", "x-amz-meta-run": "7", "x-amz-tagging": "team=vision" } });
  await done(server, tenant, "PUT", "train", "data/numbers.json", { body: '{"a":[1,2]}' });
  await done(server, tenant, "PUT", "train", "pixel.png", { body: PNG, headers: { "content-type": "text/html" } });
  await done(server, tenant, "PUT", "train", "model.safetensors", { body: safetensors() });
  await done(server, tenant, "PUT", "train", "table.parquet", { body: table() });
  await done(server, tenant, "PUT", "locked", "kept.bin", { body: randomBytes(100), headers: { "x-amz-object-lock-legal-hold": "ON" } });
  await done(server, evil, "PUT", "evil");
  for (const key of KEYS) {
    const [body, type] = key.endsWith(".svg") ? [SVG, "image/svg+xml"] : [PAGE, "text/html"];
    const headers = { "content-type": type, "x-amz-meta-note": HOSTILE, "content-disposition": "inline", "cache-control": HOSTILE };
    await done(server, evil, "PUT", "evil", key, { body, headers });
  }
  await launch(server.url);
});

after(async () => {
  await close();
  await server?.end();
});

function safetensors() {
  const header = Buffer.from(JSON.stringify({ __metadata__: { format: "pt" }, "layer.weight": { dtype: "BF16", shape: [4, 8], data_offsets: [0, 64] } }));
  const length = Buffer.alloc(8);
  length.writeBigUInt64LE(BigInt(header.length));
  return Buffer.concat([length, header, Buffer.alloc(64)]);
}

function table() {
  const columnData = [{ name: "id", data: [1, 2, 3], type: "INT32" }, { name: "caption", data: ["a cat", HOSTILE, null], type: "STRING" }];
  return Buffer.from(parquetWriteBuffer({ columnData }));
}

const hash = (bytes) => createHash("sha256").update(bytes).digest("hex");

/** Opens a place of the objects' page and waits for its content. */
async function go(page, place, base = server.url) {
  await page.goto(`${base}/objects?${new URLSearchParams(place)}`);
  await page.locator("main h1").waitFor();
  await page.waitForFunction(() => !document.querySelector("main .loading"));
}

async function signedIn(principal, look, url) {
  const opened = await open(look, url);
  await signIn(opened.page, principal);
  return opened;
}

test("previews and locked objects are whole in all looks", async () => {
  const { context, page, problems } = await signedIn(tenant);
  const places = {
    "objects-json": { bucket: "train", key: "data/numbers.json" },
    "objects-safetensors": { bucket: "train", key: "model.safetensors" },
    "objects-parquet": { bucket: "train", key: "table.parquet" },
    "objects-image": { bucket: "train", key: "pixel.png" },
    "objects-locked": { bucket: "locked", key: "kept.bin" },
  };
  for (const [name, place] of Object.entries(places)) {
    await go(page, place);
    assert.deepEqual(await page.locator(".failure").allInnerTexts(), [], name);
    await looks(page, name);
  }
  assert.deepEqual(problems, []);
  await context.close();
});

test("a user sees what its policies allow, and S3's words for the rest", async () => {
  const { context, page, problems } = await signedIn(reader);
  assert.deepEqual(await page.locator("nav[aria-label=Pages] li").allInnerTexts(), ["Objects", "My keys"], "no page of operators");
  await page.getByRole("link", { name: "train", exact: true }).waitFor();
  assert.equal(await page.getByText("evil").count(), 0);
  await go(page, { bucket: "evil" });
  await page.getByText("AccessDenied").first().waitFor();
  await go(page, { bucket: "train", key: "pixel.png" });
  await page.getByRole("button", { name: "Delete" }).click();
  await page.getByRole("dialog").getByRole("button", { name: "Delete" }).click();
  await page.getByRole("dialog").getByText("AccessDenied").waitFor();
  await page.screenshot({ path: join(SHOTS, "objects-refusal.png") });
  assert.deepEqual(await violations(page), []);
  const forced = await page.evaluate(async () => {
    const csrf = localStorage.getItem("martlet-csrf");
    const headers = { "x-martlet-csrf": csrf };
    const statuses = [];
    for (const [method, path, own] of [["PUT", "/s3/train/YQ", headers], ["DELETE", "/s3/train/YQ", {}], ["GET", "/api/admin/v1/buckets", headers], ["GET", "/s3/train/YQ", {}], ["GET", "/s3/train/YQ?X-Amz-Signature=1", headers]]) {
      statuses.push((await fetch(path, { method, headers: own })).status);
    }
    return statuses;
  });
  assert.deepEqual(forced, [403, 403, 403, 403, 400]);
  const readable = await page.evaluate(async () => [document.cookie, JSON.stringify({ ...localStorage, ...sessionStorage }), await (await fetch("/session", { headers: { "x-martlet-csrf": localStorage.getItem("martlet-csrf") } })).text()].join());
  assert.ok(!readable.includes(reader.secret), readable);
  assert.deepEqual(problems, []);
  await context.close();
});

test("a key that is disabled reads nothing more, and signs in no more", async () => {
  const gone = server.accessKey("--tenant", "research", "--user", "reader");
  const { context, page } = await signedIn(gone);
  await page.getByRole("link", { name: "train", exact: true }).waitFor();
  server.ask("key", "disable", gone.key);
  // Processes keep a key's state for a second.
  for (let tries = 0; (await page.evaluate(async () => (await fetch("/s3/train?list-type=2", { headers: { "x-martlet-csrf": localStorage.getItem("martlet-csrf") } })).status)) === 200; tries += 1) {
    assert.ok(tries < 100, "the key still reads");
    await page.waitForTimeout(100);
  }
  await go(page, { bucket: "train" });
  await page.getByText("InvalidAccessKeyId").first().waitFor();
  await page.getByRole("button", { name: "Sign out" }).click();
  await page.getByLabel("Key", { exact: true }).fill(gone.key);
  await page.getByLabel("Secret").fill(gone.secret);
  await page.getByRole("button", { name: "Sign in" }).click();
  await page.getByText("the key or its secret is wrong").waitFor();
  await context.close();
});

test("a hostile tenant's keys, metadata and documents run no script", async () => {
  const { context, page, problems } = await signedIn(evil);
  await go(page, { bucket: "evil" });
  await page.getByLabel("All keys, without folders").check();
  await page.getByRole("link", { name: "evil.html", exact: true }).waitFor();
  assert.equal(await page.locator("[role=row] a[data-main]").count(), KEYS.length);
  assert.equal(await page.locator("main img").count(), 0);
  await page.screenshot({ path: join(SHOTS, "objects-hostile.png") });
  for (const key of KEYS) {
    await go(page, { bucket: "evil", key });
    await page.getByText(HOSTILE).first().waitFor();
    await page.locator("pre.content").first().waitFor();
    assert.equal(await page.locator("main img").count(), 0, key);
    const saved = page.waitForEvent("download");
    await page.getByRole("link", { name: "Download", exact: true }).click();
    assert.match(readFileSync(await (await saved).path(), "utf8"), /hacked/, key);
  }
  // Typed into the address bar, an object is saved too, and never shown; without the token of links it is not sent.
  await go(page, { bucket: "evil", key: "evil.html" });
  const path = await page.getByRole("link", { name: "Download", exact: true }).getAttribute("href");
  const saved = page.waitForEvent("download");
  await page.goto(`${server.url}${path}`).catch(() => {});
  await saved;
  const bare = await page.goto(`${server.url}${path.split("?")[0]}`);
  assert.equal(bare.status(), 403);
  await go(page, { bucket: "evil" });
  const tried = await page.evaluate(async (script) => {
    const results = [];
    for (const tag of ["script", "iframe", "img", "embed", "object"]) {
      const element = document.createElement(tag);
      element[tag === "object" ? "data" : "src"] = script;
      results.push(new Promise((resolve) => {
        element.onload = () => resolve(`${tag} loaded`);
        element.onerror = () => resolve("");
        setTimeout(() => resolve(""), 1000);
      }));
      try { document.body.append(element); } catch { /* trusted types */ }
    }
    const worker = await navigator.serviceWorker?.register(script).then(() => "worker", () => "");
    return [...(await Promise.all(results)), worker].filter((one) => one === "script loaded" || one === "img loaded" || one === "worker");
  }, path).catch((error) => [/TrustedScriptURL|Trusted Type/.test(String(error)) ? "" : String(error)].filter(Boolean));
  assert.deepEqual(tried, []);
  assert.equal(await page.evaluate(() => window.hacked), undefined);
  // Those refusals are the only ones: pages themselves cause none.
  const unexpected = problems.filter((text) => !/TrustedScriptURL|Trusted Type|Content Security Policy|Refused to|violates the following/.test(text));
  assert.deepEqual(unexpected, []);
  await context.close();
});

test("pages alone cause no violation of the policy, with hostile names", async () => {
  const { context, page, problems } = await signedIn(evil);
  await go(page, { bucket: "evil", prefix: "" });
  await page.getByLabel("All versions").check();
  await page.getByRole("link", { name: "evil.svg", exact: true }).first().waitFor();
  await page.getByRole("button", { name: "Choose what is loaded" }).click();
  await page.getByRole("button", { name: /^Delete/ }).click();
  await page.getByRole("dialog").waitFor();
  assert.deepEqual(await violations(page), []);
  await page.getByRole("dialog").getByRole("button", { name: "Cancel" }).click();
  assert.deepEqual(problems, []);
  await context.close();
});

test("keys that a path can't name are deleted, and the session survives", async () => {
  const { context, page, problems } = await signedIn(evil);
  await done(server, evil, "PUT", "evil", "doomed/../../../session", { body: "x" });
  await done(server, evil, "PUT", "evil", "doomed/\u0002", { body: "x" });
  await go(page, { bucket: "evil", prefix: "doomed/" });
  await page.getByLabel("All keys, without folders").check();
  await page.getByText("2 keys").waitFor();
  await page.getByRole("button", { name: "Choose what is loaded" }).click();
  await page.getByRole("button", { name: "Delete 2" }).click();
  await page.getByRole("dialog").getByRole("button", { name: "Delete" }).click();
  await page.getByText("No key begins so").waitFor();
  const list = await done(server, evil, "GET", "evil", "", { query: { prefix: "doomed/" } });
  assert.ok(!String(list.body).includes("<Key>"));
  assert.equal((await page.evaluate(async () => (await fetch("/session", { headers: { "x-martlet-csrf": localStorage.getItem("martlet-csrf") } })).status)), 200);
  assert.deepEqual(problems, []);
  await context.close();
});

test("previews show text, tables and tensors, within their budget", async () => {
  const { context, page, problems } = await signedIn(reader);
  const read = [];
  page.on("response", (reply) => {
    if (reply.url().includes("/s3/") && reply.request().method() === "GET" && reply.status() === 206) read.push(Number(reply.headers()["content-length"]));
  });
  await done(server, tenant, "PUT", "train", "long.txt", { body: "0123456789abcde\n".repeat(3 * MIB / 16) });
  await go(page, { bucket: "train", key: "model.safetensors" });
  await page.getByText("layer.weight").waitFor();
  await page.getByText("4 × 8").waitFor();
  await go(page, { bucket: "train", key: "table.parquet" });
  await page.getByRole("button", { name: /for the first rows$/ }).click();
  await page.getByText("a cat").waitFor();
  await page.getByText(HOSTILE).waitFor();
  await go(page, { bucket: "train", key: "data/numbers.json" });
  await page.getByText('"a": [').waitFor();
  await go(page, { bucket: "train", key: "pixel.png" });
  await page.locator("img.picture").waitFor();
  assert.equal(await page.locator("img.picture").evaluate((image) => image.naturalWidth), 1);
  read.length = 0;
  await go(page, { bucket: "train", key: "long.txt" });
  await page.getByRole("button", { name: /^Read 3.0 MiB/ }).waitFor();
  assert.ok(read.reduce((sum, one) => sum + one, 0) <= MIB + 4096, `read ${read}`);
  await page.getByRole("button", { name: /^Read 3.0 MiB/ }).click();
  await page.waitForFunction((bytes) => (document.querySelector("pre.content")?.textContent?.length ?? 0) === bytes, 3 * MIB);
  await go(page, { bucket: "train", key: "data/part-0.txt" });
  await page.getByText("second line").waitFor();
  await page.getByText("vision").waitFor();
  assert.deepEqual(problems, []);
  await context.close();
});

test("an image of billions of pixels and a footer of gigabytes are not decoded", async () => {
  const { context, page, problems } = await signedIn(reader);
  const bomb = Buffer.from(PNG);
  bomb.writeUInt32BE(100_000, 16);
  bomb.writeUInt32BE(100_000, 20);
  await done(server, tenant, "PUT", "train", "bomb.png", { body: bomb });
  await go(page, { bucket: "train", key: "bomb.png" });
  await page.getByText("The image has 10B pixels, and a preview decodes 50M at most").waitFor();
  assert.equal(await page.locator("main img").count(), 0);
  const footer = Buffer.concat([Buffer.from("PAR1"), Buffer.alloc(20 * MIB), Buffer.alloc(4), Buffer.from("PAR1")]);
  footer.writeUInt32LE(19 * MIB, footer.length - 8);
  await done(server, tenant, "PUT", "train", "bomb.parquet", { body: footer });
  let read = 0;
  page.on("response", (reply) => {
    if (reply.url().includes("/s3/") && reply.status() === 206) read += Number(reply.headers()["content-length"]);
  });
  await go(page, { bucket: "train", key: "bomb.parquet" });
  await page.getByText(`the footer has ${19 * MIB} bytes`).waitFor();
  assert.ok(read < 8192, `read ${read} bytes`);
  assert.deepEqual(problems, []);
  await context.close();
});

test("files are uploaded, never replaced unasked, and deleted by many", async () => {
  const { context, page, problems } = await signedIn(trainer);
  const folder = join(server.folder, "files");
  mkdirSync(folder, { recursive: true });
  const files = ["one.txt", "two <b>.html", "empty"].map((name) => join(folder, name));
  files.forEach((file, at) => writeFileSync(file, at === 2 ? "" : `content of ${at}`));
  await go(page, { bucket: "train", prefix: "up/" });
  await page.getByLabel("Files to upload").setInputFiles(files);
  await page.getByText("3 of 3 done").waitFor();
  assert.deepEqual(await violations(page), []);
  assert.equal(String((await done(server, tenant, "GET", "train", "up/two <b>.html")).body), "content of 1");
  await page.getByRole("button", { name: "Clear the list" }).click();
  await page.getByLabel("Files to upload").setInputFiles(files[0]);
  await page.getByText("An object of this name exists").waitFor();
  await page.screenshot({ path: join(SHOTS, "objects-exists.png") });
  await page.getByRole("button", { name: "Clear the list" }).click();
  // Dropped, with permission to replace.
  await page.getByLabel("Replace objects of the same name").check();
  const data = await page.evaluateHandle(() => {
    const transfer = new DataTransfer();
    transfer.items.add(new File(["dropped"], "one.txt"));
    return transfer;
  });
  await page.locator(".drop").dispatchEvent("drop", { dataTransfer: data });
  await page.getByText("1 of 1 done").waitFor();
  assert.equal(String((await done(server, tenant, "GET", "train", "up/one.txt")).body), "dropped");
  await page.getByText("3 entries").waitFor();
  await page.getByRole("button", { name: "Choose what is loaded" }).click();
  await page.getByRole("button", { name: "Delete 3" }).click();
  await page.getByRole("dialog").getByRole("button", { name: "Delete" }).click();
  await page.getByText("No key begins so").waitFor();
  assert.deepEqual(problems, []);
  await context.close();
});

test("a cut upload of many parts goes on with the parts that are missing", async (t) => {
  const cable = await wire(server.url);
  t.after(() => cable.end());
  const { context, page } = await signedIn(trainer, LOOKS[0], cable.url);
  const bytes = randomBytes(70 * MIB + 12_345);
  const file = join(server.folder, "large.bin");
  writeFileSync(file, bytes);
  await go(page, { bucket: "train", prefix: "cut/" }, cable.url);
  // Three parts are under way at most: of so many bytes, one part at least has arrived.
  cable.cutAfter(66 * MIB);
  await page.getByLabel("Files to upload").setInputFiles(file);
  await page.getByText("the connection was cut").waitFor({ timeout: 60_000 });
  await page.screenshot({ path: join(SHOTS, "objects-cut.png") });
  cable.mend();
  const sent = [];
  page.on("request", (request) => {
    const part = /partNumber=(\d+)/.exec(request.url())?.[1];
    if (part) sent.push(Number(part));
  });
  await page.getByRole("button", { name: "Resume cut/large.bin" }).click();
  await page.getByText("1 of 1 done").waitFor({ timeout: 60_000 });
  assert.ok(sent.length > 0 && sent.length < 5, `parts sent again: ${sent}`);
  const stored = await done(server, tenant, "GET", "train", "cut/large.bin");
  assert.equal(hash(stored.body), hash(bytes));

  // In a new page the file is chosen again, and parts of another content are replaced.
  cable.cutAfter(66 * MIB);
  writeFileSync(join(server.folder, "other.bin"), bytes);
  await page.getByLabel("Files to upload").setInputFiles(join(server.folder, "other.bin"));
  await page.getByText("the connection was cut").waitFor({ timeout: 60_000 });
  cable.mend();
  page.on("dialog", (dialog) => void dialog.accept());
  await go(page, { bucket: "train", prefix: "cut/" }, cable.url);
  bytes[5] ^= 1;
  writeFileSync(join(server.folder, "other.bin"), bytes);
  await page.getByRole("button", { name: "Resume with its file: cut/other.bin" }).waitFor();
  assert.deepEqual(await violations(page), []);
  await page.screenshot({ path: join(SHOTS, "objects-unfinished.png"), fullPage: true });
  sent.length = 0;
  const chooser = page.waitForEvent("filechooser");
  await page.getByRole("button", { name: "Resume with its file: cut/other.bin" }).click();
  await (await chooser).setFiles(join(server.folder, "other.bin"));
  await page.getByRole("dialog").getByText("other.bin").first().waitFor();
  await page.getByRole("dialog").getByRole("button", { name: "Resume" }).click();
  await page.getByText("1 of 1 done").waitFor({ timeout: 60_000 });
  assert.ok(sent.includes(1) && sent.length < 5, `parts sent again: ${sent}`);
  assert.equal(hash((await done(server, tenant, "GET", "train", "cut/other.bin")).body), hash(bytes));
  await context.close();
});

test("a cancelled upload leaves no parts", async () => {
  const { context, page, problems } = await signedIn(trainer);
  const file = join(server.folder, "cancelled.bin");
  writeFileSync(file, randomBytes(40 * MIB));
  await go(page, { bucket: "train", prefix: "stop/" });
  let held;
  await page.route("**/s3/**partNumber=2**", (route) => (held = route));
  await page.getByLabel("Files to upload").setInputFiles(file);
  while (!held) await page.waitForTimeout(50);
  await page.getByRole("button", { name: "Cancel stop/cancelled.bin" }).click();
  await page.getByText("cancelled", { exact: true }).waitFor();
  await page.unroute("**/s3/**partNumber=2**");
  for (let tries = 0; tries < 100; tries += 1) {
    const list = await done(server, tenant, "GET", "train", "", { query: { uploads: "", prefix: "stop/" } });
    if (!String(list.body).includes("<UploadId>")) break;
    assert.ok(tries < 99, "the upload is still there");
    await page.waitForTimeout(50);
  }
  assert.equal((await s3(server, tenant, "HEAD", "train", "stop/cancelled.bin")).status, 404);
  assert.deepEqual(problems, []);
  await context.close();
});

test("transfers of one key are not those of the next one", async () => {
  const { context, page, problems } = await signedIn(trainer);
  const file = join(server.folder, "left.bin");
  writeFileSync(file, randomBytes(20 * MIB));
  await go(page, { bucket: "train", prefix: "left/" });
  let held;
  await page.route("**/s3/**partNumber=1**", (route) => (held = route));
  await page.getByLabel("Files to upload").setInputFiles(file);
  while (!held) await page.waitForTimeout(50);
  await page.getByRole("button", { name: "Sign out" }).click();
  await signIn(page, reader);
  assert.equal(await page.getByRole("complementary", { name: "Uploads" }).count(), 0);
  await page.unroute("**/s3/**partNumber=1**");
  assert.equal((await s3(server, tenant, "HEAD", "train", "left/left.bin")).status, 404);
  assert.deepEqual(problems, []);
  await context.close();
});

test("a presigned link works without a login, and names no secret", async () => {
  const { context, page, problems } = await signedIn(trainer);
  const key = "links/../a b+é.txt";
  await done(server, tenant, "PUT", "train", key, { body: "linked" });
  await go(page, { bucket: "train", key });
  await page.getByRole("button", { name: "Make a link" }).click();
  const dialog = page.getByRole("dialog");
  assert.equal(await dialog.getByLabel("Endpoint").inputValue(), server.s3);
  await dialog.getByLabel("Valid for").selectOption("7 days");
  await dialog.getByRole("button", { name: "Make the link" }).click();
  const url = await dialog.getByLabel("Link", { exact: true }).innerText();
  await dialog.getByText(/Valid until/).waitFor();
  assert.deepEqual(await violations(page), []);
  await page.screenshot({ path: join(SHOTS, "objects-link.png") });
  assert.ok(!url.includes(trainer.secret) && url.includes("X-Amz-Expires=604800"), url);
  const { execFileSync } = await import("node:child_process");
  const curl = (...args) => execFileSync("curl", ["--silent", "--show-error", "--fail-with-body", "--path-as-is", ...args], { encoding: "utf8" });
  assert.equal(curl(url), "linked");
  assert.throws(() => curl(url.replace("Expires=604800", "Expires=604799")));
  assert.throws(() => curl("--request", "DELETE", url));
  await dialog.getByLabel("For", { exact: true }).selectOption("Upload (PUT)");
  await dialog.getByRole("button", { name: "Make the link" }).click();
  await page.waitForFunction((old) => document.querySelector("dialog pre")?.textContent !== old, url);
  writeFileSync(join(server.folder, "linked.bin"), randomBytes(3 * MIB));
  curl("--upload-file", join(server.folder, "linked.bin"), "--output", "/dev/null", await dialog.getByLabel("Link", { exact: true }).innerText());
  assert.equal((await done(server, tenant, "HEAD", "train", key)).headers["content-length"], String(3 * MIB));
  await dialog.getByText("Browsers resolve").waitFor();
  await dialog.getByLabel("Endpoint").fill("javascript:alert(1)");
  await dialog.getByRole("button", { name: "Make the link" }).click();
  await dialog.getByRole("alert").waitFor();
  await go(page, { bucket: "train", key: "data/part-0.txt" });
  await page.getByRole("button", { name: "Make a link" }).click();
  await page.getByRole("dialog").getByRole("button", { name: "Make the link" }).click();
  const plain = await fetch(await page.getByRole("dialog").getByLabel("Link", { exact: true }).innerText());
  assert.equal(await plain.text(), "first lines\nsecond line\n");
  assert.deepEqual(problems, []);
  await context.close();
});

/** Saves the open document of a setting, and waits until the setting is shown again. A refusal fails with the page's words. */
async function saved(page, title) {
  await page.getByRole("button", { name: "Save" }).click();
  const back = page.getByRole("button", { name: `Change ${title}` });
  await back.or(page.locator("main .failure")).first().waitFor();
  assert.deepEqual(await page.locator("main .failure").allInnerTexts(), []);
  await back.waitFor();
}

test("versions, tags, locks and documents of a bucket are shown and changed", async () => {
  const { context, page, problems } = await signedIn(tenant);
  await go(page, { bucket: "train", view: "settings" });
  await page.getByRole("button", { name: "Enable", exact: true }).click();
  await page.getByRole("dialog").getByRole("button", { name: "Enable" }).click();
  await page.getByText("Enabled", { exact: true }).waitFor();
  await page.getByRole("button", { name: "Set Lifecycle" }).click();
  await page.getByLabel("Document of Lifecycle").fill("<LifecycleConfiguration><Rule><Status>Maybe</Status></Rule></LifecycleConfiguration>");
  await page.getByRole("button", { name: "Save" }).click();
  await page.getByText("MalformedXML").waitFor();
  assert.deepEqual(await violations(page), []);
  await page.screenshot({ path: join(SHOTS, "objects-lifecycle.png"), fullPage: true });
  await page.getByRole("button", { name: "Cancel" }).click();
  for (const title of ["Lifecycle", "CORS"]) {
    await page.getByRole("button", { name: `Set ${title}` }).click();
    await saved(page, title);
  }
  assert.match(String((await done(server, tenant, "GET", "train", "", { query: { lifecycle: "" } })).body), /<Days>30<\/Days>/);
  await page.getByRole("button", { name: "Change Lifecycle" }).click();
  const form = page.getByRole("group", { name: "Add a rule" });
  await form.getByLabel("Keys that begin with").fill("old & <gone>/");
  await form.getByLabel("Remove").selectOption("Unfinished uploads, by age");
  await form.getByLabel("Days").fill("3");
  await form.getByRole("button", { name: "Add the rule" }).click();
  assert.deepEqual(await violations(page), []);
  await page.screenshot({ path: join(SHOTS, "objects-rule.png"), fullPage: true });
  await saved(page, "Lifecycle");
  const lifecycle = String((await done(server, tenant, "GET", "train", "", { query: { lifecycle: "" } })).body);
  assert.match(lifecycle, /old &(amp|#38);? ?.*gone/);
  assert.equal(lifecycle.split("<Rule>").length, 4, lifecycle);
  await page.getByRole("button", { name: "Remove CORS" }).click();
  await page.getByRole("dialog").getByRole("button", { name: "Remove" }).click();
  await page.getByRole("button", { name: "Set CORS" }).waitFor();

  for (const body of ["one", "two"]) await done(server, tenant, "PUT", "train", "seen.txt", { body });
  await done(server, tenant, "DELETE", "train", "seen.txt");
  await go(page, { bucket: "train", prefix: "seen" });
  await page.getByLabel("All versions").check();
  await page.getByText("delete marker").waitFor();
  await page.getByText("3 entries").waitFor();
  await page.getByRole("link", { name: "seen.txt", exact: true }).nth(1).click();
  await page.getByText("two", { exact: true }).waitFor();
  await page.getByRole("button", { name: "Change" }).click();
  await page.getByLabel("One NAME=VALUE on each line").fill("run=7\nteam=a=b");
  await page.getByRole("button", { name: "Save" }).click();
  await page.getByText("a=b").waitFor();

  await go(page, { bucket: "locked", key: "kept.bin" });
  await page.getByText("legal hold", { exact: true }).waitFor();
  await page.getByRole("button", { name: "Lock" }).click();
  const dialog = page.getByRole("dialog");
  await dialog.getByLabel("Legal hold").selectOption("off");
  await dialog.getByLabel("Retention").selectOption("GOVERNANCE");
  const year = new Date().getFullYear() + 1;
  await dialog.getByLabel("Until the beginning of").fill(`${year}-05-01`);
  await dialog.getByRole("button", { name: "Save" }).click();
  await page.getByText("no legal hold").waitFor();
  await page.getByText(/GOVERNANCE until/).waitFor();
  assert.deepEqual(problems, []);
  await context.close();
});

test("the generations of a checkpoint set are shown in its folder", async () => {
  await done(server, tenant, "PUT", "runs");
  await done(server, tenant, "PUT", "runs", "", { query: { versioning: "" }, body: "<VersioningConfiguration><Status>Enabled</Status></VersioningConfiguration>" });
  const { context, page, problems } = await signedIn(tenant);
  await go(page, { bucket: "runs", view: "settings" });
  await page.getByRole("button", { name: "Set Checkpoint rules" }).click();
  await page.getByLabel("Document of Checkpoint rules").fill('{"rules":[{"pattern":"export/*/","profile":"custom","markers":["DONE"]}]}');
  await saved(page, "Checkpoint rules");
  // Rules hold for writes that begin a second later.
  for (let tries = 0; ; tries += 1) {
    const name = `export/${tries}/`;
    await done(server, tenant, "PUT", "runs", `${name}part.bin`, { body: "weights" });
    const marked = await done(server, tenant, "PUT", "runs", `${name}DONE`, { body: "" });
    if (marked.headers["x-martlet-checkpoint"]) {
      await go(page, { bucket: "runs", prefix: name });
      break;
    }
    assert.ok(tries < 100, "the rules hold for no write");
    await page.waitForTimeout(100);
  }
  await page.getByRole("heading", { name: "Checkpoint set" }).waitFor();
  await page.getByText("committed", { exact: true }).waitFor();
  assert.deepEqual(await violations(page), []);
  await page.screenshot({ path: join(SHOTS, "objects-checkpoint.png"), fullPage: true });
  assert.deepEqual(problems, []);
  await context.close();
});

test("the root key has pages of operators and objects, with sizes", async () => {
  const { context, page, problems } = await signedIn(ROOT);
  await visit(page, "/objects");
  await page.getByRole("columnheader", { name: "Size" }).waitFor();
  await page.getByRole("link", { name: "evil", exact: true }).waitFor();
  await visit(page, "/devices");
  assert.deepEqual(problems, []);
  await context.close();
});

test("the keyboard alone opens a folder and an object", async () => {
  const { context, page, problems } = await signedIn(reader);
  await go(page, { bucket: "train" });
  const focus = async (wanted) => {
    for (let presses = 0; presses < 60; presses += 1) {
      await page.keyboard.press("Tab");
      if ((await page.evaluate(() => document.activeElement?.textContent?.trim())) === wanted) return;
    }
    assert.fail(`the keyboard does not reach ${wanted}`);
  };
  await page.getByRole("link", { name: "data/" }).waitFor();
  await focus("data/");
  await page.keyboard.press("Enter");
  await page.getByRole("link", { name: "numbers.json", exact: true }).waitFor();
  await focus("numbers.json");
  await page.keyboard.press("ArrowDown");
  assert.equal(await page.evaluate(() => document.activeElement?.textContent), "part-0.txt");
  await page.keyboard.press("ArrowUp");
  await page.keyboard.press("Enter");
  await page.getByRole("heading", { name: "numbers.json", level: 1 }).waitFor();
  assert.deepEqual(problems, []);
  await context.close();
});
