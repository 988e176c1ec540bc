// Workers: pace, backlog and age of what waits, for each process.
import { get, useLive } from "../api";
import * as f from "../format";
import type { Schemas } from "../session";
import { Badge, Card, Empty, Head, Loaded, Table } from "../ui/parts";
import { Slices } from "../ui/pager";

export function Workers() {
  const live = useLive(() => get<Schemas["ProcessWorkers"][]>("/admin/v1/workers"), 5000, []);
  return (
    <>
      <Head title="Workers" lead="Background work: pace, backlog, and the age of the oldest waiting item." />
      <Loaded live={live}>
        {(processes) =>
          processes.length === 0 ? <Empty title="No workers">No process has reported workers yet.</Empty> : <Slices items={processes} size={30} label="the processes">{(shown) => shown.map((one) => <Process one={one} />)}</Slices>
        }
      </Loaded>
    </>
  );
}

function Process({ one }: { one: Schemas["ProcessWorkers"] }) {
  const heard = one.heard_ms_ago;
  return (
    <Card title={one.process} note={heard === undefined || heard === null ? "this process" : `reported ${f.ago(heard)}`} wide>
      <Table label={`Workers of ${one.process}`} heads={["Worker", "State", { right: "Items/s" }, { right: "Backlog" }, { right: "Oldest" }, { right: "Done" }, { right: "Failed steps" }, { right: "Time left" }]}>
        {one.workers.map((worker) => (
          <tr>
            <th scope="row">{worker.worker}</th>
            <td>
              <Badge tone={worker.error ? "bad" : worker.idle ? "calm" : "busy"}>{worker.error ? "failed" : worker.idle ? "idle" : "working"}</Badge>
              {worker.error && <p class="reason">{worker.error}</p>}
            </td>
            <td class="right">{f.compact(worker.rate)}</td>
            <td class="right">{f.compact(worker.backlog + (worker.ahead ?? 0))}</td>
            <td class="right">{worker.oldest_age_ms > 0 ? f.span(worker.oldest_age_ms / 1000) : "–"}</td>
            <td class="right">{f.compact(worker.done ?? 0)}</td>
            <td class="right">{f.count(worker.failures)}</td>
            <td class="right">{worker.eta_s === undefined || worker.eta_s === null ? "–" : f.span(worker.eta_s)}</td>
          </tr>
        ))}
      </Table>
    </Card>
  );
}
