// Access keys whose id or secret, or whose next secret, an operator chooses, in a real browser over a real store.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { close, launch, LOOKS, open, signIn, violations, visit } from "./browser.mjs";
import { s3 } from "./s3.mjs";
import { ROOT, start } from "./server.mjs";
import { until } from "./steps.mjs";

let server;

before(async () => {
  assert.ok(process.env.MARTLET_BIN, "MARTLET_BIN must name the binary");
  server = await start(process.env.MARTLET_BIN);
  server.ask("tenant", "create", "research");
  await launch(server.url);
});

after(async () => {
  await close();
  await server?.end();
});

async function keys(look) {
  const opened = await open(look);
  await signIn(opened.page, ROOT);
  await visit(opened.page, "/accounts");
  await opened.page.getByRole("button", { name: "research", exact: true }).or(opened.page.getByRole("link", { name: "research", exact: true })).first().click();
  await opened.page.getByRole("button", { name: "New access key" }).click();
  return { ...opened, dialog: opened.page.getByRole("dialog") };
}

test("a chosen id gets a random secret, which signs", async () => {
  const { context, page, dialog, problems } = await keys();
  await dialog.getByLabel("Secret of the key").fill("a secret without an id");
  await dialog.getByRole("button", { name: "Create" }).click();
  await dialog.getByText("a chosen secret needs a chosen id").waitFor();
  await dialog.getByLabel("Secret of the key").fill("");
  await dialog.getByLabel("Id of the key").fill("a/b");
  await dialog.getByRole("button", { name: "Create" }).click();
  await dialog.getByRole("alert").waitFor();
  await dialog.getByLabel("Id of the key").fill("MOVEDKEY1");
  assert.deepEqual(await violations(page), []);
  await dialog.getByRole("button", { name: "Create" }).click();
  const shown = page.getByRole("dialog", { name: "New access key" });
  await shown.getByText("MOVEDKEY1").waitFor();
  const secret = await shown.locator("dd code").nth(1).innerText();
  assert.match(secret, /^[A-Za-z0-9_-]{40}$/);
  assert.equal((await s3(server, { key: "MOVEDKEY1", secret }, "GET", "")).status, 200);
  await shown.getByRole("button", { name: "I have kept it" }).click();
  await page.getByText("MOVEDKEY1").waitFor();
  assert.deepEqual(problems, []);
  await context.close();
});

for (const look of LOOKS) {
  test(`a chosen id and secret move a client, in ${look.name}`, async () => {
    const { context, page, dialog, problems } = await keys(look);
    const key = { key: `MOVED${look.name.toUpperCase()}`, secret: `secret of another store ${look.name}`.replaceAll(" ", "-") };
    await dialog.getByLabel("Id of the key").fill(key.key);
    await dialog.getByLabel("Secret of the key").fill(key.secret);
    assert.deepEqual(await violations(page), []);
    await dialog.getByRole("button", { name: "Create" }).click();
    await page.getByRole("dialog", { name: "New access key" }).getByText(key.key).waitFor();
    assert.equal((await s3(server, key, "GET", "")).status, 200);
    await page.getByRole("button", { name: "I have kept it" }).click();

    const rotated = { key: key.key, secret: `next-${key.secret}` };
    await page.getByRole("button", { name: `New secret of ${key.key}` }).click();
    await dialog.getByLabel("Secret of the key").fill("short");
    await dialog.getByRole("button", { name: "Make a new secret" }).click();
    await dialog.getByRole("alert").waitFor();
    assert.equal((await s3(server, key, "GET", "")).status, 200, "a refusal leaves the secret");
    await dialog.getByLabel("Secret of the key").fill(rotated.secret);
    assert.deepEqual(await violations(page), []);
    await dialog.getByRole("button", { name: "Make a new secret" }).click();
    const shown = page.getByRole("dialog", { name: "New access key" });
    await shown.getByText(rotated.secret, { exact: true }).waitFor();
    await until("the next secret signs", async () => (await s3(server, rotated, "GET", "")).status === 200);
    await until("the former secret is refused", async () => (await s3(server, key, "GET", "")).status === 403);
    await shown.getByRole("button", { name: "I have kept it" }).click();
    assert.deepEqual(problems, []);
    await context.close();
  });
}
