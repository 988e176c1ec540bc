// Rings: balance, dispersion, and changes that are under way.
import { get, useLive } from "../api";
import * as f from "../format";
import type { Schemas } from "../session";
import { Badge, Card, Empty, Head, Loaded, Meter, Table } from "../ui/parts";

interface View {
  spread: Schemas["RingSpread"][];
  status: Schemas["ServerStatus"];
}

async function load(): Promise<View> {
  const [spread, status] = await Promise.all([
    get<Schemas["RingSpread"][]>("/admin/v1/dispersion"),
    get<Schemas["ServerStatus"]>("/admin/v1/status"),
  ]);
  return { spread, status };
}

export function Rings() {
  const live = useLive(load, 15_000, []);
  return (
    <>
      <Head title="Rings" lead="Placement of replicas on devices, and the ring changes that are under way." />
      <Loaded live={live}>{(view) => <View view={view} />}</Loaded>
    </>
  );
}

function View({ view: { spread, status } }: { view: View }) {
  const moves = (status.moves ?? []).filter((line) => line.replicas_moving > 0 || (line.change && line.change.phase !== "new"));
  return (
    <>
      <Card title="Rings" wide>
        <Table label="Rings" heads={["Ring", { right: "Epoch" }, { right: "Devices" }, { right: "Partitions" }, { right: "Replicas" }, { right: "Worst deviation" }, { right: "Too close together" }, { right: "Moving" }]}>
          {spread.map((ring) => (
            <tr>
              <th scope="row">{ring.ring}</th>
              <td class="right">{f.count(ring.epoch)}</td>
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
          moves.map((line) => <Change line={line} />)
        )}
      </Card>
      {spread.filter((ring) => ring.crowded.length > 0).map((ring) => (
        <Card title={`Too close together in ${ring.ring}`} wide>
          <Table label={`Crowded places of ${ring.ring}`} heads={["Place", { right: "Partitions" }, { right: "Most replicas of one" }]}>
            {ring.crowded.map((place) => (
              <tr>
                <th scope="row">{place.place}</th>
                <td class="right">{f.count(place.partitions)}</td>
                <td class="right">{place.replicas_max}</td>
              </tr>
            ))}
          </Table>
        </Card>
      ))}
    </>
  );
}

function Change({ line }: { line: Schemas["MovesLine"] }) {
  const still = line.replicas > 0 ? 1 - line.replicas_moving / line.replicas : 1;
  return (
    <div class="change">
      <p class="row">
        <b>{line.ring}</b>
        {line.change && <Badge tone="busy">phase {line.change.phase}</Badge>}
        <span>{f.count(line.replicas_moving)} of {f.count(line.replicas)} replicas move</span>
        {line.change && <span>{line.change.joined} of {line.change.receivers} receivers have all of theirs</span>}
      </p>
      <Meter share={still} label={`${f.percent(still)} of the replicas are in place`} />
    </div>
  );
}
