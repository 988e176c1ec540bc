// Withdrawals of checkpoint generations that retention will make, a page at a time.
import { useLive } from "../api";
import * as f from "../format";
import { Pager, usePages } from "./pager";
import { Badge, Empty, Loaded, Table } from "./parts";

export interface Withdrawal {
  set: string;
  generation: number;
  reason: string;
  due_ms: number;
  deletes_objects: boolean;
}

export interface WithdrawalPage {
  withdrawals: Withdrawal[];
  next?: string | null;
}

/** Time of a withdrawal. */
export const when = (one: Withdrawal): string => (one.due_ms <= Date.now() ? "at the next pass" : f.date(one.due_ms));

export function Fate({ one }: { one: Withdrawal }) {
  return <Badge tone={one.deletes_objects ? "bad" : "calm"}>{one.deletes_objects ? "deleted" : "kept"}</Badge>;
}

/** Table of the withdrawals that `load` returns for a page. */
export function Withdrawals({ load }: { load: (after: string | undefined) => Promise<WithdrawalPage> }) {
  const pages = usePages();
  const live = useLive(() => load(pages.after), 0, [pages.after]);
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
