// Quota of a bucket or a tenant: its bounds beside the last count, and a dialog that changes the bounds.
import { useState } from "preact/hooks";
import { change, get, useLive } from "../api";
import * as f from "../format";
import { may, type Schemas } from "../session";
import { bound, countText, parseBytes, parseCount, sizeText } from "../units";
import { Ask, Card, Field, Loaded, Meter } from "./parts";

type Line = Schemas["QuotaLine"];
type Of = "bucket" | "tenant";

const PATHS = { bucket: "/admin/v1/bucket/quota", tenant: "/admin/v1/tenant/quota" } as const;

interface Row {
  name: string;
  held: number | null | undefined;
  most: number | null | undefined;
  show: (value: number) => string;
}

export function Quota({ of, name }: { of: Of; name: string }) {
  const live = useLive(() => get<Line>(PATHS[of], { [of]: name }), 30_000, [name]);
  const [setting, setSetting] = useState<Line>();
  const [counting, setCounting] = useState(false);
  const [error, setError] = useState("");
  const count = async () => {
    setCounting(true);
    setError("");
    try {
      await get<Line>("/admin/v1/bucket/usage", { bucket: name, now: true });
      await live.reload();
    } catch (thrown) {
      setError(thrown instanceof Error ? thrown.message : String(thrown));
    }
    setCounting(false);
  };
  const line = live.value.value;
  return (
    <Card
      title={of === "tenant" ? `Quota of the tenant ${name}` : "Quota"}
      note={line?.counted_ms ? `counted ${f.ago(Date.now() - line.counted_ms)}` : "not counted yet"}
      action={<>{may(`put ${PATHS[of]}`) && <button disabled={!line} onClick={() => setSetting(line)}>Change the quota</button>}</>}
    >
      <Loaded live={live}>{(it) => <Rows line={it} />}</Loaded>
      {of === "bucket" && <p class="row"><button disabled={counting} onClick={() => void count()}>{counting ? "Counting…" : "Count now"}</button><span class="note">A count reads the index of the bucket.</span></p>}
      {error && <p class="reason">{error}</p>}
      {setting && <Change of={of} line={setting} done={live.reload} close={() => setSetting(undefined)} />}
    </Card>
  );
}

function Rows({ line }: { line: Line }) {
  const rows: Row[] = [
    { name: "Bytes", held: line.bytes, most: line.bytes_max, show: f.bytes },
    { name: "Objects", held: line.objects, most: line.objects_max, show: f.count },
    { name: "Index", held: line.index, most: line.index_max, show: f.bytes },
  ];
  return (
    <div class="change">
      {rows.map(({ name, held, most, show }) => (
        <div class="change">
          <dl class="pairs">
            <dt>{name}</dt>
            <dd>{typeof held === "number" ? show(held) : "not counted"}{typeof most === "number" ? ` of ${show(most)}` : ", no limit"}</dd>
          </dl>
          {typeof most === "number" && typeof held === "number" && <Meter share={most > 0 ? held / most : 1} mark={1} label={`${name}: ${f.percent(most > 0 ? held / most : 1)} of the quota`} />}
        </div>
      ))}
    </div>
  );
}

function Change({ of, line, done, close }: { of: Of; line: Line; done: () => Promise<void>; close: () => void }) {
  const before = { bytes: sizeText(line.bytes_max), objects: countText(line.objects_max), index: sizeText(line.index_max) };
  const [bytes, setBytes] = useState(before.bytes);
  const [objects, setObjects] = useState(before.objects);
  const [index, setIndex] = useState(before.index);
  const save = async () => {
    await change("PUT", PATHS[of], {}, {
      name: line.name,
      bytes: bound(bytes, before.bytes, parseBytes),
      objects: bound(objects, before.objects, parseCount),
      index: bound(index, before.index, parseBytes),
    });
    await done();
  };
  return (
    <Ask title={`Quota of the ${of} ${line.name}`} verb="Save" run={save} close={close}>
      <p class="quiet">Beyond a quota, writes are refused within seconds. Reads and deletes always work, and nothing is deleted.</p>
      <Field label="Bytes" value={bytes} on={setBytes} hint="All versions and open uploads: 500GiB, or none." focus />
      <Field label="Objects" value={objects} on={setObjects} hint="Versions: a number, or none." />
      <Field label="Index" value={index} on={setIndex} hint="Bytes of keys and metadata; none: 1 GiB beside what the other limits allow." />
    </Ask>
  );
}
