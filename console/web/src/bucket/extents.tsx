// Where the bytes of an object lie: its extents, with devices and files.
import { useState } from "preact/hooks";
import { get } from "../api";
import * as f from "../format";
import type { Schemas } from "../session";
import { Card, Failure, Field, Table } from "../ui/parts";
import { Slices } from "../ui/pager";

export function Extents({ bucket }: { bucket: string }) {
  const [key, setKey] = useState("");
  const [found, setFound] = useState<Schemas["ObjectExtents"]>();
  const [error, setError] = useState("");
  const look = async (event: Event) => {
    event.preventDefault();
    setError("");
    setFound(undefined);
    try {
      setFound(await get<Schemas["ObjectExtents"]>("/admin/v1/extents", { bucket, key }));
    } catch (thrown) {
      setError(thrown instanceof Error ? thrown.message : String(thrown));
    }
  };
  return (
    <Card title="Where the bytes lie" note="devices and files of one object" wide>
      <form class="row end" onSubmit={(event) => void look(event)}>
        <Field label="Key of the object" value={key} on={setKey} required hint="The whole key." />
        <button>Look up</button>
      </form>
      {error && <Failure text={error} />}
      {found && <p role="status">{f.bytes(found.size)}, {found.stored === "inline" ? "within the index" : found.stored === "empty" ? "empty" : `in ${f.count(found.extents.length)} places`}; ETag <code>{found.etag}</code></p>}
      {found && found.extents.length > 0 && (
        <Slices items={found.extents} size={100} label="the extents">
          {(shown) => (
            <Table label="Extents" heads={["Extent", { right: "At" }, { right: "Length" }, "Device", "File", { right: "Offset" }, "BLAKE3"]}>
              {shown.map((extent) => (
                <tr>
                  <th scope="row"><code>{extent.id}</code></th>
                  <td class="right">{f.count(extent.object_offset)}</td>
                  <td class="right">{f.count(extent.length)}</td>
                  <td>d{extent.device}</td>
                  <td><code class="names">{extent.path}</code></td>
                  <td class="right">{f.count(extent.offset)}</td>
                  <td><code class="names">{extent.blake3.slice(0, 16)}…</code></td>
                </tr>
              ))}
            </Table>
          )}
        </Slices>
      )}
    </Card>
  );
}
