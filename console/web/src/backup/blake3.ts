// BLAKE3 (https://github.com/BLAKE3-team/BLAKE3-specs): hashes of 32 bytes, and keys that are derived for a purpose. Browsers
// have no BLAKE3, and backups are sealed and checked with it.
const OUT_BYTES = 32;
const BLOCK_BYTES = 64;
const CHUNK_BYTES = 1024;
const IV = Uint32Array.of(0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19);
const CHUNK_START = 1;
const CHUNK_END = 2;
const PARENT = 4;
const ROOT = 8;
const DERIVE_CONTEXT = 32;
const DERIVE_MATERIAL = 64;

/** Order of the words of a block in each of the seven rounds, one after another. */
const SCHEDULE = (() => {
  const permutation = [2, 6, 3, 10, 7, 0, 4, 13, 1, 11, 12, 5, 9, 14, 15, 8];
  let order = Array.from({ length: 16 }, (_, at) => at);
  const all: number[] = [];
  for (let round = 0; round < 7; round += 1) {
    all.push(...order);
    order = permutation.map((at) => order[at]!);
  }
  return Uint8Array.from(all);
})();
/** Words of the state that each of the eight steps of a round mixes. */
const STEPS = Uint8Array.of(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15, 0, 5, 10, 15, 1, 6, 11, 12, 2, 7, 8, 13, 3, 4, 9, 14);

const state = new Uint32Array(16);

/** Compresses a block. The state of 16 words, of which the first 8 are the chaining value, is valid until the next call. */
function compress(chaining: Uint32Array, words: Uint32Array, counter: number, bytes: number, flags: number): Uint32Array {
  const v = state;
  v.set(chaining);
  v.set(IV.subarray(0, 4), 8);
  v[12] = counter >>> 0;
  v[13] = Math.floor(counter / 2 ** 32);
  v[14] = bytes;
  v[15] = flags;
  for (let at = 0; at < SCHEDULE.length; at += 2) {
    const step = (at % 16) * 2;
    const [i, j, k, l] = [STEPS[step]!, STEPS[step + 1]!, STEPS[step + 2]!, STEPS[step + 3]!];
    let [a, b, c, d] = [v[i]!, v[j]!, v[k]!, v[l]!];
    a = (a + b + words[SCHEDULE[at]!]!) | 0;
    d ^= a;
    d = (d >>> 16) | (d << 16);
    c = (c + d) | 0;
    b ^= c;
    b = (b >>> 12) | (b << 20);
    a = (a + b + words[SCHEDULE[at + 1]!]!) | 0;
    d ^= a;
    d = (d >>> 8) | (d << 24);
    c = (c + d) | 0;
    b ^= c;
    b = (b >>> 7) | (b << 25);
    v[i] = a;
    v[j] = b;
    v[k] = c;
    v[l] = d;
  }
  for (let at = 0; at < 8; at += 1) v[at]! ^= v[at + 8]!;
  return v;
}

/** Hash of bytes that arrive in pieces. */
export class Hasher {
  readonly #key: Uint32Array;
  readonly #flags: number;
  /** Chaining values of whole subtrees, the largest first. */
  readonly #subtrees: Uint32Array[] = [];
  readonly #block = new Uint8Array(BLOCK_BYTES);
  readonly #words = new Uint32Array(16);
  #chaining: Uint32Array;
  #chunk = 0;
  /** Bytes of the chunk in blocks that were compressed, and bytes in the block. */
  #compressed = 0;
  #filled = 0;

  constructor(key: Uint32Array = IV, flags = 0) {
    this.#key = key;
    this.#flags = flags;
    this.#chaining = key.slice();
  }

  update(bytes: Uint8Array): this {
    let at = 0;
    while (at < bytes.length) {
      if (this.#filled === BLOCK_BYTES) this.#endBlock();
      const length = Math.min(BLOCK_BYTES - this.#filled, bytes.length - at);
      this.#block.set(bytes.subarray(at, at + length), this.#filled);
      this.#filled += length;
      at += length;
    }
    return this;
  }

  /** Compresses a full block that isn't the last one of all. */
  #endBlock(): void {
    const ends = this.#compressed + BLOCK_BYTES === CHUNK_BYTES;
    this.#load();
    const out = compress(this.#chaining, this.#words, this.#chunk, BLOCK_BYTES, this.#blockFlags(ends));
    this.#chaining = out.slice(0, 8);
    this.#compressed += BLOCK_BYTES;
    this.#filled = 0;
    if (ends) this.#endChunk();
  }

  #blockFlags(ends: boolean): number {
    return this.#flags | (this.#compressed === 0 ? CHUNK_START : 0) | (ends ? CHUNK_END : 0);
  }

  /** Reads the block as words; bytes beyond its end are zero. */
  #load(): void {
    this.#block.fill(0, this.#filled);
    const view = new DataView(this.#block.buffer);
    for (let at = 0; at < 16; at += 1) this.#words[at] = view.getUint32(at * 4, true);
  }

  /** Adds the chunk to the tree, and merges subtrees of one size. */
  #endChunk(): void {
    this.#chunk += 1;
    let value = this.#chaining;
    for (let rest = this.#chunk; rest % 2 === 0; rest /= 2) value = this.#parent(this.#subtrees.pop()!, value, 0).slice(0, 8);
    this.#subtrees.push(value);
    this.#chaining = this.#key.slice();
    this.#compressed = 0;
  }

  #parent(left: Uint32Array, right: Uint32Array, root: number): Uint32Array {
    const words = new Uint32Array(16);
    words.set(left);
    words.set(right, 8);
    return compress(this.#key, words, 0, BLOCK_BYTES, this.#flags | PARENT | root);
  }

  /** Returns the hash. The hasher is of no use afterwards. */
  finish(): Uint8Array {
    this.#load();
    const flags = this.#blockFlags(true);
    let at = this.#subtrees.length;
    let out = compress(this.#chaining, this.#words, this.#chunk, this.#filled, flags | (at === 0 ? ROOT : 0));
    while (at > 0) {
      at -= 1;
      out = this.#parent(this.#subtrees[at]!, out.slice(0, 8), at === 0 ? ROOT : 0);
    }
    const bytes = new Uint8Array(OUT_BYTES);
    const view = new DataView(bytes.buffer);
    for (let word = 0; word < 8; word += 1) view.setUint32(word * 4, out[word]!, true);
    return bytes;
  }
}

export const hash = (bytes: Uint8Array): Uint8Array => new Hasher().update(bytes).finish();

/** Derives a key for the purpose that a text names. */
export function deriveKey(purpose: string, material: Uint8Array): Uint8Array {
  const context = new Hasher(IV, DERIVE_CONTEXT).update(new TextEncoder().encode(purpose)).finish();
  const view = new DataView(context.buffer);
  const key = Uint32Array.from({ length: 8 }, (_, at) => view.getUint32(at * 4, true));
  return new Hasher(key, DERIVE_MATERIAL).update(material).finish();
}
