// Work on a ring's builder: open, change, plan, rebalance, download, push. `martlet ring` does the same on files.
import type { ComponentChildren } from "preact";
import { useEffect, useState } from "preact/hooks";
import { change, get, useLive } from "../api";
import type { Job } from "../jobs/card";
import { follow, open } from "../route";
import { may, type Schemas } from "../session";
import { Ask, Badge, Card, Failure, Head, Select } from "../ui/parts";
import { Begin } from "./begin";
import { builderFile, bytesOf, current, drop, isUnkept, overtaken, pushed, rename, ringFile, save, undo, type Work } from "./builder";
import { Crowded } from "./crowded";
import { Devices } from "./devices";
import { DryRun } from "./plan";
import { BuilderSettings } from "./settings";

/** Address of this page. */
export const BUILD = "/rings?view=build";

export function BuildRing() {
  const work = current();
  const unkept = isUnkept(work);
  const [closing, setClosing] = useState(false);
  return (
    <>
      <nav class="trail" aria-label="Path"><ol><li><a href="/rings" onClick={(event) => follow(event, "/rings")}>Rings</a></li><li aria-current="page">Build</li></ol></nav>
      <Head
        title={work ? `Build ${work.ring}` : "Build a ring"}
        lead="Devices, their weights, and the ring that places replicas on them."
        action={work && <button onClick={() => (unkept ? setClosing(true) : drop())}>Close the builder</button>}
      />
      {work ? (
        <>
          <Files work={work} />
          <Changes work={work} />
          <Devices reply={work.reply} />
          <BuilderSettings reply={work.reply} />
          <Crowded ring={work.ring} places={work.reply.crowded} />
          <DryRun work={work} />
        </>
      ) : (
        <Begin />
      )}
      {closing && (
        <Ask title="Close the builder" verb="Close without a file" danger run={async () => drop()} close={() => setClosing(false)}>
          <p>No file has the builder as it is here. If a ring of it was pushed, later rings need this builder.</p>
        </Ask>
      )}
    </>
  );
}

/** Warns before the tab is closed while it has changes that no file has. Pages of the console don't lose them. */
export function Guard() {
  const unkept = isUnkept(current());
  useEffect(() => {
    if (!unkept) return undefined;
    const warn = (event: BeforeUnloadEvent) => event.preventDefault();
    window.addEventListener("beforeunload", warn);
    return () => window.removeEventListener("beforeunload", warn);
  }, [unkept]);
  return null;
}

/** Note of other pages that a builder is open. */
export function OpenBuilder() {
  const work = current();
  if (!work) return null;
  return (
    <p class="row farewell" role="status">
      <span>The builder of {work.ring} is open in this tab{isUnkept(work) ? ", with changes that no file has" : ""}.</span>
      <a href={BUILD} onClick={(event) => follow(event, BUILD)}>Go on with it</a>
    </p>
  );
}

function Action({ run, children, ...props }: { run: () => Promise<void>; disabled?: boolean; children: ComponentChildren; fail: (text: string) => void }) {
  const [busy, setBusy] = useState(false);
  const act = async () => {
    setBusy(true);
    try {
      await run();
      props.fail("");
    } catch (thrown) {
      props.fail(thrown instanceof Error ? thrown.message : String(thrown));
    }
    setBusy(false);
  };
  return <button disabled={busy || props.disabled} onClick={() => void act()}>{children}</button>;
}

const ringsInUse = () => get<Schemas["RingSpread"][]>("/admin/v1/dispersion");

function Files({ work }: { work: Work }) {
  const [error, setError] = useState("");
  const [pushing, setPushing] = useState(false);
  const spread = useLive(ringsInUse, 0, []);
  const { reply, ring } = work;
  const unkept = isUnkept(work);
  const hasRing = reply.epoch > 0 && !reply.changed;
  const used = spread.value.value?.find((one) => one.ring === ring);
  const newer = overtaken(work, used);
  // Rings may have been pushed since this page was opened.
  const ask = () => {
    void spread.reload();
    setPushing(true);
  };
  const names = [...new Set([ring, ...(reply.settings.policy === 0 && !reply.settings.erasure ? ["index"] : []), `data-${reply.settings.policy}`])];
  const keep = async () => save(`${ring}.builder`, await builderFile(), "application/json");
  const write = async () => save(`${ring}.ring`, bytesOf(await ringFile()), "application/octet-stream");
  return (
    <Card title="Files" action={<Badge tone={unkept ? "warn" : "good"}>{unkept ? "not downloaded" : "in your file"}</Badge>} wide>
      <p>The server keeps no builder: this tab has it, and the files that you download. Keep the newest one, for later rings can be made of it alone.</p>
      {names.length > 1 && <Select label="Ring of this builder" value={ring} options={names} on={rename} />}
      <div class="row">
        <Action run={keep} fail={setError}>Download the builder</Action>
        <Action run={write} fail={setError} disabled={!hasRing}>Download the ring</Action>
        {may("post /admin/v1/jobs") && <button class="primary" disabled={!hasRing || unkept || newer !== undefined} onClick={ask}>Push to all nodes</button>}
      </div>
      <p class="note">
        {!hasRing ? "Devices or settings have changed since the last ring: rebalance first. " : unkept ? "Download the builder before its ring is pushed. " : ""}
        {spread.value.value && (used ? `Epoch ${used.epoch} of ${ring} is in use, and this builder has epoch ${reply.epoch}. ` : `No ring ${ring} is in use. `)}
        A device has one number in all rings: make equal changes in their builders, in equal order.
      </p>
      {newer && <p class="reason" role="alert">{newer}</p>}
      {error && <Failure text={error} />}
      {pushing && <Push work={work} used={used} close={() => setPushing(false)} />}
    </Card>
  );
}

function Push({ work, used, close }: { work: Work; used: Schemas["RingSpread"] | undefined; close: () => void }) {
  const newer = overtaken(work, used);
  const push = async () => {
    const [file, spread] = await Promise.all([ringFile(), ringsInUse()]);
    const late = overtaken(work, spread.find((one) => one.ring === work.ring));
    if (late) throw new Error(late);
    await change<Job>("POST", "/admin/v1/jobs", {}, { kind: "ring-push", rings: [{ name: work.ring, file }] });
    pushed(work);
    open("/rings");
  };
  return (
    <Ask title={`Push ${work.ring}`} verb="Push to all nodes" danger run={push} close={close}>
      <p>Nodes take a ring that follows the one in use, and data begins to move. A push can't be taken back: a later ring has to move the data again.</p>
      <p>{work.ring}: epoch {used?.epoch ?? "none"} → {work.reply.epoch}, {used?.devices ?? 0} → {work.reply.devices.length} devices.</p>
      {newer && <p class="reason">{newer}</p>}
      {used && used.epoch >= work.reply.epoch && <p class="reason">The ring in use has the epoch {used.epoch}. Nodes take no other ring of it, and no older one.</p>}
    </Ask>
  );
}

function Changes({ work: { changes, notes } }: { work: Work }) {
  const [error, setError] = useState("");
  if (changes.length === 0 && notes.length === 0) return null;
  return (
    <Card title="Changes" note={changes.length > 0 ? "since the builder was opened, downloaded or rebalanced" : undefined} wide>
      {changes.length > 0 && (
        <ol class="steps" aria-label="Changes of the builder">
          {changes.map((one, at) => (
            <li>
              <span class="row">
                <span>{one.done}</span>
                <Action run={async () => await undo(at)} fail={setError}>Undo<span class="hidden"> {one.done}</span></Action>
              </span>
            </li>
          ))}
        </ol>
      )}
      {notes.length > 0 && <div role="status"><ul aria-label="Notes">{notes.map((note) => <li class="note">{note}</li>)}</ul></div>}
      {error && <Failure text={error} />}
    </Card>
  );
}
