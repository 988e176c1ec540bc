// Checkpoint rules of a bucket, its sets, and the dry run of their retention.
import { useState } from "preact/hooks";
import { change, get, useLive } from "../api";
import * as f from "../format";
import { may, type Schemas } from "../session";
import { DocumentEditor, pretty } from "../ui/document";
import { Ask, Badge, Card, Loaded, Table } from "../ui/parts";
import { Pager, usePages } from "../ui/pager";
import { Withdrawals } from "../ui/withdrawals";

const TEMPLATE = JSON.stringify({ rules: [{ pattern: "run-*/step-*/", profile: "dcp", keep: 3 }] }, null, 2);

export function CheckpointRules({ bucket }: { bucket: string }) {
  const load = async () => (await get<Schemas["RulesLine"]>("/admin/v1/bucket/checkpoints", { bucket })).rules ?? "";
  const live = useLive(load, 30_000, []);
  const [editing, setEditing] = useState(false);
  const [removing, setRemoving] = useState(false);
  const put = async (rules: string | null) => {
    await change("PUT", "/admin/v1/bucket/checkpoints", {}, { bucket, rules });
    await live.reload();
  };
  const change_ = may("put /admin/v1/bucket/checkpoints");
  return (
    <Card title="Checkpoint rules" note="folders that become visible as a whole" wide>
      <Loaded live={live}>
        {(rules) =>
          editing ? (
            <DocumentEditor label={`Checkpoint rules of ${bucket}`} id={`checkpoints ${bucket}`} stored={rules} template={TEMPLATE} current={load} save={put} close={() => setEditing(false)} />
          ) : (
            <>
              {rules ? <pre class="content" tabIndex={0} aria-label={`Checkpoint rules of ${bucket}`}>{pretty(rules)}</pre> : <p class="quiet">The bucket has no checkpoint rules.</p>}
              {change_ && (
                <div class="row">
                  <button onClick={() => setEditing(true)}>{rules ? "Change the rules" : "Set rules"}</button>
                  {rules && <button onClick={() => setRemoving(true)}>Remove the rules</button>}
                </div>
              )}
            </>
          )
        }
      </Loaded>
      {removing && (
        <Ask title={`Remove the checkpoint rules of ${bucket}`} verb="Remove" danger run={() => put(null)} close={() => setRemoving(false)}>
          <p>The bucket's sets leave the view, and nothing is kept or withdrawn by rules any more. Objects stay.</p>
        </Ask>
      )}
    </Card>
  );
}

type SetLine = Schemas["SetLine"];

export function CheckpointSets({ bucket }: { bucket: string }) {
  const pages = usePages();
  const live = useLive(() => get<Schemas["SetPage"]>("/admin/v1/bucket/checkpoints/sets", { bucket, after: pages.after }), 30_000, [pages.after]);
  const [withdrawing, setWithdrawing] = useState<{ set: SetLine; generation?: number }>();
  const [looking, setLooking] = useState(false);
  const sets = live.value.value?.sets ?? [];
  if (sets.length === 0 && pages.number === 1 && !live.error.value) return null;
  return (
    <Card title="Checkpoint sets" wide action={<button onClick={() => setLooking(!looking)} aria-expanded={looking}>What retention will withdraw</button>}>
      {looking && <Retention bucket={bucket} />}
      <Loaded live={live}>
        {(page) => (
          <>
            <Table label="Checkpoint sets" heads={["Set", { right: "Generation" }, "State", { right: "Objects" }, { right: "Size" }, "Age", { right: "Change" }]}>
              {page.sets.flatMap((set) =>
                set.generations.map((one) => (
                  <tr>
                    <th scope="row">{set.set}</th>
                    <td class="right">{one.generation}</td>
                    <td>
                      <Badge tone={one.state === "committed" ? "good" : one.state === "removing" ? "calm" : "warn"}>{one.state}</Badge>
                      {one.reason && <p class="quiet">{one.reason}</p>}
                      {one.held_until_ms > Date.now() && <p class="quiet">held until {f.date(one.held_until_ms)}</p>}
                    </td>
                    <td class="right">{f.count(one.objects)}</td>
                    <td class="right">{f.bytes(one.bytes)}</td>
                    <td>{f.ago(Date.now() - one.noted_ms)}</td>
                    <td class="right">{may("delete /admin/v1/bucket/checkpoints/sets") && <button onClick={() => setWithdrawing({ set, generation: one.generation })} aria-label={`Withdraw generation ${one.generation} of ${set.set}`}>Withdraw</button>}</td>
                  </tr>
                )),
              )}
            </Table>
            <Pager pages={pages} next={page.next} />
          </>
        )}
      </Loaded>
      {withdrawing && <Withdraw bucket={bucket} set={withdrawing.set} generation={withdrawing.generation} done={live.reload} close={() => setWithdrawing(undefined)} />}
    </Card>
  );
}

function Withdraw({ bucket, set, generation, done, close }: { bucket: string; set: SetLine; generation: number | undefined; done: () => Promise<void>; close: () => void }) {
  const [all, setAll] = useState(false);
  const [objects, setObjects] = useState(false);
  const lost = set.generations.filter((one) => all || one.generation === generation);
  const run = async () => {
    // A generation that was committed meanwhile is not among those that the dialog counts.
    try {
      for (const one of lost) await change("DELETE", "/admin/v1/bucket/checkpoints/sets", { bucket, set: set.set, generation: one.generation, delete_objects: objects ? true : undefined });
    } finally {
      await done();
    }
  };
  return (
    <Ask title={`Withdraw ${all ? "all generations" : `generation ${generation}`} of ${set.set}`} verb="Withdraw" danger run={run} close={close}>
      <p>{f.count(lost.length)} {lost.length === 1 ? "generation leaves" : "generations leave"} the view: {f.count(lost.reduce((sum, one) => sum + one.objects, 0))} objects, {f.bytes(lost.reduce((sum, one) => sum + one.bytes, 0))}.</p>
      <label class="row"><input type="checkbox" checked={all} onChange={(event) => setAll(event.currentTarget.checked)} /> All generations that are listed</label>
      <label class="row"><input type="checkbox" checked={objects} onChange={(event) => setObjects(event.currentTarget.checked)} /> Delete their objects too, after the grace time</label>
    </Ask>
  );
}

/** Dry run of the rules. */
function Retention({ bucket }: { bucket: string }) {
  return (
    <section aria-label="What retention will withdraw" class="change">
      <Withdrawals load={(after) => get<Schemas["RetentionPage"]>("/admin/v1/bucket/checkpoints/retention", { bucket, after })} />
    </section>
  );
}
