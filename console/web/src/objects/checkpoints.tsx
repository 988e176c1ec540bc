// Generations of a checkpoint set, where the folder is one, and what retention will do with each.
import { useLive } from "../api";
import * as f from "../format";
import { send } from "../s3/client";
import { Badge, Card, Failure, Table } from "../ui/parts";
import { retention } from "./retention";
import { Fate, when, type Withdrawal } from "../ui/withdrawals";

interface Generation {
  generation: number;
  state: string;
  objects: number;
  bytes: number;
  changed_ms: number;
  reason?: string;
  held_until_ms?: number;
}

/** Shows nothing for folders that are no set, and for keys that may not read sets. */
export function Checkpoints({ bucket, folder }: { bucket: string; folder: string }) {
  const load = async () => (await (await send("GET", { bucket }, { query: { checkpoint: folder } })).json()) as { generations: Generation[] };
  const live = useLive(load, 0, [bucket, folder]);
  const generations = live.value.value?.generations ?? [];
  if (generations.length === 0) return null;
  return <Generations bucket={bucket} folder={folder} generations={generations} />;
}

function Generations({ bucket, folder, generations }: { bucket: string; folder: string; generations: Generation[] }) {
  // A set is the first one of the names that begin with its own.
  const plan = useLive(async () => (await retention(bucket, folder)).withdrawals.filter((one) => one.set === folder), 0, [bucket, folder]);
  const [planned, error] = [plan.value.value, plan.error.value];
  return (
    <Card title="Checkpoint set" note="each generation is one complete state of this folder" wide>
      <Table label="Generations" heads={["Generation", "State", { right: "Objects" }, { right: "Size" }, "Changed", "Retention"]}>
        {generations.map((one) => (
          <tr>
            <th scope="row">{one.generation}</th>
            <td>
              <Badge tone={one.state === "committed" ? "good" : "warn"}>{one.state}</Badge> {one.reason && <span class="quiet">{one.reason}</span>}
              {one.held_until_ms !== undefined && <span class="quiet"> held until {f.date(one.held_until_ms)}</span>}
            </td>
            <td class="right">{f.count(one.objects)}</td>
            <td class="right">{f.bytes(one.bytes)}</td>
            <td>{f.date(one.changed_ms)}</td>
            <td><Fates state={one.state} planned={planned?.filter((due) => due.generation === one.generation)} /></td>
          </tr>
        ))}
      </Table>
      {error && <Failure text={`What retention will do is not known: ${error}`} retry={() => void plan.reload()} />}
    </Card>
  );
}

/** Withdrawals of one generation; undefined while they are not known. */
function Fates({ state, planned }: { state: string; planned: Withdrawal[] | undefined }) {
  if (state === "removing") return <span class="quiet">withdrawn already</span>;
  if (!planned) return <span class="quiet">–</span>;
  if (planned.length === 0) return <span class="quiet">stays</span>;
  return <>{planned.map((one) => <p>Withdrawn {when(one)}; objects <Fate one={one} /> <span class="quiet">{one.reason}</span></p>)}</>;
}
