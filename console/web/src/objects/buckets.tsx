// Buckets that S3 lists to the session's key, with the sizes of the last count where the admin API may be read.
import { useState } from "preact/hooks";
import { get, useLive } from "../api";
import * as f from "../format";
import { follow, objects, open } from "../route";
import { send } from "../s3/client";
import { buckets } from "../s3/listing";
import { may, session, type Schemas } from "../session";
import { Ask, Card, Empty, Field, Head, Loaded, Table } from "../ui/parts";
import { Pager, usePages } from "../ui/pager";

type Sizes = Map<string, Schemas["BucketSummary"]>;

/** Sizes of these buckets, if the session has rights at the admin API. */
async function sizes(names: string[]): Promise<Sizes | undefined> {
  const [first, last] = [names[0], names[names.length - 1]];
  if (!may("get /admin/v1/buckets") || first === undefined || last === undefined) return undefined;
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
  const load = async () => {
    const page = await buckets(prefix, pages.after);
    return { ...page, sizes: await sizes(page.items.map((one) => one.name)).catch(() => undefined) };
  };
  const live = useLive(load, 30_000, [prefix, pages.after]);
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
                <Table label="Buckets" heads={page.sizes ? ["Bucket", { right: "Size" }, { right: "Objects" }, "Created"] : ["Bucket", "Created"]}>
                  {page.items.map((bucket) => {
                    const size = page.sizes?.get(bucket.name);
                    const to = objects({ bucket: bucket.name });
                    return (
                      <tr>
                        <th scope="row"><a href={to} onClick={(event) => follow(event, to)}>{bucket.name}</a></th>
                        {page.sizes && <td class="right">{typeof size?.bytes === "number" ? f.bytes(size.bytes) : "not counted"}</td>}
                        {page.sizes && <td class="right">{typeof size?.objects === "number" ? f.count(size.objects) : "–"}</td>}
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
