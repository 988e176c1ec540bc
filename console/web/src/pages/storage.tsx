// Storage policies: their redundancy, their rings, and the buckets that use them.
import { useEffect, useRef, useState } from "preact/hooks";
import { get, useLive } from "../api";
import * as f from "../format";
import { may, type Schemas } from "../session";
import { Badge, Card, Failure, Head, Loaded, Table } from "../ui/parts";

interface View {
  policies: Schemas["PolicyLine"][];
  spread: Schemas["RingSpread"][];
}

async function load(): Promise<View> {
  const [policies, spread] = await Promise.all([
    get<Schemas["PolicyLine"][]>("/admin/v1/policies"),
    may("get /admin/v1/dispersion") ? get<Schemas["RingSpread"][]>("/admin/v1/dispersion") : [],
  ]);
  return { policies, spread };
}

export function keeps({ redundancy, replicas }: Schemas["PolicyLine"]): string {
  if (redundancy !== "replicated") return `${redundancy} fragments`;
  return replicas === 1 ? "1 copy" : `${replicas} copies`;
}

export function Storage() {
  const live = useLive(load, 30_000, []);
  return (
    <>
      <Head title="Storage policies" lead="A bucket's policy decides how the bytes of its new objects are kept. A ring for each policy places them." />
      <Loaded live={live}>
        {({ policies, spread }) => (
          <>
            <Card title="Policies" wide>
              <Table label="Storage policies" heads={["Policy", "Keeps", "Ring", { right: "Devices" }, { right: "Epoch" }, { right: "Worst deviation" }, { right: "Moving" }]}>
                {policies.map((policy) => {
                  const ring = spread.find((one) => one.ring === `data-${policy.id}`);
                  return (
                    <tr>
                      <th scope="row">{policy.name} {policy.default && <Badge tone="good">for new buckets</Badge>}</th>
                      <td>{keeps(policy)}</td>
                      <td>data-{policy.id}</td>
                      <td class="right">{f.count(policy.devices)}</td>
                      <td class="right">{f.count(policy.epoch)}</td>
                      <td class="right">{ring ? `${ring.balance.toFixed(1)} %` : "–"}</td>
                      <td class="right">{ring ? f.count(ring.replicas_moving) : "–"}</td>
                    </tr>
                  );
                })}
              </Table>
              <p class="note">A new policy is a ring of its own, made by <code>martlet ring create --policy N</code> and pushed on the page of rings. The setting <code>default_policy</code> of the proxies names the one for new buckets.</p>
            </Card>
            <Use policies={policies} />
          </>
        )}
      </Loaded>
    </>
  );
}

interface Sum {
  buckets: number;
  bytes: number;
  objects: number;
  uncounted: number;
}

/** Pages of a thousand buckets that one click reads. */
const PAGES = 20;

/** Use of the policies by buckets. There may be millions of buckets, so they are added up when asked for, in portions. */
function Use({ policies }: { policies: Schemas["PolicyLine"][] }) {
  const [sums, setSums] = useState<Map<string, Sum>>();
  const [seen, setSeen] = useState(0);
  const [next, setNext] = useState<string>();
  const [busy, setBusy] = useState(false);
  const [error, setError] = useState("");
  const gone = useRef(false);
  useEffect(() => () => { gone.current = true; }, []);
  const go = async () => {
    setBusy(true);
    setError("");
    const resumed = next !== undefined;
    const all = new Map(resumed ? sums : []);
    let [count, after] = [resumed ? seen : 0, next];
    try {
      for (let page = 0; page < PAGES && !gone.current; page += 1) {
        const { items, next: more } = await get<{ items: Schemas["BucketSummary"][]; next?: string | null }>("/admin/v1/buckets", { after, limit: 1000 });
        for (const { storage_policy: policy, bytes, objects } of items) {
          const sum = all.get(policy) ?? { buckets: 0, bytes: 0, objects: 0, uncounted: 0 };
          const counted = typeof bytes === "number";
          all.set(policy, { buckets: sum.buckets + 1, bytes: sum.bytes + (bytes ?? 0), objects: sum.objects + (objects ?? 0), uncounted: sum.uncounted + (counted ? 0 : 1) });
        }
        count += items.length;
        after = more ?? undefined;
        setSums(new Map(all));
        setSeen(count);
        setNext(after);
        if (after === undefined) break;
      }
    } catch (thrown) {
      setError(thrown instanceof Error ? thrown.message : String(thrown));
    }
    setBusy(false);
  };
  if (!may("get /admin/v1/buckets") || !may("get /admin/v1/dispersion")) return null;
  const names = [...new Set([...policies.map((policy) => policy.name), ...(sums?.keys() ?? [])])];
  return (
    <Card title="Use" note="by the policy of new objects; sizes are those of the last counts" wide action={<button disabled={busy} onClick={() => void go()}>{busy ? "Adding up…" : !sums ? "Add up the buckets" : next ? "Go on" : "Add up again"}</button>}>
      {error && <Failure text={error} />}
      {sums && (
        <>
          <Table label="Use of the storage policies" heads={["Policy", { right: "Buckets" }, { right: "Bytes" }, { right: "Objects" }, { right: "Not counted yet" }]}>
            {names.map((name) => {
              const sum = sums.get(name);
              return (
                <tr>
                  <th scope="row">{name}</th>
                  <td class="right">{f.count(sum?.buckets ?? 0)}</td>
                  <td class="right">{f.bytes(sum?.bytes ?? 0)}</td>
                  <td class="right">{f.count(sum?.objects ?? 0)}</td>
                  <td class="right">{f.count(sum?.uncounted ?? 0)}</td>
                </tr>
              );
            })}
          </Table>
          <p class="note">{f.count(seen)} buckets{next ? ", and more follow" : ", all of them"}. Objects keep the policy that they were written under until their bucket is rewritten.</p>
        </>
      )}
    </Card>
  );
}
