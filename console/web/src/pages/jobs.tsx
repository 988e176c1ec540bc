// Jobs: what runs and what ended, of all kinds.
import { useState } from "preact/hooks";
import { Jobs as JobCards, useJobs } from "../jobs/card";
import { StartCensus } from "../jobs/start";
import { may } from "../session";
import { Empty, Head } from "../ui/parts";

export function Jobs() {
  const live = useJobs(() => true);
  const [starting, setStarting] = useState(false);
  return (
    <>
      <Head
        title="Jobs"
        lead="Long work of this process. A restart forgets all jobs."
        action={may("post /admin/v1/jobs") && <button class="primary" onClick={() => setStarting(true)}>Start a census</button>}
      />
      <JobCards live={live} none={<Empty title="No jobs">A census compares all devices with the rings. Rewrites start on the page of a bucket, and pushes on that of rings.</Empty>} />
      {starting && <StartCensus done={live.reload} close={() => setStarting(false)} />}
    </>
  );
}
