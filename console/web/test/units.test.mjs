// Parts of the pages without a browser: XML, checksums, kinds of content, and long lists.
import assert from "node:assert/strict";
import { crc32 as reference } from "node:zlib";
import { test } from "node:test";
import { build } from "esbuild";

async function load(entry) {
  const made = await build({ entryPoints: [new URL(`../src/${entry}`, import.meta.url).pathname], bundle: true, format: "esm", write: false, jsx: "automatic", jsxImportSource: "preact", logLevel: "silent" });
  // Modules of the pages read the address of the window when they are loaded.
  globalThis.location ??= { pathname: "/", search: "" };
  globalThis.window ??= globalThis;
  globalThis.addEventListener ??= () => {};
  return import(`data:text/javascript;base64,${Buffer.from(made.outputFiles[0].contents).toString("base64")}`);
}

test("XML is read as it was written", async () => {
  const { parse, text, child, children, element } = await load("s3/xml.ts");
  const hostile = `a<b>&"'\r\n ]]> é 🐦`;
  const document = parse(`<?xml version="1.0"?>\n${element("Delete", [element("Key", hostile), element("Quiet", "true"), undefined])}`);
  assert.equal(text(document, "Key"), hostile);
  const list = parse(`<x:List xmlns="a>b"><!-- <Key>no</Key> --><E a='/>'><K>1</K></E><E><K><![CDATA[<2>]]></K></E><Empty/></x:List>`);
  assert.deepEqual(children(list, "E").map((one) => text(one, "K")), ["1", "<2>"]);
  assert.equal(child(list, "Empty").text, "");
  assert.equal(text(parse("<a><b>&#x26;&#38;&amp;&nope;&#x110000;</b></a>"), "b"), "&&&&nope;&#x110000;");
  for (const wrong of ["", "text", "<a>", "<a></b>", "</a>", "<a><b></a></b>", "<a/>".replace("/", ""), "<a>".repeat(40)]) assert.throws(() => parse(wrong), wrong);
  assert.throws(() => element("Key", "\u0001"), /control character/);
});

test("JSON is indented with its tokens as they are, within bounds", async () => {
  const { indented } = await load("preview/json.ts");
  assert.equal(indented('{"a": [1, {"b":12345678901234567890}], "a":{}, "c":"{[\\"," }'), `{
  "a": [
    1,
    {
      "b": 12345678901234567890
    }
  ],
  "a": {},
  "c": "{[\\","
}`);
  const deep = `${"[".repeat(200)}${"1,".repeat(500_000)}1${"]".repeat(200)}`;
  assert.equal(indented(deep), deep);
  const wide = `[[[[[[[[[[${"1,".repeat(10_000)}1]]]]]]]]]]`;
  assert.ok(indented(wide).length <= 4 * wide.length);
  for (const text of ["{", '{"a":1}\n{"a":2}']) assert.equal(indented(text), text);
});

test("XML of a million elements takes linear time", async () => {
  const { parse, children } = await load("s3/xml.ts");
  assert.equal(children(parse(`<L>${"<C><K>k</K></C>".repeat(200_000)}</L>`), "C").length, 200_000);
});

test("checksums are those of S3", async () => {
  const { crc32, crc32OfBlob } = await load("s3/crc32.ts");
  const bytes = Buffer.alloc(3_000_001, "martlet");
  const wanted = Buffer.alloc(4);
  wanted.writeUInt32BE(reference ? reference(bytes) : 0);
  if (reference) assert.equal(crc32(bytes), wanted.toString("base64"));
  assert.equal(crc32(new TextEncoder().encode("123456789")), Buffer.from("cbf43926", "hex").toString("base64"));
  assert.equal(await crc32OfBlob(new Blob([bytes])), crc32(bytes));
});

test("keys are no part of a path", async () => {
  const { path } = await load("s3/client.ts");
  for (const key of ["../../session", "a/b", "é?#%", ".", "\u0001"]) {
    const made = path({ bucket: "b", key });
    assert.match(made, /^\/s3\/b\/[A-Za-z0-9_-]+$/);
    assert.equal(Buffer.from(made.split("/")[3], "base64url").toString(), key);
  }
  assert.equal(path({ bucket: "b" }, { uploads: "", prefix: "a&b", none: undefined }), "/s3/b?uploads=&prefix=a%26b");
});

test("the kind is that of the bytes, whatever the object claims", async () => {
  const { kindOf, textOf } = await load("preview/kind.ts");
  const of = (bytes, key = "x", size = bytes.length) => kindOf(Uint8Array.from(bytes), size, key);
  assert.equal(of(Buffer.from("<svg onload='x()'/>"), "a.png").kind, "text");
  assert.equal(of(Buffer.from("<html>"), "a.html").kind, "text");
  assert.deepEqual(of(Buffer.from("\x89PNG\r\n\x1a\n", "latin1"), "a.html"), { kind: "image", type: "image/png" });
  assert.equal(of(Buffer.from("GIF89a")).type, "image/gif");
  assert.equal(of(Buffer.from("PAR1")).kind, "parquet");
  assert.equal(of(Buffer.from([10, 0, 0, 0, 0, 0, 0, 0, 0x7b]), "x", 18).kind, "safetensors");
  assert.equal(of(Buffer.from([255, 255, 255, 255, 255, 255, 255, 255, 0x7b]), "x.safetensors", 9).kind, "binary");
  assert.equal(of(Buffer.from('{"a":1}')).kind, "json");
  assert.equal(of([0xff, 0xfe, 0]).kind, "binary");
  assert.equal(of([]).kind, "empty");
  assert.equal(textOf(Uint8Array.from(Buffer.from("aé").subarray(0, 2))), "a");
});

test("headers of safetensors are read, and broken ones refused", async () => {
  const { parseHeader } = await load("preview/safetensors.ts");
  const header = parseHeader('{"__metadata__":{"format":"pt"},"w":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]}}');
  assert.deepEqual(header, { tensors: [{ name: "w", dtype: "F32", shape: [2, 3], bytes: 24 }], metadata: [["format", "pt"]] });
  for (const wrong of ["[]", "null", "{", '{"w":1}', '{"w":{"dtype":"F32","shape":"x","data_offsets":[0,1]}}']) assert.throws(() => parseHeader(wrong), wrong);
});

test("a list of a million rows stays below the height of browsers, and reaches each row", async () => {
  const { visible } = await load("ui/virtual.tsx");
  const [count, rowHeight, height] = [1_000_000, 44, 600];
  const end = visible(8_000_000 - height, height, count, rowHeight);
  assert.ok(end.whole <= 8_000_000);
  assert.equal(end.first, count - Math.ceil(height / rowHeight));
  assert.ok(Math.abs(end.shift + (count - end.first) * rowHeight - end.whole) < 1, "the last row meets the end");
  assert.deepEqual(visible(0, height, count, rowHeight), { first: 0, shift: 0, whole: end.whole });
  assert.deepEqual(visible(440, height, 100, rowHeight), { first: 10, shift: 440, whole: 4400 });
});

test("pages far from the visible rows are dropped, and read again by their tokens", async () => {
  const { Pages, KEPT } = await load("s3/pages.ts");
  const asked = [];
  const load_ = async (_, token) => {
    const page = Number(token?.page ?? 0);
    asked.push(page);
    const rows = Array.from({ length: 1000 }, (_, at) => ({ key: String(page * 1000 + at), folder: false, size: 0, modified: "", etag: "" }));
    return { rows, next: page < 99 ? { page: String(page + 1) } : undefined };
  };
  const pages = new Pages({ bucket: "b", prefix: "", folders: false, versions: false }, load_);
  for (let at = 0; !pages.ended.value; at = pages.count.value) await pages.see({ from: Math.max(0, at - 20), to: at });
  assert.equal(pages.count.value, 100_000);
  assert.equal(asked.length, 100);
  assert.ok(pages.held.length <= KEPT * 1000);
  assert.equal(pages.row(0), undefined);
  await pages.see({ from: 990, to: 1010 });
  assert.deepEqual([pages.row(999)?.key, pages.row(1000)?.key, asked.length], ["999", "1000", 102]);
  assert.ok(pages.held.length <= KEPT * 1000);
});

test("a failed page is shown, and tried again", async () => {
  const { Pages } = await load("s3/pages.ts");
  let fails = true;
  const pages = new Pages({ bucket: "b", prefix: "", folders: false, versions: false }, async () => {
    if (fails) throw new Error("Access Denied (AccessDenied)");
    return { rows: [{ key: "a", folder: false, size: 0, modified: "", etag: "" }], next: undefined };
  });
  await pages.see({ from: 0, to: 10 });
  assert.equal(pages.error.value, "Access Denied (AccessDenied)");
  fails = false;
  await pages.again();
  assert.deepEqual([pages.error.value, pages.count.value], ["", 1]);
});

test("parts fit S3's bounds", async () => {
  const { partSize, PART } = await load("s3/upload.ts");
  assert.equal(partSize(1), PART);
  for (const size of [2 ** 30, 2 ** 40, 5 * 2 ** 40]) assert.ok(Math.ceil(size / partSize(size)) <= 10_000 && partSize(size) <= 5 * 2 ** 30);
});
