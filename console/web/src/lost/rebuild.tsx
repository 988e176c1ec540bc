// Form of a rebuild: its scope, its consents, the dry run, and the dialog before entries are written.
import { useState } from "preact/hooks";
import { change, Refusal } from "../api";
import * as f from "../format";
import type { Job } from "../jobs/card";
import { Ask, Card, Check, Failure, Field } from "../ui/parts";
import { parseCount } from "../units";
import type { Rebuild } from "./report";

/** Scope and consents of a request. */
interface Request {
  bucket: string | null;
  partition: number | null;
  without_facts: boolean;
  uploads: boolean;
  latest: boolean;
  over_older: boolean;
}

/** Scope and consents in the words of the server, as its dry runs name them. */
export function scopeOf(request: Request): string {
  return [
    "dry run",
    request.bucket ? `bucket ${request.bucket}` : "",
    typeof request.partition === "number" ? `partition ${request.partition}` : "",
    request.without_facts ? "without facts" : "",
    request.uploads ? "uploads" : "",
    request.latest ? "latest" : "",
    request.over_older ? "over older" : "",
  ].filter(Boolean).join(", ");
}

export function RebuildCard({ last, started }: { last: Rebuild | null | undefined; started: () => Promise<void> }) {
  const [bucket, setBucket] = useState("");
  const [partition, setPartition] = useState("");
  const [consents, setConsents] = useState({ without_facts: false, uploads: false, latest: false, over_older: false });
  const [applying, setApplying] = useState<Request>();
  const [error, setError] = useState("");
  const consent = (name: keyof typeof consents) => ({ on: consents[name], set: (on: boolean) => setConsents({ ...consents, [name]: on }) });
  const request = (): Request => {
    const number = partition.trim() === "" ? null : parseCount(partition);
    if (number !== null && number > 0xffff_ffff) throw new Refusal(`the index ring has no partition ${number}`);
    return { ...consents, bucket: bucket.trim() || null, partition: number };
  };
  /** Reads the form, and hands the request on. */
  const withRequest = async (run: (request: Request) => void | Promise<void>) => {
    setError("");
    try {
      await run(request());
    } catch (thrown) {
      setError(thrown instanceof Error ? thrown.message : String(thrown));
    }
  };
  const start = async (wanted: Request, apply: boolean) => {
    await change<Job>("POST", "/admin/v1/jobs", {}, { kind: "index-rebuild", ...wanted, apply });
    await started();
  };
  const submit = (event: Event) => {
    event.preventDefault();
    void withRequest((wanted) => start(wanted, false));
  };
  return (
    <Card title="Rebuild" note="finds objects of lost partitions by their extents" wide>
      <p class="quiet">It needs the hold on collection. A dry run shows what would come back, and writes nothing. Each pass lists all extents of the cluster, also for one bucket.</p>
      <form class="change" onSubmit={submit}>
        <div class="filters">
          <Field label="Bucket" value={bucket} on={setBucket} hint="Empty: all buckets." />
          <Field label="Partition" value={partition} on={setPartition} hint="Of the index ring. Empty: those whose loss was accepted." />
        </div>
        <fieldset class="change">
          <legend>Consents</legend>
          <Check label="Uploads" hint="Parts 1 to n come back as an object, though the upload may not have been completed." {...consent("uploads")} />
          <Check label="Latest" hint="The order of births decides between several bodies of a key: one comes back, or all as versions." {...consent("latest")} />
          <Check label="Over older" hint="Bodies that were born after the entry of their key come back over it. A write that failed within the last day looks the same." {...consent("over_older")} />
          <Check label="Without facts" hint="Extents of releases that didn't record encryption: encrypted objects come back as ciphertext." {...consent("without_facts")} />
        </fieldset>
        {error && <Failure text={error} />}
        <div class="row">
          <button class="primary">Start a dry run</button>
          <button type="button" class="danger" onClick={() => void withRequest(setApplying)}>Write the entries</button>
        </div>
      </form>
      {applying && <Apply request={applying} last={last} run={() => start(applying, true)} close={() => setApplying(undefined)} />}
    </Card>
  );
}

function Apply({ request, last, run, close }: { request: Request; last: Rebuild | null | undefined; run: () => Promise<void>; close: () => void }) {
  const scope = scopeOf(request);
  const seen = last?.scope === scope ? last : undefined;
  return (
    <Ask title="Write the entries" verb="Write the entries" danger run={run} close={close}>
      <p>Objects come back under their keys, and clients see them at once. {request.over_older ? "Older entries are lost where a body was born after them." : "Nothing is written over an entry."}</p>
      <p>In buckets that keep versions, a version that is older than one that is back stays away for good. Decide on the consents before the first run there.</p>
      <ul class="reasons">
        <li>{seen ? `The last dry run of this scope found ${f.count(seen.objects)} objects of ${f.bytes(seen.bytes)}.` : `The last rebuild of this process was no dry run of this scope (${scope.replace(/^dry run,? ?/, "") || "all lost partitions"}): look at one first.`}</li>
      </ul>
    </Ask>
  );
}
