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

const bytesOf = (...parts) => Uint8Array.from(Buffer.concat(parts.map((part) => (typeof part === "string" ? Buffer.from(part, "latin1") : Buffer.from(part)))));
const be = (value, bytes) => { const made = Buffer.alloc(bytes); made.writeUIntBE(value, 0, bytes); return made; };
const le = (value, bytes) => { const made = Buffer.alloc(bytes); made.writeUIntLE(value, 0, bytes); return made; };

test("images announce their pixels, and bombs are seen before they are decoded", async () => {
  const { pixels, PIXELS_MAX } = await load("preview/pixels.ts");
  const png = (width, height) => bytesOf("\x89PNG\r\n\x1a\n", be(13, 4), "IHDR", be(width, 4), be(height, 4), [8, 6, 0, 0, 0]);
  assert.equal(pixels(png(640, 480), "image/png"), 640 * 480);
  assert.ok(pixels(png(100_000, 100_000), "image/png") > PIXELS_MAX);
  assert.ok(pixels(png(0xffffffff, 0xffffffff), "image/png") > PIXELS_MAX);
  const segment = (marker, body) => [Buffer.from([0xff, marker]), be(body.length + 2, 2), Buffer.from(body)];
  const frame = (width, height) => Buffer.concat([Buffer.from([8]), be(height, 2), be(width, 2), Buffer.from([3])]);
  const jpeg = (...segments) => bytesOf("\xff\xd8", ...segments.flat(), "\xff\xda\x00\x02", Buffer.alloc(20));
  assert.equal(pixels(jpeg(segment(0xe1, Buffer.alloc(60_000)), segment(0xc2, frame(3000, 2000))), "image/jpeg"), 6_000_000);
  assert.ok(pixels(jpeg(segment(0xc0, frame(10, 10)), segment(0xc2, frame(65_000, 65_000))), "image/jpeg") > PIXELS_MAX);
  const image = (left, top, width, height) => [",", le(left, 2), le(top, 2), le(width, 2), le(height, 2), "\x00", "\x02", "\x01\x00\x00"];
  const gif = (width, height, ...images) => bytesOf("GIF89a", le(width, 2), le(height, 2), "\x80\x00\x00", Buffer.alloc(6), "!\xf9\x04\x00\x00\x00\x00\x00", ...images.flat(), ";", Buffer.alloc(12));
  assert.equal(pixels(gif(20, 10, image(0, 0, 20, 10)), "image/gif"), 200);
  assert.ok(pixels(gif(1, 1, image(0, 0, 1, 1), image(0, 0, 65_535, 65_535)), "image/gif") > PIXELS_MAX);
  const webp = (...chunk) => bytesOf("RIFF", Buffer.alloc(4), "WEBP", ...chunk, Buffer.alloc(20));
  assert.equal(pixels(webp("VP8X", le(10, 4), le(0, 4), le(399, 3), le(299, 3)), "image/webp"), 120_000);
  assert.equal(pixels(webp("VP8L", le(10, 4), "/", le((299 << 14) | 399, 4)), "image/webp"), 120_000);
  assert.equal(pixels(webp("VP8 ", le(10, 4), Buffer.alloc(6), le(400, 2), le(300, 2)), "image/webp"), 120_000);
  assert.equal(pixels(bytesOf(Buffer.alloc(4), "ftypavif", Buffer.alloc(30), be(20, 4), "ispe", be(0, 4), be(70_000, 4), be(70_000, 4), Buffer.alloc(8)), "image/avif"), 4_900_000_000);
  for (const type of ["image/png", "image/jpeg", "image/gif", "image/webp", "image/avif"]) {
    assert.ok(!pixels(Uint8Array.from([1, 2, 3]), type), type);
    assert.ok(!pixels(new Uint8Array(64), type), type);
  }
});

test("footers of Parquet beyond a bound are refused before they are decoded", async () => {
  const { preview } = await load("preview/parquet.ts");
  const source = (size, length, end = "PAR1") => {
    const read = [];
    const tail = bytesOf(le(length, 4), end);
    return { size, read: async (from, to) => (read.push(to - from), from === size - 8 ? tail : new Uint8Array(to - from)), reads: read };
  };
  for (const [file, words] of [
    [source(1 << 30, 500 << 20), /footer has 524288000 bytes/],
    [source(1000, 2000), /longer than the file/],
    [source(1000, 100, "PARE"), /no footer/],
  ]) {
    await assert.rejects(preview(file, false), words);
    assert.deepEqual(file.reads, [8]);
  }
});

test("faults of JSON have a place and a remedy, and agree with a second reader", async () => {
  const { scan, placeOf, offsetOf, JsonFault } = await load("json/scan.ts");
  const at = (text) => {
    try {
      scan(text);
      return undefined;
    } catch (fault) {
      assert.ok("at" in fault && fault.at <= text.length, String(fault));
      return [text.slice(fault.at, fault.at + 3), fault.message];
    }
  };
  assert.equal(at('{"a": [1, -2.5e3, true, null, "\\u00e9\\n"], "b": {}}'), undefined);
  assert.match(at('{"a": 1,\n "b" 2}').join(), /^2},a colon is missing/);
  assert.match(at('{"a": 1\n "b": 2}').join(), /^"b",a comma or \} is missing/);
  assert.match(at('{"a": [1, 2,]}').join(), /^\]},no comma stands before \]/);
  assert.match(at('{"a": 1, "b": 2, "a": 3}').join(), /^"a",the name "a" occurs twice/);
  assert.match(at("{'a': 1}").join(), /^'a',a name in double quotes/);
  assert.match(at('{"a": "x\ny"}').join(), /^"x\n,a text has no line break/);
  assert.match(at('{"a": "x').join(), /^"x,a text begins here/);
  assert.match(at('{"a": 1} x').join(), /^x,the document is over/);
  assert.match(at("").join(), /^,the document ends/);
  assert.ok(at("[".repeat(200)) && at("[".repeat(100_000)));
  const valid = '{"Version":"2012-10-17","Statement":[{"Sid":"a b","Effect":"Allow","Action":["s3:*"],"N":[0,-1,1.5,true,null]}]}';
  for (let cut = 0; cut < valid.length; cut += 1) {
    for (const sign of ["", '"', ",", "}", "]", "\\", "1", "{"]) {
      const text = valid.slice(0, cut) + sign + valid.slice(cut + 1);
      let parses = true;
      try {
        JSON.parse(text);
      } catch {
        parses = false;
      }
      assert.equal(at(text) === undefined, parses, text);
    }
  }
  assert.deepEqual(placeOf("a\nbc\nd", 3), { line: 2, column: 2 });
  for (const offset of [0, 1, 2, 3, 5]) assert.equal(offsetOf("a\nbc\nd", placeOf("a\nbc\nd", offset)), offset);
  assert.equal(offsetOf("a", { line: 9, column: 9 }), 1);
  assert.ok(JsonFault);
});

test("sentences of the server are found in the document, and explained", async () => {
  const { locate, advice, faultOf } = await load("json/policy.ts");
  const text = JSON.stringify({ Version: "2012", Statement: [{ Sid: "a", Effect: "Allow", Action: "s3:*", Resource: "*" }, { Sid: "a", Effect: "Alow", Action: "s4:x", Resource: "y", Resources: "*", Condition: { Like: {} } }], Extra: 1 }, null, 2);
  const found = (sentence) => {
    const at = locate(text, sentence);
    return at === undefined ? undefined : text.slice(at, at + 8);
  };
  assert.equal(found("invalid policy: Policy has invalid action (statement 2)"), '"s4:x",\n');
  assert.equal(found("invalid policy: Policy has invalid resource (statement 2)"), '"y",\n   ');
  assert.equal(found("invalid policy: Invalid effect: Alow (statement 2)"), '"Alow",\n');
  assert.equal(found("invalid policy: Unknown field Resources (statement 2)"), '"Resourc');
  assert.equal(found("invalid policy: Invalid condition type : Like (statement 2)"), '{\n      ');
  assert.equal(found("invalid policy: Invalid policy syntax. (statement 1)"), "{\n      ");
  assert.equal(found("invalid policy: Unknown field Extra"), '"Extra":');
  assert.equal(found("invalid policy: The policy must contain a valid version string"), '"2012",\n');
  assert.equal(found("invalid policy: Statement IDs (SID) in a single policy must be unique."), '"a",\n   ');
  assert.equal(found("invalid policy: This policy contains invalid Json (line 2, column 3)"), '"Version');
  assert.equal(found("the server does not answer"), undefined);
  assert.equal(found("Policy has invalid action (statement 9)"), undefined);
  assert.match(advice("invalid policy: Policy has invalid action (statement 2)"), /s3:GetObject/);
  assert.equal(advice("the server does not answer"), "");
  assert.equal(faultOf("{}"), undefined);
  assert.match(faultOf("[]").message, /one object/);
});

test("two readings of the metrics give rates and quantiles, and a restart between them gives none", async () => {
  const { read, between } = await load("metrics.ts");
  /** Page of a process: requests that succeeded and failed, bytes, and cumulative counts below 10 ms, 100 ms and in all. */
  const page = (good, bad, bytesIn, bytesOut, [fast, middle, all]) => [
    "# HELP martlet_requests_total Requests",
    `martlet_requests_total{operation="GetObject",status="200"} ${good}`,
    `martlet_requests_total{operation="PutObject",status="503"} ${bad}`,
    `martlet_request_body_bytes_total ${bytesIn}`,
    `martlet_reply_body_bytes_total ${bytesOut}`,
    ...[["0.01", fast], ["0.1", middle], ["+Inf", all]].flatMap(([bound, count]) => [
      `martlet_request_first_byte_seconds_bucket{operation="GetObject",le="${bound}"} ${count}`,
      `martlet_request_first_byte_seconds_bucket{operation="PutObject",le="${bound}"} 7`,
    ]),
    `martlet_request_first_byte_seconds_sum{operation="GetObject"} 1e-3`,
    "martlet_other_total 99",
    "no line of metrics",
  ].join("\n");
  const first = read(page(100, 10, 1000, 5e4, [100, 110, 110]), 10_000);
  const { atMs: _, buckets, ...figures } = first;
  assert.deepEqual(figures, { requests: 110, errors: 10, bytesIn: 1000, bytesOut: 50_000 });
  assert.deepEqual([...buckets], [[0.01, 107], [0.1, 117], [Infinity, 117]]);
  const next = read(page(190, 20, 6000, 1.05e6, [190, 209, 210]), 15_000);
  assert.deepEqual(between(first, next), { atMs: 15_000, requests: 20, errors: 2, bytesIn: 1000, bytesOut: 200_000, p50: 0.01, p99: 0.1 });
  // Of 100 requests, two are above all bounds.
  const slow = read(page(290, 20, 6000, 1.05e6, [190, 306, 310]), 20_000);
  assert.deepEqual([between(next, slow).p50, between(next, slow).p99], [0.1, Infinity]);
  const idle = { ...next, atMs: 20_000 };
  assert.deepEqual(between(next, idle), { atMs: 20_000, requests: 0, errors: 0, bytesIn: 0, bytesOut: 0, p50: null, p99: null });

  for (const [what, restarted] of [
    ["all counters", page(3, 0, 0, 100, [3, 3, 3])],
    ["errors alone", page(500, 0, 9000, 2e6, [400, 490, 490])],
    ["bytes of requests alone", page(500, 20, 0, 2e6, [400, 500, 500])],
    ["bytes of replies alone", page(500, 20, 9000, 100, [400, 500, 500])],
    ["the histogram alone", page(500, 20, 9000, 2e6, [0, 100, 500])],
  ]) assert.equal(between(next, read(restarted, 20_000)), null, `${what} fell`);
  assert.equal(between(next, next), null, "no time has passed");
});

test("sizes, counts and spans are read as the commands read them", async () => {
  const { parseBytes, parseCount, parseSpan, bound, sizeText } = await load("units.ts");
  for (const [text, bytes] of [["0", 0], ["4KiB", 4096], ["4k", 4096], ["64 MiB", 64 << 20], ["3kb", 3000], ["4TB", 4e12], ["1PiB", 2 ** 50]]) assert.equal(parseBytes(text), bytes, text);
  for (const text of ["", "KiB", "-1", "4 parsecs", "1.5GiB", "99999999999999999999", "99999999999GiB"]) assert.throws(() => parseBytes(text), /not a number of bytes/, text);
  assert.deepEqual([parseSpan("500ms"), parseSpan("5m"), parseSpan("12h"), parseCount("17")], [500, 300_000, 43_200_000, 17]);
  for (const text of ["", "5", "5 weeks"]) assert.throws(() => parseSpan(text), /not a time/, text);
  assert.equal(bound("none", "none", parseBytes), null);
  assert.equal(bound("", "5GiB", parseBytes), "none");
  assert.deepEqual(bound("6GiB", "5GiB", parseBytes), { at: 6 * 2 ** 30 });
  for (const bytes of [0, 1, 1000, 4096, 5 * 2 ** 30, 2 ** 50]) assert.equal(parseBytes(sizeText(bytes)), bytes);
  assert.equal(sizeText(null), "none");
});

test("networks are read as the server reads them, and the wrong one is named", async () => {
  const { parseNetworks } = await load("units.ts");
  const right = ["10.0.0.0/8", "0.0.0.0/0", "255.255.255.255", "192.0.2.7/32", "2001:db8::/32", "::/0", "::1", "::ffff:10.0.0.1/128"];
  assert.deepEqual(parseNetworks(` ${right.join(", ")}\n`), right);
  assert.deepEqual(parseNetworks(" , "), []);
  for (const wrong of ["10.0.0.0/33", "10.0.0/8", "10.0.0.0.0", "10.0.0.0/", "10.0.0.0/+8", "256.0.0.1", "010.0.0.1", "::/129", "1::2::3", "fe80::1%eth0", "x", "<img>", "10.0.0.0./8"]) {
    assert.throws(() => parseNetworks(`10.0.0.0/8, ${wrong}`), (error) => error.message.startsWith(`"${wrong}" is not a network`), wrong);
  }
});

test("heads of ring files are read as they are drawn", async () => {
  const { ringHead, ringName } = await load("rings/file.ts");
  const head = Buffer.alloc(120);
  head.write("MRTLRING", 0, "latin1");
  head.writeBigUInt64LE(7n, 18);
  head.writeUInt8(14, 88);
  head.writeUInt16LE(24, 94);
  head.writeUInt32LE(99, 96);
  assert.deepEqual(ringHead(Uint8Array.from(head)), { epoch: 7, partitions: 16_384, devices: 24, moves: 99 });
  assert.throws(() => ringHead(new Uint8Array(120)), /no ring file/);
  assert.throws(() => ringHead(Uint8Array.from(head.subarray(0, 50))), /no ring file/);
  for (const [file, name] of [["index.ring", "index"], ["data-12.ring", "data-12"], ["data-01.ring", undefined], ["x.ring", undefined], ["index.ring.txt", undefined]]) assert.equal(ringName(file), name);
});

test("a form changes the retention of one rule, and leaves the rest of the document", async () => {
  const { withRetention } = await load("json/rules.ts");
  const form = { pattern: "run-7/step-1/", profile: "dcp", keep: "2", minAge: "1", abandonAfter: "" };
  assert.deepEqual(JSON.parse(withRetention("", form)), { rules: [{ pattern: "run-7/step-1/", profile: "dcp", keep: 2, min_age: 3600 }] });
  const document = JSON.stringify({ rules: [{ pattern: "a/", profile: "hf", keep: 9 }, { pattern: "b/", profile: "custom", markers: ["x"], keep: 1, abandon_after: 7200 }] });
  const changed = JSON.parse(withRetention(document, { ...form, pattern: "b/", profile: "custom", keep: "", minAge: " 0 " }));
  assert.deepEqual(changed.rules, [{ pattern: "a/", profile: "hf", keep: 9 }, { pattern: "b/", markers: ["x"], profile: "custom", min_age: 0 }]);
  for (const wrong of [{ pattern: "b" }, { keep: "-1" }, { keep: "1.5" }, { minAge: "h" }, { abandonAfter: "1e9" }]) assert.throws(() => withRetention(document, { ...form, ...wrong }), Error, JSON.stringify(wrong));
  for (const wrong of ["{", '{"rules": 1}']) assert.throws(() => withRetention(wrong, form), /mend it first/);
});

test("a sentence of S3 without a place is found in a single statement", async () => {
  const { locate } = await load("json/policy.ts");
  const one = '{"Statement": [{"Effect": "Allow", "Action": "x", "Resource": "r"}]}';
  assert.equal(locate(one, "Policy has invalid action"), one.indexOf('"x"'));
  const two = '{"Statement": [{"Action": "x"}, {"Action": "y"}]}';
  assert.equal(locate(two, "Policy has invalid action"), undefined);
});

/** Module of builders over a server that answers each request when the test does. */
async function builders() {
  const builder = await load("rings/builder.ts");
  const asked = [];
  globalThis.fetch = (path, { body }) => new Promise((resolve) => asked.push({ ...JSON.parse(body), answer: (more) => resolve(Response.json(replyOf(JSON.parse(body), more))) }));
  const replyOf = (request, more) => ({ epoch: 5, changed: false, settings: { policy: 0 }, devices: [], builder: request.with_builder ? "made" : null, steps: request.steps.map(({ step }) => ({ done: step, notes: [] })), ...more });
  /** Runs a function to its end, and answers its request. */
  const answered = async (run, more = {}) => {
    const ends = run();
    asked.at(-1).answer(more);
    return await ends;
  };
  const opened = async (epoch = 5) => {
    builder.drop();
    await answered(() => builder.begin({ builder: "file" }, "data-0.builder"), { epoch });
  };
  return { builder, asked, answered, opened };
}

const ADD = { step: "add", devices: [] };
const WEIGHT = { step: "set-weight", devices: "d4", weight: 50 };
const SETTLE = { step: "settle" };
const stepsOf = (work) => work.changes.map((one) => one.step);

test("an old builder is told from the ring in use, however often it was rebalanced", async () => {
  const { builder, answered, opened } = await builders();
  const { current, overtaken, pushed, rebalance } = builder;
  await opened();
  const rebalanced = async (epoch) => await answered(() => rebalance({}, current()), { epoch, steps: [{ done: "made a ring", notes: [] }] });
  for (const epoch of [6, 7, 8, 9]) await rebalanced(epoch);
  assert.equal(current().reply.epoch, 9);
  assert.match(overtaken(current(), { epoch: 7 }), /^The ring in use was made by a newer builder than this: epoch 7 of data-0 is in use, and this builder had epoch 5 when/);
  for (const used of [undefined, { epoch: 5 }, { epoch: 4 }]) assert.equal(overtaken(current(), used), undefined);
  // Its own push isn't that of a newer builder.
  pushed(current());
  assert.equal(overtaken(current(), { epoch: 9 }), undefined);
  await rebalanced(10);
  assert.equal(overtaken(current(), { epoch: 9 }), undefined);
  assert.notEqual(overtaken(current(), { epoch: 10 }), undefined);
  // A push of a builder that was closed raises no other one.
  const closed = current();
  builder.drop();
  await answered(() => builder.begin({ builder: "file" }, "data-0.builder"));
  pushed(closed);
  assert.equal(current().opened, 5);
  await opened(0);
  assert.match(overtaken(current(), { epoch: 1 }), /this builder had no ring when/);
});

test("a device isn't taken back while later changes name devices", async () => {
  const { builder, asked, answered, opened } = await builders();
  const { add, current, undo } = builder;
  await opened();
  for (const step of [ADD, ADD, SETTLE, WEIGHT]) await answered(() => add([step]));
  const before = asked.length;
  for (const at of [0, 1]) await assert.rejects(undo(at), /undo the later changes of devices first/);
  assert.equal(asked.length, before, "nothing was asked");
  await answered(() => undo(3));
  assert.deepEqual(stepsOf(current()), [ADD, ADD, SETTLE]);
  await answered(() => undo(0));
  assert.deepEqual(stepsOf(current()), [ADD, SETTLE]);
  await opened();
  for (const step of [WEIGHT, ADD]) await answered(() => add([step]));
  await answered(() => undo(1));
  assert.deepEqual(stepsOf(current()), [WEIGHT]);
});

test("a reply to former changes of a builder is dropped", async () => {
  const { builder, asked, answered, opened } = await builders();
  const { add, current, plan, rebalance, undo } = builder;
  await opened();
  await answered(() => add([SETTLE]));
  const former = current();
  for (const run of [() => plan({}, former), () => rebalance({}, former), () => undo(0), () => add([SETTLE])]) {
    const late = run();
    const request = asked.at(-1);
    await answered(() => add([WEIGHT]));
    const { changes, base } = current();
    request.answer({ plan: { sentence: "old" } });
    await assert.rejects(late, /has changed in the meantime/, String(run));
    assert.ok(current().changes === changes && current().base === base, String(run));
  }
  // A plan of former changes carries no later ones out.
  const before = asked.length;
  await assert.rejects(rebalance({}, former), /has changed in the meantime/);
  assert.equal(asked.length, before);
  const now = current();
  assert.deepEqual(await answered(() => plan({}, now), { plan: { sentence: "new" } }), { sentence: "new" });
  await answered(() => rebalance({}, now), { epoch: 6, steps: [] });
  assert.deepEqual(asked.at(-1).steps, [SETTLE, WEIGHT, WEIGHT, WEIGHT, WEIGHT]);
  // Nor does a reply come to a builder that was closed.
  const late = add([ADD]);
  builder.drop();
  asked.at(-1).answer({});
  await assert.rejects(late, /has changed in the meantime/);
  assert.equal(current(), undefined);
});
