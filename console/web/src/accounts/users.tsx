// Users of a tenant: list, creation, role, state, policy and deletion.
import { useState } from "preact/hooks";
import { change, get, useLive } from "../api";
import * as f from "../format";
import { may, type Schemas } from "../session";
import { DocumentEditor, pretty } from "../ui/document";
import { Ask, Card, Empty, Field, Loaded, Select, Table } from "../ui/parts";
import { Pager } from "../ui/pager";
import { Enabled, Turn, useAccounts } from "./parts";

type User = Schemas["UserLine"];
type What = "turn" | "role" | "delete";

const ROLES = ["admin", "read-write", "read-only"];

/** Policy that permits to read one bucket. */
export const POLICY = JSON.stringify(
  {
    Version: "2012-10-17",
    Statement: [
      { Sid: "List", Effect: "Allow", Action: "s3:ListBucket", Resource: "arn:aws:s3:::BUCKET" },
      { Sid: "Read", Effect: "Allow", Action: "s3:GetObject", Resource: "arn:aws:s3:::BUCKET/*" },
    ],
  },
  null,
  2,
);

export function Users({ tenant }: { tenant: string }) {
  const { pages, live, making, setMaking, what, line, begin, close } = useAccounts<User, What>("/admin/v1/users", { tenant });
  const [policyOf, setPolicyOf] = useState<string>();
  const turn = async () => {
    await change("PUT", "/admin/v1/user", {}, { tenant, user: line?.user, role: null, enabled: !line?.enabled });
    await live.reload();
  };
  const remove = async () => {
    await change("DELETE", "/admin/v1/user", { tenant, user: line?.user });
    await live.reload();
  };
  return (
    <>
      <Card title={`Users of ${tenant}`} wide action={may("post /admin/v1/users") && <button onClick={() => setMaking(true)}>New user</button>}>
        <Loaded live={live}>
          {(page) => (
            <>
              {page.items.length === 0 ? (
                <Empty title="No users">Keys may belong to the tenant itself.</Empty>
              ) : (
                <Table label="Users" heads={["User", "Role", "Own policy", "State", "Created", { right: "Change" }]}>
                  {page.items.map((one) => (
                    <tr key={one.user}>
                      <th scope="row">{one.user}</th>
                      <td>{one.role}</td>
                      <td><PolicyButton line={one} open={() => setPolicyOf(one.user)} /></td>
                      <td><Enabled enabled={one.enabled} /></td>
                      <td>{f.date(one.created_ms)}</td>
                      <td class="right">
                        {may("put /admin/v1/user") && <button onClick={() => begin({ what: "role", line: one })} aria-label={`Role of ${one.user}`}>Role</button>}{" "}
                        {may("put /admin/v1/user") && <button onClick={() => begin({ what: "turn", line: one })} aria-label={`${one.enabled ? "Disable" : "Enable"} ${one.user}`}>{one.enabled ? "Disable" : "Enable"}</button>}{" "}
                        {may("delete /admin/v1/user") && <button onClick={() => begin({ what: "delete", line: one })} aria-label={`Delete ${one.user}`}>Delete</button>}
                      </td>
                    </tr>
                  ))}
                </Table>
              )}
              <Pager pages={pages} next={page.next} />
            </>
          )}
        </Loaded>
        {making && <NewUser tenant={tenant} done={live.reload} close={() => setMaking(false)} />}
        {what === "role" && line && <ChangeRole line={line} done={live.reload} close={close} />}
        {what === "turn" && line && (
          <Turn account={`user ${line.user}`} enabled={line.enabled} disabled="All of its keys are refused from then on." accepted="Its keys are accepted again." run={turn} close={close} />
        )}
        {what === "delete" && line && (
          <Ask title={`Delete the user ${line.user}`} verb="Delete" danger run={remove} close={close}>
            <p>The user with its role and policy is lost. The server refuses that while the user has keys. Policies of buckets that name the user stay, and no longer permit anything to a later user of this name.</p>
          </Ask>
        )}
      </Card>
      {policyOf !== undefined && <UserPolicy key={policyOf} tenant={tenant} user={policyOf} done={live.reload} close={() => setPolicyOf(undefined)} />}
    </>
  );
}

function PolicyButton({ line, open }: { line: User; open: () => void }) {
  if (!line.has_policy && !may("put /admin/v1/user/policy")) return <>none</>;
  const verb = line.has_policy ? "Show" : "Set";
  return <button onClick={open} aria-label={`${verb} the policy of ${line.user}`}>{verb}</button>;
}

function NewUser({ tenant, done, close }: { tenant: string; done: () => Promise<void>; close: () => void }) {
  const [user, setUser] = useState("");
  const [role, setRole] = useState("read-only");
  const create = async () => {
    await change("POST", "/admin/v1/users", {}, { tenant, user, role, enabled: null });
    await done();
  };
  return (
    <Ask title={`New user of ${tenant}`} verb="Create" run={create} close={close}>
      <Field label="Name" value={user} on={setUser} required focus />
      <Select label="Role" value={role} options={ROLES} on={setRole} />
    </Ask>
  );
}

function ChangeRole({ line, done, close }: { line: User; done: () => Promise<void>; close: () => void }) {
  const [role, setRole] = useState(line.role);
  const save = async () => {
    await change("PUT", "/admin/v1/user", {}, { tenant: line.tenant, user: line.user, role, enabled: null });
    await done();
  };
  return (
    <Ask title={`Role of ${line.user}`} verb="Save" run={save} close={close}>
      <Select label="Role" value={role} options={ROLES} on={setRole} />
      <p class="note">A policy of the user permits nothing beyond the role.</p>
    </Ask>
  );
}

function UserPolicy({ tenant, user, done, close }: { tenant: string; user: string; done: () => Promise<void>; close: () => void }) {
  const load = async () => (await get<Schemas["UserPolicy"]>("/admin/v1/user/policy", { tenant, user })).policy ?? "";
  const live = useLive(load, 0, []);
  const [editing, setEditing] = useState(false);
  const [removing, setRemoving] = useState(false);
  const reload = async () => {
    await live.reload();
    await done();
  };
  const save = async (policy: string) => {
    await change("PUT", "/admin/v1/user/policy", {}, { tenant, user, policy });
    await reload();
  };
  const remove = async () => {
    await change("DELETE", "/admin/v1/user/policy", { tenant, user });
    await reload();
  };
  return (
    <Card title={`Policy of ${user}`} note="limits the user further than the role" wide action={<button onClick={close}>Close the policy</button>}>
      <Loaded live={live}>
        {(policy) =>
          editing ? (
            <DocumentEditor label={`Policy of the user ${user}`} id={`user ${tenant}/${user}`} stored={policy} template={POLICY} current={load} save={save} close={() => setEditing(false)} />
          ) : (
            <>
              {policy ? <pre class="content" tabIndex={0} aria-label={`Policy of ${user}`}>{pretty(policy)}</pre> : <p class="quiet">None is set: the role alone limits the user.</p>}
              {may("put /admin/v1/user/policy") && (
                <div class="row">
                  <button onClick={() => setEditing(true)}>{policy ? "Change the policy" : "Write a policy"}</button>
                  {policy && <button onClick={() => setRemoving(true)}>Remove the policy</button>}
                </div>
              )}
            </>
          )
        }
      </Loaded>
      {removing && (
        <Ask title={`Remove the policy of ${user}`} verb="Remove" danger run={remove} close={() => setRemoving(false)}>
          <p>The document is lost, and the role alone limits the user: what the policy forbids may be permitted then.</p>
        </Ask>
      )}
    </Card>
  );
}
