// Rewrap of the data keys of a bucket's encrypted objects, as a job of the process.
import { useState } from "preact/hooks";
import { change } from "../api";
import { Jobs, useJobs, type Job } from "../jobs/card";
import { may } from "../session";
import { Card, Failure, Field } from "../ui/parts";
import { parseCount } from "../units";

export function Rewrap({ bucket }: { bucket: string }) {
  const live = useJobs((job) => job.kind === "rewrap" && job.subject === bucket);
  const [rate, setRate] = useState("");
  const [error, setError] = useState("");
  const running = live.value.value?.some((job) => job.state === "running") ?? false;
  const start = async (event: Event) => {
    event.preventDefault();
    // A form is also sent by the key Enter.
    if (running) return;
    setError("");
    try {
      await change<Job>("POST", "/admin/v1/jobs", {}, { kind: "rewrap", bucket, versions_per_s: rate.trim() === "" ? null : parseCount(rate) });
      await live.reload();
    } catch (thrown) {
      setError(thrown instanceof Error ? thrown.message : String(thrown));
    }
  };
  return (
    <>
      <Card title="Rewrap" note="wraps the data keys of encrypted objects with the first master key" wide>
        <p>Needed after a change of the master key, once every proxy lists the new key before the old one. It moves no data. One that ends early is started again: it skips finished versions.</p>
        {may("post /admin/v1/jobs") && (
          <form class="row end" onSubmit={(event) => void start(event)}>
            <Field label="Versions per second" value={rate} on={setRate} hint="Empty: unlimited while clients don't wait." />
            <button disabled={running}>Rewrap the keys</button>
          </form>
        )}
        {error && <Failure text={error} />}
      </Card>
      <Jobs live={live} none={<></>} />
    </>
  );
}
