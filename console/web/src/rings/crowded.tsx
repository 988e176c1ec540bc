// Places of a ring whose replicas are closer together than its devices require, as `martlet ring BUILDER dispersion` lists them.
import * as f from "../format";
import type { Schemas } from "../session";
import { Card, Table } from "../ui/parts";
import { Slices } from "../ui/pager";

export function Crowded({ ring, places }: { ring: string; places: Schemas["CrowdedLine"][] }) {
  if (places.length === 0) return null;
  return (
    <Card title={`Too close together in ${ring}`} wide>
      <Slices items={places} size={50} label="the places">
        {(shown) => (
          <Table label={`Crowded places of ${ring}`} heads={["Place", { right: "Partitions" }, { right: "Most replicas of one" }]}>
            {shown.map((place) => (
              <tr>
                <th scope="row">{place.place}</th>
                <td class="right">{f.count(place.partitions)}</td>
                <td class="right">{place.replicas_max}</td>
              </tr>
            ))}
          </Table>
        )}
      </Slices>
    </Card>
  );
}
