// One bucket for operators and admins of its tenant: settings, quota, rewrite, rewrap, checkpoint rules and sets.
import { useState } from "preact/hooks";
import { change, get, useLive } from "../api";
import { Jobs, useJobs, type Job } from "../jobs/card";
import { follow } from "../route";
import { may, type Schemas } from "../session";
import { Ask, Card, Field, Head, Loaded, Select } from "../ui/parts";
import { Quota } from "../ui/quota";
import { parseBytes } from "../units";
import { CheckpointRules, CheckpointSets } from "./checkpoints";
import { Extents } from "./extents";
import { Rewrap } from "./rewrap";

type Line = Schemas["BucketLine"];

const LEVELS: Record<string, string> = {
  available: "A quorum, else any replica.",
  strict: "A quorum, else an error.",
  any: "Reads from the first good replica.",
};

export function BucketPage({ bucket }: { bucket: string }) {
  return (
    <>
      <nav class="trail" aria-label="Path"><ol><li><a href="/buckets" onClick={(event) => follow(event, "/buckets")}>Buckets</a></li><li aria-current="page">{bucket}</li></ol></nav>
      <Head title={bucket} lead="Settings beyond those of S3, quota, and work on the whole bucket." />
      <div class="grid">
        <Settings bucket={bucket} />
        <Quota of="bucket" name={bucket} />
      </div>
      {may("get /admin/v1/jobs") && <Rewrite bucket={bucket} />}
      {may("get /admin/v1/jobs") && <Rewrap bucket={bucket} />}
      <CheckpointRules bucket={bucket} />
      <CheckpointSets bucket={bucket} />
      {may("get /admin/v1/extents") && <Extents bucket={bucket} />}
    </>
  );
}

function Settings({ bucket }: { bucket: string }) {
  const live = useLive(() => get<Line>("/admin/v1/bucket", { bucket }), 30_000, []);
  const policies = useLive(() => get<Schemas["PolicyLine"][]>("/admin/v1/policies"), 0, []);
  const [changing, setChanging] = useState<Line>();
  return (
    <Card title="Settings" action={<>{may("put /admin/v1/bucket") && <button disabled={!live.value.value} onClick={() => setChanging(live.value.value)}>Change the settings</button>}</>}>
      <Loaded live={live}>
        {(line) => (
          <dl class="pairs">
            <dt>Consistency</dt>
            <dd>{line.consistency}</dd>
            <dt>Storage policy of new objects</dt>
            <dd>{line.storage_policy}</dd>
            <dt>ETags of new objects</dt>
            <dd>{line.etags}</dd>
            <dt>Shards of the index</dt>
            <dd>{line.index_shards}</dd>
            <dt>Id</dt>
            <dd><code class="copy">{line.id}</code></dd>
          </dl>
        )}
      </Loaded>
      {changing && <ChangeSettings line={changing} policies={(policies.value.value ?? []).map((one) => one.name)} done={live.reload} close={() => setChanging(undefined)} />}
    </Card>
  );
}

function ChangeSettings({ line, policies, done, close }: { line: Line; policies: string[]; done: () => Promise<void>; close: () => void }) {
  const [level, setLevel] = useState(line.consistency);
  const [policy, setPolicy] = useState(line.storage_policy);
  const [etags, setEtags] = useState(line.etags);
  const changed = <T,>(value: T, before: T): T | undefined => (value === before ? undefined : value);
  const save = async () => {
    const query = { consistency: changed(level, line.consistency), storage_policy: changed(policy, line.storage_policy), etags: changed(etags, line.etags) };
    if (Object.values(query).every((one) => one === undefined)) return;
    await change("PUT", "/admin/v1/bucket", { bucket: line.bucket, ...query });
    await done();
  };
  return (
    <Ask title={`Settings of ${line.bucket}`} verb="Save" run={save} close={close}>
      <Select label="Consistency" value={level} options={Object.keys(LEVELS)} on={setLevel} />
      <p class="note">{LEVELS[level]} For requests that name none.</p>
      <Select label="Storage policy" value={policy} options={[...new Set([line.storage_policy, ...policies])]} on={setPolicy} />
      {policy !== line.storage_policy && <p class="note">Objects that exist keep theirs until a rewrite.</p>}
      <Select label="ETags" value={etags} options={["md5", "opaque"]} on={setEtags} />
      {etags === "opaque" && <p class="note">Clients that compare ETags with MD5s need md5. Opaque ones save the MD5 of each body.</p>}
    </Ask>
  );
}

function Rewrite({ bucket }: { bucket: string }) {
  const live = useJobs((job) => job.kind === "rewrite" && job.subject === bucket);
  const [open, setOpen] = useState(false);
  const [rate, setRate] = useState("");
  const running = live.value.value?.some((job) => job.state === "running") ?? false;
  const start = async () => {
    await change<Job>("POST", "/admin/v1/jobs", {}, { kind: "rewrite", bucket, bytes_per_s: rate.trim() === "" ? null : parseBytes(rate) });
    await live.reload();
  };
  return (
    <>
      <Card title="Rewrite" note="moves objects to the bucket's present storage policy" wide action={<>{may("post /admin/v1/jobs") && <button disabled={running} onClick={() => setOpen(true)}>Start a rewrite</button>}</>}>
        <p>Clients see the same objects before, during and after a rewrite. One that ends early is started again: it skips moved objects.</p>
      </Card>
      <Jobs live={live} none={<></>} />
      {open && (
        <Ask title={`Rewrite ${bucket}`} verb="Start" run={start} close={() => setOpen(false)}>
          <p>Objects under another storage policy are read, written under the present one, and then removed from the old place.</p>
          <Field label="Bytes per second" value={rate} on={setRate} hint="Such as 200MiB, at least 1MiB. Empty: unlimited while clients don't wait." focus />
        </Ask>
      )}
    </>
  );
}
