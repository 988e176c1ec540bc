// Jobs of one process or of all: what runs and what ended, of all kinds.
import { useState } from "preact/hooks";
import { useLive, type Live, type Round } from "../api";
import { Jobs as JobCards, useJobs, type Job } from "../jobs/card";
import { StartCensus } from "../jobs/start";
import { getOfAll, MissingProcesses, ProcessSelect, useProcesses, type ProcessName, type ProcessReply } from "../process/choice";
import { may } from "../session";
import { Card, Empty, Head } from "../ui/parts";

type JobList = { items: Job[] };

export function Jobs() {
  const processes = useProcesses("/admin/v1/jobs", true);
  const [starting, setStarting] = useState(false);
  const close = () => setStarting(false);
  return (
    <>
      <Head
        title="Jobs"
        lead="Long work of processes. A restart of a process forgets its jobs."
        action={may("post /admin/v1/jobs") && <button class="primary" onClick={() => setStarting(true)}>Start a census</button>}
      />
      {processes.options.length > 0 && <Card wide><div class="filters"><ProcessSelect choice={processes} /></div></Card>}
      {processes.chosen === undefined ? <OwnJobs starting={starting} close={close} /> : <JobsOf key={processes.name} processes={processes.chosen} starting={starting} close={close} />}
    </>
  );
}

interface Starting {
  starting: boolean;
  close: () => void;
}

function OwnJobs({ starting, close }: Starting) {
  const live = useJobs(() => true);
  return <Shown live={live} starting={starting} close={close} />;
}

/** Jobs of other processes too, the newest first. They are cancelled at their own process. */
function JobsOf({ processes, starting, close }: Starting & { processes: ProcessName[] }) {
  const [replies, setReplies] = useState<ProcessReply<JobList>[]>([]);
  const made = (replies: ProcessReply<JobList>[]) => {
    setReplies(replies);
    const jobs = replies.flatMap(({ process, value }) => (value?.items ?? []).map((job) => ({ ...job, process })));
    return jobs.sort((one, other) => other.started_ms - one.started_ms);
  };
  const load = async (round: Round<Job[]>) => await getOfAll<JobList, Job[]>(processes, "/admin/v1/jobs", () => ({}), round, made);
  const live = useLive<Job[]>(load, 5000, []);
  return (
    <>
      <MissingProcesses replies={replies} />
      <Shown live={live} starting={starting} close={close} />
    </>
  );
}

function Shown({ live, starting, close }: Starting & { live: Live<Job[]> }) {
  return (
    <>
      <JobCards live={live} none={<Empty title="No jobs">A census compares all devices with the rings. Rewrites start on the page of a bucket, and pushes on that of rings.</Empty>} />
      {starting && <StartCensus done={live.reload} close={close} />}
    </>
  );
}
