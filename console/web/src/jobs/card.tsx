// One job: state, progress, and the report of its kind.
import type { JSX } from "preact";
import { useState } from "preact/hooks";
import { change, get, useLive, type Live } from "../api";
import * as f from "../format";
import { getOf, type ProcessName } from "../process/choice";
import { may, type Schemas } from "../session";
import { Ask, Badge, Card, Failure, Loaded, Meter, type Tone } from "../ui/parts";
import { CensusFindings, censusOf } from "./census";
import { RebuildReport, rebuildOf } from "../lost/report";
import { PushAnswers, pushOf } from "./push";

/** Job, with the process that has it; none for this one. */
export type Job = Schemas["JobLine"] & { process?: ProcessName };
const TONES: Record<string, Tone> = { running: "busy", done: "good", failed: "bad", cancelled: "calm" };
const LOST: Record<string, string> = {
  census: "Its counts are lost. Nothing else changes.",
  rewrite: "Objects that were moved stay moved. Another rewrite goes on with the rest.",
  rewrap: "Versions that were rewrapped stay so. Another rewrap goes on with the rest.",
  "bucket-count": "The last count stays. Nothing else changes.",
  "index-rebuild": "Objects that are back stay. The next rebuild begins from the start, and finds them in the index.",
  "index-accept-loss": "The hold on collection stays. Devices that have their votes already keep them.",
  "ring-push": "Nodes that have the rings keep them, and others fetch the rings from those.",
};

/** Running jobs and the last ended ones, newest first, of some kinds. */
export function useJobs(wanted: (job: Job) => boolean): Live<Job[]> {
  return useLive(async () => (await get<{ items: Job[] }>("/admin/v1/jobs")).items.filter(wanted), 3000, []);
}

export function Jobs({ live, none }: { live: Live<Job[]>; none: JSX.Element }) {
  const [cancelling, setCancelling] = useState<Job>();
  const cancel = async () => {
    await change<Job>("DELETE", "/admin/v1/job", { id: cancelling?.id });
    await live.reload();
  };
  return (
    <>
      <Loaded live={live}>{(items) => (items.length === 0 ? none : <>{items.map((job) => <JobCard key={`${job.process?.process ?? ""} ${job.id}`} job={job} cancel={() => setCancelling(job)} />)}</>)}</Loaded>
      {cancelling && (
        <Ask title={`Cancel the ${cancelling.kind}${cancelling.subject ? ` of ${cancelling.subject}` : ""}`} verb="Cancel the job" danger run={cancel} close={() => setCancelling(undefined)}>
          <p>{LOST[cancelling.kind] ?? "Its progress is lost."}</p>
        </Ask>
      )}
    </>
  );
}

function JobCard({ job, cancel }: { job: Job; cancel: () => void }) {
  const { done, total, text, unit } = job.progress;
  const running = job.state === "running";
  const share = total ? done / total : undefined;
  return (
    <Card wide>
      <header>
        <h2>{job.kind}{job.subject ? ` of ${job.subject}` : ""}</h2>
        <Badge tone={TONES[job.state] ?? "calm"}>{job.state}</Badge>
        <span class="note">
          {job.process ? `${job.process.process}, ` : ""}{job.id}, began {f.date(job.started_ms)}
          {job.ended_ms ? `, took ${f.span((job.ended_ms - job.started_ms) / 1000)}` : ""}
          {job.eta_s !== undefined && job.eta_s !== null ? `, ${f.span(job.eta_s)} left` : ""}
        </span>
        {running && (job.process?.own ?? true) && may("delete /admin/v1/job") && <button onClick={cancel}>Cancel</button>}
      </header>
      {running && share !== undefined && <Meter share={share} label={`${f.percent(share)} done`} />}
      <p>{text || (total ? `${f.count(done)} of ${f.count(total)} ${unit}` : `${f.count(done)} ${unit}`)}</p>
      {job.error && <p class="reason">{job.error}</p>}
      <Report job={job} />
    </Card>
  );
}

/** Report of a job, which is requested when it is opened: one of many nodes is large. */
function Report({ job }: { job: Job }) {
  const [report, setReport] = useState<Job>();
  const [error, setError] = useState("");
  const load = async () => {
    try {
      setReport(await getOf<Job>(job.process, "/admin/v1/job", { id: job.id }));
      setError("");
    } catch (thrown) {
      setError(thrown instanceof Error ? thrown.message : String(thrown));
    }
  };
  return (
    <details onToggle={(event: JSX.TargetedToggleEvent<HTMLDetailsElement>) => void (event.currentTarget.open && load())}>
      <summary>Report</summary>
      {error && <Failure text={error} />}
      {report && (
        <>
          <ReportOf job={report} />
          {job.state === "running" && <button onClick={() => void load()}>Show the newest figures</button>}
        </>
      )}
    </details>
  );
}

export function ReportOf({ job }: { job: Job }) {
  const census = censusOf(job);
  if (census) return <CensusFindings report={census} />;
  const answers = pushOf(job);
  if (answers) return <PushAnswers answers={answers} />;
  const rebuild = rebuildOf(job);
  if (rebuild) return <RebuildReport line={rebuild} />;
  if (job.detail === undefined || job.detail === null) return <p class="quiet">The job has no report yet.</p>;
  return <Figures detail={job.detail as Record<string, unknown>} />;
}

/** Figures of a rewrite or rewrap, by the names of the API. */
function Figures({ detail }: { detail: Record<string, unknown> }) {
  const shown = (name: string, value: unknown) => {
    if (typeof value !== "number") return String(value);
    if (name.includes("bytes")) return f.bytes(value);
    if (name.endsWith("_per_s")) return f.count(value);
    return name.endsWith("_s") ? f.span(value) : f.count(value);
  };
  return (
    <dl class="pairs text">
      {Object.entries(detail).filter(([, value]) => value !== null).map(([name, value]) => (
        <>
          <dt>{name.replace(/_per_s$/, "_per_second").replace(/_(s)$/, "").replace(/_/g, " ")}</dt>
          <dd>{shown(name, value)}</dd>
        </>
      ))}
    </dl>
  );
}
