// Generates src/generated.ts from admin-api.json: the types of all messages, and the roles of all routes.
import { readFileSync, writeFileSync, mkdirSync } from "node:fs";
import openapi, { astToString } from "openapi-typescript";

const document = JSON.parse(readFileSync(new URL("admin-api.json", import.meta.url), "utf8"));
const roles = {};
for (const [path, operations] of Object.entries(document.paths)) {
  for (const [method, operation] of Object.entries(operations)) {
    if (operation["x-roles"]) roles[`${method} ${path}`] = operation["x-roles"];
  }
}
mkdirSync(new URL("src/generated/", import.meta.url), { recursive: true });
writeFileSync(new URL("src/generated/api.ts", import.meta.url), astToString(await openapi(document)));
writeFileSync(
  new URL("src/generated/roles.ts", import.meta.url),
  `export const ROLES: Record<string, readonly string[]> = ${JSON.stringify(roles, null, 2)};\n`,
);
