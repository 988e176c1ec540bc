// Parts of backups without a browser: BLAKE3, numbers of records, and sealed files that are damaged, cut or foreign.
import assert from "node:assert/strict";
import { test } from "node:test";
import { blake3 } from "@noble/hashes/blake3.js";
import { build } from "esbuild";

async function load(entry) {
  const made = await build({ entryPoints: [new URL(`../src/backup/${entry}`, import.meta.url).pathname], bundle: true, format: "esm", write: false, logLevel: "silent" });
  return import(`data:text/javascript;base64,${Buffer.from(made.outputFiles[0].contents).toString("base64")}`);
}

const hex = (bytes) => Buffer.from(bytes).toString("hex");

test("BLAKE3 has the hashes of its specification", async () => {
  // Inputs of the official vectors: bytes that count to 250, over and over.
  const input = (length) => Uint8Array.from({ length }, (_, at) => at % 251);
  const vectors = {
    0: "af1349b9f5f9a1a6a0404dea36dcc9499bcb25c9adc112b7cc9a93cae41f3262",
    1: "2d3adedff11b61f14c886e35afa036736dcd87a74d27b5c1510225d0f592e213",
    1024: "42214739f095a406f3fc83deb889744ac00df831c10daa55189b5d121c855af7",
    1025: "d00278ae47eb27b34faecf67b4fe263f82d5412916c1ffd97c8cb7fb814b8444",
  };
  for (const [length, expected] of Object.entries(vectors)) assert.equal(hex(blake3(input(Number(length)))), expected, length);
  // Pieces of any length have the hash of the whole.
  const all = input(100_000);
  for (const size of [1, 63, 64, 65, 1023, 1024, 1025, 4096]) {
    const hasher = blake3.create();
    for (let at = 0; at < all.length; at += size) hasher.update(all.subarray(at, at + size));
    assert.equal(hex(hasher.digest()), hex(blake3(all)), String(size));
  }
  const context = new TextEncoder().encode("BLAKE3 2019-12-27 16:29:52 test vectors context");
  const derived = {
    0: "2cc39783c223154fea8dfb7c1b1660f2ac2dcbd1c1de8277b0b0dd39b7e50d7d",
    1: "b3e2e340a117a499c6cf2398a19ee0d29cca2bb7404c73063382693bf66cb06c",
    1025: "effaa245f065fbf82ac186839a249707c3bddf6d3fdda22d1b95a3c970379bcb",
  };
  for (const [length, expected] of Object.entries(derived)) assert.equal(hex(blake3(input(Number(length)), { context })), expected, length);
});

test("large numbers of records stay as they are", async () => {
  const { parseExact } = await load("exact.ts");
  const text = `{"a":18446744073709551615,"b":[1,2.5,-3,1e2],"c":"9007199254740993","d":9007199254740993}`;
  const supported = typeof JSON.rawJSON === "function";
  if (supported) assert.equal(JSON.stringify(parseExact(text)), text.replace("1e2", "100"));
  else assert.throws(() => parseExact(text), /martlet admin backup/);
  assert.deepEqual(parseExact(`{"a":[9007199254740991,0.1,"x",null]}`), { a: [9007199254740991, 0.1, "x", null] });
});

const SECRET = "correct horse battery";
const record = (kind, name) => ({ record: { kind, name, written_ms: 1, content: { text: "é".repeat(50) } } });

async function made(lines, secret = { passphrase: SECRET }) {
  const [{ newHead }, { BackupWriter }] = [await load("sealed.ts"), await load("lines.ts")];
  const { head, key } = await newHead(secret, "0.1.0", 1_764_000_000_000);
  const writer = new BackupWriter(head, key);
  for (const line of lines) await writer.push(line);
  return new Uint8Array(await (await writer.finish()).arrayBuffer());
}

async function read(bytes, secret = { passphrase: SECRET }) {
  const [{ readHead, openHead }, { lines }] = [await load("sealed.ts"), await load("lines.ts")];
  const file = new Blob([bytes]);
  const head = await readHead(file);
  const found = [];
  for await (const line of lines(file, head, await openHead(head, secret))) found.push(line);
  return found;
}

test("a backup is read as it was written, and none that is damaged, cut or foreign", async () => {
  // Bytes that don't compress, over several chunks.
  const content = hex(crypto.getRandomValues(new Uint8Array(60_000)));
  const written = [{ file: { name: "index.ring", epoch: 3, content: content.repeat(3) + hex(crypto.getRandomValues(new Uint8Array(60_000))) } }, record("tenant", "a"), record("key", "b"), record("key", "c")];
  const file = await made(written);
  assert.ok(file.length > 2 * 65_536, `${file.length} bytes`);
  assert.ok(!Buffer.from(file).includes("tenant"), "nothing is in clear");
  assert.deepEqual(await read(file), written);
  await assert.rejects(read(file, { passphrase: "battery staple horse" }), /isn't that of this backup/);
  await assert.rejects(read(file, { key: new Uint8Array(32) }), /made with a passphrase/);
  await assert.rejects(read(Buffer.from("hello")), /no backup/);
  await assert.rejects(read(Buffer.from("martlet-backup\nnothing\n")), /header of the backup is damaged/);
  await assert.rejects(read(Buffer.from(String(Buffer.from(file.slice(0, 400), "latin1")).replace('"format":1', '"format":2'))), /format 2/);
  for (const length of [file.length - 1, file.length - 100_000, 300]) await assert.rejects(read(file.slice(0, length)), /cut within chunk|damaged/, String(length));
  await assert.rejects(read(Buffer.concat([file, Buffer.of(7)])), /bytes follow the end/);
  for (const at of [400, 70_000, file.length - 3]) {
    const damaged = file.slice();
    damaged[at] ^= 1;
    await assert.rejects(read(damaged), /damaged|cut within|bytes follow/, String(at));
  }
  // A header of the same length with another time isn't the one that was sealed.
  const text = Buffer.from(file);
  const at = text.indexOf("1764000000000");
  text[at + 12] = 49;
  await assert.rejects(read(text), /chunk 1 of the backup is damaged/);
  assert.deepEqual(await read(await made([])), []);
});

test("a file by a key is of that key alone, and secrets have a form", async () => {
  const { passphrase, keyOf, fileKey } = await load("secret.ts");
  const key = keyOf(` ${"5a".repeat(32)}\n`);
  const file = await made([record("tenant", "a")], key);
  assert.equal((await read(file, key)).length, 1);
  await assert.rejects(read(file, keyOf("5b".repeat(32))), /isn't that of this backup/);
  await assert.rejects(read(file), /made with a key file/);
  assert.throws(() => passphrase("short"), /fewer than 12/);
  assert.throws(() => keyOf("5a"), /64 hexadecimal digits/);
  for (const iterations of [0, 20_000_001]) await assert.rejects(fileKey({ passphrase: SECRET }, { passphrase: { iterations } }, new Uint8Array(32)), /iterations/);
});

test("a writer ends when its file fails, and when it is stopped", { timeout: 60_000 }, async () => {
  const [{ newHead }, { BackupWriter }] = [await load("sealed.ts"), await load("lines.ts")];
  const { head, key } = await newHead({ passphrase: SECRET }, "0.1.0", 1);
  // A key that seals nothing.
  const cipher = await crypto.subtle.generateKey({ name: "AES-GCM", length: 256 }, false, ["decrypt"]);
  const broken = new BackupWriter(head, { ...key, cipher });
  const line = () => ({ file: { name: "index.ring", content: hex(crypto.getRandomValues(new Uint8Array(60_000))) } });
  const writes = async () => {
    for (let at = 0; at < 200; at += 1) await broken.push(line());
  };
  await assert.rejects(writes(), { name: "InvalidAccessError" });
  await assert.rejects(broken.push(line()), { name: "InvalidAccessError" });
  await assert.rejects(broken.finish(), { name: "InvalidAccessError" });
  const stopped = new BackupWriter(head, key);
  await stopped.push(line());
  stopped.abort(new Error("stopped"));
  await assert.rejects(stopped.finish(), Error);
});
