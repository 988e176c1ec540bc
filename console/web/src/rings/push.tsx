// Push of ring files: their heads beside the rings in use, and a job that sends them to all nodes.
import { useRef, useState } from "preact/hooks";
import { change } from "../api";
import * as f from "../format";
import type { Job } from "../jobs/card";
import type { Schemas } from "../session";
import { Ask, Failure, Table } from "../ui/parts";
import { ringHead, ringName, type RingHead } from "./file";

/** Bytes of all rings that fit in one request as base64. */
const BYTES_MAX = 48 << 20;

interface Chosen {
  name: string;
  head: RingHead;
  file: File;
}

async function read(file: File): Promise<Chosen> {
  const name = ringName(file.name);
  if (name === undefined) throw new Error(`${file.name}: ring files are named index.ring or data-0.ring`);
  try {
    return { name, file, head: ringHead(new Uint8Array(await file.slice(0, 128).arrayBuffer())) };
  } catch (thrown) {
    throw new Error(`${file.name}: ${thrown instanceof Error ? thrown.message : String(thrown)}`);
  }
}

export function base64(file: File): Promise<string> {
  return new Promise((resolve, reject) => {
    const reader = new FileReader();
    reader.onload = () => resolve(String(reader.result).replace(/^[^,]*,/, ""));
    reader.onerror = () => reject(new Error(`${file.name} can't be read`));
    reader.readAsDataURL(file);
  });
}

/** Warning about a ring that nodes will refuse or know already. */
function warning({ name, head }: Chosen, used: Schemas["RingSpread"] | undefined): string {
  if (!used) return `No ring ${name} is in use yet.`;
  if (head.epoch === used.epoch) return `The epoch ${used.epoch} of the ring ${name} is in use already: nodes take no other ring of this epoch.`;
  if (head.epoch < used.epoch) return `The ring ${name} in use has the epoch ${used.epoch}. Nodes refuse older rings.`;
  return "";
}

export function PushRings({ spread, done, close }: { spread: Schemas["RingSpread"][]; done: () => Promise<void>; close: () => void }) {
  const [chosen, setChosen] = useState<Chosen[]>([]);
  const [error, setError] = useState("");
  const input = useRef<HTMLInputElement>(null);
  const used = (name: string) => spread.find((ring) => ring.ring === name);
  const choose = async (files: FileList | null) => {
    setError("");
    setChosen([]);
    try {
      const read_ = await Promise.all([...(files ?? [])].map(read));
      if (read_.reduce((sum, one) => sum + one.file.size, 0) > BYTES_MAX) throw new Error(`the files have more than ${f.bytes(BYTES_MAX)}: push them one by one, or with martlet admin ring push --node`);
      setChosen(read_);
    } catch (thrown) {
      setError(thrown instanceof Error ? thrown.message : String(thrown));
    }
  };
  const push = async () => {
    if (chosen.length === 0) throw new Error("choose at least one ring file");
    const rings = await Promise.all(chosen.map(async ({ name, file }) => ({ name, file: await base64(file) })));
    await change<Job>("POST", "/admin/v1/jobs", {}, { kind: "ring-push", rings });
    await done();
  };
  return (
    <Ask title="Push rings" verb="Push to all nodes" danger run={push} close={close} wide>
      <p>Nodes take a ring that follows the one in use, and data begins to move. A push can't be taken back: a later ring has to move the data again. <code>martlet ring BUILDER plan</code> shows bytes and hours before.</p>
      <div class="field">
        <label for="ring-files">Ring files</label>
        <input id="ring-files" ref={input} type="file" multiple accept=".ring" onChange={() => void choose(input.current?.files ?? null)} />
      </div>
      {error && <Failure text={error} />}
      {chosen.length > 0 && (
        <Table label="Chosen rings" heads={["Ring", { right: "Epoch" }, { right: "Devices" }, { right: "Partitions" }, { right: "Moving" }]}>
          {chosen.map((one) => (
            <tr>
              <th scope="row">{one.name}</th>
              <td class="right">{used(one.name)?.epoch ?? "none"} → {one.head.epoch}</td>
              <td class="right">{used(one.name)?.devices ?? 0} → {one.head.devices}</td>
              <td class="right">{f.count(one.head.partitions)}</td>
              <td class="right">{f.count(one.head.moves)} replicas</td>
            </tr>
          ))}
        </Table>
      )}
      {chosen.map((one) => warning(one, used(one.name))).filter(Boolean).map((sentence) => <p class="reason">{sentence}</p>)}
    </Ask>
  );
}
