// Work of operators in a real browser, over a real server: buckets, quotas, policies, roles, events, settings, censuses.
import assert from "node:assert/strict";
import { createServer } from "node:http";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { close, launch, open, SHOTS, signIn, violations, visit } from "./browser.mjs";
import { done } from "./s3.mjs";
import { HOSTILE, ROOT, start } from "./server.mjs";
import { looks } from "./steps.mjs";

/** Keys of objects whose events a target refuses. */
const REFUSED = 60;
const RULES = `<NotificationConfiguration><QueueConfiguration><Id>all</Id><Queue>arn:martlet:sqs:::hook</Queue><Event>s3:ObjectCreated:*</Event></QueueConfiguration></NotificationConfiguration>`;
let server;
let viewer;
let key;
let hook;
let accepts = false;
const received = [];

before(async () => {
  assert.ok(process.env.MARTLET_BIN, "MARTLET_BIN must name the binary");
  hook = createServer((request, reply) => {
    let text = "";
    request.on("data", (bytes) => (text += bytes));
    request.on("end", () => {
      if (accepts) received.push(text);
      reply.statusCode = accepts ? 200 : 400;
      reply.end();
    });
  });
  await new Promise((resolve) => hook.listen(0, "127.0.0.1", resolve));
  server = await start(process.env.MARTLET_BIN, {
    MARTLET_NOTIFICATIONS: `hook=http://127.0.0.1:${hook.address().port}/s3cret-path`,
    MARTLET_MAX_NOTIFICATION_REFUSALS: "1",
  });
  server.ask("tenant", "create", "research");
  server.ask("user", "create", "--tenant", "research", "trainer", "--role", "read-write");
  viewer = server.key("viewer");
  key = server.accessKey("--tenant", "research");
  for (const bucket of ["train", "archive"]) await done(server, key, "PUT", bucket);
  for (const name of ["a", "b", "c"]) await done(server, key, "PUT", "train", name, { body: "x".repeat(20_000) });
  await launch(server.url);
});

after(async () => {
  await close();
  await server?.end();
  hook?.close();
});

async function signedIn(principal = ROOT) {
  const opened = await open();
  await signIn(opened.page, principal);
  return opened;
}

async function go(page, path) {
  await page.goto(`${server.url}${path}`);
  await page.locator("main h1").waitFor();
  await page.waitForFunction(() => !document.querySelector("main .loading"));
}

/** Waits until a condition of the server holds. */
async function until(what, condition) {
  for (let tries = 0; !(await condition()); tries += 1) {
    assert.ok(tries < 200, what);
    await new Promise((resolve) => setTimeout(resolve, 100));
  }
}

const json = (...args) => JSON.parse(server.ask(...args, "--json"));

test("an editor with a fault is whole in all looks", async () => {
  const { context, page, problems } = await signedIn();
  await visit(page, "/accounts");
  await page.getByRole("button", { name: "research", exact: true }).click();
  await page.getByRole("button", { name: "Set the policy of trainer" }).click();
  await page.getByRole("button", { name: "Write a policy" }).click();
  await page.getByLabel("Policy of the user trainer").fill(`{"Statement": "${"long ".repeat(100)}" x}`);
  await page.getByRole("button", { name: "Save", exact: true }).click();
  await page.getByLabel("Place of the fault").waitFor();
  await looks(page, "editor");
  assert.deepEqual(problems, []);
  await context.close();
});

test("storage policies are shown, and the buckets that use them added up", async () => {
  const { context, page, problems } = await signedIn();
  await visit(page, "/policies");
  await page.getByText("1 copy").waitFor();
  await page.getByText("for new buckets", { exact: true }).waitFor();
  await page.getByRole("button", { name: "Add up the buckets" }).click();
  await page.getByText(/2 buckets, all of them/).waitFor();
  const cells = await page.getByRole("region", { name: "Use of the storage policies" }).locator("tbody tr").first().locator("td").allInnerTexts();
  assert.equal(cells[0], "2");
  assert.deepEqual(await violations(page), []);
  assert.deepEqual(problems, []);
  await context.close();
});

test("settings and quota of a bucket are changed as by the commands", async () => {
  const { context, page, problems } = await signedIn();
  await visit(page, "/buckets");
  await page.getByRole("link", { name: "train", exact: true }).click();
  await page.getByRole("button", { name: "Change the settings" }).click();
  const dialog = page.getByRole("dialog");
  await dialog.getByLabel("Consistency").selectOption("strict");
  await dialog.getByLabel("ETags").selectOption("opaque");
  await dialog.getByRole("button", { name: "Save" }).click();
  await page.locator("dd").getByText("strict", { exact: true }).waitFor();
  const settings = json("bucket", "show", "train");
  assert.deepEqual([settings.consistency, settings.etags], ["strict", "opaque"]);
  await page.getByRole("button", { name: "Change the quota" }).click();
  await dialog.getByLabel("Bytes").fill("5 parsecs");
  await dialog.getByRole("button", { name: "Save" }).click();
  await dialog.getByText("is not a number of bytes").waitFor();
  await dialog.getByLabel("Bytes").fill("5GiB");
  await dialog.getByLabel("Objects").fill("1000");
  await dialog.getByRole("button", { name: "Save" }).click();
  await page.getByText(/of 5\.0 GiB/).waitFor();
  let quota = json("bucket", "quota", "train");
  assert.deepEqual([quota.bytes_max, quota.objects_max], [5 * 2 ** 30, 1000]);
  await page.getByRole("button", { name: "Count now" }).click();
  await page.getByText("58.6 KiB of 5.0 GiB").waitFor();
  await page.getByText("3 of 1,000").waitFor();
  await page.getByRole("button", { name: "Change the quota" }).click();
  await dialog.getByLabel("Bytes").fill("none");
  await dialog.getByRole("button", { name: "Save" }).click();
  await page.getByText("58.6 KiB, no limit").waitFor();
  quota = json("bucket", "quota", "train");
  assert.deepEqual([quota.bytes_max, quota.objects_max], [null, 1000]);
  await visit(page, "/audit");
  await page.getByText("PUT /admin/v1/bucket/quota").first().waitFor();
  assert.deepEqual(problems, []);
  await context.close();
});

test("a bucket is rewritten as a job and rewrapped, and its objects are found", async () => {
  const { context, page, problems } = await signedIn();
  await go(page, "/buckets?bucket=train");
  const dialog = page.getByRole("dialog");
  await page.getByRole("button", { name: "Start a rewrite" }).click();
  await dialog.getByLabel("Bytes per second").fill("5KiB");
  await dialog.getByRole("button", { name: "Start" }).click();
  await dialog.getByText("at least 1MiB per second").waitFor();
  await dialog.getByLabel("Bytes per second").fill("100MiB");
  await dialog.getByRole("button", { name: "Start" }).click();
  await page.getByRole("heading", { name: "rewrite of train" }).waitFor();
  await page.locator("main").getByText("done", { exact: true }).first().waitFor();
  await page.getByText("Report", { exact: true }).first().click();
  await page.locator("dt").getByText("seen", { exact: true }).waitFor();
  assert.ok(json("job", "list").some((job) => job.kind === "rewrite" && job.subject === "train" && job.state === "done"));
  await page.getByRole("button", { name: "Rewrap the keys" }).click();
  await page.getByRole("heading", { name: "rewrap of train" }).waitFor();
  await page.getByText(/^3\b.* examined, 0 rewrapped, 0 failed/).waitFor();
  await page.getByLabel("Key of the object").fill("a");
  await page.getByRole("button", { name: "Look up" }).click();
  await page.getByText(/19\.5 KiB, in 1 places/).waitFor();
  await page.getByLabel("Key of the object").fill("absent");
  await page.getByRole("button", { name: "Look up" }).click();
  await page.getByRole("alert").waitFor();
  assert.deepEqual(await violations(page), []);
  assert.deepEqual(problems, []);
  await context.close();
});

test("a policy is edited with places of faults, and no text is lost", async () => {
  const { context, page, problems } = await signedIn();
  await visit(page, "/accounts");
  await page.getByRole("button", { name: "research", exact: true }).click();
  await page.getByRole("button", { name: "the policy of trainer" }).click();
  await page.getByRole("button", { name: "Write a policy" }).click();
  const area = page.getByLabel("Policy of the user trainer");
  const save = page.getByRole("button", { name: "Save", exact: true });
  // No JSON: the page itself shows the place, and the caret is there.
  const broken = `{\n  "Version": "2012-10-17",\n  "Statement": [\n    {"Sid": "${HOSTILE.replaceAll('"', "'")}" "Effect": "Allow"}\n  ]\n}`;
  await area.fill(broken);
  await page.getByText(/^Line 4, column \d+: a comma or } is missing here\.$/).waitFor();
  await save.click();
  const place = page.getByLabel("Place of the fault");
  await place.waitFor();
  assert.match(await place.innerText(), /^4 │ .*Effect/);
  const selected = await area.evaluate((element) => element.value.slice(element.selectionStart, element.selectionStart + 8));
  assert.equal(selected, '"Effect"');
  assert.deepEqual(await violations(page), []);
  await page.screenshot({ path: join(SHOTS, "policy-fault.png"), fullPage: true });
  // JSON that the server refuses: its words, the place, and advice.
  const wrong = broken.replace('" "Effect": "Allow"}', '", "Effect": "Allow", "Action": "s3:GetObject", "Resource": "*"},\n    {"Effect": "Allow", "Action": "s3:Get Object", "Resource": "*"}');
  await area.fill(wrong);
  await save.click();
  await page.getByText("Policy has invalid action (statement 2)").waitFor();
  assert.match(await place.innerText(), /^5 │ .*s3:Get Object/);
  await page.getByText("Actions are written s3:GetObject").waitFor();
  assert.equal(await area.inputValue(), wrong);
  // A reload, and the end of the session, keep the text.
  await page.reload();
  await page.getByRole("button", { name: "research", exact: true }).click();
  await page.getByRole("button", { name: "the policy of trainer" }).click();
  await page.getByRole("button", { name: "Write a policy" }).click();
  await page.getByText("This text was typed earlier and not saved.").waitFor();
  assert.equal(await area.inputValue(), wrong);
  await page.getByRole("button", { name: "Sign out" }).click();
  await signIn(page, ROOT);
  await page.getByRole("button", { name: "research", exact: true }).click();
  await page.getByRole("button", { name: "the policy of trainer" }).click();
  await page.getByRole("button", { name: "Write a policy" }).click();
  assert.equal(await area.inputValue(), wrong);
  // Another operator sets a policy meanwhile: it is not replaced unseen.
  const { writeFileSync } = await import("node:fs");
  const other = '{"Version": "2012-10-17", "Statement": {"Effect": "Deny", "Action": "s3:DeleteObject", "Resource": "*"}}';
  writeFileSync(join(server.folder, "other.json"), other);
  server.ask("user", "policy", "put", "--tenant", "research", "trainer", join(server.folder, "other.json"));
  const right = wrong.replace("Get Object", "GetObject");
  await area.fill(right);
  await save.click();
  await page.getByText("was changed by another operator meanwhile").waitFor();
  assert.equal(json("user", "policy", "get", "--tenant", "research", "trainer").policy, other);
  await page.getByLabel("Document of the other operator").waitFor();
  await save.click();
  await page.getByRole("button", { name: "Change the policy" }).waitFor();
  assert.equal(json("user", "policy", "get", "--tenant", "research", "trainer").policy, right);
  // What was saved is no draft any more.
  await page.getByRole("button", { name: "Change the policy" }).click();
  assert.equal(await page.getByText("This text was typed earlier").count(), 0);
  await page.getByRole("button", { name: "Close", exact: true }).click();
  await page.getByRole("button", { name: "Remove the policy" }).click();
  await page.getByRole("dialog").getByText("The document is lost").waitFor();
  await page.getByRole("dialog").getByRole("button", { name: "Remove" }).click();
  await page.getByText("None is set: the role alone limits the user.").waitFor();
  assert.equal(json("user", "policy", "get", "--tenant", "research", "trainer").policy, null);
  assert.equal(await page.evaluate(() => window.hacked), undefined);
  assert.deepEqual(problems, []);
  await context.close();
});

test("a role is made in the editor, trusts by a document, and is deleted", async () => {
  const { context, page, problems } = await signedIn();
  await visit(page, "/accounts");
  await page.getByRole("button", { name: "research", exact: true }).click();
  await page.getByRole("button", { name: "New role" }).click();
  await page.getByLabel("Name of the role").fill("no role/");
  await page.getByRole("button", { name: "Save", exact: true }).click();
  await page.getByRole("alert").waitFor();
  await page.getByLabel("Name of the role").fill("reader");
  await page.getByRole("button", { name: "Save", exact: true }).click();
  await page.getByRole("button", { name: "reader", exact: true }).click();
  await page.getByRole("button", { name: "Write a trust document" }).click();
  const area = page.getByLabel("Trust document of the role reader");
  await area.fill((await area.inputValue()).replace('"research"', '"absent"'));
  await page.getByRole("button", { name: "Save", exact: true }).click();
  await page.getByText("it names a principal that does not exist").waitFor();
  await page.getByText("Create the tenant, user or role first").waitFor();
  assert.deepEqual(await violations(page), []);
  await area.fill((await area.inputValue()).replace('"absent"', '"research"'));
  await page.getByRole("button", { name: "Save", exact: true }).click();
  await page.getByRole("button", { name: "Change the trust document" }).waitFor();
  assert.match(json("role", "show", "--tenant", "research", "reader").trust, /sts:AssumeRole/);
  await page.getByRole("button", { name: "Delete the role reader" }).click();
  await page.getByRole("dialog").getByRole("button", { name: "Delete" }).click();
  await page.getByText("No roles").waitFor();
  assert.deepEqual(problems, []);
  await context.close();
});

test("keys get limits and new secrets, and accounts are deleted with a warning", async () => {
  const { context, page, problems } = await signedIn();
  server.ask("tenant", "create", "gone");
  const doomed = server.accessKey("--tenant", "gone");
  await visit(page, "/accounts");
  await page.getByRole("button", { name: "gone", exact: true }).click();
  const dialog = page.getByRole("dialog");
  await page.getByRole("button", { name: `Limits of ${doomed.key}` }).click();
  await dialog.getByLabel("Networks").fill("10.0.0.0/8, 127.0.0.1");
  await dialog.getByLabel("Requests per second").fill("50");
  await dialog.getByRole("button", { name: "Save" }).click();
  await page.getByText(/10\.0\.0\.0\/8/).waitFor();
  assert.equal(json("key", "show", doomed.key).rate.requests, 50);
  await page.getByRole("button", { name: `New secret of ${doomed.key}` }).click();
  await dialog.getByText("The present secret is lost").waitFor();
  await dialog.getByRole("button", { name: "Make a new secret" }).click();
  const secret = await page.locator("dialog code.copy").nth(1).innerText();
  assert.ok(secret.length > 20 && secret !== doomed.secret);
  await page.getByRole("button", { name: "I have kept it" }).click();
  await page.getByRole("button", { name: "Delete gone" }).click();
  await dialog.getByRole("button", { name: "Delete" }).click();
  await dialog.getByRole("alert").waitFor();
  await page.keyboard.press("Escape");
  await page.getByRole("button", { name: `Delete ${doomed.key}` }).click();
  await dialog.getByText("is lost with its secret, for good").waitFor();
  await dialog.getByRole("button", { name: "Delete" }).click();
  await page.getByText("No access keys").waitFor();
  await page.getByRole("button", { name: "Delete gone" }).click();
  await dialog.getByRole("button", { name: "Delete" }).click();
  await page.waitForFunction(() => ![...document.querySelectorAll("button.link")].some((one) => one.textContent === "gone"));
  assert.ok(!json("tenant", "list").some((line) => line.tenant === "gone"));
  assert.deepEqual(problems, []);
  await context.close();
});

test("refused events are shown and sent again", async () => {
  await done(server, ROOT, "PUT", "events");
  await done(server, ROOT, "PUT", "events", "", { query: { notification: "" }, body: RULES });
  for (let at = 0; at < REFUSED; at += 1) await done(server, ROOT, "PUT", "events", `${HOSTILE}-${at}`, { body: "x" });
  const { context, page, problems } = await signedIn();
  const target = async () => (await page.evaluate(async () => (await (await fetch("/api/admin/v1/events", { headers: { "x-martlet-csrf": localStorage.getItem("martlet-csrf") } })).json()).items))[0];
  // The rules themselves make an event too.
  const sent = REFUSED + 1;
  await until("the target refuses all messages", async () => (await target()).refused === sent);
  await visit(page, "/events");
  await page.getByText("messages parked", { exact: true }).waitFor();
  await page.getByRole("button", { name: "Show the messages of hook root" }).click();
  await page.locator("summary", { hasText: `${encodeURIComponent("<img")}` }).or(page.locator("summary", { hasText: "<img" })).first().waitFor();
  assert.equal(await page.locator("summary").count(), 50);
  await page.getByRole("navigation", { name: "Pages of the messages" }).getByRole("button", { name: "Next" }).click();
  await page.waitForFunction((count) => document.querySelectorAll("summary").length === count, sent - 50);
  await page.locator("summary").first().click();
  await page.locator("details[open] pre").waitFor();
  assert.equal(await page.locator("main img").count(), 0);
  assert.deepEqual(await violations(page), []);
  await page.screenshot({ path: join(SHOTS, "events-parked.png"), fullPage: true });
  // A request about other messages than those that are parked is refused.
  const stale = await page.evaluate(async () => {
    const headers = { "x-martlet-csrf": localStorage.getItem("martlet-csrf"), "content-type": "application/json" };
    const body = JSON.stringify({ target: "hook", lane: "root", bytes: 1 });
    const reply = await fetch("/api/admin/v1/events/parked/retry", { method: "POST", headers, body });
    return { status: reply.status, error: (await reply.json()).error };
  });
  assert.equal(stale.status, 409);
  assert.match(stale.error, /bytes are parked now/);
  accepts = true;
  await page.getByRole("button", { name: "Send again the messages of hook root" }).click();
  await page.getByRole("dialog").getByRole("button", { name: "Send again" }).click();
  await until("the messages arrive", () => received.length >= sent);
  assert.equal(new Set(received.flatMap((text) => /-(\d+)$/.exec(JSON.parse(text).Records?.[0]?.s3.object.key ?? "")?.[1] ?? [])).size, REFUSED);
  await page.getByText("all delivered", { exact: true }).waitFor();
  await page.waitForFunction(() => ![...document.querySelectorAll("h2")].some((one) => one.textContent === "Parked messages"));
  await visit(page, "/audit");
  await page.getByText("POST /admin/v1/events/parked/retry").first().waitFor();
  assert.deepEqual(problems, []);
  await context.close();
});

test("settings have their sources, and secrets are not among them", async () => {
  const { context, page, problems } = await signedIn();
  await visit(page, "/settings");
  const source = async (name) => await page.locator("tr", { has: page.getByText(name, { exact: true }) }).locator("td").last().innerText();
  assert.equal(await source("s3_address"), "flag");
  assert.equal(await source("max_notification_refusals"), "environment");
  const text = await page.locator("main").innerText();
  assert.ok(!text.includes(ROOT.secret) && !text.includes("s3cret-path"));
  await page.getByLabel("Setting, value or source").fill("environment");
  await page.getByText("s3_address", { exact: true }).waitFor({ state: "detached" });
  await page.getByRole("button", { name: "Raise the format level" }).click();
  await page.getByRole("dialog").getByText("The way back to the release before is lost").waitFor();
  await page.getByRole("dialog").getByRole("button", { name: "Raise it" }).click();
  await page.getByRole("status").getByText(/format level/).waitFor();
  assert.deepEqual(await violations(page), []);
  assert.deepEqual(problems, []);
  await context.close();
});

test("a census is taken with a pause, by keyboard, and its verdict shown", async () => {
  const { context, page, problems } = await signedIn();
  await visit(page, "/census");
  await page.getByRole("button", { name: "Start a census" }).focus();
  await page.keyboard.press("Enter");
  await page.getByRole("dialog").getByLabel("Pause").fill("2 fortnights");
  await page.keyboard.press("Enter");
  await page.getByRole("dialog").getByText("is not a time").waitFor();
  await page.getByRole("dialog").getByLabel("Pause").fill("1ms");
  await page.keyboard.press("Enter");
  await page.getByText("Clean", { exact: true }).waitFor({ timeout: 60_000 });
  await page.getByText("Nothing is in quarantine").waitFor();
  assert.deepEqual(await violations(page), []);
  await page.screenshot({ path: join(SHOTS, "census-clean.png"), fullPage: true });
  await visit(page, "/rings");
  await page.getByRole("button", { name: "Push rings" }).click();
  await page.getByLabel("Ring files").setInputFiles({ name: "index.ring", mimeType: "application/octet-stream", buffer: Buffer.from("no ring") });
  await page.getByRole("dialog").getByText("index.ring: it is no ring file").waitFor();
  assert.deepEqual(await violations(page), []);
  assert.deepEqual(problems, []);
  await context.close();
});

test("checkpoint rules of a bucket are edited, and refused with the server's words", async () => {
  const { context, page, problems } = await signedIn();
  await done(server, key, "PUT", "archive", "", { query: { versioning: "" }, body: "<VersioningConfiguration><Status>Enabled</Status></VersioningConfiguration>" });
  await go(page, "/buckets?bucket=archive");
  await page.getByRole("button", { name: "Set rules" }).click();
  const area = page.getByLabel("Checkpoint rules of archive");
  const template = await area.inputValue();
  await area.fill(template.replace('"dcp"', '"nonsense"'));
  await page.getByRole("button", { name: "Save", exact: true }).click();
  await page.getByRole("alert").waitFor();
  assert.match(await area.inputValue(), /nonsense/);
  await area.fill(template);
  await page.getByRole("button", { name: "Save", exact: true }).click();
  await page.getByRole("button", { name: "Remove the rules" }).click();
  assert.match(server.ask("bucket", "checkpoints", "archive"), /dcp/);
  await page.getByRole("dialog").getByText("sets leave the view").waitFor();
  await page.getByRole("dialog").getByRole("button", { name: "Remove" }).click();
  await page.getByText("The bucket has no checkpoint rules.").waitFor();
  assert.deepEqual(problems, []);
  await context.close();
});

test("a tenant's admin has the buckets and documents of its tenant, and no page of others", async () => {
  server.ask("tenant", "create", "other");
  await done(server, server.accessKey("--tenant", "other"), "PUT", "foreign");
  const { context, page, problems } = await signedIn(server.key("tenant-admin", "--tenant", "research"));
  for (const path of ["/rings", "/census", "/events", "/settings", "/jobs"]) assert.equal(await page.locator(`nav a[href="${path}"]`).count(), 0, path);
  await visit(page, "/policies");
  await page.getByText("1 copy").waitFor();
  assert.equal(await page.getByRole("button", { name: "Add up the buckets" }).count(), 0);
  await visit(page, "/buckets");
  await page.getByRole("link", { name: "train", exact: true }).waitFor();
  assert.equal(await page.getByText("foreign").count(), 0);
  await page.getByRole("link", { name: "train", exact: true }).click();
  await page.getByRole("button", { name: "Change the quota" }).waitFor();
  assert.equal(await page.locator(".failure").count(), 0, await page.locator("main").innerText());
  assert.deepEqual(await violations(page), []);
  await visit(page, "/accounts");
  await page.getByRole("button", { name: "Set the policy of trainer" }).waitFor();
  assert.equal(await page.getByRole("button", { name: "Change the quota" }).count(), 0, "a quota binds the tenant's own admins");
  await go(page, "/buckets?bucket=foreign");
  await page.getByRole("alert").first().waitFor();
  assert.deepEqual(problems, []);
  await context.close();
});

test("an operator ends the session of another principal", async () => {
  const first = await signedIn(server.key("operator"));
  await visit(first.page, "/accounts");
  await first.page.getByRole("button", { name: "New tenant" }).click();
  await first.page.getByRole("dialog").getByLabel("Name", { exact: true }).fill("brief");
  await first.page.getByRole("dialog").getByRole("button", { name: "Create" }).click();
  await first.page.getByRole("button", { name: "brief", exact: true }).waitFor();
  const { context, page, problems } = await signedIn();
  await visit(page, "/audit");
  await page.locator("tr", { hasText: "tenant=brief" }).getByRole("button", { name: /^End the session/ }).click();
  await page.getByRole("dialog").getByText("is refused from then on").waitFor();
  assert.deepEqual(await violations(page), []);
  await page.getByRole("dialog").getByRole("button", { name: "End it" }).click();
  await page.getByRole("dialog").waitFor({ state: "detached" });
  await first.page.getByText("The session is over. Sign in again.").waitFor({ timeout: 60_000 });
  assert.deepEqual([...problems, ...first.problems], []);
  await context.close();
  await first.context.close();
});

test("a viewer reads all of this, and changes nothing", async () => {
  const { context, page, problems } = await signedIn(viewer);
  for (const path of ["/policies", "/census", "/events", "/settings", "/rings"]) {
    await visit(page, path);
    assert.equal(await page.locator(".failure").count(), 0, path);
    for (const name of [/^Start/, /^Push/, /^Show the messages/, /^Send again/, /^Raise/]) assert.equal(await page.locator("main").getByRole("button", { name }).count(), 0, `${path} ${name}`);
  }
  await go(page, "/buckets?bucket=train");
  for (const name of [/^Change/, /^Start/, /^Set/, /^Rewrap/, /^Remove/]) assert.equal(await page.locator("main").getByRole("button", { name }).count(), 0, String(name));
  await visit(page, "/accounts");
  await page.getByRole("button", { name: "research", exact: true }).click();
  await page.getByText("trainer", { exact: true }).waitFor();
  for (const name of [/^New/, /^Disable/, /^Delete/, /^Limits/, /^Role/, /^Change/]) assert.equal(await page.locator("main").getByRole("button", { name }).count(), 0, String(name));
  assert.deepEqual(problems, []);
  await context.close();
});
