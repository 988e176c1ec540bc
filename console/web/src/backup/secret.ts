// Secret of a backup: a passphrase or a key. It stays in the page: the key of a file is derived here.
//
//   passphrase --PBKDF2-HMAC-SHA256, salt of the file--+
//                                                      +--> key of the file (AES-256-GCM)
//   key (32 bytes) --BLAKE3, salt of the file----------+
import { blake3 } from "@noble/hashes/blake3.js";
import { fromHex, toHex } from "./bytes";

/** Iterations of PBKDF2 for new files. */
const ITERATIONS = 1_000_000;
/** Most iterations that a file may demand. */
const ITERATIONS_MAX = 20_000_000;
const PASSPHRASE_BYTES_MIN = 12;
const KEY = "martlet 2026 key of a backup";
const CHECK = "martlet 2026 check of a backup's key";

export type Secret = { passphrase: string } | { key: Uint8Array };
/** Derivation of the key of a file, as the header of the file has it. */
export type KeyForm = { passphrase: { iterations: number } } | "key-file";

export interface FileKey {
  cipher: CryptoKey;
  /** Text by which a wrong secret is noticed. */
  check: string;
}

export function passphrase(text: string): Secret {
  if (new TextEncoder().encode(text).length < PASSPHRASE_BYTES_MIN) throw new Error(`the passphrase has fewer than ${PASSPHRASE_BYTES_MIN} bytes: choose a longer one`);
  return { passphrase: text };
}

export function keyOf(text: string): Secret {
  const key = fromHex(text.trim());
  if (key?.length !== 32) throw new Error("the key file must have 64 hexadecimal digits: make it with openssl rand -hex 32");
  return { key };
}

/** Derivation for a new file. */
export const formOf = (secret: Secret): KeyForm => ("key" in secret ? "key-file" : { passphrase: { iterations: ITERATIONS } });

/** Derives the key of a file with this salt. Throws a sentence if the file was made with another kind of secret. */
export async function fileKey(secret: Secret, form: KeyForm, salt: Uint8Array<ArrayBuffer>): Promise<FileKey> {
  const bytes = await derive(secret, form, salt);
  const cipher = await crypto.subtle.importKey("raw", bytes, "AES-GCM", false, ["encrypt", "decrypt"]);
  return { cipher, check: toHex(deriveKey(CHECK, bytes).subarray(0, 8)) };
}

/** Derives a key for the purpose that a text names, as BLAKE3's `derive_key`. */
function deriveKey(purpose: string, material: Uint8Array): Uint8Array<ArrayBuffer> {
  return blake3(material, { context: new TextEncoder().encode(purpose) });
}

async function derive(secret: Secret, form: KeyForm, salt: Uint8Array<ArrayBuffer>): Promise<Uint8Array<ArrayBuffer>> {
  if (form === "key-file") {
    if (!("key" in secret)) throw new Error("the backup was made with a key file: choose it");
    return deriveKey(KEY, Uint8Array.of(...secret.key, ...salt));
  }
  if (!("passphrase" in secret)) throw new Error("the backup was made with a passphrase: type it");
  const { iterations } = form.passphrase;
  if (!(iterations >= 1 && iterations <= ITERATIONS_MAX)) throw new Error(`the backup demands ${iterations} iterations of PBKDF2, which is not within 1 to ${ITERATIONS_MAX}`);
  const material = await crypto.subtle.importKey("raw", new TextEncoder().encode(secret.passphrase), "PBKDF2", false, ["deriveBits"]);
  return new Uint8Array(await crypto.subtle.deriveBits({ name: "PBKDF2", hash: "SHA-256", salt, iterations }, material, 256));
}
