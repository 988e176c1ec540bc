// Places of the console that the tests of looks and of the keyboard visit: one line for each page and each view of a page. A page
// of src/app.tsx, or a link to a place of another shape, without a line here fails.
import { readFileSync } from "node:fs";
import { BUCKET, KEYS, ROLE, TENANT, USER } from "./hostile.mjs";

const at = (path, of) => `${path}?${new URLSearchParams(of)}`;
const bucket = BUCKET;

/**
 * Place of a principal: `root`, or the `user` of a hostile tenant. `steps` are buttons that are pressed there first, and `dialogs`
 * those that must open a dialog; other buttons are pressed too, and what they open is tested as well.
 */
export const PLACES = [
  { name: "overview", path: "/" },
  { name: "devices", path: "/devices" },
  { name: "rings", path: "/rings", dialogs: ["Push rings"] },
  { name: "rings-build", path: at("/rings", { view: "build" }), dialogs: ["New ring", "The builder is lost"] },
  { name: "rings-builder", path: at("/rings", { view: "build" }), steps: ["New ring", "Create"], dialogs: ["Close the builder", "Add a device", "Add many", "Change the settings", "Double the partitions"] },
  { name: "policies", path: "/policies" },
  { name: "census", path: "/census", dialogs: ["Start a census"] },
  { name: "workers", path: "/workers" },
  { name: "jobs", path: "/jobs", dialogs: ["Start a census"] },
  { name: "index", path: "/index", dialogs: ["Hold collection", "Make a lost bucket", "Write the entries"] },
  { name: "buckets", path: "/buckets" },
  { name: "bucket", path: at("/buckets", { bucket }), dialogs: ["Change the settings", "Change the quota", "Start a rewrite", "Remove the rules", "Withdraw"] },
  { name: "bucket-retention", path: at("/buckets", { bucket }), steps: ["What retention will withdraw", "Change the rules"] },
  { name: "accounts", path: "/accounts", steps: [TENANT], dialogs: ["New tenant", "New user", "New access key", "New admin key", "Change the quota", "Limits", "Disable", "Delete", "Role", "View", "New secret", "Sessions", "Revoke"] },
  { name: "accounts-documents", path: "/accounts", steps: [TENANT, `Show the policy of ${USER}`, ROLE], dialogs: ["Remove the policy"] },
  { name: "accounts-editors", path: "/accounts", steps: [TENANT, "New role", `Show the policy of ${USER}`, "Change the policy"] },
  { name: "events", path: "/events", dialogs: ["Send again"] },
  { name: "events-parked", path: "/events", steps: ["Show the messages of hook root"] },
  { name: "settings", path: "/settings", dialogs: ["Raise the format level"] },
  { name: "audit", path: "/audit", dialogs: ["End the session"] },
  { name: "backups", path: "/backups" },
  { name: "diagnostics", path: "/diagnostics" },
  { name: "no-such-page", path: "/nowhere/%3Cimg%20src=x%20onerror=%22window.hacked=1%22%3E" },
  { name: "objects", path: "/objects", as: "user", dialogs: ["New bucket"] },
  { name: "objects-browser", path: at("/objects", { bucket }), as: "user", dialogs: ["Remove"] },
  { name: "objects-chosen", path: at("/objects", { bucket }), as: "user", steps: ["Choose what is loaded"], dialogs: ["Delete 3"] },
  { name: "objects-folder", path: at("/objects", { bucket, prefix: "runs/" }), as: "user" },
  { name: "objects-deep", path: at("/objects", { bucket, prefix: KEYS.deep.slice(0, KEYS.deep.lastIndexOf("/") + 1) }), as: "user" },
  { name: "objects-object", path: at("/objects", { bucket, key: KEYS.html }), as: "user", dialogs: ["Make a link", "Lock", "Delete", "Change"] },
  { name: "objects-turned", path: at("/objects", { bucket, key: KEYS.turned }), as: "user" },
  { name: "objects-longest", path: at("/objects", { bucket, key: KEYS.wide }), as: "user" },
  { name: "objects-version", path: at("/objects", { bucket, key: KEYS.turned, version: "VERSION" }), as: "user" },
  { name: "objects-settings", path: at("/objects", { bucket, view: "settings" }), as: "user", dialogs: ["Suspend", "Change", "Remove"] },
  { name: "objects-documents", path: at("/objects", { bucket, view: "settings" }), as: "user", steps: ["Set Lifecycle", "Set CORS"] },
  { name: "objects-clients", path: at("/objects", { bucket, view: "clients" }), as: "user" },
  { name: "keys", path: "/keys", as: "user", dialogs: ["New access key", "New secret"] },
];

/** Path and names of the parameters of an address: what decides about the page. */
export function shapeOf(address) {
  const { pathname, searchParams } = new URL(address, "http://console");
  return [pathname, ...[...searchParams.keys()].filter((name) => searchParams.get(name) !== "").sort()].join(" ");
}

/** Paths of the pages, from the list of the frame. */
export function pagesOfSource() {
  const source = readFileSync(new URL("../src/app.tsx", import.meta.url), "utf8");
  return [...source.matchAll(/^ {2}\{ path: "(\/[^"]*)", title: /gm)].map(([, path]) => path);
}
