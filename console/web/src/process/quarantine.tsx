// Items in quarantine of a device, in pages.
import { get, useLive } from "../api";
import * as f from "../format";
import type { Schemas } from "../session";
import { Card, Empty, Loaded, Table } from "../ui/parts";
import { Pager, usePages } from "../ui/pager";

type Line = Schemas["QuarantineLine"];
const KINDS: Record<string, string> = { extent: "file of an extent", record: "record within a volume", index: "damaged index", other: "something else" };

export function QuarantinedItems({ device, name, close }: { device: number; name: string; close: () => void }) {
  const pages = usePages();
  const live = useLive(() => get<{ items: Line[]; next?: string | null }>("/admin/v1/devices/quarantine", { device, after: pages.after }), 0, [pages.after]);
  return (
    <Card title={`Quarantine of ${name}`} note="by name; the log of the node has the reasons" wide action={<button onClick={close}>Close the list</button>}>
      <Loaded live={live}>
        {({ items, next }) => (
          <>
            {items.length === 0 ? (
              <Empty title="Nothing is here">The files were moved away.</Empty>
            ) : (
              <Table label={`Items of ${name}`} heads={["Name", "Kind", "Place", { right: "Bytes" }, "Since"]}>
                {items.map((line) => (
                  <tr>
                    <th scope="row"><code class="names">{line.name}</code></th>
                    <td>{KINDS[line.kind] ?? line.kind}</td>
                    <td>{place(line)}</td>
                    <td class="right">{typeof line.bytes === "number" ? f.bytes(line.bytes) : "–"}</td>
                    <td>{typeof line.since_ms === "number" ? f.exact(line.since_ms) : "–"}</td>
                  </tr>
                ))}
              </Table>
            )}
            <Pager pages={pages} next={next} />
          </>
        )}
      </Loaded>
    </Card>
  );
}

function place(line: Line): string {
  if (typeof line.volume === "number") return `volume ${line.volume} at ${f.count(line.offset ?? 0)}`;
  if (typeof line.generation === "number") return `generation ${line.generation}`;
  return "–";
}
