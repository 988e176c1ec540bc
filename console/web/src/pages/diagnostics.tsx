// Diagnostics: memory, processor time and heap of this process, and an archive of the whole cluster for support.
import { useState } from "preact/hooks";
import { file, get, useLive } from "../api";
import * as f from "../format";
import { CpuProfile, HeapProfile } from "../process/cpu";
import { may, type Schemas } from "../session";
import { Card, Failure, Head, Loaded, Meter, Table } from "../ui/parts";
import { save } from "../ui/save";

export function Diagnostics() {
  return (
    <>
      <Head title="Diagnostics" lead="Processor time, heap and memory of this process, and an archive of all reachable processes for support." />
      {may("post /admin/v1/support-bundle") && <Support />}
      {may("post /admin/v1/profile/cpu") && <CpuProfile />}
      {may("post /admin/v1/profile/heap") && <HeapProfile />}
      <Memory />
    </>
  );
}

interface Both {
  profile: Schemas["MemoryProfile"];
  split: Schemas["MemoryLine"] | null | undefined;
}

async function memory(): Promise<Both> {
  const [profile, status] = await Promise.all([get<Schemas["MemoryProfile"]>("/admin/v1/profile/memory"), get<Schemas["ServerStatus"]>("/admin/v1/status")]);
  return { profile, split: status.memory };
}

function Memory() {
  const live = useLive(memory, 10_000, []);
  return (
    <Card title="Memory" note="as the kernel counts it" wide>
      <Loaded live={live}>
        {({ profile, split }) => (
          <>
            <p>
              <b>{f.bytes(profile.resident_bytes)}</b> in use, {f.bytes(profile.resident_bytes_max)} at most since the start, {f.bytes(profile.swapped_bytes)} swapped, by {f.count(profile.threads)} threads.
            </p>
            <Meter share={profile.resident_bytes / Math.max(1, profile.resident_bytes_max)} label={`${f.percent(profile.resident_bytes / Math.max(1, profile.resident_bytes_max))} of the highest use since the start`} />
            <dl class="pairs text">
              <dt>Allocator and stacks</dt>
              <dd>{f.bytes(profile.anonymous_bytes)}, {profile.allocator}</dd>
              <dt>Files</dt>
              <dd>{f.bytes(profile.file_bytes)}</dd>
              {split && <Split line={split} />}
            </dl>
            <Table label="Mappings" heads={["Mappings", { right: "Number" }, { right: "In use" }, { right: "Huge pages" }, { right: "Swapped" }, { right: "Address space" }]}>
              {profile.mappings.map((line) => (
                <tr>
                  <th scope="row">{line.kind}</th>
                  <td class="right">{f.count(line.count)}</td>
                  <td class="right">{f.bytes(line.resident_bytes)}</td>
                  <td class="right">{f.bytes(line.huge_bytes)}</td>
                  <td class="right">{f.bytes(line.swapped_bytes)}</td>
                  <td class="right">{f.bytes(line.virtual_bytes)}</td>
                </tr>
              ))}
            </Table>
          </>
        )}
      </Loaded>
    </Card>
  );
}

/** Split of the setting `memory`. */
function Split({ line }: { line: Schemas["MemoryLine"] }) {
  return (
    <>
      <dt>Setting <code>memory</code></dt>
      <dd>{f.bytes(line.memory_bytes)}: {f.bytes(line.body_bytes)} for bodies, {f.bytes(line.index_write_bytes)} for writes of the index, {f.bytes(line.index_cache_bytes)} for its cache</dd>
    </>
  );
}

function Support() {
  const [busy, setBusy] = useState(false);
  const [made, setMade] = useState("");
  const [error, setError] = useState("");
  const make = async () => {
    setBusy(true);
    setMade("");
    setError("");
    try {
      const reply = await file("/admin/v1/support-bundle", {});
      const name = /filename="([^"]+)"/.exec(reply.headers.get("content-disposition") ?? "")?.[1] ?? "martlet-support.tar.gz";
      const blob = await reply.blob();
      save(blob, name);
      setMade(`${name} has ${f.bytes(blob.size)}. Read it before you send it.`);
    } catch (thrown) {
      setError(thrown instanceof Error ? thrown.message : String(thrown));
    }
    setBusy(false);
  };
  return (
    <Card title="Archive for support" wide>
      <p>
        Status, rings, capacity and workers of the cluster, settings and metrics of each process that answers, and the last census of this process. No secrets, and no names of tenants, users, buckets, objects and keys; host names, addresses and paths are in it.
      </p>
      <p class="quiet">Its <code>index.json</code> gives the reason for each part that is missing. Logs of machines and the findings of <code>martlet doctor</code> are added by <code>martlet admin support-bundle</code> alone.</p>
      {error && <Failure text={error} />}
      <div class="row">
        <button class="primary" disabled={busy} onClick={() => void make()}>{busy ? "Asking all processes…" : "Make the archive"}</button>
        <span role="status">{made}</span>
      </div>
    </Card>
  );
}
