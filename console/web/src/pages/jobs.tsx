// Jobs: start a census, follow and cancel what runs.
import type { JSX } from "preact";
import { useState } from "preact/hooks";
import { change, get, useLive } from "../api";
import * as f from "../format";
import { may, type Schemas } from "../session";
import { Ask, Badge, Card, Empty, Head, Loaded, Meter, type Tone } from "../ui/parts";

type Job = Schemas["JobLine"];
const TONES: Record<string, Tone> = { running: "busy", done: "good", failed: "bad", cancelled: "calm" };

export function Jobs() {
  const live = useLive(() => get<{ items: Job[] }>("/admin/v1/jobs"), 3000, []);
  const [starting, setStarting] = useState(false);
  const [cancelling, setCancelling] = useState<Job>();
  const start = async () => {
    await change<Job>("POST", "/admin/v1/jobs", {}, { kind: "census" });
    await live.reload();
  };
  const cancel = async () => {
    await change<Job>("DELETE", "/admin/v1/job", { id: cancelling?.id });
    await live.reload();
  };
  return (
    <>
      <Head
        title="Jobs"
        lead="Long work of this process. A restart forgets all jobs."
        action={may("post /admin/v1/jobs") && <button class="primary" onClick={() => setStarting(true)}>Start a census</button>}
      />
      <Loaded live={live}>
        {({ items }) =>
          items.length === 0 ? (
            <Empty title="No jobs">A census compares all devices with the rings.</Empty>
          ) : (
            <>{items.map((job) => <Line job={job} cancel={() => setCancelling(job)} />)}</>
          )
        }
      </Loaded>
      {starting && (
        <Ask title="Start a census" verb="Start" run={start} close={() => setStarting(false)}>
          <p>A census reads the index of every device and compares it with the rings. It pauses between pages, so that clients are served first.</p>
        </Ask>
      )}
      {cancelling && (
        <Ask title={`Cancel the ${cancelling.kind}`} verb="Cancel the job" danger run={cancel} close={() => setCancelling(undefined)}>
          <p>Its progress is lost.</p>
        </Ask>
      )}
    </>
  );
}

function Line({ job, cancel }: { job: Job; cancel: () => void }) {
  const { done, total, text, unit } = job.progress;
  const running = job.state === "running";
  const share = total ? done / total : undefined;
  return (
    <Card wide>
      <header>
        <h2>{job.kind}{job.subject ? ` of ${job.subject}` : ""}</h2>
        <Badge tone={TONES[job.state] ?? "calm"}>{job.state}</Badge>
        <span class="note">
          {job.id}, began {f.date(job.started_ms)}
          {job.ended_ms ? `, took ${f.span((job.ended_ms - job.started_ms) / 1000)}` : ""}
          {job.eta_s !== undefined && job.eta_s !== null ? `, ${f.span(job.eta_s)} left` : ""}
        </span>
        {running && may("delete /admin/v1/job") && <button onClick={cancel}>Cancel</button>}
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
  const [report, setReport] = useState<string>();
  const show = async (event: JSX.TargetedToggleEvent<HTMLDetailsElement>) => {
    if (!event.currentTarget.open) return;
    try {
      const { detail } = await get<Job>("/admin/v1/job", { id: job.id });
      setReport(detail === undefined || detail === null ? "The job has no report yet." : JSON.stringify(detail, null, 2));
    } catch (thrown) {
      setReport(thrown instanceof Error ? thrown.message : String(thrown));
    }
  };
  return (
    <details onToggle={(event) => void show(event)}>
      <summary>Report</summary>
      {report !== undefined && <pre tabIndex={0}>{report}</pre>}
    </details>
  );
}
