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

/** Names of nodes and devices have 255 bytes at most. */
const NODES = [SHOWN, "n".repeat(255), `${TURNED}${"👩‍🚀".repeat(15)}`];
const deviceOf = (name, device) => ({ device, name, node: name, region: 1, zone: device % 2, total_bytes: 1e13, used_bytes: 5e12, extent_bytes: 5e12, reserve_bytes: 0, replicas: 100, replicas_coming: 1, replicas_going: 1, bytes_in: 1e9, bytes_out: 1e9, fullness: 0.5, fullness_projected: 0.6, fullness_peak: 0.99, high_water: 0.98 });
const lineOf = (name, device) => ({ device, name, path: `/mnt/${name}`, health: "suspect", reason: name, voting: true, total_bytes: 1e13, free_bytes: 5e12, extents: 1, extent_bytes: 1, quarantined: 3, hints: 2 });
const nodeOf = (name, at) => ({ name, address: `${name.slice(0, 80)}:6201`, answers: at !== 1, replies: 1, silences: 0, latency_us: 1, rings: [{ name: "index", epoch: 3, hash: "aa" }], report: at !== 1 ? { version: name, role: `storage-node ${name}`, ready: false, reasons: [name], devices: [lineOf(name, at)] } : undefined });
/** Replies of the admin API about a cluster whose nodes, devices, reasons and versions are such names. */
export const CLUSTER = {
  capacity: { devices: NODES.map(deviceOf), replicas: 3, redundancy: "replicated", total_bytes: 1e17, used_bytes: 5e16, extent_bytes: 5e16, writable_until_first_full_bytes: 1, writable_until_all_full_bytes: 1, warnings: NODES, silent: NODES },
  status: { version: NODES[1], role: `proxy ${SHOWN}`, ready: false, reasons: NODES, members: [{ role: SHOWN, version: NODES[1], ready: true, reasons: NODES }], moves: [{ ring: "data-0", epoch: 5, partitions: 65_536, replicas: 196_608, partitions_moving: 900, replicas_moving: 900 }], nodes: NODES.map(nodeOf) },
  dispersion: [{ ring: "data-0", epoch: 5, devices: 3, partitions: 65_536, replicas: 3, balance: 12.5, dispersion: 1.25, replicas_moving: 900, worst: NODES.map((place, device) => ({ device, place, replicas: 10, desired: 8, deviation: 25 })), crowded: NODES.map((place) => ({ place, partitions: 9, replicas_max: 3 })) }],
};
