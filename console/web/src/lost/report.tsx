// Report of a rebuild: what is back, what would come back, what stays away, and buckets whose register is lost.
import { useState } from "preact/hooks";
import * as f from "../format";
import { may, type Schemas } from "../session";
import { Badge, Table } from "../ui/parts";
import { Slices } from "../ui/pager";
import { Adopt } from "./adopt";

export type Rebuild = Schemas["RebuildLine"];

export function rebuildOf(job: Schemas["JobLine"]): Rebuild | undefined {
  const detail = job.detail as Rebuild | null | undefined;
  return job.kind === "index-rebuild" && detail?.unknown_buckets !== undefined && detail.refused !== undefined ? detail : undefined;
}

/** Reasons of the server, as people read them. */
const REASONS: Record<string, string> = {
  encrypted: "encrypted, and their data keys were in the lost entries",
  incomplete: "an extent or the end of the body is missing",
  unreadable: "an extent has too few good copies or fragments",
  "no-facts": "written by a release without facts: Without facts accepts them",
  upload: "parts of uploads, completed or not: Uploads accepts them",
  pieces: "pieces of moved multipart objects, whose manifests are lost",
  several: "several bodies of a key: Latest accepts the order of their births",
  behind: "older than a version that is back: get their bytes from their extents",
  suspended: "versions were suspended: enable versioning of the bucket first",
};

/** What a rebuild left out: the bytes of these are deleted after the hold. */
export function leftOut(line: Rebuild): string {
  const refused = Object.values(line.refused).reduce((sum, count) => sum + count, 0);
  return [
    `${f.count(line.uncertain)} copies with an unknown owner`,
    `${f.count(line.failed)} failed keys`,
    `${f.count(refused)} refused bodies`,
    `${f.count(line.older)} older bodies`,
    `${f.count(line.taken_extents ?? 0)} extents of keys that have an entry`,
    `${f.count(line.unknown_buckets.length)} lost buckets`,
  ].join(", ");
}

export function RebuildReport({ line }: { line: Rebuild }) {
  const { findings = [] } = line;
  const sorted = Object.entries(line.refused).sort((a, b) => b[1] - a[1]);
  return (
    <div class="change">
      <p class="verdict">
        <Badge tone={line.applied ? "good" : "calm"}>{line.applied ? "Entries were written" : "Dry run: nothing was written"}</Badge>
      </p>
      <dl class="pairs text">
        <dt>Scope</dt>
        <dd>{line.scope || "unknown"}</dd>
        <dt>{line.applied ? "Objects that are back" : "Objects that would come back"}</dt>
        <dd>{f.count(line.objects)}, {f.bytes(line.bytes)}</dd>
        <dt>Copies listed</dt>
        <dd>{f.count(line.listed)}</dd>
        <dt>Extents without an entry</dt>
        <dd>{f.count(line.unowned)}, of {f.count(line.keys)} keys</dd>
        <dt>Keys with an entry</dt>
        <dd>{f.count(line.taken)}, whose entry stays; {f.count(line.taken_extents ?? 0)} of their extents have none, and {f.count(line.newer ?? 0)} of their bodies are newer</dd>
        <dt>Older bodies</dt>
        <dd>{f.count(line.older)} stay away</dd>
      </dl>
      <ul class="reasons">
        {line.uncertain > 0 && <li>{f.count(line.uncertain)} copies have an unknown owner: run it again once all devices answer.</li>}
        {line.deleted > 0 && <li>{f.count(line.deleted)} extents were deleted before.</li>}
        {line.failed > 0 && <li>{f.count(line.failed)} keys failed: run it again. {line.failure}</li>}
        {sorted.map(([reason, count]) => <li>{f.count(count)} bodies stay away: {REASONS[reason] ?? reason}.</li>)}
      </ul>
      <Unknown line={line} />
      {findings.length > 0 && (
        <details>
          <summary>{findings.length >= 1000 ? "The first 1,000 findings" : `${f.count(findings.length)} findings`}</summary>
          <Slices items={findings} size={50} label="the findings">
            {(shown) => <ul class="findings" aria-label="Findings of the rebuild">{shown.map((finding) => <li>{finding}</li>)}</ul>}
          </Slices>
        </details>
      )}
    </div>
  );
}

/** Buckets that extents name and no register. */
function Unknown({ line }: { line: Rebuild }) {
  const [adopting, setAdopting] = useState("");
  const [made, setMade] = useState("");
  if (line.unknown_buckets.length === 0) return null;
  const can = may("put /admin/v1/index/bucket");
  return (
    <>
      <h3>Lost buckets</h3>
      {made && <p class="farewell" role="status">{made} The next rebuild looks at its keys.</p>}
      <Slices items={line.unknown_buckets} size={50} label="the lost buckets">
        {(shown) => (
          <Table label="Lost buckets" heads={["Id", { right: "Copies" }, "One of its keys", { right: "Change" }]}>
            {shown.map((one) => (
              <tr>
                <th scope="row"><code class="copy">{one.id}</code></th>
                <td class="right">{f.count(one.copies)}</td>
                <td class="names"><code>{one.key}</code></td>
                <td class="right">{can && <button onClick={() => setAdopting(one.id)} aria-label={`Make the bucket ${one.id}`}>Make it</button>}</td>
              </tr>
            ))}
          </Table>
        )}
      </Slices>
      {adopting && <Adopt id={adopting} done={setMade} close={() => setAdopting("")} />}
    </>
  );
}
