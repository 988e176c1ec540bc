// Where the bytes of an object lie: extents and nodes, as LocateObject of the store reports them. The console drops the
// tokens of that reply, so that this page has none.
import { useState } from "preact/hooks";
import { get, useLive } from "../api";
import * as f from "../format";
import { Badge, Card, Loaded, Table } from "../ui/parts";
import { Pager, Slices, usePages } from "../ui/pager";

interface Piece {
  piece: number;
  id: string;
  from: number;
  length: number;
  holders: { url: string }[];
}

interface Extent {
  id: string;
  offset: number;
  length: number;
  blake3: string;
  code: { k: number; m: number } | null;
  pieces: Piece[];
}

interface Layout {
  size: number;
  etag: string;
  direct: boolean;
  reason: string | null;
  extents: Extent[];
  next: number | null;
}

interface Shown {
  bucket: string;
  name: string;
  version: string | undefined;
}

/** Longest copy that is packed into a volume beside others, in bytes. Longer ones are files of their own. */
const PACKED_MAX = 1 << 20;
const ROWS = 50;

/** Sentences for objects that no client reads in place. */
const REASONS: Record<string, string> = {
  inline: "The object is small: its bytes lie inline, in the index beside its name.",
  encrypted: "The object is stored encrypted. The nodes can't decrypt it, so a proxy reads it.",
  "rate-limited": "This key or its tenant has a limit on bytes per second. Nodes can't count towards it, so proxies alone read for it, and no places are shown.",
};

export function Places(shown: Shown) {
  const [looking, setLooking] = useState(false);
  return (
    <Card title="Where the bytes lie" note="extents, and the nodes that hold them" wide action={!looking && <button onClick={() => setLooking(true)}>Look up the places</button>}>
      {looking && <Found {...shown} />}
    </Card>
  );
}

function Found({ bucket, name, version }: Shown) {
  const pages = usePages();
  const [etag, setEtag] = useState<string>();
  const load = async () => {
    const page = await get<Layout>("/own/layout", { bucket, key: name, version, from: pages.after, etag: pages.after === undefined ? undefined : etag });
    setEtag(page.etag);
    return page;
  };
  const live = useLive(load, 0, [pages.after]);
  return (
    <Loaded live={live}>
      {(page) => (
        <>
          <p role="status">
            <Badge tone={page.direct ? "good" : "calm"}>{page.direct ? "can be read in place" : "read through a proxy"}</Badge>{" "}
            {page.direct ? sentence(page) : REASONS[page.reason ?? ""] ?? `The store gives the reason ${page.reason}.`}
          </p>
          {page.extents.length > 0 && <Extents extents={page.extents} />}
          <Pager pages={pages} next={page.next === null ? null : String(page.next)} />
        </>
      )}
    </Loaded>
  );
}

/** Kind of an extent's storage. */
function kindOf({ code, length }: Extent): string {
  if (code) return `coded ${code.k}+${code.m}`;
  return length <= PACKED_MAX ? "copies, packed" : "copies";
}

function sentence({ size, extents, next }: Layout): string {
  if (size === 0) return "The object is empty.";
  const kinds = [...new Set(extents.map(kindOf))].join("; ");
  return `${f.bytes(size)} in ${f.count(extents.length)} ${extents.length === 1 ? "extent" : "extents"}${next === null ? "" : " on this page"}: ${kinds}.`;
}

/** Host and port in a URL. */
const nodeOf = (url: string): string => url.replace(/^https?:\/\//, "");

function Extents({ extents }: { extents: Extent[] }) {
  const rows = extents.flatMap((extent) => extent.pieces.map((piece) => ({ extent, piece })));
  return (
    <>
      <Slices items={rows} size={ROWS} label="the extents">
        {(shown) => (
          <Table label="Extents" heads={["Extent", { right: "At" }, { right: "Length" }, "Layout", "Nodes", "BLAKE3 of the extent"]}>
            {shown.map(({ extent, piece }) => (
              <tr>
                <th scope="row"><code>{piece.id}</code></th>
                <td class="right">{f.count(extent.offset + piece.from)}</td>
                <td class="right">{f.count(piece.length)}</td>
                <td>{kindOf(extent)}{extent.code && <span class="quiet">, fragment {piece.piece}</span>}</td>
                <td>
                  {piece.holders.length === 0 ? <Badge tone="warn">none found: GET reconstructs it</Badge> : piece.holders.map((holder) => <code class="names">{nodeOf(holder.url)} </code>)}
                </td>
                <td><code class="names">{extent.blake3.slice(0, 16)}…</code></td>
              </tr>
            ))}
          </Table>
        )}
      </Slices>
      <p class="note">At is the first byte in the object. Of an erasure code the data fragments are listed; parity is not read in place.</p>
    </>
  );
}
