// Settings of a bucket in a real browser: policy, tags, encryption, retention of checkpoints, and replies that come late.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { close, launch, LOOKS, violations } from "./browser.mjs";
import { focus, go, signedIn, whole } from "./object-pages.mjs";
import { done, s3 } from "./s3.mjs";
import { HOSTILE, start } from "./server.mjs";

const VERSIONING = "<VersioningConfiguration><Status>Enabled</Status></VersioningConfiguration>";
let server;
let tenant;
let reader;
let other;

before(async () => {
  assert.ok(process.env.MARTLET_BIN, "MARTLET_BIN must name the binary");
  server = await start(process.env.MARTLET_BIN);
  server.ask("tenant", "create", "research");
  server.ask("tenant", "create", "other");
  server.ask("user", "create", "--tenant", "research", "reader", "--role", "read-only");
  tenant = server.accessKey("--tenant", "research");
  reader = server.accessKey("--tenant", "research", "--user", "reader");
  other = server.accessKey("--tenant", "other");
  await done(server, tenant, "PUT", "train");
  await done(server, tenant, "PUT", "train", "k", { body: "shared" });
  await launch(server.url);
});

after(async () => {
  await close();
  await server?.end();
});

const settings = (page, bucket = "train") => go(page, server.url, { bucket, view: "settings" });
const stored = async (query, bucket = "train") => String((await s3(server, tenant, "GET", bucket, "", { query: { [query]: "" } })).body);
const statement = (more) => ({ Effect: "Allow", Principal: { AWS: "other" }, Action: "s3:GetObject", Resource: "arn:aws:s3:::train/*", ...more });
const policy = (...statements) => JSON.stringify({ Version: "2012-10-17", Statement: statements }, null, 2);

test("a policy is written, refused with S3's words and a mark, stored and removed", async () => {
  const { context, page, problems } = await signedIn(tenant);
  await settings(page);
  await page.getByRole("button", { name: "Set Policy" }).click();
  const field = page.getByLabel("Document of Policy");
  assert.match(await field.inputValue(), /arn:aws:s3:::train\/\*/);
  await field.fill('{"Version": "2012-10-17",\n "Statement": [}');
  await page.getByText("Line 2, column 16").waitFor();
  await page.getByRole("button", { name: "Save" }).click();
  await page.getByLabel("Place of the fault").waitFor();
  for (const [text, words, hint, mark] of [
    [policy(statement({ Action: "s3:GetObjects" })), "Policy has invalid action", "Actions are written", '"Action":'],
    [policy(statement({ Principal: { AWS: "nobody" } })), "Invalid principal in policy", "ARN of a user or role", '"Principal":'],
    [policy(statement({ Resource: "arn:aws:s3:::another/*" })), "Policy has invalid resource", "Resources are ARNs", '"Resource":'],
  ]) {
    await field.fill(text);
    await page.getByRole("button", { name: "Save" }).click();
    await page.getByText(words, { exact: true }).waitFor();
    await page.getByText(hint).waitFor();
    const place = await page.getByLabel("Place of the fault").innerText();
    assert.ok(place.includes(mark), place);
    assert.equal(await field.inputValue(), text, "the text stays");
  }
  assert.deepEqual(await violations(page), []);
  await field.fill(policy(statement({ Sid: HOSTILE })));
  await page.getByRole("button", { name: "Save" }).click();
  await page.getByRole("button", { name: "Change Policy" }).waitFor();
  await page.getByText("not public", { exact: true }).waitFor();
  assert.deepEqual(JSON.parse(await stored("policy")), JSON.parse(policy(statement({ Sid: HOSTILE }))));
  // It holds: the other tenant reads the object.
  for (let tries = 0; (await s3(server, other, "GET", "train", "k")).status !== 200; tries += 1) {
    assert.ok(tries < 50, "the policy holds within a second");
    await page.waitForTimeout(100);
  }
  await page.getByRole("button", { name: "Change Policy" }).click();
  await field.fill(policy(statement({ Principal: "*" })));
  await page.getByRole("button", { name: "Save" }).click();
  await page.getByText(/^public/).waitFor();
  await page.getByRole("button", { name: "Remove Policy" }).click();
  await page.getByRole("dialog").getByText("What it allows to others ends").waitFor();
  assert.deepEqual(await violations(page), []);
  await page.getByRole("dialog").getByRole("button", { name: "Remove" }).click();
  await page.getByRole("button", { name: "Set Policy" }).waitFor();
  assert.match(await stored("policy"), /NoSuchBucketPolicy/);
  assert.equal(await page.evaluate(() => window.hacked), undefined);
  assert.deepEqual(problems, []);
  await context.close();
});

test("a policy that was changed meanwhile is replaced after a second click only", async () => {
  const { context, page, problems } = await signedIn(tenant);
  await done(server, tenant, "PUT", "train", "", { query: { policy: "" }, body: policy(statement({ Sid: "first" })) });
  await settings(page);
  await page.getByRole("button", { name: "Change Policy" }).click();
  await page.getByLabel("Document of Policy").fill(policy(statement({ Sid: "mine" })));
  await done(server, tenant, "PUT", "train", "", { query: { policy: "" }, body: policy(statement({ Sid: "theirs" })) });
  await page.getByRole("button", { name: "Save" }).click();
  await page.getByText("was changed by another operator meanwhile").waitFor();
  assert.match(await stored("policy"), /theirs/);
  await page.getByRole("button", { name: "Save" }).click();
  await page.getByRole("button", { name: "Change Policy" }).waitFor();
  assert.match(await stored("policy"), /mine/);
  await done(server, tenant, "DELETE", "train", "", { query: { policy: "" } });
  assert.deepEqual(problems, []);
  await context.close();
});

test("tags of a bucket and its encryption are shown and changed", async () => {
  const { context, page, problems } = await signedIn(tenant);
  await settings(page);
  await page.getByText("No tags.").waitFor();
  await page.getByRole("button", { name: "Change the tags of the bucket" }).click();
  const dialog = page.getByRole("dialog");
  await dialog.getByLabel("One NAME=VALUE on each line").fill("team");
  await dialog.getByRole("button", { name: "Save" }).click();
  await dialog.getByText('"team" is no tag').waitFor();
  await dialog.getByLabel("One NAME=VALUE on each line").fill(`team=a=b\nowner=é ${"x".repeat(300)}`);
  await dialog.getByRole("button", { name: "Save" }).click();
  await dialog.getByText("InvalidTag").waitFor();
  await dialog.getByLabel("One NAME=VALUE on each line").fill("team=a=b\nowner=é x");
  assert.deepEqual(await violations(page), []);
  await dialog.getByRole("button", { name: "Save" }).click();
  await page.getByText("a=b", { exact: true }).waitFor();
  assert.match(await stored("tagging"), /<Value>é x<\/Value>/);
  await page.getByRole("button", { name: "Change the tags of the bucket" }).click();
  await dialog.getByLabel("One NAME=VALUE on each line").fill("");
  await dialog.getByRole("button", { name: "Save" }).click();
  await page.getByText("No tags.").waitFor();
  assert.match(await stored("tagging"), /NoSuchTagSet/);

  await page.getByRole("button", { name: "Encrypt new objects" }).click();
  await dialog.getByText("can't be read in place").waitFor();
  assert.deepEqual(await violations(page), []);
  await dialog.getByRole("button", { name: "Encrypt new objects" }).click();
  await page.getByText("AES256 for new objects").waitFor();
  assert.match(await stored("encryption"), /AES256/);
  for (let tries = 0; ; tries += 1) {
    const { headers } = await done(server, tenant, "PUT", "train", "sealed", { body: "x" });
    if (headers["x-amz-server-side-encryption"] === "AES256") break;
    assert.ok(tries < 50, "new objects are encrypted within a second");
    await page.waitForTimeout(100);
  }
  await page.getByRole("button", { name: "Stop encrypting" }).click();
  await dialog.getByRole("button", { name: "Stop encrypting" }).click();
  await page.getByText("as each request says").waitFor();
  assert.match(await stored("encryption"), /ServerSideEncryptionConfigurationNotFoundError/);
  assert.deepEqual(problems, []);
  await context.close();
});

test("a user without the right gets S3's words, and what it may read", async () => {
  const { context, page, problems } = await signedIn(reader);
  await settings(page);
  await page.getByRole("button", { name: "Set Policy" }).click();
  await page.getByRole("button", { name: "Save" }).click();
  await page.getByText("Access Denied").first().waitFor();
  await page.getByRole("button", { name: "Close" }).click();
  await page.getByRole("button", { name: "Encrypt new objects" }).click();
  await page.getByRole("dialog").getByRole("button", { name: "Encrypt new objects" }).click();
  await page.getByRole("dialog").getByText("AccessDenied").waitFor();
  await page.keyboard.press("Escape");
  assert.match(await stored("policy"), /NoSuchBucketPolicy/);
  assert.match(await stored("encryption"), /NotFoundError/);
  assert.deepEqual(problems, []);
  await context.close();
});

test("a form puts the retention of one set, or of many, into the rules", async () => {
  await done(server, tenant, "PUT", "runs");
  await done(server, tenant, "PUT", "runs", "", { query: { versioning: "" }, body: VERSIONING });
  const { context, page, problems } = await signedIn(tenant);
  await settings(page, "runs");
  await page.getByRole("button", { name: "Set Checkpoint rules" }).click();
  const field = page.getByLabel("Document of Checkpoint rules");
  await field.fill('{"rules": [{"pattern": "export/*/", "profile": "custom", "markers": ["DONE"]}]}');
  const form = page.getByRole("group", { name: "Retention of one set, or of many" });
  await form.getByLabel("Folders").fill("run-7/step-1000");
  await form.getByRole("button", { name: "Add or change" }).click();
  await form.getByRole("alert").getByText("ends in a slash").waitFor();
  await form.getByLabel("Folders").fill("run-7/step-1000/");
  await form.getByLabel("Generations to keep").fill("2");
  await form.getByLabel("Abandoned after, in hours").fill("48");
  await form.getByRole("button", { name: "Add or change" }).click();
  // The rule of other folders has another retention, and keeps its markers.
  await form.getByLabel("Folders").fill("export/*/");
  await form.getByLabel("Profile").selectOption("custom");
  await form.getByLabel("Kept at least, in hours").fill("1");
  await form.getByLabel("Abandoned after, in hours").fill("");
  await form.getByRole("button", { name: "Add or change" }).click();
  assert.deepEqual(await violations(page), []);
  await page.getByRole("button", { name: "Save" }).click();
  await page.getByRole("button", { name: "Change Checkpoint rules" }).waitFor();
  assert.deepEqual(JSON.parse(await stored("checkpoints", "runs")), {
    rules: [
      { pattern: "export/*/", profile: "custom", markers: ["DONE"], keep: 2, min_age: 3600 },
      { pattern: "run-7/step-1000/", profile: "dcp", keep: 2, abandon_after: 172_800 },
    ],
  });
  await page.getByRole("button", { name: "Change Checkpoint rules" }).click();
  await form.getByLabel("Folders").fill("run-*/step-*/");
  await form.getByRole("button", { name: "Add or change" }).click();
  await page.getByRole("button", { name: "Save" }).click();
  await page.getByText(/overlaps an earlier one/).waitFor();
  await page.getByRole("button", { name: "Close" }).click();
  assert.deepEqual(problems, []);
  await context.close();
});

/** Holds the requests that `is` selects, until `free` lets them go on. */
async function held(page, is) {
  const waiting = [];
  let open = false;
  await page.route("**/s3/**", (route) => (!open && is(route.request()) ? void waiting.push(route) : route.fallback()));
  const free = async () => {
    open = true;
    for (const route of waiting) await route.fallback();
  };
  const caught = async () => {
    for (let tries = 0; waiting.length === 0; tries += 1) {
      assert.ok(tries < 200, "no request was held");
      await page.waitForTimeout(25);
    }
  };
  return { free, caught };
}

test("after a save the next change begins from what was saved, however late the store replies", async () => {
  const { context, page, problems } = await signedIn(tenant);
  await settings(page);
  await page.getByRole("button", { name: "Set Lifecycle" }).click();
  let saved = false;
  page.on("response", (reply) => (saved ||= reply.request().method() === "PUT" && reply.url().includes("lifecycle")));
  const { free, caught } = await held(page, (request) => saved && request.method() === "GET" && request.url().includes("lifecycle"));
  await page.getByRole("button", { name: "Save" }).click();
  await caught();
  // Neither "Set" nor "Change" is offered over a document that is being read.
  assert.equal(await page.getByRole("button", { name: /^(Set|Change) Lifecycle$/ }).count(), 0);
  await free();
  await page.getByRole("button", { name: "Change Lifecycle" }).click();
  assert.match(await page.getByLabel("Document of Lifecycle").inputValue(), /<Days>30<\/Days>/);
  await page.getByRole("button", { name: "Cancel" }).click();
  assert.deepEqual(problems, []);
  await context.close();
});

test("a save whose next read fails is shown as saved, with the reason", async () => {
  const { context, page } = await signedIn(tenant);
  await settings(page);
  let saved = false;
  await page.route("**/s3/train?cors=", (route) => {
    if (route.request().method() === "PUT") saved = true;
    else if (saved) return route.fulfill({ status: 503, contentType: "application/xml", body: "<Error><Code>SlowDown</Code><Message>Reduce your request rate.</Message></Error>" });
    return route.fallback();
  });
  await page.getByRole("button", { name: "Set CORS" }).click();
  await page.getByRole("button", { name: "Save" }).click();
  await page.getByRole("button", { name: "Change CORS" }).waitFor();
  await page.getByText("Reduce your request rate.").waitFor();
  assert.match(await stored("cors"), /AllowedOrigin/);
  await done(server, tenant, "DELETE", "train", "", { query: { cors: "" } });
  await context.close();
});

test("a document that was changed meanwhile is replaced after a second click only", async () => {
  const { context, page, problems } = await signedIn(tenant);
  await settings(page);
  await page.getByRole("button", { name: "Change Lifecycle" }).click();
  const text = await page.getByLabel("Document of Lifecycle").inputValue();
  await page.getByLabel("Document of Lifecycle").fill(text.replace("30", "31"));
  const theirs = (await stored("lifecycle")).replace("<Days>30", "<Days>99");
  await done(server, tenant, "PUT", "train", "", { query: { lifecycle: "" }, body: theirs, headers: { "content-md5": await md5(theirs) } });
  await page.getByRole("button", { name: "Save" }).click();
  await page.getByText("The document was changed meanwhile").waitFor();
  assert.match(await stored("lifecycle"), /<Days>99/);
  await page.getByRole("button", { name: "Save" }).click();
  await page.getByRole("button", { name: "Change Lifecycle" }).waitFor();
  assert.match(await stored("lifecycle"), /<Days>31/);
  await done(server, tenant, "DELETE", "train", "", { query: { lifecycle: "" } });
  assert.deepEqual(problems, []);
  await context.close();
});

async function md5(text) {
  const { createHash } = await import("node:crypto");
  return createHash("md5").update(text).digest("base64");
}

test("a reply to a cancelled dialog doesn't close the next one", async () => {
  const { context, page, problems } = await signedIn(tenant);
  await settings(page);
  const { free, caught } = await held(page, (request) => request.method() === "PUT" && request.url().includes("tagging"));
  await page.getByRole("button", { name: "Change the tags of the bucket" }).click();
  const dialog = page.getByRole("dialog");
  await dialog.getByLabel("One NAME=VALUE on each line").fill("a=1");
  await dialog.getByRole("button", { name: "Save" }).click();
  await caught();
  await dialog.getByRole("button", { name: "Cancel" }).click();
  await page.getByRole("button", { name: "Change the tags of the bucket" }).click();
  await dialog.getByLabel("One NAME=VALUE on each line").fill("b=2");
  const replied = page.waitForResponse((reply) => reply.request().method() === "GET" && reply.url().includes("tagging"));
  await free();
  await replied;
  await page.waitForTimeout(300);
  assert.equal(await dialog.getByLabel("One NAME=VALUE on each line").inputValue(), "b=2");
  await dialog.getByRole("button", { name: "Save" }).click();
  await dialog.waitFor({ state: "detached" });
  assert.match(await stored("tagging"), /<Key>b<\/Key>/);
  await done(server, tenant, "DELETE", "train", "", { query: { tagging: "" } });
  assert.deepEqual(problems, []);
  await context.close();
});

for (const look of LOOKS) {
  test(`settings and their dialogs are whole in ${look.name}, by the keyboard`, async () => {
    const { context, page, problems } = await signedIn(tenant, look);
    await settings(page);
    await whole(page, "bucket-settings", look);
    await focus(page, "Set Policy");
    await page.keyboard.press("Enter");
    await page.getByLabel("Document of Policy").waitFor();
    assert.equal(await page.evaluate(() => document.activeElement?.tagName), "TEXTAREA");
    await whole(page, "bucket-policy", look);
    await focus(page, "Close");
    await page.keyboard.press("Enter");
    await page.getByRole("button", { name: "Set Policy" }).waitFor();
    for (const name of ["Change the tags of the bucket", "Encrypt new objects"]) {
      await page.getByRole("button", { name }).first().focus();
      await page.keyboard.press("Enter");
      await page.getByRole("dialog").waitFor();
      await whole(page, `bucket-${name.split(" ")[0]}`, look);
      await page.keyboard.press("Escape");
      await page.getByRole("dialog").waitFor({ state: "detached" });
    }
    await page.getByRole("button", { name: "Set Checkpoint rules" }).click();
    await whole(page, "bucket-checkpoint-rules", look);
    assert.deepEqual(problems, []);
    await context.close();
  });
}
