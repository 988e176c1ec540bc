// Dry run of retention: which generations of checkpoint sets are withdrawn, and when.
import { useState } from "preact/hooks";
import { useLive } from "../api";
import * as f from "../format";
import { send } from "../s3/client";
import { Badge, Card, Empty, Loaded, Table } from "../ui/parts";
import { Pager, usePages } from "../ui/pager";

export interface Withdrawal {
  set: string;
  generation: number;
  reason: string;
  due_ms: number;
  deletes_objects: boolean;
}

interface Page {
  withdrawals: Withdrawal[];
  next?: string;
}

/** Page of the withdrawals of sets whose names begin with `prefix`. */
export async function retention(bucket: string, prefix: string, after?: string): Promise<Page> {
  const query = { checkpoints: "", retention: "", prefix: prefix || undefined, after };
  return (await (await send("GET", { bucket }, { query })).json()) as Page;
}

/** Time of a withdrawal. */
export const when = (one: Withdrawal): string => (one.due_ms <= Date.now() ? "at the next pass" : f.date(one.due_ms));

export function Fate({ one }: { one: Withdrawal }) {
  return <Badge tone={one.deletes_objects ? "bad" : "calm"}>{one.deletes_objects ? "deleted" : "kept"}</Badge>;
}

/** Withdrawals of all sets of a bucket, on request. */
export function RetentionPlan({ bucket }: { bucket: string }) {
  const [looking, setLooking] = useState(false);
  return (
    <Card title="Retention of checkpoints" note="what rules will withdraw, if nothing changes" wide action={<button onClick={() => setLooking(!looking)} aria-expanded={looking}>What retention will withdraw</button>}>
      {looking && <Plan bucket={bucket} />}
    </Card>
  );
}

function Plan({ bucket }: { bucket: string }) {
  const pages = usePages();
  const live = useLive(() => retention(bucket, "", pages.after), 0, [pages.after]);
  return (
    <Loaded live={live}>
      {(page) => (
        <>
          {page.withdrawals.length === 0 ? (
            <Empty title={page.next ? "Nothing of these sets" : "Rules will withdraw nothing"} />
          ) : (
            <Table label="Withdrawals" heads={["Set", { right: "Generation" }, "When", "Objects", "Reason"]}>
              {page.withdrawals.map((one) => (
                <tr>
                  <th scope="row">{one.set}</th>
                  <td class="right">{one.generation}</td>
                  <td>{when(one)}</td>
                  <td><Fate one={one} /></td>
                  <td>{one.reason}</td>
                </tr>
              ))}
            </Table>
          )}
          <Pager pages={pages} next={page.next} />
        </>
      )}
    </Loaded>
  );
}
