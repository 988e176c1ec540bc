// Pages over a cluster of real processes with a dead node.
import assert from "node:assert/strict";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { close, launch, open, SHOTS, signIn, violations, visit } from "./browser.mjs";
import { startCluster, until } from "./cluster.mjs";
import { ROOT } from "./server.mjs";
import { looks } from "./steps.mjs";

let folder;
let cluster;
let end;

before(async () => {
  const started = await startCluster(process.env.MARTLET_BIN, ["--nodes", "4", "--devices-per-node", "1", "--zones", "2"]);
  ({ folder, cluster, end } = started);
  await launch(started.url);
});

after(async () => {
  await close();
  await end?.();
});

test("rings are pushed to all nodes, with the answer of each", async () => {
  const { context, page, problems } = await open();
  await signIn(page, ROOT);
  await visit(page, "/rings");
  await page.getByRole("button", { name: "Push rings" }).click();
  const files = ["index", "data-0"].map((name) => join(folder, `cluster/${name}.ring`));
  await page.getByLabel("Ring files").setInputFiles(files);
  await page.getByRole("region", { name: "Chosen rings" }).getByText("data-0").waitFor();
  await page.getByRole("dialog").getByText("is in use already").first().waitFor();
  assert.deepEqual(await violations(page), []);
  await page.screenshot({ path: join(SHOTS, "rings-push.png") });
  await page.getByRole("button", { name: "Push to all nodes" }).click();
  await page.getByRole("heading", { name: /^ring-push of / }).waitFor();
  await page.getByText("Report", { exact: true }).first().click();
  const answers = page.getByRole("region", { name: "Answers of nodes" }).locator("tbody tr");
  await answers.first().waitFor();
  await until("all nodes answer", async () => {
    if (await page.getByRole("button", { name: "Show the newest figures" }).count()) await page.getByRole("button", { name: "Show the newest figures" }).click();
    return (await answers.count()) === 8;
  });
  for (const row of await answers.allInnerTexts()) assert.match(row, /known/);
  assert.deepEqual(problems, []);
  await context.close();
});

test("a dead node is seen on the overview, among the devices and the rings", async () => {
  cluster("kill", "2");
  const { context, page, problems } = await open();
  await signIn(page, ROOT);
  await page.getByText("Node n2 does not answer.").waitFor({ timeout: 60_000 });
  await page.getByText("3 of 4 answer").waitFor();
  await looks(page, "overview-dead");
  await visit(page, "/devices");
  await page.getByRole("heading", { name: "Without a report" }).waitFor();
  await page.locator("main .badge").getByText("n2", { exact: true }).waitFor();
  for (const name of ["n1", "n3", "n4"]) await page.getByRole("region", { name: `Node ${name}` }).waitFor();
  await looks(page, "devices-dead");
  await visit(page, "/rings");
  const first = page.getByRole("region", { name: "Rings of the nodes" }).locator("tbody tr").first();
  assert.match(await first.innerText(), /n2[\s\S]*silent/);
  await looks(page, "rings-dead");
  // Pages that show every process, or ask every device, are whole too.
  for (const path of ["/census", "/workers", "/settings", "/policies"]) {
    await visit(page, path);
    await looks(page, `${path.slice(1)}-dead`);
  }
  assert.deepEqual(problems, []);
  await context.close();
});

test("a dead node that comes back is whole again, without a reload", async () => {
  const { context, page, problems } = await open();
  await signIn(page, ROOT);
  await page.getByText("Node n2 does not answer.").waitFor({ timeout: 60_000 });
  cluster("start", "2");
  await page.getByText("4 of 4 answer").waitFor({ timeout: 60_000 });
  await page.getByText("Node n2 does not answer.").waitFor({ state: "detached" });
  assert.deepEqual(problems, []);
  await context.close();
});
