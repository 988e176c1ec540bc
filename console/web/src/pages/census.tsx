// Census and quarantine: is every replica where it belongs, and which bytes contradict themselves.
import { useState } from "preact/hooks";
import { get, useLive } from "../api";
import * as f from "../format";
import { censusOf, CensusFindings } from "../jobs/census";
import { Jobs, useJobs, type Job } from "../jobs/card";
import { StartCensus } from "../jobs/start";
import { QuarantinedItems } from "../process/quarantine";
import { follow } from "../route";
import { may, type Schemas } from "../session";
import { Card, Empty, Head, Loaded, Table } from "../ui/parts";
import { Slices } from "../ui/pager";

export function Census() {
  const live = useJobs((job) => job.kind === "census" && job.state === "running");
  const last = useLive(lastReport, 10_000, []);
  const [starting, setStarting] = useState(false);
  const reload = async () => {
    await live.reload();
    await last.reload();
  };
  return (
    <>
      <Head
        title="Census"
        lead="A rebalance, a drain or a repair is done when a census is clean."
        action={may("post /admin/v1/jobs") && <button class="primary" onClick={() => setStarting(true)}>Start a census</button>}
      />
      <Jobs live={live} none={<></>} />
      <Card title="Last census of this process" wide>
        <Loaded live={last}>
          {({ job }) => {
            const report = job && censusOf(job);
            if (!job || !report) return <Empty title="No census yet">A restart of the process forgets earlier ones.</Empty>;
            return (
              <>
                <p class="note">{job.id}, ended {job.ended_ms ? f.date(job.ended_ms) : "just now"}</p>
                <CensusFindings report={report} />
              </>
            );
          }}
        </Loaded>
      </Card>
      {may("get /admin/v1/status") && <Quarantine />}
      {starting && <StartCensus done={reload} close={() => setStarting(false)} />}
    </>
  );
}

/** Last census that ended with a report. */
async function lastReport(): Promise<{ job: Job | undefined }> {
  const { items } = await get<{ items: Job[] }>("/admin/v1/jobs");
  const ended = items.filter((job) => job.kind === "census" && job.state === "done").sort((a, b) => b.started_ms - a.started_ms)[0];
  return { job: ended && (await get<Job>("/admin/v1/job", { id: ended.id })) };
}

interface Held {
  node: string;
  device: Schemas["DeviceLine"];
}

/** Devices of the process itself and of its nodes. A node that is this process is there once. */
function devicesOf(status: Schemas["ServerStatus"]): Held[] {
  const own = { name: status.role ?? "this process", report: status };
  const found = new Map<number, Held>();
  for (const { name, report } of [own, ...(status.nodes ?? [])]) {
    for (const device of report?.devices ?? []) found.set(device.device, { node: name, device });
  }
  return [...found.values()];
}

function Quarantine() {
  const live = useLive(() => get<Schemas["ServerStatus"]>("/admin/v1/status"), 30_000, []);
  return (
    <Card title="Quarantine" note="files and records that contradict themselves: neither served nor deleted" wide>
      <Loaded live={live}>
        {(status) => {
          const held = devicesOf(status).filter(({ device }) => device.quarantined > 0);
          const silent = (status.nodes ?? []).filter((node) => !node.report);
          return (
            <>
              {silent.length > 0 && <p class="reason">{silent.length === 1 ? "One node does" : `${f.count(silent.length)} nodes do`} not report, and may have more.</p>}
              {held.length === 0 ? <Empty title="Nothing is in quarantine">All devices that report are without contradictions.</Empty> : <HeldDevices held={held} />}
            </>
          );
        }}
      </Loaded>
    </Card>
  );
}

function nameOf(device: Schemas["DeviceLine"]): string {
  return device.name || `d${device.device}`;
}

function HeldDevices({ held }: { held: Held[] }) {
  const [shownOf, setShownOf] = useState<Held>();
  const sorted = [...held].sort((a, b) => b.device.quarantined - a.device.quarantined);
  return (
    <>
      <Slices items={sorted} size={50} label="the quarantine">
        {(shown) => (
          <Table label="Quarantine" heads={["Node", "Device", { right: "Items" }, "Folder on the node", { right: "List" }]}>
            {shown.map((one) => (
              <tr>
                <th scope="row">{one.node}</th>
                <td>{nameOf(one.device)}</td>
                <td class="right">{f.count(one.device.quarantined)}</td>
                <td><code class="copy">{`${one.device.path}/quarantine`}</code></td>
                <td class="right">{may("get /admin/v1/devices/quarantine") && <button onClick={() => setShownOf(one)} aria-label={`Show the quarantine of ${nameOf(one.device)}`}>Show</button>}</td>
              </tr>
            ))}
          </Table>
        )}
      </Slices>
      {shownOf && <QuarantinedItems key={shownOf.device.device} device={shownOf.device.device} name={nameOf(shownOf.device)} close={() => setShownOf(undefined)} />}
      <ol class="steps">
        <li>Let <a href="/workers" onClick={(event) => follow(event, "/workers")}>the workers</a> restore the copies, until a census is clean.</li>
        <li>Copy the folder away from the device. On the node: <code>cp -a FOLDER /safe/place</code>.</li>
        <li>Then remove its files there. Martlet has no command that does, since they may be the last copy.</li>
        <li>If the census stays unclean, keep the files: an object may have no whole copy elsewhere.</li>
      </ol>
    </>
  );
}
