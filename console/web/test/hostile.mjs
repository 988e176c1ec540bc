// A real store in which everything that a tenant, a client or an operator may name has a hostile name: HTML, marks that turn the
// direction of a text, emoji, and the greatest length.
import assert from "node:assert/strict";
import { createServer } from "node:http";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { done } from "./s3.mjs";
import { HOSTILE, ROOT, start } from "./server.mjs";
import { until } from "./steps.mjs";

/** Tags that run a script if a page writes the name as HTML. */
const IMAGE = `<img src=x onerror="window.hacked=1">`;
/** Marks that turn the direction of a text, an emoji of several code points, and a combining accent. */
const TURNED = "\u202egnp.live\u202c \u2067\u05e9\u05dc\u05d5\u05dd\u2069 👩‍🚀🏴‍☠️ e\u0301";
export const SHOWN = `${IMAGE}${TURNED}`;
/** Names of accounts have 63 bytes of letters, digits and _+=,.@- at most. */
const longest = (name) => `${name}+=,.@-_`.padEnd(63, "W");
export const TENANT = longest("tenant");
export const USER = longest("user");
export const ROLE = longest("role");
/** An access key that its maker chose: 128 visible characters at most, but for / , and =. */
const CHOSEN = `"><img+onerror:alert(1)><svg+onload:x>&lt;'`.padEnd(128, "&");
export const BUCKET = "b".padEnd(63, "0");
const deep = `deep/${`${"d".repeat(30)}/`.repeat(28)}`;
/** Keys of 1,024 bytes at most. */
export const KEYS = {
  html: HOSTILE,
  turned: TURNED,
  wide: "W".repeat(1024),
  accents: "é🐦".repeat(170),
  deep: deep + "x".repeat(1024 - deep.length),
  dots: "a/../../session",
};
const SET = `runs/${IMAGE}${TURNED}/`;
const RULES = { rules: [{ pattern: "runs/*/", profile: "custom", markers: ["DONE"], keep: 1, min_age: 3600 }] };
const POLICY = JSON.stringify({ Version: "2012-10-17", Statement: [{ Sid: "all", Effect: "Allow", Action: "*", Resource: "*" }] });
const EVENTS = `<NotificationConfiguration><QueueConfiguration><Id>all</Id><Queue>arn:martlet:sqs:::hook</Queue><Event>s3:ObjectCreated:*</Event></QueueConfiguration></NotificationConfiguration>`;
const VERSIONS = "<VersioningConfiguration><Status>Enabled</Status></VersioningConfiguration>";

for (const key of Object.values(KEYS)) assert.ok(Buffer.byteLength(key) <= 1024, key);

/** Starts the store. Returns the server, a key of the hostile tenant's user, and the id of a version of `KEYS.turned`. */
export async function hostileStore(binary) {
  // A target of events that refuses all messages.
  const hook = createServer((request, reply) => request.resume().on("end", () => reply.writeHead(400).end()));
  await new Promise((resolve) => hook.listen(0, "127.0.0.1", resolve));
  const settings = { MARTLET_NOTIFICATIONS: `hook=http://127.0.0.1:${hook.address().port}/`, MARTLET_MAX_NOTIFICATION_REFUSALS: "1" };
  const server = await start(binary, settings, { name: `${IMAGE}${TURNED}` });
  const end = async () => {
    await server.end();
    hook.closeAllConnections();
    hook.close();
  };
  try {
    accounts(server);
    const version = await objects(server, server.accessKey("--tenant", TENANT));
    await events(server);
    return { server, user: server.accessKey("--tenant", TENANT, "--user", USER), version, end };
  } catch (thrown) {
    await end();
    throw thrown;
  }
}

function accounts(server) {
  const policy = join(server.folder, "policy.json");
  writeFileSync(policy, POLICY);
  server.ask("tenant", "create", TENANT, "--display-name", SHOWN.slice(0, 60));
  server.ask("user", "create", "--tenant", TENANT, USER, "--role", "admin");
  server.ask("user", "policy", "put", "--tenant", TENANT, USER, policy);
  server.ask("role", "create", "--tenant", TENANT, "--policy", policy, ROLE);
  server.ask("key", "create", "--tenant", TENANT, "--access-key", CHOSEN, "--secret-key", "1234567890123456");
  server.ask("key", "create", "--role", "viewer", "--name", SHOWN);
}

/** Makes the bucket with its objects. Returns the id of a version. */
async function objects(server, tenant) {
  const put = (name, options) => done(server, tenant, "PUT", BUCKET, name, options);
  await put("");
  await put("", { query: { versioning: "" }, body: VERSIONS });
  await put("", { query: { checkpoints: "" }, body: JSON.stringify(RULES) });
  const headers = { "content-type": "text/html", "content-language": "he", "x-amz-meta-note": IMAGE, "x-amz-tagging": `${"t".repeat(128)}=${"v".repeat(256)}` };
  for (const key of Object.values(KEYS)) await put(key, { body: `<script>window.hacked=1</script>${IMAGE}`, headers });
  await done(server, tenant, "DELETE", BUCKET, KEYS.turned);
  const { headers: kept } = await put(KEYS.turned, { body: "again" });
  await done(server, tenant, "POST", BUCKET, HOSTILE, { query: { uploads: "" } });
  await until("the rules of checkpoints hold", async () => {
    await put(`${SET}part`, { body: "weights" });
    return (await put(`${SET}DONE`)).headers["x-martlet-checkpoint"];
  });
  return kept["x-amz-version-id"];
}

/** Messages with hostile keys, which the target refuses. */
async function events(server) {
  await done(server, ROOT, "PUT", "events");
  await done(server, ROOT, "PUT", "events", "", { query: { notification: "" }, body: EVENTS });
  for (const key of Object.values(KEYS)) await done(server, ROOT, "PUT", "events", key, { body: "x" });
}
