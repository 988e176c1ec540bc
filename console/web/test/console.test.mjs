// Pages of operators in a real browser: by keyboard, with hostile names, without rights, and without an answer of the server.
import assert from "node:assert/strict";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { close, launch, open, SHOTS, signIn, violations, visit } from "./browser.mjs";
import { HOSTILE, ROOT, start } from "./server.mjs";

let server;
let viewer;

before(async () => {
  assert.ok(process.env.MARTLET_BIN, "MARTLET_BIN must name the binary");
  server = await start(process.env.MARTLET_BIN);
  server.ask("tenant", "create", "research");
  server.ask("tenant", "create", "evil", "--display-name", HOSTILE);
  server.ask("user", "create", "--tenant", "research", "trainer", "--role", "read-write");
  viewer = server.key("viewer");
  await launch(server.url);
});

after(async () => {
  await close();
  await server?.end();
});

test("the keyboard alone signs in, opens a page and starts a census", async () => {
  const { context, page, problems } = await open();
  await page.waitForFunction(() => document.activeElement?.tagName === "INPUT");
  await page.keyboard.type(ROOT.key);
  await page.keyboard.press("Tab");
  await page.keyboard.type(ROOT.secret);
  await page.keyboard.press("Enter");
  await page.getByRole("navigation", { name: "Pages", exact: true }).waitFor();
  const focus = async (wanted) => {
    for (let presses = 0; presses < 40; presses += 1) {
      await page.keyboard.press("Tab");
      if ((await page.evaluate(() => document.activeElement?.textContent?.trim())) === wanted) return;
    }
    assert.fail(`the keyboard does not reach ${wanted}`);
  };
  await focus("Jobs");
  const outline = await page.evaluate(() => getComputedStyle(document.activeElement).outlineStyle);
  assert.equal(outline, "solid", "the focus is visible");
  await page.keyboard.press("Enter");
  await focus("Start a census");
  await page.keyboard.press("Enter");
  await focus("Start");
  await page.keyboard.press("Enter");
  await page.getByRole("heading", { name: "census", exact: true }).waitFor();
  await page.locator("main").getByText("done", { exact: true }).waitFor();
  await page.screenshot({ path: join(SHOTS, "jobs-census.png") });
  assert.deepEqual(await violations(page), []);
  assert.deepEqual(problems, []);
  await context.close();
});

test("a hostile name runs no script", async () => {
  const { context, page, problems } = await open();
  await signIn(page, ROOT);
  await visit(page, "/accounts");
  await page.getByText(HOSTILE).waitFor();
  assert.equal(await page.evaluate(() => window.hacked), undefined);
  assert.equal(await page.locator("main img").count(), 0);
  const refused = await page.evaluate(() => {
    try {
      document.body.innerHTML = "<b>x</b>";
      return false;
    } catch {
      return true;
    }
  });
  assert.ok(refused, "trusted types refuse text as HTML");
  assert.equal(problems.filter((text) => !/TrustedHTML|Trusted Type/.test(text)).length, 0, problems.join("\n"));
  await context.close();
});

test("a viewer has no buttons for changes, and gets the server's words if it forces one", async () => {
  const { context, page } = await open();
  await signIn(page, viewer);
  await page.getByText("viewer").first().waitFor();
  assert.equal(await page.locator('nav a[href="/audit"]').count(), 0);
  await visit(page, "/jobs");
  assert.equal(await page.getByRole("button", { name: "Start a census" }).count(), 0);
  await visit(page, "/accounts");
  await page.getByRole("button", { name: "research", exact: true }).click();
  await page.getByText("trainer", { exact: true }).waitFor();
  for (const name of [/^New/, /^Disable/, /^Revoke/]) {
    assert.equal(await page.locator("main").getByRole("button", { name }).count(), 0, String(name));
  }
  const forced = await page.evaluate(async () => {
    const csrf = localStorage.getItem("martlet-csrf");
    const headers = { "x-martlet-csrf": csrf, "content-type": "application/json" };
    const reply = await fetch("/api/admin/v1/jobs", { method: "POST", headers, body: '{"kind":"census"}' });
    return { status: reply.status, error: (await reply.json()).error };
  });
  assert.equal(forced.status, 403);
  assert.match(forced.error, /needs the role operator/);
  const readable = await page.evaluate(() => [document.cookie, JSON.stringify({ ...localStorage, ...sessionStorage })].join());
  assert.ok(!readable.includes(viewer.secret) && !readable.includes("martlet-console"), readable);
  await context.close();
});

test("an operator creates a tenant and a key, and sees the server's sentence for a bad name", async () => {
  const { context, page, problems } = await open();
  await signIn(page, ROOT);
  await visit(page, "/accounts");
  await page.getByRole("button", { name: "New tenant" }).click();
  const dialog = page.getByRole("dialog");
  await dialog.getByLabel("Name", { exact: true }).fill("not a name/");
  await dialog.getByRole("button", { name: "Create" }).click();
  await dialog.getByRole("alert").waitFor();
  await page.screenshot({ path: join(SHOTS, "dialog-refusal.png") });
  assert.deepEqual(await violations(page), []);
  await dialog.getByLabel("Name", { exact: true }).fill("vision");
  await dialog.getByRole("button", { name: "Create" }).click();
  await page.getByRole("button", { name: "vision", exact: true }).click();
  await page.getByRole("button", { name: "New access key" }).click();
  await page.getByRole("dialog").getByRole("button", { name: "Create" }).click();
  await page.getByRole("button", { name: "I have kept it" }).click();
  assert.match(server.ask("key", "list", "--tenant", "vision"), /vision/);
  await page.getByRole("button", { name: "Disable vision" }).click();
  await page.getByRole("dialog").getByRole("button", { name: "Disable" }).click();
  await page.getByRole("button", { name: "Enable vision" }).waitFor();
  await visit(page, "/audit");
  await page.getByText("POST /admin/v1/keys").waitFor();
  assert.deepEqual(problems, []);
  await context.close();
});

test("the overview has throughput and latency between two readings of the metrics", async () => {
  const { context, page, problems } = await open();
  let read = 0;
  await page.route("**/api/metrics", async (route) => {
    read += 1;
    // Of 100,000 requests of an interval, 2,000 take more than 10 ms, and from the third reading on 5,000 more than 30 s.
    const [all, slow] = [read * 100_000, Math.max(0, read - 2) * 5000];
    const bucket = (bound, count) => `martlet_request_first_byte_seconds_bucket{operation="GetObject",le="${bound}"} ${count}`;
    const lines = [`martlet_requests_total{operation="GetObject",status="200"} ${all}`, `martlet_reply_body_bytes_total ${all * 1024}`, bucket("0.01", all - read * 2000 - slow), bucket("30", all - slow), bucket("+Inf", all)];
    await route.fulfill({ contentType: "text/plain", body: lines.join("\n") });
  });
  await signIn(page, ROOT);
  const legend = (label) => page.locator("figure", { has: page.getByRole("img", { name: label, exact: true }) }).locator("figcaption");
  await legend("Latency").getByText("p99 30.0 s").waitFor();
  await legend("Latency").getByText("Median 10 ms").waitFor();
  // An interval is 5 s, and longer where the machine is slow.
  await legend("Requests per second").getByText(/^Requests [1-9]\d*(\.\d)?K?\/s$/).waitFor();
  await legend("Bytes per second").getByText(/^Out [1-9]\d*(\.\d)? [KM]iB\/s$/).waitFor();
  await legend("Latency").getByText("p99 above all buckets").waitFor();
  assert.doesNotMatch(await page.locator("main").innerHTML(), /NaN|Infinity/);
  assert.deepEqual(await violations(page), []);
  assert.deepEqual(problems, []);
  await context.close();
});

test("a page says so when the server is silent, and goes on afterwards", async () => {
  const { context, page } = await open();
  await signIn(page, ROOT);
  await visit(page, "/workers");
  await page.route("**/api/**", (route) => route.abort());
  await page.getByRole("alert").first().waitFor();
  await page.screenshot({ path: join(SHOTS, "workers-silent.png") });
  assert.ok((await page.locator("main table").count()) > 0, "the last figures stay");
  await page.unroute("**/api/**");
  await page.waitForFunction(() => !document.querySelector(".failure"));
  await context.close();
});
