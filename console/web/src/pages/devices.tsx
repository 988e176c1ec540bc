// Devices as a picture: zones, their nodes, and the fullness of each device.
import { get, useLive } from "../api";
import * as f from "../format";
import type { Schemas } from "../session";
import { Badge, Card, Empty, Head, Loaded, Meter, type Tone } from "../ui/parts";

type Capacity = Schemas["DeviceCapacity"];
interface View {
  capacity: Schemas["Capacity"];
  status: Schemas["ServerStatus"];
}

const TONES: Record<string, Tone> = { ready: "good", full: "warn", suspect: "bad", offline: "bad" };

async function load(): Promise<View> {
  const [capacity, status] = await Promise.all([
    get<Schemas["Capacity"]>("/admin/v1/capacity"),
    get<Schemas["ServerStatus"]>("/admin/v1/status"),
  ]);
  return { capacity, status };
}

function grouped<T>(items: readonly T[], by: (item: T) => string): [string, T[]][] {
  const groups = new Map<string, T[]>();
  for (const item of items) groups.set(by(item), [...(groups.get(by(item)) ?? []), item]);
  return [...groups].sort(([a], [b]) => a.localeCompare(b, undefined, { numeric: true }));
}

export function Devices() {
  const live = useLive(load, 10_000, []);
  return (
    <>
      <Head title="Devices" lead="Fullness now, and after all pending moves. The line marks the fullness from which a device accepts no new bytes." />
      <Loaded live={live}>{(view) => <Picture view={view} />}</Loaded>
    </>
  );
}

function Picture({ view: { capacity, status } }: { view: View }) {
  const reports = [status, ...(status.nodes ?? []).flatMap((node) => (node.report ? [node.report] : []))];
  const lines = new Map(reports.flatMap((report) => (report.devices ?? []).map((line) => [line.device, line] as const)));
  const zones = grouped(capacity.devices, (device) =>
    device.zone === undefined || device.zone === null ? "Outside of the rings" : `Region ${device.region}, zone ${device.zone}`,
  );
  const silent = capacity.silent ?? [];
  return (
    <>
      {silent.length > 0 && (
        <Card title="Without a report" note="their devices are left out below">
          <p class="row">{silent.map((node) => <Badge tone="bad">{node}</Badge>)}</p>
        </Card>
      )}
      {zones.length === 0 && <Empty title="No devices">No storage node has reported its devices yet.</Empty>}
      {zones.map(([zone, devices]) => (
        <Card title={zone} note={`${devices.length} ${devices.length === 1 ? "device" : "devices"}`} wide>
          <div class="nodes">
            {grouped(devices, (device) => device.node).map(([node, own]) => (
              <section class="node" aria-label={`Node ${node}`}>
                <h3>{node}</h3>
                <div class="tiles">{own.map((device) => <Tile device={device} line={lines.get(device.device)} />)}</div>
              </section>
            ))}
          </div>
        </Card>
      ))}
    </>
  );
}

function Tile({ device, line }: { device: Capacity; line: Schemas["DeviceLine"] | undefined }) {
  const health = line?.health ?? "unknown";
  const moves = device.bytes_in + device.bytes_out > 0;
  return (
    <article class="tile">
      <header>
        <b>{device.name || `d${device.device}`}</b>
        <Badge tone={TONES[health] ?? "calm"}>{health}</Badge>
      </header>
      <Meter share={device.fullness} peak={device.fullness_peak} mark={device.high_water} label={`${f.percent(device.fullness)} full, ${f.percent(device.fullness_projected)} after moves`} />
      <p class="figures">
        <b>{f.percent(device.fullness)}</b> of {f.bytes(device.total_bytes)}
        {moves && <span> → {f.percent(device.fullness_projected)}</span>}
      </p>
      {line?.reason && <p class="reason">{line.reason}</p>}
      <p class="quiet">
        {f.compact(device.replicas)} replicas
        {line ? `, ${f.compact(line.extents)} extents` : ""}
        {line && line.quarantined > 0 ? `, ${f.count(line.quarantined)} in quarantine` : ""}
        {line && line.hints > 0 ? `, ${f.count(line.hints)} hints` : ""}
      </p>
    </article>
  );
}
