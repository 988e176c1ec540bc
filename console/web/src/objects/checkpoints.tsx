// Generations of a checkpoint set, where the folder is one.
import { useLive } from "../api";
import * as f from "../format";
import { send } from "../s3/client";
import { Badge, Card, Table } from "../ui/parts";

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
  return (
    <Card title="Checkpoint set" note="each generation is one complete state of this folder" wide>
      <Table label="Generations" heads={["Generation", "State", { right: "Objects" }, { right: "Size" }, "Changed"]}>
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
          </tr>
        ))}
      </Table>
    </Card>
  );
}
