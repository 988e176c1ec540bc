// Profile of processor time: taken for some seconds, and saved as a file.
import { useEffect, useState } from "preact/hooks";
import { file, Refusal } from "../api";
import * as f from "../format";
import { Card, Failure, Field, Select } from "../ui/parts";
import { save, stamp } from "../ui/save";
import { parseCount } from "../units";

const FORMATS = { pprof: "pb.gz", folded: "folded" } as const;
type Format = keyof typeof FORMATS;
const READERS: Record<Format, string> = { pprof: "go tool pprof", folded: "flamegraph.pl" };

export function CpuProfile() {
  const [seconds, setSeconds] = useState("30");
  const [frequency, setFrequency] = useState("99");
  const [format, setFormat] = useState<Format>("pprof");
  const [run, setRun] = useState<{ began: number; seconds: number }>();
  const [made, setMade] = useState<{ name: string; size: number; samples: string; format: Format }>();
  const [error, setError] = useState("");
  const take = async (event: Event) => {
    event.preventDefault();
    setError("");
    setMade(undefined);
    try {
      const query = { seconds: parseCount(seconds), frequency: parseCount(frequency), format };
      if (query.seconds < 1 || query.seconds > 60) throw new Refusal("a profile takes 1 to 60 seconds");
      setRun({ began: Date.now(), seconds: query.seconds });
      const reply = await file("/admin/v1/profile/cpu", query);
      const [blob, name] = [await reply.blob(), `martlet-cpu-${stamp(Date.now())}.${FORMATS[format]}`];
      save(blob, name);
      setMade({ name, size: blob.size, samples: reply.headers.get("x-martlet-samples") ?? "0", format });
    } catch (thrown) {
      setError(thrown instanceof Error ? thrown.message : String(thrown));
    }
    setRun(undefined);
  };
  return (
    <Card title="Processor time" note="of this process, by functions" wide>
      <p class="quiet">Threads that run are sampled. A profile names functions of the program, and has nothing of requests. One runs at a time, and the audit trail has it.</p>
      <form class="change" onSubmit={(event) => void take(event)}>
        <div class="filters">
          <Field label="Seconds" value={seconds} on={setSeconds} required hint="1 to 60." />
          <Field label="Samples per second" value={frequency} on={setFrequency} required hint="Of processor time, 1 to 999. Seconds times samples: 10,000 at most." />
          <Select label="Format" value={format} options={Object.keys(FORMATS)} on={(value) => setFormat(value as Format)} />
        </div>
        {error && <Failure text={error} />}
        <div class="row"><button class="primary" disabled={run !== undefined}>Take a profile</button></div>
      </form>
      {run && <Sampling began={run.began} seconds={run.seconds} />}
      <p role="status">{made && <>Saved {made.name}: {made.samples} samples, {f.bytes(made.size)}. <code>{READERS[made.format]} {made.name}</code> reads it.</>}</p>
    </Card>
  );
}

function Sampling({ began, seconds }: { began: number; seconds: number }) {
  const [now, setNow] = useState(Date.now());
  useEffect(() => {
    const timer = window.setInterval(() => setNow(Date.now()), 250);
    return () => window.clearInterval(timer);
  }, []);
  const left = seconds - (now - began) / 1000;
  return (
    <div class="change">
      <progress aria-label="Sampling" max={seconds} value={Math.min(seconds, (now - began) / 1000)} />
      <span class="note">{left > 0 ? `sampling, ${Math.ceil(left)} s left` : "reading the names of functions"}</span>
    </div>
  );
}
