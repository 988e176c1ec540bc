// S3 requests of tests, signed here, beside those of the console.
import { createHash, createHmac } from "node:crypto";

const hmac = (key, text) => createHmac("sha256", key).update(text).digest();
const hash = (bytes) => createHash("sha256").update(bytes).digest("hex");
const encode = (text) => encodeURIComponent(text).replace(/[!'()*]/g, (char) => `%${char.charCodeAt(0).toString(16).toUpperCase()}`);

/** Sends a signed request. Returns status, headers and the body as bytes. */
export async function s3(server, { key, secret, token }, method, bucket, name = "", { query = {}, headers = {}, body = "", service = "s3" } = {}) {
  const host = new URL(server.s3).host;
  const date = new Date().toISOString().replace(/[:-]|\.\d{3}/g, "");
  const scope = `${date.slice(0, 8)}/us-east-1/${service}/aws4_request`;
  const path = `/${bucket}${name ? `/${name.split("/").map(encode).join("/")}` : ""}`;
  const text = Object.keys(query).sort().map((one) => `${encode(one)}=${encode(query[one])}`).join("&");
  const session = token ? { "x-amz-security-token": token } : {};
  const all = { ...headers, ...session, host, "x-amz-date": date, "x-amz-content-sha256": hash(body) };
  const names = Object.keys(all).sort();
  const canonical = [method, path, text, ...names.map((one) => `${one}:${all[one]}`), "", names.join(";"), hash(body)].join("\n");
  const toSign = ["AWS4-HMAC-SHA256", date, scope, hash(canonical)].join("\n");
  const signing = scope.split("/").reduce((made, part) => hmac(made, part), `AWS4${secret}`);
  const signature = createHmac("sha256", signing).update(toSign).digest("hex");
  const authorization = `AWS4-HMAC-SHA256 Credential=${key}/${scope}, SignedHeaders=${names.join(";")}, Signature=${signature}`;
  const { request } = await import("node:http");
  delete all.host;
  return await new Promise((resolve, reject) => {
    // The client of Node sends a path as it is; fetch would resolve `..`.
    const url = new URL(server.s3);
    const sent = request({ host: url.hostname, port: url.port, method, path: `${path}${text ? `?${text}` : ""}`, headers: { ...all, authorization, "content-length": Buffer.byteLength(body) } }, (reply) => {
      const parts = [];
      reply.on("data", (part) => parts.push(part));
      reply.on("end", () => resolve({ status: reply.statusCode, headers: reply.headers, body: Buffer.concat(parts) }));
    });
    sent.on("error", reject);
    sent.end(body);
  });
}

/** As above, and fails unless the reply is a success. */
export async function done(...request) {
  const reply = await s3(...request);
  if (reply.status >= 300) throw new Error(`${request.slice(2, 5).join(" ")}: ${reply.status} ${reply.body}`);
  return reply;
}
