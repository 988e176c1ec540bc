// Begin of the work on a builder: a file, a new ring, or a lost builder that comes back from its ring.
import { useRef, useState } from "preact/hooks";
import * as f from "../format";
import { Ask, Card, Failure, Field, Select } from "../ui/parts";
import { parseCount } from "../units";
import { begin, FILE_BYTES_MAX, numberOf } from "./builder";
import { base64 } from "./push";

export function Begin() {
  const input = useRef<HTMLInputElement>(null);
  const [error, setError] = useState("");
  const [dialog, setDialog] = useState<"new" | "lost">();
  const choose = async (file: File | undefined) => {
    setError("");
    if (!file) return;
    try {
      if (file.size > FILE_BYTES_MAX) throw new Error(`${file.name} has more than ${f.bytes(FILE_BYTES_MAX)}: use martlet ring`);
      await begin({ builder: await file.text() }, file.name);
    } catch (thrown) {
      setError(`${file.name}: ${thrown instanceof Error ? thrown.message : String(thrown)}`);
    }
    if (input.current) input.current.value = "";
  };
  return (
    <Card title="Open a builder" wide>
      <p>A builder is the file from which the rings of one storage policy are made. The server keeps none: open the newest file, and keep the one that you download here in its place.</p>
      <div class="field">
        <label for="builder-file">Builder file</label>
        <input id="builder-file" ref={input} type="file" accept=".builder,.json" onChange={(event) => void choose(event.currentTarget.files?.[0])} />
      </div>
      {error && <Failure text={error} />}
      <div class="row">
        <button onClick={() => setDialog("new")}>New ring</button>
        <button onClick={() => setDialog("lost")}>The builder is lost</button>
      </div>
      {dialog === "new" && <NewRing close={() => setDialog(undefined)} />}
      {dialog === "lost" && <Lost close={() => setDialog(undefined)} />}
    </Card>
  );
}

const KINDS = ["copies", "erasure code"] as const;

function NewRing({ close }: { close: () => void }) {
  const [ring, setRing] = useState("data-0");
  const [power, setPower] = useState("16");
  const [kind, setKind] = useState<string>(KINDS[0]);
  const [replicas, setReplicas] = useState("3");
  const [code, setCode] = useState("4+2");
  const [name, setName] = useState("");
  const [hours, setHours] = useState("24");
  const [overload, setOverload] = useState("0");
  const make = async () => {
    const policy = /^(?:index|data-(0|[1-9][0-9]{0,4}))$/.exec(ring.trim());
    if (!policy) throw new Error(`"${ring}" is no ring: write index, or data-0 for the first storage policy`);
    const coded = kind === KINDS[1];
    const source = {
      create: {
        part_power: parseCount(power),
        replicas: coded ? null : numberOf(replicas, "write 3, or 2.5 for three of half of the partitions"),
        erasure: coded ? code.trim() : null,
        min_part_hours: parseCount(hours),
        overload: numberOf(overload, "write 0.1 for a tenth"),
        policy: Number(policy[1] ?? 0),
        policy_name: name.trim() || null,
      },
    };
    await begin(source, ring.trim());
  };
  return (
    <Ask title="New ring" verb="Create" run={make} close={close}>
      <p>A new ring never follows another one: for more devices of a cluster, open its builder.</p>
      <Field label="Ring" value={ring} on={setRing} required hint="index, or data- and the number of its storage policy" />
      <Field label="Name of the storage policy" value={name} on={setName} hint="For policy 0 it may be left out: default" />
      <Field label="Part power" value={power} on={setPower} required hint="2^16 partitions serve 1,000 devices; 20 at most here" />
      <Select label="Redundancy" value={kind} options={KINDS} on={setKind} />
      {kind === KINDS[0] ? <Field label="Copies" value={replicas} on={setReplicas} required /> : <Field label="Code" value={code} on={setCode} required hint="4+2: four data and two parity fragments" />}
      <Field label="Hours between two moves of a partition" value={hours} on={setHours} required />
      <Field label="Overload" value={overload} on={setOverload} required hint="Share by which a device may exceed its own, such as 0.1" />
    </Ask>
  );
}

function Lost({ close }: { close: () => void }) {
  const input = useRef<HTMLInputElement>(null);
  const [hours, setHours] = useState("24");
  const [overload, setOverload] = useState("0");
  const make = async () => {
    const file = input.current?.files?.[0];
    if (!file) throw new Error("choose the ring file that is in use");
    await begin({ reconstruct: { file: await base64(file), min_part_hours: parseCount(hours), overload: numberOf(overload, "write 0.1 for a tenth") } }, file.name);
  };
  return (
    <Ask title="Recreate a builder" verb="Recreate" run={make} close={close}>
      <p>A ring file has devices, assignment and moves. It lacks the history and the two settings below.</p>
      <div class="field">
        <label for="lost-ring">Ring file in use</label>
        <input id="lost-ring" ref={input} type="file" accept=".ring" />
      </div>
      <Field label="Hours between two moves of a partition" value={hours} on={setHours} required />
      <Field label="Overload" value={overload} on={setOverload} required hint="Share by which a device may exceed its own, such as 0.1" />
    </Ask>
  );
}
