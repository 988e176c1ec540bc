// Event targets of one process or of all: backlog, losses, and messages that a target refused.
import { useState } from "preact/hooks";
import { change, useLive, type Round } from "../api";
import * as f from "../format";
import { indented } from "../preview/json";
import { getOf, getOfAll, MissingProcesses, ProcessSelect, useProcesses, type ProcessName, type ProcessReply } from "../process/choice";
import { may, type Schemas } from "../session";
import { Ask, Badge, Card, Empty, Head, Loaded, Table } from "../ui/parts";
import { Slices } from "../ui/pager";

/** Target, with the process that has it; none for this one. */
type Target = Schemas["EventTargetLine"] & { process?: ProcessName };
type Lane = Schemas["ParkedLane"];

interface Parked {
  process?: ProcessName | undefined;
  target: string;
  lane: Lane;
}

type TargetList = { items: Target[] };

export function EventTargets() {
  const processes = useProcesses("/admin/v1/events", true);
  const [replies, setReplies] = useState<ProcessReply<TargetList>[]>([]);
  const made = (replies: ProcessReply<TargetList>[]) => {
    setReplies(replies);
    return replies.flatMap(({ process, value }) => (value?.items ?? []).map((target) => ({ ...target, process })));
  };
  const load = async (round: Round<Target[]>) => {
    if (processes.chosen === undefined) {
      setReplies([]);
      return (await getOf<TargetList>(undefined, "/admin/v1/events")).items;
    }
    return await getOfAll<TargetList, Target[]>(processes.chosen, "/admin/v1/events", () => ({}), round, made);
  };
  const live = useLive<Target[]>(load, 5000, [processes.name]);
  const [shown, setShown] = useState<Parked>();
  const [doing, setDoing] = useState<Parked>();
  const run = async () => {
    if (!doing) return;
    const request = { target: doing.target, lane: doing.lane.lane, bytes: doing.lane.bytes };
    await change("POST", "/admin/v1/events/parked/retry", {}, request);
    setShown(undefined);
    await live.reload();
  };
  const close = () => setDoing(undefined);
  return (
    <>
      <Head title="Events" lead="Targets of events. Each proxy and replicator has targets and spools of its own. Messages are sent again on the page of their process." />
      {processes.options.length > 0 && <Card wide><div class="filters"><ProcessSelect choice={processes} /></div></Card>}
      <MissingProcesses replies={replies} />
      <Loaded live={live}>
        {(targets) =>
          targets.length === 0 ? (
            <Empty title="No event targets">The setting notifications of proxies and replicators defines them.</Empty>
          ) : (
            <>
              <Card title="Targets" note="counts since the process started" wide>
                <Slices items={targets} size={50} label="the targets">{(page) => <Targets targets={page} />}</Slices>
              </Card>
              <Parkings
                parked={targets.flatMap((one) => one.parked.map((lane) => ({ process: one.process, target: one.target, lane })))}
                show={setShown}
                release={setDoing}
              />
            </>
          )
        }
      </Loaded>
      {shown && <Messages key={`${shown.process?.process ?? ""} ${shown.target} ${shown.lane.lane}`} {...shown} close={() => setShown(undefined)} />}
      {doing && (
        <Ask title={`Send the parked messages of ${doing.target} again`} verb="Send again" run={run} close={close}>
          <p>{f.bytes(doing.lane.bytes)} of messages of the lane <b>{doing.lane.lane}</b> go behind those that wait. Repair the target first: a message that it refuses again is parked again.</p>
        </Ask>
      )}
    </>
  );
}

function Targets({ targets }: { targets: readonly Target[] }) {
  return (
    <Table label="Targets" heads={["Target", "State", { right: "Waiting" }, { right: "Parked" }, { right: "Delivered" }, { right: "Failed attempts" }, { right: "Refused" }, { right: "Lost" }]}>
      {targets.map((one) => {
        const parked = one.parked.reduce((sum, lane) => sum + lane.bytes, 0);
        const tone = one.lost > 0 ? "bad" : parked > 0 || one.waiting_bytes > 0 ? "warn" : "good";
        return (
          <tr>
            <th scope="row">{one.target}<OfProcess process={one.process} /></th>
            <td><Badge tone={tone}>{one.lost > 0 ? "messages lost" : parked > 0 ? "messages parked" : one.waiting_bytes > 0 ? "messages wait" : "all delivered"}</Badge></td>
            <td class="right">{f.bytes(one.waiting_bytes)}</td>
            <td class="right">{f.bytes(parked)}</td>
            <td class="right">{f.count(one.delivered)}</td>
            <td class="right">{f.count(one.failures)}</td>
            <td class="right">{f.count(one.refused)}</td>
            <td class="right">{f.count(one.lost)}</td>
          </tr>
        );
      })}
    </Table>
  );
}

function Parkings({ parked, show, release }: { parked: Parked[]; show: (parked: Parked) => void; release: (parked: Parked) => void }) {
  if (parked.length === 0) return null;
  return (
    <Card title="Parked messages" note="a target refused them again and again; later ones were delivered" wide>
      <Slices items={parked} size={50} label="the lanes">
        {(page) => (
          <Table label="Parked messages" heads={["Target", "Lane", { right: "Parked" }, { right: "Released" }, "File", { right: "Change" }]}>
            {page.map((one) => {
              const { process, target, lane } = one;
              const of = `of ${target} ${lane.lane}${process ? ` of ${process.process}` : ""}`;
              return (
                <tr>
                  <th scope="row">{target}<OfProcess process={process} /></th>
                  <td>{lane.lane}</td>
                  <td class="right">{f.bytes(lane.bytes)}</td>
                  <td class="right">{f.bytes(lane.again_bytes)}</td>
                  <td><code class="names">{lane.path}</code></td>
                  <td class="right">
                    {lane.bytes > 0 && may("get /admin/v1/events/parked") && <button onClick={() => show(one)} aria-label={`Show the messages ${of}`}>Show</button>}{" "}
                    {lane.bytes > 0 && (process?.own ?? true) && may("post /admin/v1/events/parked/retry") && <button onClick={() => release(one)} aria-label={`Send again the messages ${of}`}>Send again</button>}
                  </td>
                </tr>
              );
            })}
          </Table>
        )}
      </Slices>
    </Card>
  );
}

function OfProcess({ process }: { process: ProcessName | undefined }) {
  return process ? <small class="quiet"> {process.process}</small> : null;
}

function Messages({ process, target, lane, close }: Parked & { close: () => void }) {
  const [offsets, setOffsets] = useState<number[]>([0]);
  const after = offsets[offsets.length - 1];
  const live = useLive(() => getOf<Schemas["ParkedPage"]>(process, "/admin/v1/events/parked", { target, lane: lane.lane, after }), 0, [after]);
  return (
    <Card title={`Messages of ${target}, lane ${lane.lane}${process ? `, ${process.process}` : ""}`} wide action={<button onClick={close}>Close the messages</button>}>
      <Loaded live={live}>
        {({ items, next }) => (
          <>
            {items.length === 0 && <p class="quiet">No message is parked here any more.</p>}
            {items.map((message) => (
              <details>
                <summary>{summary(message.text)}</summary>
                <pre tabIndex={0}>{message.length > message.text.length ? `${message.text}…` : indented(message.text)}</pre>
              </details>
            ))}
            {(offsets.length > 1 || typeof next === "number") && (
              <nav class="pager" aria-label="Pages of the messages">
                <button disabled={offsets.length === 1} onClick={() => setOffsets(offsets.slice(0, -1))}>Previous</button>
                <span>Page {offsets.length}</span>
                <button disabled={typeof next !== "number"} onClick={() => typeof next === "number" && setOffsets([...offsets, next])}>Next</button>
              </nav>
            )}
          </>
        )}
      </Loaded>
    </Card>
  );
}

/** Event, bucket and key of a message, or its beginning. */
function summary(text: string): string {
  try {
    const message = JSON.parse(text) as { EventName?: string; Key?: string; Records?: { eventName?: string; eventTime?: string; s3?: { bucket?: { name?: string }; object?: { key?: string } } }[] };
    const record = message.Records?.[0];
    const shown = [record?.eventTime, record?.eventName ?? message.EventName, record?.s3?.bucket?.name, record?.s3?.object?.key ?? message.Key].filter(Boolean);
    if (shown.length > 0) return shown.join(" · ").slice(0, 300);
  } catch {
    // Cut or damaged: the beginning has to do.
  }
  return text.slice(0, 200) || "empty";
}
