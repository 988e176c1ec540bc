// Builds the pages into dist: scripts, one style sheet, their gzip, and a check of their size.
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
  // Libraries of one preview alone are a file of their own, which that preview loads.
  splitting: true,
  entryNames: "[name]-[hash]",
  chunkNames: "[name]-[hash]",
  outdir: "dist",
  write: false,
});
const files = new Map();
let index = readFileSync(at("src/index.html"), "utf8");
for (const { path, contents } of made.outputFiles) {
  const name = path.split("/").pop();
  files.set(name, Buffer.from(contents));
  index = index.replace(name.replace(/-[A-Z0-9]+(?=\.)/, ""), name);
}
files.set("icon.svg", readFileSync(at("src/icon.svg")));
files.set("index.html", Buffer.from(index));
const packed = new Map([...files].map(([name, contents]) => [name, gzipSync(contents, { level: 9 })]));
const bytes = [...packed.values()].reduce((sum, contents) => sum + contents.length, 0);
if (bytes > GZIP_BYTES_MAX) throw new Error(`the console has ${bytes} bytes in gzip, ${GZIP_BYTES_MAX} at most`);
mkdirSync(at("dist"), { recursive: true });
for (const name of readdirSync(at("dist"))) if (name !== ".gitignore") rmSync(at(`dist/${name}`));
// index.html is last, because make takes a folder with this file for built.
for (const [name, contents] of files) {
  writeFileSync(at(`dist/${name}.gz`), packed.get(name));
  writeFileSync(at(`dist/${name}`), contents);
}
console.log(`console: ${files.size} files, ${(bytes / 1024).toFixed(1)} KiB in gzip`);
