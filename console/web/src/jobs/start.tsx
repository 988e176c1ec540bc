// Dialog that starts a census, with the pause of `martlet admin census`.
import { useState } from "preact/hooks";
import { change } from "../api";
import { Ask, Field } from "../ui/parts";
import { parseSpan } from "../units";
import type { Job } from "./card";

export function StartCensus({ done, close }: { done: () => Promise<void>; close: () => void }) {
  const [pause, setPause] = useState("5ms");
  const start = async () => {
    await change<Job>("POST", "/admin/v1/jobs", {}, { kind: "census", pause_ms: parseSpan(pause) });
    await done();
  };
  return (
    <Ask title="Start a census" verb="Start" run={start} close={close}>
      <p>A census reads the index of every device and compares it with the rings. It pauses between pages, so that clients are served first.</p>
      <Field label="Pause" value={pause} on={setPause} required hint="Between two pages, 60s at most. A longer pause loads the cluster less." />
    </Ask>
  );
}
