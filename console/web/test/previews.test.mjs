// Previews of Parquet with each codec: decoders by themselves, and in a real browser over a real store.
import assert from "node:assert/strict";
import { brotliCompressSync, gzipSync } from "node:zlib";
import { after, before, test } from "node:test";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { build } from "esbuild";
import { parquetWriteBuffer } from "hyparquet-writer";
import { close, launch, violations } from "./browser.mjs";
import { go, signedIn } from "./object-pages.mjs";
import { done } from "./s3.mjs";
import { HOSTILE, start } from "./server.mjs";

/** Block of LZ4 that has literals alone. */
function lz4(bytes) {
  const rest = bytes.length - 15;
  const length = rest < 0 ? [] : [...Array(Math.floor(rest / 255)).fill(255), rest % 255];
  return Uint8Array.from([Math.min(15, bytes.length) << 4, ...length, ...bytes]);
}

/** Such a block as Hadoop writes it, between its two lengths. */
function hadoop(bytes) {
  const block = lz4(bytes);
  const head = Buffer.alloc(8);
  head.writeUInt32BE(bytes.length, 0);
  head.writeUInt32BE(block.length, 4);
  return Uint8Array.from([...head, ...block]);
}

const PACKERS = { GZIP: (bytes) => gzipSync(bytes), BROTLI: (bytes) => brotliCompressSync(bytes), LZ4_RAW: lz4, LZ4: hadoop };
const TEXTS = Array.from({ length: 300 }, (_, at) => (at === 1 ? HOSTILE : at === 2 ? null : `caption ${at} of a cat, a cat, a cat`));

function table(codec) {
  const columnData = [{ name: "id", data: Int32Array.from(TEXTS, (_, at) => at), type: "INT32" }, { name: "caption", data: TEXTS, type: "STRING" }];
  const compressors = Object.fromEntries(Object.entries(PACKERS).map(([name, pack]) => [name, (bytes) => new Uint8Array(pack(bytes))]));
  return Buffer.from(parquetWriteBuffer({ columnData, codec, compressors }));
}

let folder;
let server;
let tenant;
let codecs;

before(async () => {
  assert.ok(process.env.MARTLET_BIN, "MARTLET_BIN must name the binary");
  folder = mkdtempSync(join(tmpdir(), "martlet-previews-"));
  const outfile = join(folder, "codecs.mjs");
  await build({ entryPoints: [new URL("../src/preview/codecs.ts", import.meta.url).pathname], bundle: true, format: "esm", outfile, logLevel: "silent" });
  codecs = await import(outfile);
  server = await start(process.env.MARTLET_BIN);
  server.ask("tenant", "create", "research");
  tenant = server.accessKey("--tenant", "research");
  await done(server, tenant, "PUT", "train");
  await launch(server.url);
});

after(async () => {
  await close();
  await server?.end();
  if (folder) rmSync(folder, { recursive: true, force: true });
});

test("each codec unpacks what was packed, and no more than was announced", async () => {
  const bytes = Buffer.from(TEXTS.join("\n").repeat(7));
  const decoders = await codecs.decoders(["UNCOMPRESSED", "SNAPPY", ...Object.keys(PACKERS), "GZIP"]);
  assert.deepEqual(Object.keys(decoders).sort(), Object.keys(PACKERS).sort());
  for (const [codec, pack] of Object.entries(PACKERS)) {
    const packed = new Uint8Array(pack(bytes));
    assert.deepEqual(Buffer.from(decoders[codec](packed, bytes.length)), bytes, codec);
    for (const wrong of [65 << 20, -1, NaN]) assert.throws(() => decoders[codec](packed, wrong), /too large/, `${codec} ${wrong}`);
    // Less room than the bytes need, and bytes that are cut: an error, or a whole page of the announced length, and an end.
    for (const [part, length] of [[packed, 10], [packed.subarray(0, packed.length / 2), bytes.length], [new Uint8Array(40).fill(255), 100]]) {
      try {
        assert.equal(decoders[codec](part, length).length, length, codec);
      } catch (thrown) {
        assert.ok(thrown instanceof Error, codec);
      }
    }
  }
});

test("a codec that no preview decodes is named", async () => {
  for (const codec of ["LZO", "constructor", "__proto__"]) {
    await assert.rejects(codecs.decoders(["GZIP", codec]), new RegExp(`compressed by ${codec}, which a preview doesn't decode`));
  }
});

for (const codec of Object.keys(PACKERS)) {
  test(`the first rows of Parquet with ${codec} are shown`, async () => {
    await done(server, tenant, "PUT", "train", `${codec}.parquet`, { body: table(codec) });
    const { context, page, problems } = await signedIn(tenant);
    await go(page, server.url, { bucket: "train", key: `${codec}.parquet` });
    await page.getByText("300 rows in 1 row groups, 2 columns.").waitFor();
    await page.getByRole("button", { name: /for the first rows$/ }).click();
    const rows = page.getByRole("region", { name: "First 20 rows" }).locator("tbody tr");
    await rows.first().waitFor();
    assert.equal(await rows.count(), 20);
    assert.deepEqual(await rows.nth(1).locator("td").allInnerTexts(), ["1", HOSTILE]);
    assert.deepEqual(await rows.nth(19).locator("td").allInnerTexts(), ["19", TEXTS[19]]);
    assert.equal(await page.evaluate(() => window.hacked), undefined);
    assert.deepEqual(await violations(page), []);
    assert.deepEqual(problems, []);
    await context.close();
  });
}

test("Parquet with an unknown codec shows its schema, and a sentence", async () => {
  const bytes = table("GZIP");
  const { parquetMetadata } = await import("hyparquet");
  const metadata = parquetMetadata(bytes.buffer.slice(bytes.byteOffset, bytes.byteOffset + bytes.length));
  assert.equal(metadata.row_groups[0].columns[0].meta_data.codec, "GZIP");
  // In the footer a codec is the byte 0x15 of the field, and twice its number: 2 is GZIP, and 3 is LZO.
  let changed = 0;
  for (let at = bytes.length - 8 - bytes.readUInt32LE(bytes.length - 8); at < bytes.length - 8; at += 1) {
    if (bytes[at] !== 0x15 || bytes[at + 1] !== 4) continue;
    const copy = Buffer.from(bytes);
    copy[at + 1] = 6;
    const read = safely(() => parquetMetadata(copy.buffer.slice(copy.byteOffset, copy.byteOffset + copy.length)));
    if (!read?.row_groups[0].columns.some((one) => one.meta_data.codec === "LZO")) continue;
    bytes[at + 1] = 6;
    changed += 1;
  }
  assert.ok(changed > 0, "the footer names no codec");
  await done(server, tenant, "PUT", "train", "lzo.parquet", { body: bytes });
  const { context, page, problems } = await signedIn(tenant);
  await go(page, server.url, { bucket: "train", key: "lzo.parquet" });
  await page.getByText("300 rows").waitFor();
  await page.getByRole("button", { name: /for the first rows$/ }).click();
  await page.getByText("compressed by LZO, which a preview doesn't decode").waitFor();
  assert.deepEqual(problems, []);
  await context.close();
});

function safely(read) {
  try {
    return read();
  } catch {
    return undefined;
  }
}
