// Buckets in pages, with their owners and the last count of their contents; or one of them, by the address.
import { useState } from "preact/hooks";
import { BucketPage } from "../bucket/page";
import { get, useLive } from "../api";
import * as f from "../format";
import { bucketPath, follow, parameters } from "../route";
import { session, type Schemas } from "../session";
import { Card, Empty, Field, Head, Loaded, Table } from "../ui/parts";
import { Pager, usePages } from "../ui/pager";

interface Page {
  items: Schemas["BucketSummary"][];
  next?: string | null;
}

const LIMIT = 50;

export function Buckets() {
  const bucket = parameters.value.get("bucket");
  return bucket ? <BucketPage key={bucket} bucket={bucket} /> : <List />;
}

function List() {
  const own = session.value?.principal?.tenant ?? undefined;
  const [prefix, setPrefix] = useState("");
  const [owner, setOwner] = useState("");
  const pages = usePages();
  const tenant = own ?? (owner.trim() || undefined);
  const live = useLive(() => get<Page>("/admin/v1/buckets", { prefix, tenant, after: pages.after, limit: LIMIT }), 15_000, [prefix, tenant, pages.after]);
  const filter = (set: (value: string) => void) => (value: string) => {
    pages.first();
    set(value);
  };
  return (
    <>
      <Head title="Buckets" lead="Sizes are those of the last count, which is done in the background." />
      <Card wide>
        <div class="filters">
          <Field label="Names that begin with" value={prefix} on={filter(setPrefix)} />
          {own === undefined && <Field label="Tenant" value={owner} on={filter(setOwner)} hint="Its whole name, or root." />}
        </div>
        <Loaded live={live}>
          {(page) => (
            <>
              {page.items.length === 0 ? (
                <Empty title={prefix || owner ? "No bucket of this page matches" : "No buckets"}>{page.next ? "More follow on the next page." : "Clients make buckets by S3."}</Empty>
              ) : (
                <Table label="Buckets" heads={["Bucket", "Owner", { right: "Size" }, { right: "Objects" }, "Policy", "Versions", "Consistency", "Counted", "Created"]}>
                  {page.items.map((bucket) => (
                    <tr>
                      <th scope="row"><a href={bucketPath(bucket.bucket)} onClick={(event) => follow(event, bucketPath(bucket.bucket))}>{bucket.bucket}</a></th>
                      <td>{bucket.tenant ?? <span class="quiet">deleted tenant</span>}</td>
                      <td class="right">{bucket.bytes === null || bucket.bytes === undefined ? "–" : f.bytes(bucket.bytes)}</td>
                      <td class="right">{bucket.objects === null || bucket.objects === undefined ? "–" : f.count(bucket.objects)}</td>
                      <td>{bucket.storage_policy}</td>
                      <td>{bucket.versioning}</td>
                      <td>{bucket.consistency}</td>
                      <td>{bucket.counted_ms ? f.ago(Date.now() - bucket.counted_ms) : "not yet"}</td>
                      <td>{f.date(bucket.created_ms)}</td>
                    </tr>
                  ))}
                </Table>
              )}
              <Pager pages={pages} next={page.next} />
            </>
          )}
        </Loaded>
      </Card>
    </>
  );
}
