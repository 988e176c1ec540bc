// Figures of workers: those of a server, on the page of the workers; and exact ones, there and as the time left of a ring change.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { close, launch, visit } from "./browser.mjs";
import { ROOT, start } from "./server.mjs";
import { signedIn, until } from "./steps.mjs";
import { done } from "./s3.mjs";

let server;

before(async () => {
  assert.ok(process.env.MARTLET_BIN, "MARTLET_BIN must name the binary");
  server = await start(process.env.MARTLET_BIN);
  await launch(server.url);
});

after(async () => {
  await close();
  await server?.end();
});

const NOTHING = { ahead: 0, backlog: 0, copied_bytes: 0, copied_extents: 0, done: 0, failures: 0, freed_bytes: 0, freed_extents: 0, idle: true, items: 0, kept: 0, oldest_age_ms: 0, rate: 0, released_extents: 0, steps: 1 };
const worker = (name, figures = {}) => ({ ...NOTHING, worker: name, ...figures });
/** Texts of the cells of a table, by the head of each row. */
const rows = async (table) => Object.fromEntries((await table.locator("tbody tr").all().then((all) => Promise.all(all.map((row) => row.locator("th, td").allInnerTexts())))).map(([head, ...cells]) => [head, cells]));

test("the workers of a server are shown with its own figures", async () => {
  const tenant = (server.ask("tenant", "create", "research"), server.accessKey("--tenant", "research"));
  await done(server, tenant, "PUT", "train");
  await done(server, tenant, "PUT", "train", "gone", { body: Buffer.alloc(2 << 20, 1) });
  await done(server, tenant, "DELETE", "train", "gone");
  const { context, page, problems } = await signedIn(ROOT);
  let reply;
  page.on("response", async (response) => {
    if (response.url().endsWith("/admin/v1/workers")) reply = await response.json().catch(() => reply);
  });
  await visit(page, "/workers");
  await until("the page shows the figures of its last reply", async () => {
    // The reply may be of the moment, and the page of the one before.
    const expected = reply;
    if (!expected?.length) return false;
    for (const { process, workers } of expected) {
      const shown = await rows(page.getByRole("region", { name: `Workers of ${process}` }));
      const wrong = workers.filter((one) => {
        const [state, rate, backlog, oldest, finished, failed, left] = shown[one.worker] ?? [];
        const number = (text) => Number(text?.replaceAll(",", ""));
        return !(state?.startsWith(one.error ? "failed" : one.idle ? "idle" : "working") && Math.abs(number(rate) - one.rate) <= 0.06
          && number(backlog) === one.backlog + one.ahead && (oldest === "–") === (one.oldest_age_ms === 0)
          && number(finished) === one.done && number(failed) === one.failures && (left === "–") === (typeof one.eta_s !== "number"));
      });
      if (wrong.length > 0 || Object.keys(shown).length !== workers.length) return false;
    }
    return true;
  });
  const known = reply.flatMap(({ workers }) => workers.map((one) => one.worker));
  assert.ok(known.includes("audit") && known.includes("reclaim"), known.join());
  assert.deepEqual(problems, []);
  await context.close();
});

test("pace, backlog, age, failures and time left of a worker have columns of their own", async () => {
  const { context, page, problems } = await signedIn(ROOT);
  const processes = [
    { process: "replicator r1", heard_ms_ago: 65_000, workers: [
      worker("replicate-data", { idle: false, rate: 12.34, backlog: 1_200, ahead: 34, oldest_age_ms: 7_260_000, done: 45_678, failures: 3, eta_s: 3_720 }),
      worker("audit", { error: "disk d1 does not answer", failures: 1_001, done: 12 }),
    ] },
    { process: "replicator r2", workers: [worker("sync", { idle: false, rate: 0.04, backlog: 7, oldest_age_ms: 400 }), worker("reclaim")] },
  ];
  await page.route("**/api/admin/v1/workers", (route) => route.fulfill({ json: processes }));
  await visit(page, "/workers");
  const of = (process) => rows(page.getByRole("region", { name: `Workers of ${process}` }));
  await page.getByText("reported 1 min 5 s ago").waitFor();
  assert.deepEqual(await of("replicator r1"), {
    "replicate-data": ["working", "12.3", "1,234", "2 h 1 min", "45.7K", "3", "1 h 2 min"],
    audit: ["failed\n\ndisk d1 does not answer", "0", "0", "–", "12", "1,001", "–"],
  });
  assert.deepEqual(await of("replicator r2"), { sync: ["working", "0", "7", "0.4 s", "0", "0", "–"], reclaim: ["idle", "0", "0", "–", "0", "0", "–"] });
  await page.getByText("this process", { exact: true }).waitFor();
  assert.deepEqual(problems, []);
  await context.close();
});

test("the time left of a ring change is that of the slowest worker that moves replicas", async () => {
  const { context, page, problems } = await signedIn(ROOT);
  const change = { phase: "joint", receivers: 4, joined: 1 };
  const moves = [{ ring: "data-0", epoch: 5, partitions: 1024, replicas: 3072, partitions_moving: 700, replicas_moving: 768, change }];
  const status = JSON.parse(server.ask("status", "--json"));
  let workers = [];
  await page.route("**/api/admin/v1/status", (route) => route.fulfill({ json: { ...status, moves } }));
  await page.route("**/api/admin/v1/workers", (route) => route.fulfill({ json: workers }));
  const shows = async (sentence, replies) => {
    workers = replies;
    await page.getByText(sentence, { exact: true }).waitFor();
  };
  const busy = (name, figures) => worker(name, { idle: false, backlog: 10, rate: 1, ...figures });
  const processes = (...lists) => lists.map((list, at) => ({ process: `replicator r${at + 1}`, workers: list }));
  await visit(page, "/rings");
  await page.getByText("768 of 3,072 replicas move").waitFor();
  await page.getByText("1 of 4 receivers have all of theirs").waitFor();
  assert.equal(await page.getByRole("img", { name: "25 % of the receivers have all of theirs" }).count(), 1);
  await shows("No process shows workers: nothing moves until a replicator runs.", []);
  await shows("About 2 h 30 min left at the present rate.", processes([busy("replicate-data", { eta_s: 60 })], [busy("replicate-index", { eta_s: 9_000 })], [worker("replicate-data")]));
  assert.deepEqual(Object.keys(await rows(page.getByRole("region", { name: "Workers that move replicas" }))), ["replicator r1", "replicator r2"], "idle workers are not shown");
  // A worker whose pace isn't known may need longer than all others.
  await shows("At least 1 min 0 s left at the present rate.", processes([busy("replicate-data", { eta_s: 60 })], [busy("sync")]));
  await shows("The time left is not known yet.", processes([busy("replicate-data")], [worker("reconstruct", { error: "no device answers" })]));
  // Other work than moves does not count.
  await shows("The workers have nothing left of this pass.", processes([worker("replicate-data"), busy("audit", { eta_s: 99_999 })]));
  assert.deepEqual(problems, []);
  await context.close();
});
