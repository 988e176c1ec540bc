// Index after all copies of some partitions are lost: hold, acceptance, adopted buckets, rebuild and release.
import { useState } from "preact/hooks";
import { get, useLive } from "../api";
import * as f from "../format";
import { Jobs, useJobs, type Job } from "../jobs/card";
import { Adopt } from "../lost/adopt";
import { RebuildCard } from "../lost/rebuild";
import { RebuildReport, rebuildOf } from "../lost/report";
import { StateCard, type State } from "../lost/state";
import { may } from "../session";
import { Card, Empty, Head, Loaded } from "../ui/parts";

const isOf = (job: Job): boolean => job.kind.startsWith("index-");

export function LostIndex() {
  const state = useLive(() => get<State>("/admin/v1/index"), 5000, []);
  const running = useJobs((job) => isOf(job) && job.state === "running");
  const last = useLive(lastRebuild, 5000, []);
  const [adopting, setAdopting] = useState(false);
  const [made, setMade] = useState("");
  const reload = async () => {
    await Promise.all([running.reload(), state.reload(), last.reload()]);
  };
  return (
    <>
      <Head
        title="Lost index"
        lead="The way back after all copies of some partitions of the index are lost. The bytes of objects remain, and name their keys."
        action={<>{may("put /admin/v1/index/bucket") && <button onClick={() => setAdopting(true)}>Make a lost bucket</button>}</>}
      />
      {made && <p class="farewell" role="status">{made}</p>}
      <StateCard live={state} started={reload} />
      <Jobs live={running} none={<></>} />
      {may("post /admin/v1/jobs") && <RebuildCard last={state.value.value?.last_rebuild} started={reload} />}
      <Card title="Last rebuild of this process" wide>
        <Loaded live={last}>
          {({ job }) => {
            const line = job && rebuildOf(job);
            if (!job || !line) return <Empty title="No rebuild yet">A restart of the process forgets earlier ones.</Empty>;
            return (
              <>
                <p class="note">{job.id}, {job.state}{job.ended_ms ? ` ${f.date(job.ended_ms)}` : ""}</p>
                {job.error && <p class="reason">{job.error}</p>}
                <RebuildReport line={line} />
              </>
            );
          }}
        </Loaded>
      </Card>
      {adopting && <Adopt id="" done={setMade} close={() => setAdopting(false)} />}
    </>
  );
}

/** Last rebuild that ended. Its report is requested once. */
let known: Job | undefined;
async function lastRebuild(): Promise<{ job: Job | undefined }> {
  const { items } = await get<{ items: Job[] }>("/admin/v1/jobs");
  const ended = items.filter((job) => job.kind === "index-rebuild" && job.state !== "running").sort((a, b) => b.started_ms - a.started_ms)[0];
  if (!ended) return { job: undefined };
  if (known?.id !== ended.id) known = await get<Job>("/admin/v1/job", { id: ended.id });
  return { job: known };
}
