// One object or version: what S3 knows about it, its preview, its versions, and its deletion.
import { useState } from "preact/hooks";
import { Refusal, useLive } from "../api";
import * as f from "../format";
import { follow, objects, open } from "../route";
import { download, send } from "../s3/client";
import { head, setTags, tags, type Details } from "../s3/head";
import { list } from "../s3/listing";
import { Ask, Badge, Card, Empty, Failure, Field, Head, Loaded, Table } from "../ui/parts";
import { LinkDialog } from "./link";
import { LockDialog } from "./lock";
import { Places } from "./places";
import { Preview } from "./preview";
import { Trail } from "./trail";

interface Named {
  bucket: string;
  name: string;
  version: string | undefined;
}

export function ObjectPage({ bucket, name, version }: Named) {
  const live = useLive(() => head(bucket, name, version), 0, []);
  const [dialog, setDialog] = useState<"link" | "delete" | "lock">();
  const folder = name.slice(0, name.lastIndexOf("/") + 1);
  const short = name.slice(folder.length) || name;
  const remove = async () => {
    await send("DELETE", { bucket, key: name }, { query: { versionId: version } });
    open(objects({ bucket, prefix: folder }));
  };
  const actions = (
    <div class="row">
      <a class="button primary" href={download({ bucket, key: name }, { versionId: version })} download="">Download</a>
      <button onClick={() => setDialog("link")}>Make a link</button>
      <button onClick={() => setDialog("lock")}>Lock</button>
      <button class="danger" onClick={() => setDialog("delete")}>Delete</button>
    </div>
  );
  return (
    <>
      <Trail bucket={bucket} prefix={folder} name={short} />
      <Head title={short} lead={version ? `Version ${version} in ${bucket}` : `Object in ${bucket}`} action={actions} />
      <Loaded live={live}>
        {(details) => (
          <>
            <div class="grid">
              <Facts details={details} name={name} />
              <Metadata details={details} />
              <Tags bucket={bucket} name={name} version={version ?? details.version} />
            </div>
            <Preview bucket={bucket} name={name} version={version ?? details.version} size={details.size} />
          </>
        )}
      </Loaded>
      <Places bucket={bucket} name={name} version={version} />
      <Versions bucket={bucket} name={name} version={version} />
      {dialog === "link" && <LinkDialog bucket={bucket} name={name} version={version} close={() => setDialog(undefined)} />}
      {dialog === "lock" && <LockDialog bucket={bucket} name={name} version={version ?? live.value.value?.version} details={live.value.value} done={live.reload} close={() => setDialog(undefined)} />}
      {dialog === "delete" && (
        <Ask title={version ? `Delete the version ${version}` : `Delete ${short}`} verb="Delete" danger run={remove} close={() => setDialog(undefined)}>
          <p>{version ? "This version can't be read again." : "In a bucket with versions, a delete marker hides the object. Elsewhere it can't be read again."}</p>
          <code>{name}</code>
        </Ask>
      )}
    </>
  );
}

function Pairs({ pairs }: { pairs: [string, string][] }) {
  return <dl class="pairs text">{pairs.map(([name, value]) => <><dt>{name}</dt><dd>{value}</dd></>)}</dl>;
}

function Facts({ details, name }: { details: Details; name: string }) {
  const { size, type, etag, modified, version, lockMode, lockedUntil, held } = details;
  const pairs: [string, string][] = [
    ["Key", name],
    ["Size", `${f.bytes(size)} (${f.count(size)} bytes)`],
    ["Type", type || "none"],
    ["Modified", modified ? f.exact(Date.parse(modified)) : "unknown"],
    ["ETag", etag],
  ];
  if (version) pairs.push(["Version", version]);
  return (
    <Card title="Object">
      <Pairs pairs={pairs} />
      <div class="row">
        {lockMode ? <Badge tone="warn">{lockMode} until {f.exact(Date.parse(lockedUntil))}</Badge> : <Badge tone="calm">no retention</Badge>}
        {held ? <Badge tone="warn">legal hold</Badge> : <Badge tone="calm">no legal hold</Badge>}
      </div>
    </Card>
  );
}

function Metadata({ details }: { details: Details }) {
  const { metadata, others } = details;
  return (
    <Card title="Metadata">
      {metadata.length === 0 ? <p class="quiet">No metadata of users.</p> : <Pairs pairs={metadata} />}
      {others.length > 0 && <Pairs pairs={others} />}
    </Card>
  );
}

/** One tag on each line, as NAME=VALUE. */
function Tags({ bucket, name, version }: Named) {
  const live = useLive(() => tags(bucket, name, version), 0, []);
  const [text, setText] = useState<string>();
  const save = async () => {
    const lines = (text ?? "").split("\n").filter((line) => line.trim() !== "");
    const pairs = lines.map((line): [string, string] => {
      const at = line.indexOf("=");
      if (at < 0) throw new Refusal(`"${line}" is no tag: write NAME=VALUE`);
      return [line.slice(0, at), line.slice(at + 1)];
    });
    await setTags(bucket, name, version, pairs);
    await live.reload();
  };
  return (
    <Card title="Tags" action={<button onClick={() => setText((live.value.value ?? []).map((pair) => pair.join("=")).join("\n"))} disabled={!live.value.value}>Change</button>}>
      <Loaded live={live}>{(pairs) => (pairs.length === 0 ? <p class="quiet">No tags.</p> : <Pairs pairs={pairs} />)}</Loaded>
      {text !== undefined && (
        <Ask title="Tags" verb="Save" run={save} close={() => setText(undefined)}>
          <Field label="One NAME=VALUE on each line" value={text} on={setText} lines={5} focus />
        </Ask>
      )}
    </Card>
  );
}

function Versions({ bucket, name, version }: Named) {
  const load = async () => {
    const page = await list({ bucket, prefix: name, folders: false, versions: true });
    return { rows: page.rows.filter((row) => row.key === name), more: page.next !== undefined && page.rows[page.rows.length - 1]?.key === name };
  };
  const live = useLive(load, 0, []);
  const [error] = [live.error.value];
  if (error) return <Card title="Versions" wide><Failure text={error} /></Card>;
  return (
    <Card title="Versions" wide>
      <Loaded live={live}>
        {({ rows, more }) => {
          if (rows.length === 0) return <Empty title="No versions" />;
          return (
            <>
              <Table label="Versions" heads={["Version", "State", { right: "Size" }, "Modified"]}>
                {rows.map((row) => {
                  const to = objects({ bucket, key: name, version: row.version });
                  return (
                    <tr class={row.version === version ? "chosen" : ""}>
                      <th scope="row">{row.marker ? <code>{row.version}</code> : <a href={to} onClick={(event) => follow(event, to)}><code>{row.version}</code></a>}</th>
                      <td>{row.marker ? <Badge tone="warn">delete marker</Badge> : row.latest ? <Badge tone="good">current</Badge> : <Badge tone="calm">earlier</Badge>}</td>
                      <td class="right">{row.marker ? "–" : f.bytes(row.size)}</td>
                      <td>{f.exact(Date.parse(row.modified))}</td>
                    </tr>
                  );
                })}
              </Table>
              {more && <p class="note">The newest thousand are shown. The list of all versions has the others.</p>}
            </>
          );
        }}
      </Loaded>
    </Card>
  );
}
