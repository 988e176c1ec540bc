// Uploads of this page, with their progress. They go on while other pages of the console are open.
import { useEffect } from "preact/hooks";
import * as f from "../format";
import { cancel, clear, resume, transfers, type State, type Transfer } from "../s3/upload";
import { Badge, type Tone } from "../ui/parts";

const TONES: Record<State, Tone> = { waiting: "calm", running: "busy", interrupted: "warn", failed: "bad", done: "good", cancelled: "calm" };

export function Transfers() {
  const all = transfers.value;
  const running = all.some(({ state }) => state.value === "running" || state.value === "waiting");
  useEffect(() => {
    if (!running) return undefined;
    const warn = (event: BeforeUnloadEvent) => event.preventDefault();
    window.addEventListener("beforeunload", warn);
    return () => window.removeEventListener("beforeunload", warn);
  }, [running]);
  if (all.length === 0) return null;
  return (
    <aside class="transfers" aria-label="Uploads">
      <div class="row">
        <h2>Uploads</h2>
        <span role="status">{all.filter(({ state }) => state.value === "done").length} of {all.length} done</span>
        <button onClick={clear}>Clear the list</button>
      </div>
      <ul>{all.map((transfer) => <Line transfer={transfer} />)}</ul>
    </aside>
  );
}

function Line({ transfer }: { transfer: Transfer }) {
  const { key, bucket, file } = transfer;
  const [state, sent, error] = [transfer.state.value, transfer.sent.value, transfer.error.value];
  const open = state === "running" || state === "waiting" || state === "interrupted" || (state === "failed" && transfer.upload !== undefined);
  return (
    <li>
      <div class="row">
        <span class="name" title={`${bucket}/${key}`}>{key}</span>
        <Badge tone={TONES[state]}>{state}</Badge>
        <span class="quiet">{f.bytes(sent)} of {f.bytes(file.size)}</span>
        {(state === "interrupted" || state === "failed") && <button onClick={() => resume(transfer)} aria-label={`Resume ${key}`}>Resume</button>}
        {open && <button onClick={() => void cancel(transfer)} aria-label={`Cancel ${key}`}>Cancel</button>}
      </div>
      {state === "running" && <progress max={Math.max(1, file.size)} value={sent} aria-label={`Progress of ${key}`} />}
      {error && <span class="reason" role="alert">{error}</span>}
    </li>
  );
}
