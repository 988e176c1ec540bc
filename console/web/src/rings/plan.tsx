// Dry run of a rebalance: its moves, their cost, and the rebalance that follows it.
import { useEffect, useState } from "preact/hooks";
import { get } from "../api";
import * as f from "../format";
import { Ask, Badge, Card, Failure, Field, Table } from "../ui/parts";
import { Slices } from "../ui/pager";
import { parseBytes } from "../units";
import { may, type Schemas } from "../session";
import { numberOf, plan, rebalance, type Basis, type Plan, type PlanWishes, type Work } from "./builder";

/** Fullness of all devices that report to this process. */
async function usage(): Promise<PlanWishes["usage"]> {
  const status = await get<Schemas["ServerStatus"]>("/admin/v1/status");
  const reports = [status, ...(status.nodes ?? []).map((node) => node.report)];
  const devices = reports.flatMap((report) => report?.devices ?? []);
  return Object.fromEntries(devices.map((device) => [device.device, { used: Math.max(0, device.total_bytes - device.free_bytes), capacity: device.total_bytes }]));
}

export function DryRun({ work }: { work: Work }) {
  const [pace, setPace] = useState("100MB");
  const [mark, setMark] = useState("0.9");
  const [full, setFull] = useState(may("get /admin/v1/status"));
  const [found, setFound] = useState<{ plan: Plan; options: PlanWishes; of: Basis }>();
  const [error, setError] = useState("");
  const [busy, setBusy] = useState(false);
  const [asking, setAsking] = useState(false);
  // A plan is that of the changes before it.
  useEffect(() => {
    setFound(undefined);
    setAsking(false);
    setError("");
  }, [work.base, work.changes]);
  const show = async (event: Event) => {
    event.preventDefault();
    setBusy(true);
    setFound(undefined);
    try {
      const options = { usage: full ? await usage() : {}, bytes_per_s: parseBytes(pace), high_water: numberOf(mark, "write 0.9 for nine tenths") };
      setFound({ plan: await plan(options, work), options, of: work });
      setError("");
    } catch (thrown) {
      setError(thrown instanceof Error ? thrown.message : String(thrown));
    }
    setBusy(false);
  };
  return (
    <Card title="Dry run" note="what a rebalance moves; nothing changes" wide>
      <form class="stack" onSubmit={(event) => void show(event)}>
        <div class="filters">
          <Field label="Bytes per second and device" value={pace} on={setPace} required />
          <Field label="Warn above this fullness" value={mark} on={setMark} required />
        </div>
        {may("get /admin/v1/status") && <label><input type="checkbox" checked={full} onChange={(event) => setFull(event.currentTarget.checked)} /> With the present fullness of the cluster's devices, for bytes and hours</label>}
        <div class="row">
          <button class="primary" disabled={busy}>{busy ? "Computing …" : "Show the plan"}</button>
          <button type="button" disabled={!found || busy} onClick={() => setAsking(true)}>Rebalance</button>
          {!found && <span class="note">A rebalance follows its plan: show the plan first.</span>}
        </div>
      </form>
      {error && <Failure text={error} />}
      {found && <PlanView plan={found.plan} />}
      {asking && found && (
        <Ask title="Rebalance" verb="Rebalance" run={async () => await rebalance(found.options, found.of)} close={() => setAsking(false)}>
          <p>{found.plan.sentence}.</p>
          <p>The builder in this tab changes. Data moves after the ring is pushed.</p>
        </Ask>
      )}
    </Card>
  );
}

export function PlanView({ plan }: { plan: Plan }) {
  return (
    <section class="change" aria-label="Plan">
      <p role="status"><b>{plan.sentence}</b></p>
      <dl class="pairs text">
        <dt>Replicas that are copied</dt>
        <dd>{f.count(plan.replicas)} of {f.count(plan.partitions)} partitions</dd>
        <dt>Bytes that are copied</dt>
        <dd>{typeof plan.bytes === "number" ? f.bytes(plan.bytes) : "unknown without the fullness of devices"}</dd>
        <dt>Time of the busiest device</dt>
        <dd>{typeof plan.hours === "number" ? f.span(plan.hours * 3600) : "unknown"}</dd>
        <dt>Worst deviation afterwards</dt>
        <dd>{plan.balance.toFixed(2)} %</dd>
        <dt>Too close together afterwards</dt>
        <dd>{plan.dispersion.toFixed(2)} %</dd>
        <dt>Further rebalances</dt>
        <dd>{plan.rebalances_to_go}{plan.locked > 0 && <> <Badge tone="warn">{f.count(plan.locked)} partitions wait for a settle</Badge></>}</dd>
      </dl>
      {plan.warnings.length > 0 && <ul class="reasons" aria-label="Warnings">{plan.warnings.slice(0, 50).map((warning) => <li>{warning}</li>)}</ul>}
      {plan.devices.length > 0 && (
        <Slices items={plan.devices} size={50} label="the moves">
          {(shown) => (
            <Table label="Moves of the plan" heads={["Device", "Place", { right: "Before" }, { right: "In" }, { right: "Out" }, { right: "After" }, { right: "Bytes in" }, { right: "Bytes out" }, { right: "Peak" }]}>
              {shown.map((device) => (
                <tr>
                  <th scope="row">d{device.device}</th>
                  <td class="wrap">{device.place}</td>
                  {[device.before, device.coming, device.going, device.after].map((count) => <td class="right">{f.count(count)}</td>)}
                  {[device.bytes_in, device.bytes_out].map((bytes) => <td class="right">{typeof plan.bytes === "number" ? f.bytes(bytes) : "–"}</td>)}
                  <td class="right">{typeof device.peak === "number" ? f.percent(device.peak) : "–"}</td>
                </tr>
              ))}
            </Table>
          )}
        </Slices>
      )}
    </section>
  );
}
