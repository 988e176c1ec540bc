// Preview of an object: what its first bytes are, within a budget that a click extends.
import type { ComponentChildren } from "preact";
import { useEffect, useMemo, useState } from "preact/hooks";
import { useLive } from "../api";
import * as f from "../format";
import { indented } from "../preview/json";
import { kindOf, textOf, type Kind } from "../preview/kind";
import { COLUMNS, ROWS } from "../preview/limits";
import { pixels, PIXELS_MAX } from "../preview/pixels";
import { readHeader } from "../preview/safetensors";
import { FREE, OverBudget, Source } from "../preview/source";
import { Card, Loaded, Table } from "../ui/parts";

interface Shown {
  bucket: string;
  name: string;
  version: string | undefined;
  size: number;
}

/** Bytes that decide about the kind. */
const SNIFFED = 4096;
/** Largest image or header that is read when asked for. */
const ASKED_MAX = 64 << 20;
/** Largest text that is read when asked for: browsers lay out all of it. */
const TEXT_MAX = 8 << 20;
const TENSORS_MAX = 500;
const HEX_BYTES = 256;

export function Preview(props: Shown) {
  const { bucket, name, version, size } = props;
  const [budget, setBudget] = useState(FREE);
  const source = () => new Source(bucket, name, version, size, budget);
  const kind = useLive(async () => kindOf(await new Source(bucket, name, version, size, SNIFFED).read(0, SNIFFED), size, name), 0, [bucket, name, version]);
  return (
    <Card title="Preview" note={`at most ${f.bytes(budget)} are read`} wide>
      <Loaded live={kind}>{(found) => <Content key={budget} kind={found} source={source} size={size} more={setBudget} extended={budget > FREE} />}</Loaded>
    </Card>
  );
}

interface ContentProps {
  kind: Kind;
  source: () => Source;
  size: number;
  more: (bytes: number) => void;
  /** True after a click that allows more bytes. */
  extended: boolean;
}

function Content({ kind, source, size, more, extended }: ContentProps) {
  switch (kind.kind) {
    case "empty":
      return <p class="quiet">The object is empty.</p>;
    case "image":
      return <Bounded load={() => source().read(0, size)} more={more}>{(bytes) => <Picture bytes={bytes} type={kind.type} />}</Bounded>;
    case "safetensors":
      return <Tensors source={source} more={more} />;
    case "parquet":
      return <Parquet source={source} more={more} extended={extended} />;
    case "json":
    case "text":
      return <Text source={source} size={size} json={kind.kind === "json"} more={more} extended={extended} />;
    case "binary":
      return <Bounded load={() => source().read(0, HEX_BYTES)} more={more}>{(bytes) => <Hex bytes={bytes} />}</Bounded>;
  }
}

/** Value that a bounded read makes, or a button that allows its bytes. */
function Bounded<T>({ load, more, children }: { load: () => Promise<T>; more: (bytes: number) => void; children: (value: T) => ComponentChildren }) {
  const run = async (): Promise<{ value: T } | { needs: number }> => {
    try {
      return { value: await load() };
    } catch (thrown) {
      if (thrown instanceof OverBudget) return { needs: thrown.bytes };
      throw thrown;
    }
  };
  const live = useLive(run, 0, []);
  return (
    <Loaded live={live}>
      {(found) => {
        if ("value" in found) return children(found.value);
        if (found.needs > ASKED_MAX) return <p class="quiet">A preview needs {f.bytes(found.needs)}, and reads {f.bytes(ASKED_MAX)} at most: download the object.</p>;
        return <button onClick={() => more(Math.min(2 * ASKED_MAX, found.needs + FREE))}>Read {f.bytes(found.needs)} for the preview</button>;
      }}
    </Loaded>
  );
}

function Picture({ bytes, type }: { bytes: Uint8Array; type: string }) {
  const [url, setUrl] = useState<string>();
  const [failed, setFailed] = useState(false);
  const announced = useMemo(() => pixels(bytes, type), [bytes, type]);
  useEffect(() => {
    const made = URL.createObjectURL(new Blob([bytes as BlobPart], { type }));
    setUrl(made);
    return () => URL.revokeObjectURL(made);
  }, [bytes, type]);
  if (!announced || announced > PIXELS_MAX) return <p class="quiet">{!announced ? "The head of the image doesn't announce its size" : `The image has ${f.compact(announced)} pixels, and a preview decodes ${f.compact(PIXELS_MAX)} at most`}: download the object.</p>;
  if (failed) return <p class="quiet">The browser can't decode the image.</p>;
  return url ? <img class="picture" src={url} alt={`Preview, ${type}`} onError={() => setFailed(true)} /> : null;
}

function Text({ source, size, json, more, extended }: Omit<ContentProps, "kind"> & { json: boolean }) {
  const bytes = Math.min(size, extended ? TEXT_MAX : FREE);
  const all = Math.min(size, TEXT_MAX);
  return (
    <>
      <Bounded load={() => source().read(0, bytes)} more={more}>
        {(read) => <pre class="content" tabIndex={0} aria-label="Content">{shown(textOf(read), json && read.length === size)}</pre>}
      </Bounded>
      {all > bytes && <button onClick={() => more(all + FREE)}>Read {f.bytes(all)} of {f.bytes(size)}</button>}
      {all === bytes && size > bytes && <p class="note">The first {f.bytes(bytes)} of {f.bytes(size)}.</p>}
    </>
  );
}


function shown(text: string | undefined, isJson: boolean): string {
  if (text === undefined) return "The object is no text.";
  return isJson ? indented(text) : text;
}

function Hex({ bytes }: { bytes: Uint8Array }) {
  const lines = [];
  for (let at = 0; at < bytes.length; at += 16) {
    const part = [...bytes.subarray(at, at + 16)];
    const hex = part.map((byte) => byte.toString(16).padStart(2, "0")).join(" ");
    const text = part.map((byte) => (byte >= 32 && byte < 127 ? String.fromCharCode(byte) : ".")).join("");
    lines.push(`${at.toString(16).padStart(6, "0")}  ${hex.padEnd(47)}  ${text}`);
  }
  return <pre class="content" tabIndex={0} aria-label="First bytes">{lines.join("\n")}</pre>;
}

function Tensors({ source, more }: { source: () => Source; more: (bytes: number) => void }) {
  return (
    <Bounded load={() => readHeader(source())} more={more}>
      {({ tensors, metadata }) => (
        <>
          <p>{f.count(tensors.length)} tensors, {f.bytes(tensors.reduce((sum, one) => sum + one.bytes, 0))}.</p>
          {metadata.length > 0 && <dl class="pairs">{metadata.slice(0, TENSORS_MAX).map(([name, value]) => <><dt>{name}</dt><dd>{value}</dd></>)}</dl>}
          <Table label="Tensors" heads={["Tensor", "Type", "Shape", { right: "Size" }]}>
            {tensors.slice(0, TENSORS_MAX).map((one) => (
              <tr><th scope="row">{one.name}</th><td>{one.dtype}</td><td>{one.shape.join(" × ") || "scalar"}</td><td class="right">{f.bytes(one.bytes)}</td></tr>
            ))}
          </Table>
          {tensors.length > TENSORS_MAX && <p class="note">The first {TENSORS_MAX} are shown.</p>}
        </>
      )}
    </Bounded>
  );
}

function Parquet({ source, more, extended }: { source: () => Source; more: (bytes: number) => void; extended: boolean }) {
  const load = async () => (await import("../preview/parquet")).preview(source(), extended);
  return (
    <Bounded load={load} more={more}>
      {({ rows, groups, columns, first, needed }) => (
        <>
          <p>{f.count(rows)} rows in {f.count(groups)} row groups, {f.count(columns.length)} columns.</p>
          <Table label="Schema" heads={["Column", "Type"]}>
            {columns.slice(0, TENSORS_MAX).map((one) => <tr><th scope="row">{one.name}</th><td>{one.type}</td></tr>)}
          </Table>
          {first && first.length > 0 && (
            <Table label={`First ${ROWS} rows`} heads={[...new Set(columns.map((one) => one.name.split(".")[0] ?? ""))].slice(0, COLUMNS)}>
              {first.map((row) => <tr>{row.map((value) => <td>{value}</td>)}</tr>)}
            </Table>
          )}
          {!first && needed <= ASKED_MAX && <button onClick={() => more(needed + 2 * FREE)}>Read {f.bytes(needed)} for the first rows</button>}
          {!first && needed > ASKED_MAX && <p class="quiet">The first rows need {f.bytes(needed)}: download the object, or query it with DuckDB.</p>}
        </>
      )}
    </Bounded>
  );
}
