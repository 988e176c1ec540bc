// Login by an identity provider in a real browser: the button, the way there and back, refusals, and the session.
import assert from "node:assert/strict";
import { mkdtempSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { close, launch, open, visit } from "./browser.mjs";
import { provider } from "./provider.mjs";
import { done } from "./s3.mjs";
import { HOSTILE, start } from "./server.mjs";
import { looks } from "./steps.mjs";
import { walkPage } from "./walk.mjs";

let idp;
let server;

before(async () => {
  assert.ok(process.env.MARTLET_BIN, "MARTLET_BIN must name the binary");
  idp = await provider("console", { sub: "alice", name: HOSTILE });
  server = await start(process.env.MARTLET_BIN, {
    MARTLET_OIDC_ISSUER: idp.state.issuer,
    MARTLET_OIDC_AUDIENCES: "console",
    MARTLET_CONSOLE_OIDC_CLIENT_ID: "console",
    MARTLET_CONSOLE_OIDC_ROLE: "arn:aws:iam::research:role/reader",
    MARTLET_CONSOLE_OIDC_LABEL: "the lab",
  });
  const folder = mkdtempSync(join(tmpdir(), "martlet-oidc-"));
  const name = idp.state.issuer.replace("http://", "");
  const policy = { Statement: [{ Effect: "Allow", Action: "s3:*", Resource: "*" }] };
  const trust = { Version: "2012-10-17", Statement: [{ Effect: "Allow", Action: "sts:AssumeRoleWithWebIdentity", Principal: { Federated: name }, Condition: { StringEquals: { [`${name}:sub`]: "alice" } } }] };
  writeFileSync(join(folder, "policy"), JSON.stringify(policy));
  writeFileSync(join(folder, "trust"), JSON.stringify(trust));
  server.ask("tenant", "create", "research");
  server.ask("role", "create", "--tenant", "research", "reader", "--policy", join(folder, "policy"), "--trust", join(folder, "trust"));
  const tenant = server.accessKey("--tenant", "research");
  await done(server, tenant, "PUT", "train");
  await done(server, tenant, "PUT", "train", "hello.txt", { body: "hello" });
  await launch(server.url);
});

after(async () => {
  await close();
  await server?.end();
  await idp?.end();
});

async function signIn(page) {
  await page.getByRole("link", { name: "Sign in with the lab" }).click();
  await page.getByRole("link", { name: "I am Alice" }).click();
}

test("a person signs in by the provider, reads, and signs out", async () => {
  const { context, page, problems } = await open();
  await page.getByRole("link", { name: "Sign in with the lab" }).waitFor();
  await looks(page, "login-oidc");
  await signIn(page);
  await page.getByRole("navigation", { name: "Pages", exact: true }).waitFor();
  assert.equal(new URL(page.url()).hash, "", "the token leaves the address");
  await visit(page, "/objects");
  await page.getByRole("link", { name: "train", exact: true }).click();
  await page.getByRole("link", { name: "hello.txt", exact: true }).waitFor();
  assert.ok((await page.locator(".who").innerText()).includes("role reader until"), await page.locator(".who").innerText());
  assert.equal(await page.locator('nav a[href="/keys"], nav a[href="/accounts"]').count(), 0, "a role has no keys");
  assert.equal(await page.evaluate(() => window.hacked), undefined);
  const readable = await page.evaluate(() => [document.cookie, JSON.stringify({ ...localStorage, ...sessionStorage })].join());
  assert.ok(!/ASIA|martlet-console|eyJ/.test(readable), readable);
  // Another load of the page keeps the session.
  await page.reload();
  await page.getByRole("navigation", { name: "Pages", exact: true }).waitFor();
  await page.getByRole("button", { name: "Sign out" }).click();
  await page.getByRole("link", { name: "Sign in with the lab" }).waitFor();
  assert.deepEqual(problems, []);
  await context.close();
});

test("a refusal is a page with a sentence, in all looks and by keyboard", async () => {
  const { context, page, problems } = await open();
  idp.state.deny = true;
  await signIn(page);
  await page.getByRole("heading", { name: "Not signed in" }).waitFor();
  idp.state.deny = false;
  assert.match(await page.getByRole("alert").innerText(), /does not permit this login/);
  await looks(page, "login-refused");
  await walkPage(page, "the refusal");
  await page.getByRole("link", { name: "Back to the login" }).click();
  await page.getByRole("button", { name: "Sign in" }).waitFor();
  assert.deepEqual(problems, []);
  await context.close();
});

test("a callback is of one browser and of one use, and a link with a token opens nothing", async () => {
  const { context, page } = await open();
  let callback;
  page.on("request", (request) => {
    if (request.url().includes("/login/oidc/callback")) callback = request.url();
  });
  await signIn(page);
  await page.getByRole("navigation", { name: "Pages", exact: true }).waitFor();
  const stranger = await open();
  for (const one of [stranger.page, page]) {
    await one.goto(callback);
    assert.match(await one.getByRole("alert").innerText(), /was not begun in this browser/);
  }
  await stranger.page.goto(`${server.url}/#signed-in=${"0".repeat(32)}`);
  await stranger.page.getByRole("button", { name: "Sign in" }).waitFor();
  // A fragment without a login of this tab opens nothing, though the token is that of the cookie's session.
  const csrf = await page.evaluate(() => localStorage.getItem("martlet-csrf"));
  await page.evaluate(() => localStorage.removeItem("martlet-csrf"));
  await page.goto(`${server.url}/?x#signed-in=${csrf}`);
  await page.getByRole("button", { name: "Sign in" }).waitFor();
  await page.evaluate((token) => localStorage.setItem("martlet-csrf", token), csrf);
  // The session of the first browser goes on.
  await page.goto(`${server.url}/?y#signed-in=${"0".repeat(32)}`);
  await page.getByRole("navigation", { name: "Pages", exact: true }).waitFor();
  idp.state.claims = { sub: "mallory" };
  await stranger.page.goto(server.url);
  await signIn(stranger.page);
  assert.match(await stranger.page.getByRole("alert").innerText(), /does not trust your account/);
  idp.state.claims = { sub: "alice", name: HOSTILE };
  await stranger.context.close();
  await context.close();
});

test("the keyboard alone signs in by the provider", async () => {
  const { context, page, problems } = await open();
  await page.getByRole("link", { name: "Sign in with the lab" }).waitFor();
  for (const wanted of ["Sign in with the lab", "I am Alice"]) {
    let text;
    for (let presses = 0; presses < 10 && text !== wanted; presses += 1) {
      await page.keyboard.press("Tab");
      text = await page.evaluate(() => document.activeElement?.textContent?.trim());
    }
    assert.equal(text, wanted);
    await page.keyboard.press("Enter");
    if (wanted !== "I am Alice") await page.getByRole("link", { name: "I am Alice" }).waitFor();
  }
  await page.getByRole("navigation", { name: "Pages", exact: true }).waitFor();
  assert.deepEqual(problems, []);
  await context.close();
});
