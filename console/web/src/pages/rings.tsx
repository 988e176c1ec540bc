// Rings: balance, dispersion, changes with their progress, the rings of each node, and pushes of new ones.
import { useState } from "preact/hooks";
import { get, useLive } from "../api";
import * as f from "../format";
import { Jobs, useJobs } from "../jobs/card";
import { BUILD, BuildRing, OpenBuilder } from "../rings/build";
import { Crowded } from "../rings/crowded";
import { PushRings } from "../rings/push";
import { follow, parameters } from "../route";
import { may, type Schemas } from "../session";
import { Badge, Card, Empty, Head, Loaded, Meter, Table } from "../ui/parts";
import { Slices } from "../ui/pager";

interface View {
  spread: Schemas["RingSpread"][];
  status: Schemas["ServerStatus"];
  workers: Schemas["ProcessWorkers"][];
}

/** Workers that bring replicas to their new holders. */
const MOVERS = ["replicate-index", "replicate-data", "reconstruct", "sync", "update", "ring-change"];

async function load(): Promise<View> {
  const [spread, status, workers] = await Promise.all([
    get<Schemas["RingSpread"][]>("/admin/v1/dispersion"),
    get<Schemas["ServerStatus"]>("/admin/v1/status"),
    get<Schemas["ProcessWorkers"][]>("/admin/v1/workers"),
  ]);
  return { spread, status, workers };
}

export function Rings() {
  if (parameters.value.get("view") === "build" && may("post /admin/v1/ring-builder")) return <BuildRing />;
  return <RingsInUse />;
}

function RingsInUse() {
  const live = useLive(load, 5_000, []);
  const pushes = useJobs((job) => job.kind === "ring-push");
  const [pushing, setPushing] = useState(false);
  return (
    <>
      <Head
        title="Rings"
        lead="Placement of replicas on devices, and the ring changes that are under way."
        action={
          <div class="row">
            {may("post /admin/v1/ring-builder") && <a class="button" href={BUILD} onClick={(event) => follow(event, BUILD)}>Build a ring</a>}
            {may("post /admin/v1/jobs") && <button class="primary" disabled={!live.value.value} onClick={() => setPushing(true)}>Push rings</button>}
          </div>
        }
      />
      <OpenBuilder />
      <Jobs live={pushes} none={<></>} />
      <Loaded live={live}>{(view) => <View view={view} />}</Loaded>
      {pushing && live.value.value && <PushRings spread={live.value.value.spread} done={pushes.reload} close={() => setPushing(false)} />}
    </>
  );
}

function View({ view: { spread, status, workers } }: { view: View }) {
  const moves = (status.moves ?? []).filter((line) => line.replicas_moving > 0 || (line.change && line.change.phase !== "new"));
  return (
    <>
      <Card title="Rings" wide>
        <Table label="Rings" heads={["Ring", { right: "Epoch" }, { right: "Devices" }, { right: "Partitions" }, { right: "Replicas" }, { right: "Worst deviation" }, { right: "Too close together" }, { right: "Moving" }]}>
          {spread.map((ring) => (
            <tr>
              <th scope="row">{ring.ring}</th>
              <td class="right">{f.count(ring.epoch)} <small class="quiet">{ring.hash}</small></td>
              <td class="right">{f.count(ring.devices)}</td>
              <td class="right">{f.count(ring.partitions)}</td>
              <td class="right">{ring.replicas}</td>
              <td class="right">{ring.balance.toFixed(1)} %</td>
              <td class="right">{ring.dispersion.toFixed(2)} %</td>
              <td class="right">{f.count(ring.replicas_moving)}</td>
            </tr>
          ))}
        </Table>
      </Card>
      <Card title="Changes" wide>
        {status.waiting_epoch ? <p><Badge tone="busy">Epoch {status.waiting_epoch} waits for the change before it</Badge></p> : null}
        {moves.length === 0 ? (
          <Empty title="Nothing moves">All replicas are where the rings place them.</Empty>
        ) : (
          <>
            {moves.map((line) => <Change line={line} />)}
            <Movers processes={workers} />
            <p class="note">Rings name their moves until a clean census, after which <i>Settle the moves</i> of their builder, or <code>martlet ring BUILDER settle</code>, records that all have arrived.</p>
          </>
        )}
      </Card>
      <NodeRings status={status} />
      {spread.filter((ring) => ring.worst.length > 0 && ring.balance >= 0.1).map((ring) => (
        <Card title={`Furthest from their share in ${ring.ring}`} wide>
          <Table label={`Furthest from their share in ${ring.ring}`} heads={["Device", "Place", { right: "Replicas" }, { right: "Share" }, { right: "Deviation" }]}>
            {ring.worst.map((device) => (
              <tr>
                <th scope="row">d{device.device}</th>
                <td>{device.place}</td>
                <td class="right">{f.count(device.replicas)}</td>
                <td class="right">{f.count(Math.round(device.desired))}</td>
                <td class="right">{device.deviation.toFixed(1)} %</td>
              </tr>
            ))}
          </Table>
        </Card>
      ))}
      {spread.map((ring) => <Crowded ring={ring.ring} places={ring.crowded} />)}
    </>
  );
}

/** Meaning of the phases of a change, as docs/RING.md defines them. */
const PHASES: Record<string, string> = {
  waiting: "The change before it ends first.",
  old: "The holders before the move decide until the receivers have their votes. A device that does not answer delays that.",
  joint: "Holders before and after the move decide together until the receivers have all of theirs.",
  new: "The holders after the move decide, and workers clear up.",
};

function Change({ line }: { line: Schemas["MovesLine"] }) {
  const still = line.replicas > 0 ? 1 - line.replicas_moving / line.replicas : 1;
  const { change } = line;
  return (
    <div class="change">
      <p class="row">
        <b>{line.ring}</b>
        {change && <Badge tone="busy">phase {change.phase}</Badge>}
        <span>{f.count(line.replicas_moving)} of {f.count(line.replicas)} replicas move</span>
        {change && <span>{change.joined} of {change.receivers} receivers have all of theirs</span>}
      </p>
      {change && change.receivers > 0 ? (
        <Meter share={change.joined / change.receivers} label={`${f.percent(change.joined / change.receivers)} of the receivers have all of theirs`} />
      ) : (
        <Meter share={still} label={`${f.percent(still)} of the replicas stay where they are`} />
      )}
      {change && PHASES[change.phase] && <p class="note">{PHASES[change.phase]}</p>}
    </div>
  );
}

/** Progress of the workers that move replicas, and the time left of the slowest. */
function Movers({ processes }: { processes: Schemas["ProcessWorkers"][] }) {
  const all = processes.flatMap(({ process, workers }) => workers.filter((one) => MOVERS.includes(one.worker)).map((worker) => ({ process, worker })));
  const busy = all.filter(({ worker }) => !worker.idle || worker.backlog + (worker.ahead ?? 0) > 0 || worker.error);
  const known = busy.map(({ worker }) => worker.eta_s).filter((eta): eta is number => typeof eta === "number");
  if (all.length === 0) return <p class="reason">No process shows workers: nothing moves until a replicator runs.</p>;
  return (
    <>
      <p>{busy.length === 0 ? "The workers have nothing left of this pass." : known.length > 0 ? `${known.length < busy.length ? "At least" : "About"} ${f.span(Math.max(...known))} left at the present rate.` : "The time left is not known yet."}</p>
      {busy.length > 0 && (
        <Slices items={busy} size={50} label="the workers">
          {(shown) => (
            <Table label="Workers that move replicas" heads={["Process", "Worker", { right: "Items/s" }, { right: "Left" }, { right: "Copied" }, { right: "Time left" }]}>
              {shown.map(({ process, worker }) => (
                <tr>
                  <th scope="row">{process}</th>
                  <td>{worker.worker}{worker.error && <p class="reason">{worker.error}</p>}</td>
                  <td class="right">{f.compact(worker.rate)}</td>
                  <td class="right">{f.compact(worker.backlog + (worker.ahead ?? 0))}</td>
                  <td class="right">{f.bytes(worker.copied_bytes ?? 0)}</td>
                  <td class="right">{typeof worker.eta_s === "number" ? f.span(worker.eta_s) : "–"}</td>
                </tr>
              ))}
            </Table>
          )}
        </Slices>
      )}
    </>
  );
}

/** The value that occurs most often; the first by its text of several. */
function mostCommon(all: string[]): string | undefined {
  const counts = new Map<string, number>();
  for (const one of all) counts.set(one, (counts.get(one) ?? 0) + 1);
  return [...counts].sort(([a, few], [b, many]) => many - few || (a < b ? -1 : 1))[0]?.[0];
}

/** Rings of each node, as `martlet admin ring status` shows them. Nodes with an older one, or another of one epoch, come first. */
function NodeRings({ status }: { status: Schemas["ServerStatus"] }) {
  const nodes = status.nodes ?? [];
  if (nodes.length === 0) return null;
  const newest = new Map<string, number>();
  for (const ring of nodes.flatMap((node) => node.rings)) newest.set(ring.name, Math.max(ring.epoch, newest.get(ring.name) ?? 0));
  const names = [...newest.keys()].sort((a, b) => (a === "index" ? -1 : b === "index" ? 1 : a.localeCompare(b, undefined, { numeric: true })));
  const isOld = (node: Schemas["NodeLine"], name: string) => (node.rings.find((ring) => ring.name === name)?.epoch ?? -1) < (newest.get(name) ?? 0);
  const common = new Map(names.map((name) => [name, mostCommon(nodes.flatMap((node) => node.rings.filter((ring) => ring.name === name && ring.epoch === newest.get(name)).map((ring) => ring.hash)))]));
  const isOther = (ring: Schemas["RingLine"]) => ring.epoch === newest.get(ring.name) && ring.hash !== common.get(ring.name);
  const rank = (node: Schemas["NodeLine"]) => (node.answers ? (names.some((name) => isOld(node, name)) || node.rings.some(isOther) ? 1 : 2) : 0);
  const sorted = [...nodes].sort((a, b) => rank(a) - rank(b) || a.name.localeCompare(b.name, undefined, { numeric: true }));
  return (
    <Card title="Rings of the nodes" note="as they announced them last" wide>
      <Slices items={sorted} size={50} label="the nodes">
        {(shown) => (
          <Table label="Rings of the nodes" heads={["Node", "State", ...names]}>
            {shown.map((node) => (
              <tr>
                <th scope="row">{node.name} <small class="quiet">{node.address}</small></th>
                <td><Badge tone={node.answers ? "good" : "bad"}>{node.answers ? "answers" : "silent"}</Badge></td>
                {names.map((name) => {
                  const ring = node.rings.find((one) => one.name === name);
                  if (!ring) return <td class="quiet">none</td>;
                  return <td>{ring.epoch} <small class="quiet">{ring.hash}</small>{isOld(node, name) && <> <Badge tone="warn">old</Badge></>}{isOther(ring) && <> <Badge tone="bad">other ring</Badge></>}</td>;
                })}
              </tr>
            ))}
          </Table>
        )}
      </Slices>
    </Card>
  );
}
