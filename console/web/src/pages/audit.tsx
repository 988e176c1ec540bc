// Audit trail of this process: changes of operators, and those of tenants.
import { useState } from "preact/hooks";
import { change, get, useLive } from "../api";
import * as f from "../format";
import { session, type Schemas } from "../session";
import { Ask, Badge, Card, Empty, Field, Head, Loaded, Select, Table, type Tone } from "../ui/parts";
import { Pager, usePages } from "../ui/pager";

const TONES: Record<string, Tone> = { done: "good", refused: "warn", failed: "bad", unknown: "bad" };
type Who = Schemas["PrincipalLine"];
const SPANS: Record<string, number> = { "last hour": 3600, "last day": 86_400, "last week": 604_800, "all": 0 };

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
  const load = () => {
    const span = SPANS[since] ?? 0;
    const since_ms = span > 0 ? Date.now() - span * 1000 : undefined;
    return get<Schemas["AuditPage"]>("/admin/v1/audit", { tenants: log === "tenants", who, what, since_ms, after: pages.after });
  };
  const live = useLive(load, 10_000, [log, since, who, what, pages.after]);
  const filter = (set: (value: string) => void) => (value: string) => {
    pages.first();
    set(value);
  };
  return (
    <>
      <Head title="Audit trail" lead="Changes that this process made, in the order in which they ended. Each process keeps its own." />
      <Card wide>
        <div class="filters">
          {!ofTenant && <Select label="Changes of" value={log} options={["operators", "tenants"]} on={filter(setLog)} />}
          <Select label="Time" value={since} options={Object.keys(SPANS)} on={filter(setSince)} />
          <Field label="Who" value={who} on={filter(setWho)} />
          <Field label="What" value={what} on={filter(setWhat)} />
        </div>
        <Loaded live={live}>
          {(page) => (
            <>
              {page.items.length === 0 ? (
                <Empty title="No changes">No record matches.</Empty>
              ) : (
                <Table label="Changes" heads={["Time", "Who", "Operation", "Target", "Outcome", "From"]}>
                  {page.items.map((record) => (
                    <tr>
                      <td>{f.exact(record.time_ms)}</td>
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
              <Pager pages={pages} next={page.more ? page.next : null} />
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
