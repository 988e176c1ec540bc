// Builds the pages into dist: one script, one style sheet, their gzip, and a check of their size.
import { createHash } from "node:crypto";
import { mkdirSync, readFileSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { gzipSync } from "node:zlib";
import { build } from "esbuild";

const GZIP_BYTES_MAX = 250 * 1024;
const at = (path) => new URL(path, import.meta.url);
const made = await build({
  entryPoints: { app: "src/main.tsx", style: "src/style.css" },
  absWorkingDir: new URL(".", import.meta.url).pathname,
  bundle: true,
  minify: true,
  format: "esm",
  target: ["es2022"],
  jsx: "automatic",
  jsxImportSource: "preact",
  legalComments: "inline",
  outdir: "dist",
  write: false,
});
const files = new Map();
let index = readFileSync(at("src/index.html"), "utf8");
for (const { path, contents } of made.outputFiles) {
  const name = path.split("/").pop();
  const hash = createHash("sha256").update(contents).digest("hex").slice(0, 12);
  const hashed = name.replace(".", `-${hash}.`);
  files.set(hashed, Buffer.from(contents));
  index = index.replace(name, hashed);
}
files.set("icon.svg", readFileSync(at("src/icon.svg")));
files.set("index.html", Buffer.from(index));
mkdirSync(at("dist"), { recursive: true });
for (const name of readdirSync(at("dist"))) if (name !== ".gitignore") rmSync(at(`dist/${name}`));
let bytes = 0;
for (const [name, contents] of files) {
  const packed = gzipSync(contents, { level: 9 });
  bytes += packed.length;
  writeFileSync(at(`dist/${name}`), contents);
  writeFileSync(at(`dist/${name}.gz`), packed);
}
if (bytes > GZIP_BYTES_MAX) throw new Error(`the console has ${bytes} bytes in gzip, ${GZIP_BYTES_MAX} at most`);
console.log(`console: ${files.size} files, ${(bytes / 1024).toFixed(1)} KiB in gzip`);
