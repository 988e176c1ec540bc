// OpenID Connect provider of tests: signs tokens by ES256, and shows a page whose button signs in.
import { createHash, createPrivateKey, generateKeyPairSync, randomBytes, sign } from "node:crypto";
import { createServer } from "node:http";

const encode = (value) => Buffer.from(typeof value === "string" || Buffer.isBuffer(value) ? value : JSON.stringify(value)).toString("base64url");

/** Starts a provider whose only client is `client`. `claims` are those of the person who signs in. */
export async function provider(client, claims) {
  const { privateKey, publicKey } = generateKeyPairSync("ec", { namedCurve: "P-256" });
  const jwk = { ...publicKey.export({ format: "jwk" }), kid: "k1", use: "sig", alg: "ES256" };
  const codes = new Map();
  const state = { issuer: "", claims, deny: false };
  const token = (nonce) => {
    const now = Math.floor(Date.now() / 1000);
    const body = { iss: state.issuer, aud: client, iat: now, exp: now + 300, nonce, ...state.claims };
    const signed = `${encode({ alg: "ES256", kid: "k1" })}.${encode(body)}`;
    const key = createPrivateKey(privateKey.export({ format: "pem", type: "pkcs8" }));
    return `${signed}.${encode(sign("sha256", Buffer.from(signed), { key, dsaEncoding: "ieee-p1363" }))}`;
  };
  const answers = {
    "/.well-known/openid-configuration": () => ({
      issuer: state.issuer, jwks_uri: `${state.issuer}/keys`, authorization_endpoint: `${state.issuer}/authorize`,
      token_endpoint: `${state.issuer}/token`, code_challenge_methods_supported: ["S256"], authorization_response_iss_parameter_supported: true,
    }),
    "/keys": () => ({ keys: [jwk] }),
    "/token": (_, form) => {
      const begun = codes.get(form.get("code"));
      codes.delete(form.get("code"));
      const challenge = createHash("sha256").update(form.get("code_verifier") ?? "").digest("base64url");
      return begun?.challenge === challenge && form.get("client_id") === client ? { id_token: token(begun.nonce) } : undefined;
    },
  };
  const server = createServer(async (request, reply) => {
    const url = new URL(request.url, state.issuer);
    let body = "";
    for await (const part of request) body += part;
    if (url.pathname === "/authorize") {
      const code = randomBytes(16).toString("hex");
      codes.set(code, { challenge: url.searchParams.get("code_challenge"), nonce: url.searchParams.get("nonce") });
      const back = new URL(url.searchParams.get("redirect_uri"));
      back.searchParams.set("state", url.searchParams.get("state"));
      back.searchParams.set("iss", state.issuer);
      if (state.deny) back.searchParams.set("error", "access_denied");
      else back.searchParams.set("code", code);
      reply.setHeader("content-type", "text/html");
      return reply.end(`<!doctype html><title>Provider</title><a href="${back.href.replaceAll("&", "&amp;")}">I am Alice</a>`);
    }
    const answer = answers[url.pathname]?.(url, new URLSearchParams(body));
    reply.statusCode = answer ? 200 : 400;
    reply.setHeader("content-type", "application/json");
    return reply.end(JSON.stringify(answer ?? { error: "invalid_grant" }));
  });
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  state.issuer = `http://127.0.0.1:${server.address().port}`;
  return { state, end: () => new Promise((resolve) => server.close(resolve)) };
}
