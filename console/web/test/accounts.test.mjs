// Accounts in a real browser, over a real server: admin keys, users, roles, access keys and quotas of tenants. Effects are read by
// the admin API and by S3.
import assert from "node:assert/strict";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { close, launch, open, SHOTS, signIn, violations, visit } from "./browser.mjs";
import { done, s3 } from "./s3.mjs";
import { HOSTILE, ROOT, start } from "./server.mjs";
import { api, kept, signedIn, until } from "./steps.mjs";

let server;
let tenant;

before(async () => {
  assert.ok(process.env.MARTLET_BIN, "MARTLET_BIN must name the binary");
  server = await start(process.env.MARTLET_BIN);
  server.ask("tenant", "create", "research", "--display-name", HOSTILE);
  tenant = server.accessKey("--tenant", "research");
  await done(server, tenant, "PUT", "train");
  await done(server, tenant, "PUT", "train", "hello", { body: "hello" });
  await launch(server.url);
});

after(async () => {
  await close();
  await server?.end();
});

const json = (...args) => JSON.parse(server.ask(...args, "--json"));
const status = async (key, method, name = "hello") => (await s3(server, key, method, "train", name, { body: method === "PUT" ? "x" : "" })).status;
const becomes = (what, key, method, wanted) => until(`${what}: ${method} never gets ${wanted}`, async () => (await status(key, method)) === wanted);

/** Opens the accounts of the tenant. */
async function accounts(page, name = "research") {
  await visit(page, "/accounts");
  await page.getByRole("button", { name, exact: true }).click();
  await page.getByRole("heading", { name: `Access keys of ${name}` }).waitFor();
}

/** Confirms the open dialog, and waits for its end: the server accepted the change. */
async function confirm(page, verb) {
  const dialog = page.getByRole("dialog");
  await dialog.getByRole("button", { name: verb, exact: true }).click();
  await dialog.waitFor({ state: "detached" });
}

/** Confirms the open dialog, which the server refuses. Returns its sentence. */
async function refused(page, verb) {
  const dialog = page.getByRole("dialog");
  await dialog.getByRole("button", { name: verb, exact: true }).click();
  const text = await dialog.getByRole("alert").innerText();
  assert.deepEqual(await violations(page), [], "a refusal in the dialog");
  return text;
}

test("an admin key is made with its role, tenant and end, signs in, and is revoked", async () => {
  const { context, page, problems } = await signedIn(ROOT);
  await visit(page, "/accounts");
  const dialog = page.getByRole("dialog");
  await page.getByRole("button", { name: "New admin key" }).click();
  await dialog.getByLabel("Name").fill(HOSTILE);
  await dialog.getByLabel("Lifetime").fill("90 moons");
  assert.match(await refused(page, "Create"), /is not a time/);
  await dialog.getByLabel("Lifetime").fill("90d");
  await page.screenshot({ path: join(SHOTS, "admin-key.png") });
  await dialog.getByRole("button", { name: "Create" }).click();
  const viewer = await kept(page);
  const line = async (key) => (await api(page, "admin-keys")).body.items.find((one) => one.key === key);
  const made = await line(viewer.key);
  assert.deepEqual([made.role, made.name, made.tenant ?? null, made.secret ?? null], ["viewer", HOSTILE, null, null]);
  assert.ok(Math.abs(made.expires_ms - Date.now() - 90 * 86_400_000) < 600_000, `it ends at ${made.expires_ms}`);
  await page.locator("tr", { hasText: viewer.key }).getByText(HOSTILE).waitFor();

  await page.getByRole("button", { name: "New admin key" }).click();
  await dialog.getByLabel("Role").selectOption("tenant-admin");
  await dialog.getByLabel("Tenant").fill("absent");
  assert.match(await refused(page, "Create"), /absent/);
  await dialog.getByLabel("Tenant").fill("research");
  await dialog.getByRole("button", { name: "Create" }).click();
  const admin = await kept(page);
  assert.deepEqual([(await line(admin.key)).tenant, (await line(admin.key)).expires_ms ?? null], ["research", null]);

  // The new keys sign in with their roles.
  const other = await signedIn(admin);
  assert.equal((await api(other.page, "keys?tenant=research")).status, 200);
  assert.equal((await api(other.page, "tenants")).status, 403);
  await other.context.close();
  const third = await signedIn(viewer);
  assert.equal((await api(third.page, "tenants")).status, 200);
  assert.equal((await api(third.page, "audit")).status, 403);
  await page.getByRole("button", { name: `Revoke ${viewer.key}` }).click();
  await dialog.getByText("The key and all of its sessions end").waitFor();
  assert.deepEqual(await violations(page), []);
  await confirm(page, "Revoke");
  await page.getByRole("button", { name: `Revoke ${viewer.key}` }).waitFor({ state: "detached" });
  assert.equal(await line(viewer.key), undefined);
  await third.page.getByText("The session is over. Sign in again.").waitFor({ timeout: 20_000 });
  assert.equal((await api(third.page, "tenants")).status, 401);
  await third.context.close();
  const fourth = await open();
  await fourth.page.getByLabel("Key", { exact: true }).fill(viewer.key);
  await fourth.page.getByLabel("Secret").fill(viewer.secret);
  await fourth.page.getByRole("button", { name: "Sign in" }).click();
  await fourth.page.getByRole("alert").waitFor();
  await fourth.context.close();
  assert.ok(!server.ask("audit", "--json").includes(viewer.secret));
  assert.equal(await page.evaluate(() => window.hacked), undefined);
  assert.deepEqual(problems, []);
  await context.close();
});

test("a user is made, changed, disabled and deleted, and S3 follows", async () => {
  const { context, page, problems } = await signedIn(ROOT);
  await accounts(page);
  const dialog = page.getByRole("dialog");
  await page.getByRole("button", { name: "New user" }).click();
  await dialog.getByLabel("Name").fill(HOSTILE);
  assert.match(await refused(page, "Create"), /can't be the name of a user/);
  const name = "a.b+c=d,e@f-g_h";
  await dialog.getByLabel("Name").fill(name);
  await confirm(page, "Create");
  await page.getByRole("rowheader", { name }).waitFor();
  assert.deepEqual(json("user", "list", "--tenant", "research").map((one) => [one.user, one.role]), [[name, "read-only"]]);
  await page.getByRole("button", { name: "New user" }).click();
  await dialog.getByLabel("Name").fill(name);
  assert.match(await refused(page, "Create"), /exists/);
  await page.keyboard.press("Escape");

  const user = server.accessKey("--tenant", "research", "--user", name);
  assert.deepEqual([await status(user, "GET"), await status(user, "PUT")], [200, 403]);
  await page.getByRole("button", { name: `Role of ${name}` }).click();
  await dialog.getByLabel("Role").selectOption("read-write");
  assert.deepEqual(await violations(page), []);
  await confirm(page, "Save");
  await becomes("the role", user, "PUT", 200);

  await page.getByRole("button", { name: `Set the policy of ${name}` }).click();
  await page.getByRole("button", { name: "Write a policy" }).click();
  const area = page.getByLabel(`Policy of the user ${name}`);
  await area.fill('{"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": "s3:GetObject", "Resource": "arn:aws:s3:::train/*"}]}');
  await page.getByRole("button", { name: "Save", exact: true }).click();
  await page.getByRole("button", { name: "Change the policy" }).waitFor();
  await becomes("the policy", user, "PUT", 403);
  assert.equal(await status(user, "GET"), 200);
  await page.getByRole("button", { name: `Show the policy of ${name}` }).waitFor();
  await page.getByRole("button", { name: "Close the policy" }).click();

  await page.getByRole("button", { name: `Disable ${name}` }).click();
  await dialog.getByText("All of its keys are refused from then on.").waitFor();
  await confirm(page, "Disable");
  await becomes("the end of the user", user, "GET", 403);
  assert.equal(json("user", "show", "--tenant", "research", name).enabled, false);
  await page.getByRole("button", { name: `Enable ${name}` }).click();
  await confirm(page, "Enable");
  await becomes("the return of the user", user, "GET", 200);

  await page.getByRole("button", { name: `Delete ${name}` }).click();
  await dialog.getByText("The user with its role and policy is lost.").waitFor();
  assert.match(await refused(page, "Delete"), /key/);
  await page.keyboard.press("Escape");
  server.ask("key", "delete", user.key);
  await page.getByRole("button", { name: `Delete ${name}` }).click();
  await confirm(page, "Delete");
  await page.getByText("No users").waitFor();
  assert.deepEqual(json("user", "list", "--tenant", "research"), []);
  assert.deepEqual(problems, []);
  await context.close();
});

test("a role's policy, sessions and state are changed", async () => {
  const { context, page, problems } = await signedIn(ROOT);
  await accounts(page);
  const dialog = page.getByRole("dialog");
  const role = () => json("role", "show", "--tenant", "research", "reader");
  await page.getByRole("button", { name: "New role" }).click();
  await page.getByLabel("Name of the role").fill("reader");
  await page.getByLabel("Longest session").fill("2h");
  await page.getByRole("button", { name: "Save", exact: true }).click();
  await page.getByRole("button", { name: "reader", exact: true }).click();
  await page.getByRole("heading", { name: "Role reader" }).waitFor();
  assert.deepEqual([role().enabled, role().max_session_seconds, role().trust ?? null], [true, 7200, null]);

  await page.getByRole("button", { name: "Change the policy of the role" }).click();
  const area = page.getByLabel("Policy of the role reader");
  await area.fill(JSON.stringify({ Version: "2012-10-17", Statement: [{ Effect: "Allow", Action: "s3:GetObject", Resource: "arn:aws:s3:::train/*", Principal: "*" }] }));
  await page.getByRole("button", { name: "Save", exact: true }).click();
  await page.getByRole("alert").waitFor();
  await area.fill(JSON.stringify({ Version: "2012-10-17", Statement: [{ Effect: "Allow", Action: "s3:GetObject", Resource: "arn:aws:s3:::train/*" }] }));
  await page.getByRole("button", { name: "Save", exact: true }).click();
  await page.getByRole("button", { name: "Change the policy of the role" }).waitFor();
  assert.match(role().policy, /train\/\*/);

  // The tenant's own key takes the role: it reads, and does nothing else.
  const session = await assumed();
  assert.deepEqual([await status(session, "GET"), await status(session, "PUT")], [200, 403]);
  await page.getByRole("button", { name: "Sessions of reader" }).click();
  await dialog.getByLabel("Longest session").fill("13h");
  assert.match(await refused(page, "Save"), /12|43200|43,200/);
  await dialog.getByLabel("Longest session").fill("15m");
  await confirm(page, "Save");
  assert.equal(role().max_session_seconds, 900);
  await page.getByRole("button", { name: "Disable the role reader" }).click();
  await dialog.getByText("Its open sessions are refused, and no new one begins.").waitFor();
  await confirm(page, "Disable");
  assert.equal(role().enabled, false);
  await becomes("the end of the role", session, "GET", 403);
  await page.getByRole("button", { name: "Enable the role reader" }).click();
  await confirm(page, "Enable");
  assert.equal(role().enabled, true);
  await page.getByRole("button", { name: "Delete the role reader" }).click();
  await confirm(page, "Delete");
  await page.getByText("No roles").waitFor();
  assert.equal(await page.getByRole("heading", { name: "Role reader" }).count(), 0, "the card of the deleted role is gone");
  assert.deepEqual(json("role", "list", "--tenant", "research"), []);
  assert.deepEqual(problems, []);
  await context.close();
});

/** Credentials of a session of the role. */
async function assumed() {
  const body = new URLSearchParams({ Action: "AssumeRole", Version: "2011-06-15", RoleArn: "arn:aws:iam::research:role/reader", RoleSessionName: "test" }).toString();
  const reply = await done(server, tenant, "POST", "", "", { body, service: "sts", headers: { "content-type": "application/x-www-form-urlencoded" } });
  const of = (name) => new RegExp(`<${name}>([^<]+)`).exec(String(reply.body))[1];
  return { key: of("AccessKeyId"), secret: of("SecretAccessKey"), token: of("SessionToken") };
}

test("an access key gets networks, rates, a view and a new secret, and S3 follows", async () => {
  const { context, page, problems } = await signedIn(ROOT);
  await accounts(page);
  const dialog = page.getByRole("dialog");
  await page.getByRole("button", { name: "New access key" }).click();
  await dialog.getByLabel("User").fill("nobody");
  assert.match(await refused(page, "Create"), /nobody/);
  await dialog.getByLabel("User").fill("");
  await dialog.getByLabel("Networks").fill("127.0.0.0/8, ::1");
  await dialog.getByRole("button", { name: "Create" }).click();
  const key = await kept(page);
  assert.equal(await status(key, "GET"), 200);
  assert.deepEqual(json("key", "show", key.key).networks, ["127.0.0.0/8", "::1/128"]);
  const row = page.locator("tr", { hasText: key.key });

  await page.getByRole("button", { name: `Limits of ${key.key}` }).click();
  await dialog.getByLabel("Networks").fill("300.0.0.0/8");
  assert.match(await refused(page, "Save"), /300\.0\.0\.0/);
  await dialog.getByLabel("Networks").fill("10.0.0.0/8");
  await confirm(page, "Save");
  await row.getByText("10.0.0.0/8").waitFor();
  await becomes("the networks", key, "GET", 403);
  await page.getByRole("button", { name: `Limits of ${key.key}` }).click();
  await dialog.getByLabel("Networks").fill("");
  await dialog.getByLabel("Requests per second").fill("1");
  await dialog.getByLabel("Bytes per second").fill("1MiB");
  await confirm(page, "Save");
  await row.getByText("any", { exact: true }).waitFor();
  const { networks, rate } = json("key", "show", key.key);
  assert.deepEqual([networks, rate.requests, rate.bytes], [[], 1, 1 << 20]);
  await until("requests beyond the rate are refused", async () => (await Promise.all(Array.from({ length: 8 }, () => status(key, "GET")))).includes(503));
  await page.getByRole("button", { name: `Limits of ${key.key}` }).click();
  assert.deepEqual([await dialog.getByLabel("Requests per second").inputValue(), await dialog.getByLabel("Bytes per second").inputValue()], ["1", "1MiB"]);
  for (const label of ["Requests per second", "Bytes per second"]) await dialog.getByLabel(label).fill("none");
  await confirm(page, "Save");
  await until("the rate is gone", async () => (await Promise.all(Array.from({ length: 8 }, () => status(key, "GET")))).every((one) => one === 200));

  await page.getByRole("button", { name: `View of ${key.key}` }).click();
  await dialog.getByLabel("View of buckets with checkpoint rules").selectOption("committed");
  await dialog.getByText("NAME--committed").waitFor();
  assert.deepEqual(await violations(page), []);
  await confirm(page, "Save");
  await row.getByText("committed", { exact: true }).waitFor();
  assert.equal(json("key", "show", key.key).view, "committed");

  await page.getByRole("button", { name: `New secret of ${key.key}` }).click();
  await dialog.getByRole("button", { name: "Make a new secret" }).click();
  const fresh = await kept(page);
  assert.equal(fresh.key, key.key);
  await becomes("the end of the old secret", key, "GET", 403);
  assert.equal(await status(fresh, "GET"), 200);
  await page.getByRole("button", { name: `Disable ${key.key}` }).click();
  await confirm(page, "Disable");
  await becomes("the disabled key", fresh, "GET", 403);
  await page.getByRole("button", { name: `Enable ${key.key}` }).click();
  await confirm(page, "Enable");
  await becomes("the enabled key", fresh, "GET", 200);
  await page.getByRole("button", { name: `Delete ${key.key}` }).click();
  await confirm(page, "Delete");
  await row.waitFor({ state: "detached" });
  await becomes("the deleted key", fresh, "GET", 403);
  assert.deepEqual(problems, []);
  await context.close();
});

test("a tenant's quota and limits bind its writes", async () => {
  const { context, page, problems } = await signedIn(ROOT);
  server.ask("tenant", "create", "small");
  const own = server.accessKey("--tenant", "small");
  await done(server, own, "PUT", "small");
  const put = async (bytes) => (await s3(server, own, "PUT", "small", `o${bytes}`, { body: "x".repeat(bytes) })).status;
  await accounts(page, "small");
  const dialog = page.getByRole("dialog");
  await page.getByRole("button", { name: "Change the quota" }).click();
  await dialog.getByLabel("Bytes").fill("lots");
  assert.match(await refused(page, "Save"), /is not a number of bytes/);
  await dialog.getByLabel("Bytes").fill("4KiB");
  await dialog.getByLabel("Objects").fill("2");
  await dialog.getByLabel("Index").fill("1MiB");
  await confirm(page, "Save");
  await page.getByText("of 4.0 KiB").waitFor();
  const quota = () => json("tenant", "quota", "small");
  assert.deepEqual([quota().bytes_max, quota().objects_max, quota().index_max], [4096, 2, 1 << 20]);
  assert.equal(await put(100), 200);
  await until("writes beyond the quota are refused", async () => (await put(8192)) >= 400);
  assert.equal((await s3(server, own, "GET", "small", "o100")).status, 200, "reads go on");
  await page.getByRole("button", { name: "Change the quota" }).click();
  for (const label of ["Bytes", "Objects", "Index"]) await dialog.getByLabel(label).fill("none");
  await confirm(page, "Save");
  await page.getByText("of 4.0 KiB").waitFor({ state: "detached" });
  assert.deepEqual([quota().bytes_max ?? null, quota().objects_max ?? null, quota().index_max ?? null], [null, null, null]);
  await until("writes are accepted again", async () => (await put(8192)) === 200);

  await page.getByRole("button", { name: "Limits of small" }).click();
  await dialog.getByLabel("Networks").fill("10.0.0.0/8 192.168.0.0/16");
  assert.deepEqual(await violations(page), []);
  await confirm(page, "Save");
  await until("the networks of the tenant", async () => (await put(1)) === 403);
  assert.deepEqual(json("tenant", "show", "small").networks, ["10.0.0.0/8", "192.168.0.0/16"]);
  await page.getByRole("button", { name: "Limits of small" }).click();
  await dialog.getByLabel("Networks").fill("");
  await confirm(page, "Save");
  await until("any network again", async () => (await put(1)) === 200);
  assert.deepEqual(problems, []);
  await context.close();
});
