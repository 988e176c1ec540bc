// The AWS SDK for JavaScript: the same round trips as in suite.py, in its own language.

import assert from "node:assert/strict";
import { randomBytes } from "node:crypto";
import { readFileSync } from "node:fs";
import {
  CopyObjectCommand, CreateBucketCommand, DeleteBucketCommand, DeleteObjectCommand,
  DeleteObjectsCommand, GetObjectCommand, HeadObjectCommand, PutObjectCommand, S3Client,
  paginateListObjectsV2,
} from "@aws-sdk/client-s3";
import { Upload } from "@aws-sdk/lib-storage";

const Bucket = process.env.MARTLET_BUCKET;
const MIB = 1 << 20;
const LARGE_BYTES = 64 * MIB + 12345;
const MANY = 1500;
const s3 = new S3Client({ endpoint: process.env.MARTLET_ENDPOINT, forcePathStyle: true });

const put = (Key, Body, more = {}) => s3.send(new PutObjectCommand({ Bucket, Key, Body, ...more }));

async function get(Key, more = {}) {
  const reply = await s3.send(new GetObjectCommand({ Bucket, Key, ...more }));
  return Buffer.from(await reply.Body.transformToByteArray());
}

async function keys(Prefix) {
  const found = [];
  for await (const page of paginateListObjectsV2({ client: s3 }, { Bucket, Prefix })) {
    found.push(...(page.Contents ?? []).map((item) => item.Key));
  }
  return found;
}

async function deleteMany(names) {
  for (let at = 0; at < names.length; at += 1000) {
    const Objects = names.slice(at, at + 1000).map((Key) => ({ Key }));
    const reply = await s3.send(new DeleteObjectsCommand({ Bucket, Delete: { Objects } }));
    assert.deepEqual(reply.Errors ?? [], []);
  }
}

async function roundTrip(key, data) {
  await put(key, data);
  assert.ok(data.equals(await get(key)), key);
}

async function upload(Key, Body, partSize) {
  await new Upload({ client: s3, partSize, params: { Bucket, Key, Body } }).done();
  assert.ok(Body.equals(await get(Key)), Key);
}

const oddNames = JSON.parse(readFileSync(process.env.MARTLET_ODD_KEYS, "utf8"));
const ODD_KEYS = [...oddNames, "k".repeat(1020), "ü".repeat(510)].map((name) => "odd/" + name);

const steps = {
  "bucket": () => s3.send(new CreateBucketCommand({ Bucket })),
  "small": async () => {
    for (const size of [0, 1, 4096, 100_000]) await roundTrip(`small/${size}`, randomBytes(size));
  },
  "64 MiB": async () => roundTrip("large", randomBytes(LARGE_BYTES)),
  "parts": async () => {
    await upload("parts", randomBytes(3 * 8 * MIB + 7), 8 * MIB);
    const head = await s3.send(new HeadObjectCommand({ Bucket, Key: "parts" }));
    assert.match(head.ETag, /-4"$/);
  },
  "ranges": async () => {
    const data = randomBytes(3 * MIB + 5);
    await put("ranges", data);
    for (const [first, last] of [[0, 0], [65_535, 65_536], [MIB - 1, 2 * MIB], [data.length - 3, data.length - 1]]) {
      const got = await get("ranges", { Range: `bytes=${first}-${last}` });
      assert.ok(got.equals(data.subarray(first, last + 1)), `bytes ${first}-${last}`);
    }
  },
  [`${MANY} keys`]: async () => {
    const names = Array.from({ length: MANY }, (_, n) => `many/${String(n).padStart(4, "0")}`);
    for (let at = 0; at < MANY; at += 30) {
      await Promise.all(names.slice(at, at + 30).map((name) => put(name, name)));
    }
    assert.deepEqual(await keys("many/"), names);
  },
  "odd keys": async () => {
    for (const key of ODD_KEYS) await roundTrip(key, key.endsWith("/") ? Buffer.alloc(0) : randomBytes(20));
    assert.deepEqual((await keys("odd/")).sort(), [...ODD_KEYS].sort());
    for (const Key of ODD_KEYS.slice(0, 5)) await s3.send(new DeleteObjectCommand({ Bucket, Key }));
    await deleteMany(ODD_KEYS.slice(5));
    assert.deepEqual(await keys("odd/"), []);
  },
  "more": async () => {
    await put("more", "abc", { Metadata: { colour: "blue" }, ContentType: "text/plain" });
    await s3.send(new CopyObjectCommand({ Bucket, Key: "copied", CopySource: `${Bucket}/more` }));
    const head = await s3.send(new HeadObjectCommand({ Bucket, Key: "copied" }));
    assert.deepEqual([head.Metadata, head.ContentType], [{ colour: "blue" }, "text/plain"]);
    for (const ChecksumAlgorithm of ["CRC32", "CRC32C", "SHA1", "SHA256"]) {
      await put("sum", "abc", { ChecksumAlgorithm });
      assert.equal(String(await get("sum", { ChecksumMode: "ENABLED" })), "abc");
    }
    await assert.rejects(put("more", "x", { IfNoneMatch: "*" }), { name: "PreconditionFailed" });
  },
  "removal": async () => {
    await deleteMany(await keys(""));
    assert.deepEqual(await keys(""), []);
    await s3.send(new DeleteBucketCommand({ Bucket }));
  },
};

for (const [name, step] of Object.entries(steps)) {
  const begun = performance.now();
  await step();
  console.log(`${name}: ${((performance.now() - begun) / 1000).toFixed(2)} s`);
}
console.log(Object.keys(steps).join(", "));
