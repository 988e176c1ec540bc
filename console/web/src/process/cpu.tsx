// Profiles of processor time and of the heap: taken for some seconds, and saved as a file.
import { useEffect, useState } from "preact/hooks";
import { file, Refusal } from "../api";
import * as f from "../format";
import { Card, Failure, Field, Select } from "../ui/parts";
import { save, stamp } from "../ui/save";
import { parseCount } from "../units";

const FORMATS = { pprof: "pb.gz", folded: "folded" } as const;
type Format = keyof typeof FORMATS;
const READERS: Record<Format, string> = { pprof: "go tool pprof", folded: "flamegraph.pl" };

interface Kind {
  route: string;
  file: string;
  title: string;
  lead: string;
  button: string;
  /** Name of the distance of samples in the request, its label, first value and hint. */
  rate: string;
  label: string;
  first: string;
  hint: string;
}

const CPU: Kind = {
  route: "/admin/v1/profile/cpu",
  file: "martlet-cpu",
  title: "Processor time",
  lead: "Threads that run are sampled. A profile names functions of the program, and has nothing of requests. One runs at a time, and the audit trail has it.",
  button: "Take a profile",
  rate: "frequency",
  label: "Samples per second",
  first: "99",
  hint: "Of processor time, 1 to 999. Seconds times samples: 10,000 at most.",
};

const HEAP: Kind = {
  route: "/admin/v1/profile/heap",
  file: "martlet-heap",
  title: "Heap",
  lead: "Allocations during these seconds are sampled: which functions made them, and which are in use at the end. Memory from before is not in the profile, and neither is that of RocksDB.",
  button: "Take a profile of the heap",
  rate: "interval",
  label: "Bytes between two samples",
  first: "524288",
  hint: "A mean, 16384 to 1073741824.",
};

export function CpuProfile() {
  return <Profile kind={CPU} />;
}

export function HeapProfile() {
  return <Profile kind={HEAP} />;
}

function Profile({ kind }: { kind: Kind }) {
  const [seconds, setSeconds] = useState("30");
  const [rate, setRate] = useState(kind.first);
  const [format, setFormat] = useState<Format>("pprof");
  const [run, setRun] = useState<{ began: number; seconds: number }>();
  const [made, setMade] = useState<{ name: string; size: number; samples: string; format: Format }>();
  const [error, setError] = useState("");
  const take = async (event: Event) => {
    event.preventDefault();
    setError("");
    setMade(undefined);
    try {
      const query = { seconds: parseCount(seconds), [kind.rate]: parseCount(rate), format };
      if (query.seconds < 1 || query.seconds > 60) throw new Refusal("a profile takes 1 to 60 seconds");
      setRun({ began: Date.now(), seconds: query.seconds });
      const reply = await file(kind.route, query);
      const [blob, name] = [await reply.blob(), `${kind.file}-${stamp(Date.now())}.${FORMATS[format]}`];
      save(blob, name);
      setMade({ name, size: blob.size, samples: reply.headers.get("x-martlet-samples") ?? "0", format });
    } catch (thrown) {
      setError(thrown instanceof Error ? thrown.message : String(thrown));
    }
    setRun(undefined);
  };
  return (
    <Card title={kind.title} note="of this process, by functions" wide>
      <p class="quiet">{kind.lead}</p>
      <form class="change" aria-label={kind.title} onSubmit={(event) => void take(event)}>
        <div class="filters">
          <Field label="Seconds" value={seconds} on={setSeconds} required hint="1 to 60." />
          <Field label={kind.label} value={rate} on={setRate} required hint={kind.hint} />
          <Select label="Format" value={format} options={Object.keys(FORMATS)} on={(value) => setFormat(value as Format)} />
        </div>
        {error && <Failure text={error} />}
        <div class="row"><button class="primary" disabled={run !== undefined}>{kind.button}</button></div>
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
