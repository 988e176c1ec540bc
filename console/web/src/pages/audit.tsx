// Audit trail of one process or of all: changes of operators, and those of tenants.
import { useState } from "preact/hooks";
import { change, useLive, type Round } from "../api";
import * as f from "../format";
import { getOf, getOfAll, MissingProcesses, ProcessSelect, useProcesses, waiting, type ProcessReply } from "../process/choice";
import { session, type Schemas } from "../session";
import { Ask, Badge, Card, Empty, Field, Head, Loaded, Select, Table, type Tone } from "../ui/parts";
import { Pager, usePages } from "../ui/pager";

const TONES: Record<string, Tone> = { done: "good", refused: "warn", failed: "bad", unknown: "bad" };
type Who = Schemas["PrincipalLine"];
const SPANS: Record<string, number> = { "last hour": 3600, "last day": 86_400, "last week": 604_800, "all": 0 };

type AuditPage = Schemas["AuditPage"];

interface Records {
  items: AuditPage["items"];
  /** Cursor of the next page: of one process, or those of all as JSON. */
  next: string | null;
  replies: ProcessReply<AuditPage>[];
}

/** Joins a page of each process by time. Records are those of the process that was read, whatever name they have. */
export function joined(replies: ProcessReply<AuditPage>[]): Records {
  const pages = replies.flatMap((reply) => (reply.value ? [{ process: reply.process.process, page: reply.value }] : []));
  const items = pages.flatMap(({ process, page }) => page.items.map((record) => ({ ...record, process }))).sort((one, other) => one.time_ms - other.time_ms);
  const more = pages.filter(({ page }) => page.more).map(({ process, page }) => [process, page.next]);
  // Processes at their end have no cursor. The next page begins when all have replied.
  return { items, next: more.length > 0 && waiting(replies) === 0 ? JSON.stringify(Object.fromEntries(more)) : null, replies };
}

export function Audit() {
  const ofTenant = session.value?.principal?.role === "tenant-admin";
  const [log, setLog] = useState(ofTenant ? "tenants" : "operators");
  const [since, setSince] = useState("last day");
  const [who, setWho] = useState("");
  const [what, setWhat] = useState("");
  const [ending, setEnding] = useState<Who>();
  // Others may end their own session alone, by signing out.
  const mayEnd = session.value?.principal?.role === "operator";
  const pages = usePages();
  const processes = useProcesses("/admin/v1/audit", true);
  const load = async (round: Round<Records>): Promise<Records> => {
    const span = SPANS[since] ?? 0;
    const since_ms = span > 0 ? Date.now() - span * 1000 : undefined;
    const query = { tenants: log === "tenants", who, what, since_ms };
    if (processes.chosen === undefined) {
      const page = await getOf<AuditPage>(undefined, "/admin/v1/audit", { ...query, after: pages.after });
      return { items: page.items, next: page.more ? page.next : null, replies: [] };
    }
    const cursors = pages.after === undefined ? undefined : (JSON.parse(pages.after) as Record<string, string>);
    const going = processes.chosen.filter((one) => cursors === undefined || cursors[one.process] !== undefined);
    return await getOfAll<AuditPage, Records>(going, "/admin/v1/audit", (one) => ({ ...query, after: cursors?.[one.process] }), round, joined);
  };
  const live = useLive(load, 10_000, [log, since, who, what, pages.after, processes.name]);
  const filter = (set: (value: string) => void) => (value: string) => {
    pages.first();
    set(value);
  };
  return (
    <>
      <Head title="Audit trail" lead="Changes that processes made, in the order in which they ended. Each process keeps its own; those of several are joined by time, a page of each." />
      <Card wide>
        <div class="filters">
          <ProcessSelect choice={{ ...processes, choose: filter(processes.choose) }} />
          {!ofTenant && <Select label="Changes of" value={log} options={["operators", "tenants"]} on={filter(setLog)} />}
          <Select label="Time" value={since} options={Object.keys(SPANS)} on={filter(setSince)} />
          <Field label="Who" value={who} on={filter(setWho)} />
          <Field label="What" value={what} on={filter(setWhat)} />
        </div>
        <Loaded live={live}>
          {(page) => (
            <>
              <MissingProcesses replies={page.replies} />
              {page.items.length === 0 ? (
                <Empty title="No changes">No record matches.</Empty>
              ) : (
                <Table label="Changes" heads={["Time", ...(processes.chosen ? ["Process"] : []), "Who", "Operation", "Target", "Outcome", "From"]}>
                  {page.items.map((record) => (
                    <tr>
                      <td>{f.exact(record.time_ms)}</td>
                      {processes.chosen && <td>{record.process}</td>}
                      <td>
                        {record.who.name || record.who.key || record.who.kind}<small class="quiet"> {record.who.role}</small>
                        {mayEnd && record.who.session && <div><button onClick={() => setEnding(record.who)} aria-label={`End the session ${record.who.session}`}>End the session</button></div>}
                      </td>
                      <td><code>{record.operation}</code></td>
                      <td>{Object.entries(record.target ?? {}).map(([name, value]) => <span class="pair">{name}={value}</span>)}</td>
                      <td><Badge tone={TONES[record.outcome ?? ""] ?? "calm"}>{record.outcome ?? "begun"}{record.status ? ` ${record.status}` : ""}</Badge></td>
                      <td>{record.peer ?? "–"}</td>
                    </tr>
                  ))}
                </Table>
              )}
              <Pager pages={pages} next={page.next} />
            </>
          )}
        </Loaded>
      </Card>
      {ending && (
        <Ask title={`End the session ${ending.session}`} verb="End it" danger run={async () => void (await change("DELETE", "/admin/v1/session", { id: ending.session }))} close={() => setEnding(undefined)}>
          <p>The browser or command of {ending.name || ending.key || ending.kind} that holds the session is refused from then on. Its key may begin another one: revoke the key to prevent that.</p>
        </Ask>
      )}
    </>
  );
}
