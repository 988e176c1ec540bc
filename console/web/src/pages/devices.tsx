// Devices as a picture: zones, their nodes, and the fullness of each device.
import { useState } from "preact/hooks";
import { get, useLive } from "../api";
import * as f from "../format";
import type { Schemas } from "../session";
import { Badge, Card, Empty, Field, Head, Loaded, Meter, Select, type Tone } from "../ui/parts";
import { Slices } from "../ui/pager";

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

const ORDER = new Intl.Collator(undefined, { numeric: true });
/** Devices in the document at a time: a cluster may have 60,000. */
const SHOWN = 120;
const ALL = "all";
const FULL = "near the mark or above it";
const TROUBLE = "not ready";

const zoneOf = ({ region, zone }: Capacity): string => (zone === undefined || zone === null ? "Outside of the rings" : `Region ${region}, zone ${zone}`);

/** Runs of neighbours with one name. */
function runs<T>(items: readonly T[], by: (item: T) => string): [string, T[]][] {
  const found: [string, T[]][] = [];
  for (const item of items) {
    const last = found[found.length - 1];
    if (last && last[0] === by(item)) last[1].push(item);
    else found.push([by(item), [item]]);
  }
  return found;
}

/** Devices in the order of zones, nodes and names. */
function ordered(devices: readonly Capacity[]): Capacity[] {
  return [...devices].sort((a, b) => ORDER.compare(zoneOf(a), zoneOf(b)) || ORDER.compare(a.node, b.node) || ORDER.compare(a.name, b.name) || a.device - b.device);
}

const healthOf = (line: Schemas["DeviceLine"] | undefined): string => line?.health ?? "unknown";

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
  const [text, setText] = useState("");
  const [which, setWhich] = useState(ALL);
  const reports = [status, ...(status.nodes ?? []).flatMap((node) => (node.report ? [node.report] : []))];
  const lines = new Map(reports.flatMap((report) => (report.devices ?? []).map((line) => [line.device, line] as const)));
  const wanted = (device: Capacity) => {
    if (text && ![device.node, device.name, `d${device.device}`, zoneOf(device)].some((name) => name.toLowerCase().includes(text.toLowerCase()))) return false;
    if (which === TROUBLE) return healthOf(lines.get(device.device)) !== "ready";
    return which !== FULL || device.fullness_peak >= device.high_water * 0.9;
  };
  const devices = ordered(capacity.devices.filter(wanted));
  const counts = new Map<string, number>();
  for (const device of devices) counts.set(zoneOf(device), (counts.get(zoneOf(device)) ?? 0) + 1);
  const silent = capacity.silent ?? [];
  return (
    <>
      {silent.length > 0 && (
        <Card title="Without a report" note="their devices are left out below" wide>
          <Slices items={silent} size={SHOWN} label="the silent nodes">{(shown) => <p class="row">{shown.map((node) => <Badge tone="bad">{node}</Badge>)}</p>}</Slices>
        </Card>
      )}
      <div class="filters">
        <Field label="Node, device or zone" value={text} on={setText} />
        <Select label="Devices" value={which} options={[ALL, TROUBLE, FULL]} on={setWhich} />
      </div>
      {capacity.devices.length === 0 && <Empty title="No devices">No storage node has reported its devices yet.</Empty>}
      {capacity.devices.length > 0 && devices.length === 0 && <Empty title="No device matches">{`${f.count(capacity.devices.length)} devices are left out.`}</Empty>}
      <Slices items={devices} size={SHOWN} label="the devices">
        {(shown) =>
          runs(shown, zoneOf).map(([zone, own]) => (
            <Card title={zone} note={`${f.count(counts.get(zone) ?? 0)} ${counts.get(zone) === 1 ? "device" : "devices"}`} wide>
              <div class="nodes">
                {runs(own, (device) => device.node).map(([node, tiles]) => (
                  <section class="node" aria-label={`Node ${node}`}>
                    <h3>{node}</h3>
                    <div class="tiles">{tiles.map((device) => <Tile device={device} line={lines.get(device.device)} />)}</div>
                  </section>
                ))}
              </div>
            </Card>
          ))
        }
      </Slices>
    </>
  );
}

function Tile({ device, line }: { device: Capacity; line: Schemas["DeviceLine"] | undefined }) {
  const health = healthOf(line);
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
