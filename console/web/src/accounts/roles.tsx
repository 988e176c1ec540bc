// Roles of a tenant, for temporary credentials: list, creation, policy, trust, state and deletion.
import { useState } from "preact/hooks";
import { change, get, useLive } from "../api";
import * as f from "../format";
import { may, type Schemas } from "../session";
import { DocumentEditor, pretty } from "../ui/document";
import { Ask, Card, Empty, Field, Loaded, Table } from "../ui/parts";
import { Pager } from "../ui/pager";
import { parseSpan } from "../units";
import { Enabled, Turn, useAccounts } from "./parts";
import { POLICY } from "./users";

type Role = Schemas["RoleLine"];
type What = "turn" | "session" | "delete";

const TRUST = JSON.stringify({ Version: "2012-10-17", Statement: [{ Effect: "Allow", Principal: { AWS: "TENANT" }, Action: "sts:AssumeRole" }] }, null, 2);

export function Roles({ tenant }: { tenant: string }) {
  const { pages, live, making, setMaking, what, line, begin, close } = useAccounts<Role, What>("/admin/v1/roles", { tenant });
  const [shown, setShown] = useState<string>();
  const turn = async () => {
    await change("PUT", "/admin/v1/role", {}, { tenant, role: line?.role, enabled: !line?.enabled });
    await live.reload();
  };
  const remove = async () => {
    await change("DELETE", "/admin/v1/role", { tenant, role: line?.role });
    if (shown === line?.role) setShown(undefined);
    await live.reload();
  };
  const change_ = may("put /admin/v1/role");
  return (
    <>
      <Card title={`Roles of ${tenant}`} note="temporary credentials by AssumeRole" wide action={may("post /admin/v1/roles") && <button onClick={() => setMaking(true)}>New role</button>}>
        <Loaded live={live}>
          {(page) => (
            <>
              {page.items.length === 0 ? (
                <Empty title="No roles">A role has a policy, and a trust document that names who may take it.</Empty>
              ) : (
                <Table label="Roles" heads={["Role", "State", { right: "Longest session" }, "Trusts", "Created", { right: "Change" }]}>
                  {page.items.map((one) => (
                    <tr key={one.role} class={one.role === shown ? "chosen" : ""}>
                      <th scope="row"><button class="link" aria-pressed={one.role === shown} onClick={() => setShown(one.role)}>{one.role}</button></th>
                      <td><Enabled enabled={one.enabled} /></td>
                      <td class="right">{f.span(one.max_session_seconds)}</td>
                      <td>{one.trust ? "by its document" : "the tenant's own keys"}</td>
                      <td>{f.date(one.created_ms)}</td>
                      <td class="right">
                        {change_ && <button onClick={() => begin({ what: "session", line: one })} aria-label={`Sessions of ${one.role}`}>Sessions</button>}{" "}
                        {change_ && <button onClick={() => begin({ what: "turn", line: one })} aria-label={`${one.enabled ? "Disable" : "Enable"} the role ${one.role}`}>{one.enabled ? "Disable" : "Enable"}</button>}{" "}
                        {may("delete /admin/v1/role") && <button onClick={() => begin({ what: "delete", line: one })} aria-label={`Delete the role ${one.role}`}>Delete</button>}
                      </td>
                    </tr>
                  ))}
                </Table>
              )}
              <Pager pages={pages} next={page.next} />
            </>
          )}
        </Loaded>
        {what === "session" && line && <Sessions line={line} done={live.reload} close={close} />}
        {what === "turn" && line && (
          <Turn account={`role ${line.role}`} enabled={line.enabled} disabled="Its open sessions are refused, and no new one begins." accepted="Sessions may begin again." run={turn} close={close} />
        )}
        {what === "delete" && line && (
          <Ask title={`Delete the role ${line.role}`} verb="Delete" danger run={remove} close={close}>
            <p>Its policy and trust document are lost, and its open sessions are refused.</p>
          </Ask>
        )}
      </Card>
      {making && <NewRole tenant={tenant} done={live.reload} close={() => setMaking(false)} />}
      {shown !== undefined && <Documents key={shown} tenant={tenant} role={shown} close={() => setShown(undefined)} />}
    </>
  );
}

function Sessions({ line, done, close }: { line: Role; done: () => Promise<void>; close: () => void }) {
  const [longest, setLongest] = useState(`${line.max_session_seconds}s`);
  const save = async () => {
    await change("PUT", "/admin/v1/role", {}, { tenant: line.tenant, role: line.role, max_session_seconds: Math.round(parseSpan(longest) / 1000) });
    await done();
  };
  return (
    <Ask title={`Sessions of the role ${line.role}`} verb="Save" run={save} close={close}>
      <Field label="Longest session" value={longest} on={setLongest} required hint="15m to 12h." focus />
    </Ask>
  );
}

/** A new role: its name, and its policy in the editor, where a refusal loses no text. */
function NewRole({ tenant, done, close }: { tenant: string; done: () => Promise<void>; close: () => void }) {
  const [role, setRole] = useState("");
  const [longest, setLongest] = useState("1h");
  const create = async (policy: string) => {
    if (role === "") throw new Error("the role needs a name");
    await change("POST", "/admin/v1/roles", {}, { tenant, role, policy, trust: null, max_session_seconds: Math.round(parseSpan(longest) / 1000), enabled: null });
    await done();
  };
  return (
    <Card title={`New role of ${tenant}`} note="the tenant's own keys may take it, until it has a trust document" wide>
      <div class="filters">
        <Field label="Name of the role" value={role} on={setRole} required />
        <Field label="Longest session" value={longest} on={setLongest} required hint="15m to 12h." />
      </div>
      <DocumentEditor label="Policy of the new role" id={`new role ${tenant}`} stored="" template={POLICY} current={() => Promise.resolve("")} save={create} close={close} />
    </Card>
  );
}

function Documents({ tenant, role, close }: { tenant: string; role: string; close: () => void }) {
  const live = useLive(() => get<Role>("/admin/v1/role", { tenant, role }), 0, []);
  const [editing, setEditing] = useState<"policy" | "trust">();
  const now = async () => await get<Role>("/admin/v1/role", { tenant, role });
  const save = (which: "policy" | "trust") => async (text: string) => {
    await change("PUT", "/admin/v1/role", {}, { tenant, role, [which]: text });
    await live.reload();
  };
  return (
    <Card title={`Role ${role}`} note={`arn:aws:iam::${tenant}:role/${role}`} wide action={<button onClick={close}>Close the role</button>}>
      <Loaded live={live}>
        {(line) =>
          editing ? (
            <DocumentEditor
              key={editing}
              label={editing === "policy" ? `Policy of the role ${role}` : `Trust document of the role ${role}`}
              id={`role ${tenant}/${role} ${editing}`}
              stored={line[editing] ?? ""}
              template={TRUST.replace("TENANT", tenant)}
              current={async () => (await now())[editing] ?? ""}
              save={save(editing)}
              close={() => setEditing(undefined)}
            />
          ) : (
            <>
              <h3>Policy</h3>
              <pre class="content" tabIndex={0} aria-label={`Policy of the role ${role}`}>{pretty(line.policy)}</pre>
              <h3>Trust document</h3>
              {line.trust ? <pre class="content" tabIndex={0} aria-label={`Trust document of the role ${role}`}>{pretty(line.trust)}</pre> : <p class="quiet">None: the tenant's own keys may take the role.</p>}
              {may("put /admin/v1/role") && (
                <div class="row">
                  <button onClick={() => setEditing("policy")}>Change the policy of the role</button>
                  <button onClick={() => setEditing("trust")}>{line.trust ? "Change the trust document" : "Write a trust document"}</button>
                </div>
              )}
            </>
          )
        }
      </Loaded>
    </Card>
  );
}
