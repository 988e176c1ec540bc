// Head of a ring file, as docs/RING.md draws it. The server checks the whole file.
export interface RingHead {
  epoch: number;
  partitions: number;
  devices: number;
  moves: number;
}

const MAGIC = "MRTLRING";
const HEAD_BYTES = 100;

/** Name of the ring of a file such as `data-0.ring`, or undefined. */
export function ringName(file: string): string | undefined {
  return /^(index|data-(?:0|[1-9][0-9]{0,4}))\.ring$/.exec(file)?.[1];
}

/** Reads the head. Throws a sentence if the bytes begin another kind of file. */
export function ringHead(bytes: Uint8Array): RingHead {
  if (bytes.length < HEAD_BYTES || String.fromCharCode(...bytes.subarray(0, 8)) !== MAGIC) throw new Error("it is no ring file: choose the file that write-ring wrote");
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  const power = view.getUint8(88);
  if (power > 32) throw new Error("its dimensions are impossible: copy the file again");
  return { epoch: Number(view.getBigUint64(18, true)), partitions: 2 ** power, devices: view.getUint16(94, true), moves: view.getUint32(96, true) };
}
