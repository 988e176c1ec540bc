// State of the index after a loss: the hold on collection, its begin and end, and the loss that can be accepted.
import { useState } from "preact/hooks";
import { change, type Live } from "../api";
import * as f from "../format";
import type { Job } from "../jobs/card";
import { may, type Schemas } from "../session";
import { Ask, Badge, Card, Check, Loaded } from "../ui/parts";
import { leftOut } from "./report";

export type State = Schemas["IndexLine"];
type Step = "hold" | "release" | "accept";

const names = (devices: number[]): string => devices.map((device) => `d${device}`).join(", ");
const partitions = (count: number): string => (count === 1 ? "1 partition" : `${f.count(count)} partitions`);

export function StateCard({ live, started }: { live: Live<State>; started: () => Promise<void> }) {
  const [step, setStep] = useState<Step>();
  const state = live.value.value;
  const held = typeof state?.held_since_ms === "number";
  const close = () => setStep(undefined);
  const actions = (
    <>
      {state && !held && may("put /admin/v1/index/hold") && <button onClick={() => setStep("hold")}>Hold collection</button>}
      {state && held && may("delete /admin/v1/index/hold") && <button onClick={() => setStep("release")}>End the hold</button>}
    </>
  );
  return (
    <Card title="State" note="as far as this process knows it" action={actions} wide>
      <Loaded live={live}>{(line) => <Shown line={line} accept={() => setStep("accept")} />}</Loaded>
      {step === "hold" && <Hold done={live.reload} close={close} />}
      {step === "release" && state && <Release line={state} done={live.reload} close={close} />}
      {step === "accept" && state && <Accept line={state} done={started} close={close} />}
    </Card>
  );
}

function Shown({ line, accept }: { line: State; accept: () => void }) {
  const held = line.held_since_ms;
  return (
    <>
      <p class="verdict">
        {typeof held === "number" ? <Badge tone="warn">Collection is held</Badge> : <Badge tone="good">Collection is not held</Badge>}
        {typeof held === "number" && <span class="note"> since {f.exact(held)}. Nothing that no entry names is deleted.</span>}
      </p>
      {line.lost_devices.length > 0 && <p>Accepted: {names(line.lost_devices)} lost the registers of {partitions(line.lost_partitions)}.</p>}
      {line.acceptable_devices.length > 0 && (
        <>
          <ul class="reasons"><li>{names(line.acceptable_devices)} have no votes, and no peer has {partitions(line.acceptable_partitions)} of theirs. Look for the disks first: a disk that comes back has its entries, and a rebuild has not.</li></ul>
          {may("post /admin/v1/jobs") && <div class="row"><button class="danger" onClick={accept}>Accept the loss</button></div>}
        </>
      )}
      {line.nothing_to_accept && <p class="quiet">No loss to accept: {line.nothing_to_accept}</p>}
      {line.last_rebuild ? (
        <p class="quiet">The last rebuild of this process ({line.last_rebuild.scope || "unknown scope"}) left out {leftOut(line.last_rebuild)}.</p>
      ) : (
        <p class="quiet">No rebuild has ended in this process since its start.</p>
      )}
    </>
  );
}

interface Dialog {
  done: () => Promise<void>;
  close: () => void;
}

function Hold({ done, close }: Dialog) {
  const run = async () => {
    await change<State>("PUT", "/admin/v1/index/hold", {});
    await done();
  };
  return (
    <Ask title="Hold collection" verb="Hold it" run={run} close={close}>
      <p>No worker deletes extents and tombstones until the hold ends, so that deleted objects keep their space. It begins anew if it is in force, and ends a rebuild that runs.</p>
    </Ask>
  );
}

function Release({ line, done, close }: Dialog & { line: State }) {
  const [sure, setSure] = useState(false);
  const last = line.last_rebuild;
  const run = async () => {
    await change<State>("DELETE", "/admin/v1/index/hold", {});
    await done();
  };
  return (
    <Ask title="End the hold" verb="End the hold" danger run={run} close={close}>
      <p>Bytes that no entry names are deleted from then on, and can't be brought back.</p>
      {last ? (
        <ul class="reasons"><li>The last rebuild of this process ({last.scope || "unknown scope"}) left out {leftOut(last)}.</li></ul>
      ) : (
        <ul class="reasons"><li>No rebuild has ended in this process since its start. Look at the process that ran the last one, or take a dry run here first.</li></ul>
      )}
      <Check label="No rebuild is needed any more" on={sure} set={setSure} required />
    </Ask>
  );
}

function Accept({ line, done, close }: Dialog & { line: State }) {
  const [sure, setSure] = useState(false);
  const devices = line.acceptable_devices;
  const run = async () => {
    await change<Job>("POST", "/admin/v1/jobs", {}, { kind: "index-accept-loss", devices });
    await done();
  };
  return (
    <Ask title={`Accept the loss on ${names(devices)}`} verb="Accept the loss" danger run={run} close={close}>
      <p>The registers of {partitions(line.acceptable_partitions)} on {names(devices)} are given up. From then on clients read and write their keys again, and don't see the lost objects, which a rebuild brings back in part.</p>
      <p>The old disks are of no use then: one that returns begins as an empty one. The job holds collection, and begins a hold that is in force anew, which ends a rebuild that runs.</p>
      <Check label="These disks don't come back" hint="And no copy of their index is left, in quarantine or elsewhere." on={sure} set={setSure} required />
    </Ask>
  );
}
