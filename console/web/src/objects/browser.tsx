// Objects of a bucket: folders or all keys, current or all versions, of any number.
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import * as f from "../format";
import { follow, objects } from "../route";
import { download } from "../s3/client";
import { Pages } from "../s3/pages";
import type { Row } from "../s3/listing";
import { remove, type Doomed } from "../s3/removal";
import { completed } from "../s3/upload";
import { Refusal } from "../api";
import { Ask, Badge, Card, Empty, Failure, Field, Head } from "../ui/parts";
import { VirtualList } from "../ui/virtual";
import { Checkpoints } from "./checkpoints";
import { Drop } from "./drop";
import { Trail } from "./trail";
import { UnfinishedUploads } from "./unfinished";

const ROW_HEIGHT = 44;
/** Words of S3 that are shown of a deletion that refused many. */
const REFUSALS_MAX = 5;

const idOf = (row: { key: string; version?: string | undefined }): string => `${row.version ?? ""}\n${row.key}`;

/** Name of a row below a prefix. A name of nothing is shown as the whole key. */
const nameOf = (row: Row, prefix: string): string => row.key.slice(prefix.slice(0, prefix.lastIndexOf("/") + 1).length) || row.key;

export function Browser({ bucket, prefix }: { bucket: string; prefix: string }) {
  const [search, setSearch] = useState(prefix);
  const [flat, setFlat] = useState(false);
  const [versions, setVersions] = useState(false);
  const [chosen, setChosen] = useState<Map<string, Doomed>>(new Map());
  const [removing, setRemoving] = useState(false);
  const [round, setRound] = useState(0);
  useEffect(() => setSearch(prefix), [prefix]);
  const done = completed.value;
  const pages = useMemo(() => new Pages({ bucket, prefix: search, folders: !flat, versions }), [bucket, search, flat, versions, round, done]);
  useEffect(() => {
    void pages.see({ from: 0, to: 50 });
    return () => pages.end();
  }, [pages]);
  useEffect(() => setChosen(new Map()), [pages]);
  const choose = (row: Row, on: boolean) => {
    const next = new Map(chosen);
    if (on) next.set(idOf(row), { key: row.key, version: row.version });
    else next.delete(idOf(row));
    setChosen(next);
  };
  const chooseAll = () => setChosen(new Map(pages.held.filter((row) => !row.folder).map((row) => [idOf(row), { key: row.key, version: row.version }])));
  const folder = search.slice(0, search.lastIndexOf("/") + 1);
  return (
    <>
      <Trail bucket={bucket} prefix={folder} />
      <Head title={bucket} lead="Objects in the order of their keys." action={<Views bucket={bucket} />} />
      <Drop bucket={bucket} prefix={folder} />
      <Card wide>
        <div class="filters">
          <Field label="Keys that begin with" value={search} on={setSearch} />
          <fieldset class="row">
            <legend>Show</legend>
            <label><input type="checkbox" checked={flat} onChange={(event) => setFlat(event.currentTarget.checked)} /> All keys, without folders</label>
            <label><input type="checkbox" checked={versions} onChange={(event) => setVersions(event.currentTarget.checked)} /> All versions</label>
          </fieldset>
        </div>
        <div class="row" role="group" aria-label="Selection">
          <span aria-live="polite">{f.count(pages.count.value)}{pages.ended.value ? "" : " or more"} {flat ? "keys" : "entries"}, {f.count(chosen.size)} chosen</span>
          <button onClick={chooseAll} disabled={pages.count.value === 0}>Choose what is loaded</button>
          <button onClick={() => setChosen(new Map())} disabled={chosen.size === 0}>Choose none</button>
          <button class="danger" onClick={() => setRemoving(true)} disabled={chosen.size === 0}>Delete {f.count(chosen.size)}</button>
        </div>
        {pages.error.value && <Failure text={pages.error.value} retry={() => void pages.again()} />}
        <List pages={pages} prefix={search} bucket={bucket} versions={versions} chosen={chosen} choose={choose} />
      </Card>
      {folder !== "" && <Checkpoints key={folder} bucket={bucket} folder={folder} />}
      <UnfinishedUploads key={`${bucket} ${done}`} bucket={bucket} prefix={search} />
      {removing && <Removal bucket={bucket} chosen={[...chosen.values()]} versions={versions} close={() => setRemoving(false)} done={() => setRound(round + 1)} />}
    </>
  );
}

function Views({ bucket }: { bucket: string }) {
  const link = (view: string, label: string) => {
    const to = objects({ bucket, view });
    return <a class="button" href={to} onClick={(event) => follow(event, to)}>{label}</a>;
  };
  return <div class="row">{link("settings", "Settings")}{link("clients", "Use from programs")}</div>;
}

interface ListProps {
  pages: Pages;
  prefix: string;
  bucket: string;
  versions: boolean;
  chosen: Map<string, Doomed>;
  choose: (row: Row, on: boolean) => void;
}

function List({ pages, prefix, bucket, versions, chosen, choose }: ListProps) {
  const count = pages.count.value;
  // Rows that arrive are drawn, although their number stays.
  void pages.turn.value;
  if (count === 0 && pages.ended.value) return <Empty title={prefix ? "No key begins so" : "No objects"}>Drop files above, or use another client.</Empty>;
  if (count === 0) return pages.error.value ? null : <div class="loading" role="status" aria-label="Loading"><i /><i /><i /></div>;
  const columns = versions ? ["Name", "Size", "Modified", "Version"] : ["Name", "Size", "Modified"];
  const head = (
    <div role="rowgroup" class="vhead">
      <div role="row" aria-rowindex={1} class={versions ? "vrow wide" : "vrow"}>
        <span role="columnheader"><span class="hidden">Chosen</span></span>
        {columns.map((name) => <span role="columnheader">{name}</span>)}
        <span role="columnheader"><span class="hidden">Download</span></span>
      </div>
    </div>
  );
  const draw = (at: number) => {
    const row = pages.row(at);
    return row ? <Line key={at} at={at} row={row} bucket={bucket} prefix={prefix} versions={versions} chosen={chosen.has(idOf(row))} choose={choose} /> : <div key={at} role="row" aria-rowindex={at + 2} class="vrow"><span role="cell">…</span></div>;
  };
  return <VirtualList label={`Objects of ${bucket}`} count={count} rowHeight={ROW_HEIGHT} head={head} row={draw} seen={(window) => void pages.see(window)} />;
}

interface LineProps {
  at: number;
  row: Row;
  bucket: string;
  prefix: string;
  versions: boolean;
  chosen: boolean;
  choose: (row: Row, on: boolean) => void;
}

function Line({ at, row, bucket, prefix, versions, chosen, choose }: LineProps) {
  const name = nameOf(row, prefix);
  const to = row.folder ? objects({ bucket, prefix: row.key }) : objects({ bucket, key: row.key, version: row.version });
  return (
    <div role="row" aria-rowindex={at + 2} class={`${versions ? "vrow wide" : "vrow"}${chosen ? " chosen" : ""}`}>
      <span role="cell">{!row.folder && <input type="checkbox" aria-label={`Choose ${name}`} checked={chosen} onChange={(event) => choose(row, event.currentTarget.checked)} />}</span>
      <span role="cell" class="name">
        <a data-main href={to} title={row.key} onClick={(event) => follow(event, to)}>{name}</a>
      </span>
      <span role="cell" class="right">{row.folder ? "folder" : row.marker ? "–" : f.bytes(row.size)}</span>
      <span role="cell" class="quiet">{row.modified ? f.date(Date.parse(row.modified)) : ""}</span>
      {versions && (
        <span role="cell" class="name">
          {row.marker ? <Badge tone="warn">delete marker</Badge> : row.latest ? <Badge tone="good">current</Badge> : null} <code title={row.version}>{row.version}</code>
        </span>
      )}
      <span role="cell">{!row.folder && !row.marker && <a href={download({ bucket, key: row.key }, { versionId: row.version })} download="" aria-label={`Save ${name}`}>Save</a>}</span>
    </div>
  );
}

function Removal({ bucket, chosen, versions, close, done }: { bucket: string; chosen: Doomed[]; versions: boolean; close: () => void; done: () => void }) {
  const [gone, setGone] = useState(0);
  const began = useRef(false);
  const stop = useRef(new AbortController());
  const run = async () => {
    began.current = true;
    const refused = await remove(bucket, chosen, setGone, stop.current.signal);
    if (refused.length === 0) return;
    const more = refused.length > REFUSALS_MAX ? `, and ${refused.length - REFUSALS_MAX} more` : "";
    throw new Refusal(`${refused.length} were not deleted: ${refused.slice(0, REFUSALS_MAX).join("; ")}${more}`);
  };
  const ended = () => {
    // What is on its way is still deleted; nothing more is sent.
    stop.current.abort();
    close();
    if (began.current) done();
  };
  return (
    <Ask title={`Delete ${f.count(chosen.length)} ${versions ? "versions" : "objects"} of ${bucket}`} verb="Delete" danger run={run} close={ended}>
      <p>{versions ? "These versions can't be read again. Where a delete marker is among them, an earlier version becomes current." : "In a bucket with versions, a delete marker hides each object. Elsewhere it can't be read again."}</p>
      <ul class="names">{chosen.slice(0, REFUSALS_MAX).map((one) => <li><code>{one.key}</code></li>)}{chosen.length > REFUSALS_MAX && <li>and {f.count(chosen.length - REFUSALS_MAX)} more</li>}</ul>
      {gone > 0 && <progress max={chosen.length} value={gone} aria-label="Deleted so far" />}
    </Ask>
  );
}
