// Settings of a builder, steps on the whole ring, and the history of its file.
import { useState } from "preact/hooks";
import * as f from "../format";
import { follow } from "../route";
import { Ask, Badge, Card, Field, Table } from "../ui/parts";
import { Slices } from "../ui/pager";
import { parseCount } from "../units";
import { add, numberOf, type Reply, type Step } from "./builder";

type Dialog = "settings" | "double" | "settle" | "hours";

export function BuilderSettings({ reply }: { reply: Reply }) {
  const [dialog, setDialog] = useState<Dialog>();
  const close = () => setDialog(undefined);
  const { settings } = reply;
  const figure = (value: number | null | undefined) => (typeof value === "number" ? `${value.toFixed(2)} %` : "no ring yet");
  return (
    <Card title="Ring" action={<button onClick={() => setDialog("settings")}>Change the settings</button>} wide>
      <dl class="pairs text">
        <dt>Storage policy</dt>
        <dd>{settings.policy} ({settings.policy_name})</dd>
        <dt>Partitions and replicas</dt>
        <dd>2^{settings.part_power} × {settings.replicas}{settings.erasure ? ` fragments (${settings.erasure})` : ""}</dd>
        <dt>Epoch</dt>
        <dd>{f.count(reply.epoch)} {reply.changed && reply.epoch > 0 && <Badge tone="busy">changed since</Badge>}</dd>
        <dt>Worst deviation</dt>
        <dd>{figure(reply.balance)}</dd>
        <dt>Too close together</dt>
        <dd>{figure(reply.dispersion)}</dd>
        <dt>Replicas under way</dt>
        <dd>{f.count(reply.replicas_moving)}</dd>
        <dt>Hours between two moves of a partition</dt>
        <dd>{f.count(settings.min_part_hours)}</dd>
        <dt>Overload</dt>
        <dd>{settings.overload}; the best dispersion needs {reply.overload_needed.toFixed(4)}</dd>
      </dl>
      {reply.invalid && <p class="reason">{reply.invalid}</p>}
      {reply.advice.length > 0 && <ul class="reasons" aria-label="Advice">{reply.advice.map((advice) => <li>{advice}</li>)}</ul>}
      <div class="row">
        <button disabled={reply.replicas_moving === 0} onClick={() => setDialog("settle")}>Settle the moves</button>
        <button disabled={reply.replicas_moving === 0} onClick={() => setDialog("hours")}>Let partitions move again</button>
        <button onClick={() => setDialog("double")}>Double the partitions</button>
      </div>
      <details>
        <summary>History of the builder</summary>
        <Slices items={[...reply.history].reverse()} size={50} label="the history">
          {(shown) => (
            <Table label="History of the builder" heads={["Time", "Operator", "Change"]}>
              {shown.map((line) => (
                <tr>
                  <td>{f.date(line.at_ms)}</td>
                  <td class="wrap">{line.who}</td>
                  <td class="wrap">{line.what}</td>
                </tr>
              ))}
            </Table>
          )}
        </Slices>
      </details>
      {dialog === "settings" && <Change reply={reply} close={close} />}
      {dialog === "double" && (
        <Ask title="Double the partitions" verb="Double" danger run={async () => await add([{ step: "increase-part-power" }])} close={close}>
          <p>Each partition is split in two in place, and no data moves. The number of partitions can't be reduced again.</p>
        </Ask>
      )}
      {dialog === "settle" && (
        <Ask title="Settle the moves" verb="Settle" danger run={async () => await add([{ step: "settle" }])} close={close}>
          <p>The ring forgets the previous holders of {f.count(reply.replicas_moving)} replicas. Settle after a <a href="/census" onClick={(event) => follow(event, "/census")}>census</a> that began after the push and is clean: bytes that have not arrived would not be looked for any more.</p>
        </Ask>
      )}
      {dialog === "hours" && (
        <Ask title="Let partitions move again" verb="Let them move" danger run={async () => await add([{ step: "pretend-min-part-hours-passed" }])} close={close}>
          <p>The next rebalance may move partitions whose last move isn't settled. Nodes refuse such a ring until the move is done.</p>
        </Ask>
      )}
    </Card>
  );
}

function Change({ reply: { settings }, close }: { reply: Reply; close: () => void }) {
  const [replicas, setReplicas] = useState(String(settings.replicas));
  const [overload, setOverload] = useState(String(settings.overload));
  const [hours, setHours] = useState(String(settings.min_part_hours));
  const run = async () => {
    const steps: Step[] = [];
    if (replicas !== String(settings.replicas)) steps.push({ step: "set-replicas", replicas: numberOf(replicas, "write 3, or 2.5 for three of half of the partitions") });
    if (overload !== String(settings.overload)) steps.push({ step: "set-overload", overload: numberOf(overload, "write 0.1 for a tenth") });
    if (hours !== String(settings.min_part_hours)) steps.push({ step: "set-min-part-hours", hours: parseCount(hours) });
    if (steps.length > 0) await add(steps);
  };
  return (
    <Ask title="Change the settings" verb="Change" run={run} close={close}>
      <Field label="Replicas" value={replicas} on={setReplicas} required hint="2.5: three for half of the partitions, two for the others" />
      <Field label="Overload" value={overload} on={setOverload} required hint="Share by which a device may exceed its own, such as 0.1" />
      <Field label="Hours between two moves of a partition" value={hours} on={setHours} required />
    </Ask>
  );
}
