// Own keys of users, and sizes of their buckets, in a real browser.
import assert from "node:assert/strict";
import { mkdtempSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { close, launch, open, signIn, violations, visit } from "./browser.mjs";
import { done, s3 } from "./s3.mjs";
import { ROOT, start } from "./server.mjs";
import { until } from "./steps.mjs";

let server;
let alice;
let barred;
let tenant;

before(async () => {
  assert.ok(process.env.MARTLET_BIN, "MARTLET_BIN must name the binary");
  server = await start(process.env.MARTLET_BIN);
  server.ask("tenant", "create", "research");
  for (const name of ["alice", "barred"]) server.ask("user", "create", "--tenant", "research", name, "--role", "read-only");
  tenant = server.accessKey("--tenant", "research");
  alice = server.accessKey("--tenant", "research", "--user", "alice");
  barred = server.accessKey("--tenant", "research", "--user", "barred");
  const folder = mkdtempSync(join(tmpdir(), "martlet-own-"));
  const [policy, own] = [join(folder, "policy"), join(folder, "own")];
  writeFileSync(own, JSON.stringify({ Statement: [{ Effect: "Allow", Action: ["s3:*", "iam:*"], Resource: "*" }] }));
  server.ask("user", "policy", "put", "--tenant", "research", "alice", own);
  writeFileSync(policy, JSON.stringify({ Statement: [{ Effect: "Allow", Action: ["s3:ListAllMyBuckets", "iam:ListAccessKeys"], Resource: "*" }, { Effect: "Allow", Action: "s3:*", Resource: ["arn:aws:s3:::train", "arn:aws:s3:::train/*"] }] }));
  server.ask("user", "policy", "put", "--tenant", "research", "barred", policy);
  for (const bucket of ["train", "hidden"]) await done(server, tenant, "PUT", bucket);
  await done(server, tenant, "PUT", "train", "hello.txt", { body: "x".repeat(2048) });
  server.ask("bucket", "quota", "train", "--bytes", "1GiB");
  await launch(server.url);
});

after(async () => {
  await close();
  await server?.end();
});

async function signedIn(principal) {
  const opened = await open();
  await signIn(opened.page, principal);
  return opened;
}

/** Text of the secret that a dialog shows. */
async function shown(page) {
  await page.getByRole("dialog").getByText("The secret is shown this once").waitFor();
  const codes = await page.getByRole("dialog").locator("code").allInnerTexts();
  return { key: codes[0], secret: codes[1] };
}

test("a user makes, rotates and deletes a key, and the secret is shown once", async () => {
  const { context, page, problems } = await signedIn(alice);
  await visit(page, "/keys");
  await page.getByRole("button", { name: "New access key" }).click();
  await page.getByRole("dialog").getByRole("button", { name: "Create" }).click();
  const made = await shown(page);
  await page.getByRole("button", { name: "I have kept it" }).click();
  assert.ok(!(await page.locator("main").innerText()).includes(made.secret));
  assert.equal((await s3(server, made, "GET", "train", "hello.txt")).status, 200);
  assert.equal((await s3(server, made, "PUT", "train", "x", { body: "x" })).status, 403, "the user is a reader");
  await page.getByRole("button", { name: `New secret of ${made.key}` }).click();
  await page.getByRole("dialog").getByRole("button", { name: "Make a new secret" }).click();
  const rotated = await shown(page);
  assert.equal(rotated.key, made.key);
  assert.notEqual(rotated.secret, made.secret);
  await page.getByRole("button", { name: "I have kept it" }).click();
  assert.equal(await page.getByRole("button", { name: `Delete ${alice.key}` }).count(), 0, "the key of the session stays");
  await page.getByRole("button", { name: `Delete ${made.key}` }).click();
  await page.getByRole("dialog").getByRole("button", { name: "Delete" }).click();
  await page.getByText(made.key).first().waitFor({ state: "detached" });
  const audit = server.ask("audit", "--json", "--who", "alice");
  for (const operation of ["CreateAccessKey", "RotateAccessKey", "DeleteAccessKey"]) assert.ok(audit.includes(operation), audit);
  assert.ok(!audit.includes(made.secret) && !audit.includes(rotated.secret));
  assert.deepEqual(problems, []);
  await context.close();
});

test("a new secret of the session's own key ends the session", async () => {
  const other = server.accessKey("--tenant", "research", "--user", "alice");
  const { context, page } = await signedIn(other);
  await page.clock.install();
  await visit(page, "/keys");
  await page.getByRole("button", { name: `New secret of ${other.key}` }).click();
  await page.getByRole("dialog").getByRole("button", { name: "Make a new secret" }).click();
  const fresh = await shown(page);
  // The secret stays while the page reads its list again, which the old secret can't sign.
  // The old secret works for a second more.
  const refused = [];
  page.on("response", (reply) => reply.url().endsWith("/own/keys") && reply.status() >= 400 && refused.push(reply.status()));
  await until("a read of the list is refused", async () => {
    await page.clock.fastForward(32_000);
    return refused.length > 0 && (await page.locator("main .failure").count()) > 0;
  });
  assert.deepEqual(await shown(page), fresh);
  await page.getByRole("button", { name: "I have kept it" }).click();
  await page.getByText("The key has a new secret").waitFor();
  await signIn(page, fresh);
  await context.close();
});

test("a policy decides, and keys that are no user's have no such page", async () => {
  const { context, page } = await signedIn(barred);
  await visit(page, "/keys");
  await page.getByText(barred.key).waitFor();
  await page.getByRole("button", { name: "New access key" }).click();
  await page.getByRole("dialog").getByRole("button", { name: "Create" }).click();
  assert.match(await page.getByRole("dialog").getByRole("alert").innerText(), /not authorized to perform: iam:CreateAccessKey/);
  await context.close();
  for (const principal of [tenant, ROOT]) {
    const opened = await signedIn(principal);
    assert.equal(await opened.page.locator('nav a[href="/keys"]').count(), 0);
    const status = await opened.page.evaluate(async () => (await fetch("/own/keys", { headers: { "x-martlet-csrf": localStorage.getItem("martlet-csrf") } })).status);
    assert.equal(status, 403);
    await opened.context.close();
  }
});

test("buckets show their last count, and those that the key may not list show none", async () => {
  const { context, page, problems } = await signedIn(barred);
  const row = (name) => page.locator("main tr", { has: page.getByRole("link", { name, exact: true }) });
  // Buckets with a quota are counted every ten seconds.
  for (let tries = 0; tries < 30; tries += 1) {
    await visit(page, "/objects");
    await row("train").waitFor();
    await page.waitForFunction(() => !document.querySelector("main table")?.textContent?.includes("…"));
    if (/2\.0 KiB/.test(await row("train").innerText())) break;
    await page.waitForTimeout(1000);
    await page.reload();
  }
  assert.match(await row("train").innerText(), /2\.0 KiB\s+1\s+.*ago/);
  assert.match(await row("hidden").innerText(), /–\s+–\s+–/);
  assert.deepEqual(await violations(page), []);
  assert.deepEqual(problems, []);
  await context.close();
});

test("another beginning of names aborts the requests for sizes that wait", async () => {
  const { context, page, problems } = await signedIn(alice);
  await visit(page, "/keys");
  // These requests get no reply.
  await page.route("**/s3/*", (route) => (route.request().method() === "HEAD" ? undefined : route.fallback()));
  const begun = page.waitForRequest((request) => request.method() === "HEAD");
  await visit(page, "/objects");
  await begun;
  const failed = page.waitForEvent("requestfailed", (request) => request.method() === "HEAD");
  await page.getByLabel("Names that begin with").fill("none-begins-so");
  assert.match((await failed).failure().errorText, /ABORTED/);
  await page.getByText("No bucket begins so").waitFor();
  assert.deepEqual(problems, []);
  await context.close();
});
