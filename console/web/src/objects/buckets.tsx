// Buckets that S3 lists to the session's key, with the sizes of the last count: by the admin API where it may be read, else by S3.
import { useState } from "preact/hooks";
import { get, useLive } from "../api";
import * as f from "../format";
import { follow, objects, open } from "../route";
import { send } from "../s3/client";
import { buckets } from "../s3/listing";
import { may, session, type Schemas } from "../session";
import { Ask, Card, Empty, Field, Head, Loaded, Table } from "../ui/parts";
import { Pager, usePages } from "../ui/pager";

interface Size {
  bytes?: number | null | undefined;
  objects?: number | null | undefined;
  counted_ms?: number | null | undefined;
}
type Sizes = Map<string, Size>;

/** Concurrent requests for sizes at S3. */
const AT_ONCE = 4;

/** Size of a bucket that the key may list: S3 keeps the last count. */
async function sizeOf(bucket: string, signal: AbortSignal): Promise<Size> {
  const { headers } = await send("HEAD", { bucket }, { headers: { "x-martlet-usage": "true" }, signal });
  const number = (name: string) => (headers.has(name) ? Number(headers.get(name)) : null);
  return { bytes: number("x-martlet-usage-bytes"), objects: number("x-martlet-usage-objects"), counted_ms: number("x-martlet-usage-counted") };
}

/** Last round of requests for sizes. An earlier round is aborted when another one begins. */
let round = new AbortController();

/** Sizes of the buckets of a page, one request for each; those that the key may not list have none. */
async function sizesAtS3(names: string[], signal: AbortSignal): Promise<Sizes> {
  const [found, waiting]: [Sizes, string[]] = [new Map(), [...names]];
  const work = async () => {
    for (let name = waiting.shift(); name !== undefined; name = waiting.shift()) {
      const size = await sizeOf(name, signal).catch(() => undefined);
      if (session.value === null || signal.aborted) return;
      if (size) found.set(name, size);
    }
  };
  await Promise.all(Array.from({ length: AT_ONCE }, work));
  return found;
}

/** Sizes of these buckets. */
async function sizes(names: string[]): Promise<Sizes> {
  round.abort();
  const { signal } = (round = new AbortController());
  const [first, last] = [names[0], names[names.length - 1]];
  if (first === undefined || last === undefined) return new Map();
  if (!may("get /admin/v1/buckets")) return await sizesAtS3(names, signal);
  let shared = 0;
  while (shared < first.length && first[shared] === last[shared]) shared += 1;
  const page = await get<{ items: Schemas["BucketSummary"][] }>("/admin/v1/buckets", { prefix: first.slice(0, shared), limit: 1000 });
  return new Map(page.items.map((one) => [one.bucket, one]));
}

export function Buckets() {
  const [prefix, setPrefix] = useState("");
  const pages = usePages();
  const [name, setName] = useState("");
  const [fresh, setFresh] = useState<string>();
  const [names, setNames] = useState("");
  const load = async () => {
    const page = await buckets(prefix, pages.after);
    setNames(page.items.map((one) => one.name).join(" "));
    return page;
  };
  const live = useLive(load, 30_000, [prefix, pages.after]);
  // Counts are made every ten minutes: the list itself is read more often.
  const counted = useLive(() => sizes(names === "" ? [] : names.split(" ")), 300_000, [names]);
  const create = async () => {
    await send("PUT", { bucket: fresh ?? "" });
    await live.reload();
  };
  const go = (event: Event) => {
    event.preventDefault();
    if (name) open(objects({ bucket: name.trim() }));
  };
  return (
    <>
      <Head title="Objects" lead={`Buckets of ${session.value?.s3?.access_key}, as its policies allow.`} action={<button class="primary" onClick={() => setFresh("")}>New bucket</button>} />
      <Card wide>
        <div class="filters">
          <Field label="Names that begin with" value={prefix} on={(value) => { pages.first(); setPrefix(value); }} />
          <form class="row end" onSubmit={go}>
            <Field label="Open a bucket by its name" value={name} on={setName} hint="For keys that may not list buckets." />
            <button>Open</button>
          </form>
        </div>
        <Loaded live={live}>
          {(page) => (
            <>
              {page.items.length === 0 ? (
                <Empty title={prefix ? "No bucket begins so" : "No buckets"}>A bucket of another owner is opened by its name.</Empty>
              ) : (
                <Table label="Buckets" heads={["Bucket", { right: "Size" }, { right: "Objects" }, "Counted", "Created"]}>
                  {page.items.map((bucket) => {
                    const size = counted.value.value?.get(bucket.name);
                    const unknown = counted.value.value === undefined ? "…" : size ? "not counted" : "–";
                    const to = objects({ bucket: bucket.name });
                    return (
                      <tr>
                        <th scope="row"><a href={to} onClick={(event) => follow(event, to)}>{bucket.name}</a></th>
                        <td class="right">{typeof size?.bytes === "number" ? f.bytes(size.bytes) : unknown}</td>
                        <td class="right">{typeof size?.objects === "number" ? f.count(size.objects) : "–"}</td>
                        <td>{typeof size?.counted_ms === "number" ? f.ago(Date.now() - size.counted_ms) : "–"}</td>
                        <td>{f.date(Date.parse(bucket.created))}</td>
                      </tr>
                    );
                  })}
                </Table>
              )}
              <Pager pages={pages} next={page.next} />
            </>
          )}
        </Loaded>
      </Card>
      {fresh !== undefined && (
        <Ask title="New bucket" verb="Create" run={create} close={() => setFresh(undefined)}>
          <Field label="Name" value={fresh} on={setFresh} required focus />
        </Ask>
      )}
    </>
  );
}
