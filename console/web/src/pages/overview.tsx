// Overview: readiness, capacity, requests and warnings.
import { signal } from "@preact/signals";
import { get, text, useLive } from "../api";
import * as f from "../format";
import { between, read, type Rates, type Reading } from "../metrics";
import type { Schemas } from "../session";
import { Chart, Donut } from "../ui/chart";
import { Badge, Card, Empty, Head, Loaded } from "../ui/parts";
import { Slices } from "../ui/pager";

const EVERY_MS = 5000;
const KEPT = 60;
// Rates outlive a change of the page, so that a chart is not empty on the way back.
const history = signal<Rates[]>([]);
let last: Reading | undefined;

async function sample(): Promise<Rates[]> {
  const reading = read(await text("/metrics"), Date.now());
  if (last && reading.atMs - last.atMs < EVERY_MS * 4) {
    const rates = between(last, reading);
    history.value = rates ? [...history.value, rates].slice(-KEPT) : [];
  } else {
    history.value = [];
  }
  last = reading;
  return history.value;
}

export function Overview() {
  const status = useLive(() => get<Schemas["ServerStatus"]>("/admin/v1/status"), EVERY_MS, []);
  const capacity = useLive(() => get<Schemas["Capacity"]>("/admin/v1/capacity"), 15_000, []);
  const rates = useLive(sample, EVERY_MS, []);
  return (
    <>
      <Head title="Overview" lead="Condition of the store, as this process sees it." />
      <div class="grid">
        <Loaded live={status}>{(it) => <Condition status={it} />}</Loaded>
        <Loaded live={capacity}>{(it) => <Space capacity={it} />}</Loaded>
        <Loaded live={rates}>{(it) => <Requests rates={it} />}</Loaded>
        <Warnings status={status.value.value} capacity={capacity.value.value} />
      </div>
    </>
  );
}

function Condition({ status }: { status: Schemas["ServerStatus"] }) {
  const nodes = status.nodes ?? [];
  const silent = nodes.filter((node) => !node.answers);
  return (
    <Card title="Readiness">
      <p class="verdict">
        <Badge tone={status.ready ? (status.reasons.length > 0 ? "warn" : "good") : "bad"}>{status.ready ? "Ready" : "Not ready"}</Badge>
      </p>
      {status.reasons.length > 0 ? (
        <ul class="reasons">{status.reasons.map((reason) => <li>{reason}</li>)}</ul>
      ) : (
        <p class="quiet">No problem is known.</p>
      )}
      <dl class="pairs">
        <dt>Process</dt>
        <dd>{status.role}</dd>
        <dt>Version</dt>
        <dd>{status.version}</dd>
        {nodes.length > 0 && <dt>Nodes</dt>}
        {nodes.length > 0 && <dd>{nodes.length - silent.length} of {nodes.length} answer</dd>}
      </dl>
    </Card>
  );
}

function Space({ capacity }: { capacity: Schemas["Capacity"] }) {
  const share = capacity.total_bytes > 0 ? capacity.used_bytes / capacity.total_bytes : 0;
  return (
    <Card title="Capacity">
      <div class="space">
        <Donut share={share} text={f.percent(share)} label={`${f.percent(share)} of the space is used`} />
        <dl class="pairs">
          <dt>Used</dt>
          <dd>{f.bytes(capacity.used_bytes)}</dd>
          <dt>Total</dt>
          <dd>{f.bytes(capacity.total_bytes)}</dd>
          <dt>Extents</dt>
          <dd>{f.bytes(capacity.extent_bytes)}</dd>
          <dt>Room to the first full device</dt>
          <dd>{f.bytes(capacity.writable_until_first_full_bytes)}</dd>
          <dt>Redundancy</dt>
          <dd>{capacity.redundancy === "replicated" || !capacity.redundancy ? `${capacity.replicas} ${capacity.replicas === 1 ? "copy" : "copies"}` : capacity.redundancy}</dd>
        </dl>
      </div>
    </Card>
  );
}

function Requests({ rates }: { rates: Rates[] }) {
  const of = (value: (rates: Rates) => number | null) => rates.map(value);
  const note = "of this process, measured since the page opened";
  const perSecond = (value: number) => `${f.compact(value)}/s`;
  return (
    <>
      <Card title="Requests" note={note}>
        <Chart label="Requests per second" series={[{ name: "Requests", values: of((it) => it.requests) }, { name: "Errors (5xx)", values: of((it) => it.errors) }]} format={perSecond} floor={1} />
      </Card>
      <Card title="Time to the first byte" note="upper bounds of the histogram">
        <Chart label="Latency" series={[{ name: "p99", values: of((it) => it.p99) }, { name: "Median", values: of((it) => it.p50) }]} format={f.latency} floor={0.001} />
      </Card>
      <Card title="Bytes" note="bodies of requests and replies">
        <Chart label="Bytes per second" series={[{ name: "Out", values: of((it) => it.bytesOut) }, { name: "In", values: of((it) => it.bytesIn) }]} format={(value) => `${f.bytes(value)}/s`} floor={1024} />
      </Card>
    </>
  );
}

function Warnings({ status, capacity }: { status: Schemas["ServerStatus"] | undefined; capacity: Schemas["Capacity"] | undefined }) {
  if (!status || !capacity) return null;
  const nodes = status.nodes ?? [];
  const members = status.members ?? [];
  const all = [
    ...nodes.filter((node) => !node.answers).map((node) => `Node ${node.name} does not answer.`),
    ...nodes.flatMap((node) => (node.report?.reasons ?? []).map((reason) => `${node.name}: ${reason}`)),
    ...members.flatMap((member) => member.reasons.map((reason) => `${member.role}: ${reason}`)),
    ...capacity.warnings,
  ];
  const different = [...new Set(all)];
  return (
    <Card title="Warnings">
      {different.length === 0 ? (
        <Empty title="All quiet">Nodes, devices and capacity have no warnings.</Empty>
      ) : (
        <Slices items={different} size={20} label="the warnings">{(shown) => <ul class="reasons">{shown.map((warning) => <li>{warning}</li>)}</ul>}</Slices>
      )}
    </Card>
  );
}
