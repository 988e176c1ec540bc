// Accounts: tenants, and users and keys of one of them; keys of the admin API.
import { useState } from "preact/hooks";
import { change, get, useLive } from "../api";
import * as f from "../format";
import { may, session, type Schemas } from "../session";
import { Ask, Badge, Card, Empty, Field, Head, Loaded, Secret, Select, Table } from "../ui/parts";
import { Pager, usePages } from "../ui/pager";

interface Page<T> {
  items: T[];
  next?: string | null;
}
interface Shown {
  id: string;
  secret: string;
}

const USER_ROLES = ["admin", "read-write", "read-only"];

function State({ enabled }: { enabled: boolean }) {
  return <Badge tone={enabled ? "good" : "calm"}>{enabled ? "enabled" : "disabled"}</Badge>;
}

export function Accounts() {
  const own = session.value?.principal?.tenant ?? undefined;
  const [tenant, setTenant] = useState<string | undefined>(own);
  return (
    <>
      <Head title="Accounts" lead="Tenants with their users and access keys, and the keys of the admin API." />
      {may("get /admin/v1/tenants") && <Tenants chosen={tenant} choose={setTenant} />}
      {tenant !== undefined && <Users key={`u ${tenant}`} tenant={tenant} />}
      {tenant !== undefined && <Keys key={`k ${tenant}`} tenant={tenant} />}
      {may("get /admin/v1/admin-keys") && <AdminKeys />}
    </>
  );
}

function Tenants({ chosen, choose }: { chosen: string | undefined; choose: (tenant: string) => void }) {
  const pages = usePages();
  const live = useLive(() => get<Page<Schemas["TenantLine"]>>("/admin/v1/tenants", { after: pages.after }), 15_000, [pages.after]);
  const [name, setName] = useState<string>();
  const [turning, setTurning] = useState<Schemas["TenantLine"]>();
  const create = async () => {
    await change("POST", "/admin/v1/tenants", {}, { tenant: name, display_name: null, networks: [] });
    await live.reload();
  };
  const turn = async () => {
    await change("PUT", "/admin/v1/tenant", {}, { tenant: turning?.tenant, enabled: !turning?.enabled });
    await live.reload();
  };
  return (
    <Card title="Tenants" wide action={may("post /admin/v1/tenants") && <button class="primary" onClick={() => setName("")}>New tenant</button>}>
      <Loaded live={live}>
        {(page) => (
          <>
            {page.items.length === 0 ? (
              <Empty title="No tenants">All buckets belong to the root identity so far.</Empty>
            ) : (
              <Table label="Tenants" heads={["Tenant", "State", "Networks", "Created", { right: "Change" }]}>
                {page.items.map((line) => (
                  <tr class={line.tenant === chosen ? "chosen" : ""}>
                    <th scope="row">
                      <button class="link" aria-pressed={line.tenant === chosen} onClick={() => choose(line.tenant)}>{line.tenant}</button>
                      {line.display_name !== line.tenant && <small class="quiet"> {line.display_name}</small>}
                    </th>
                    <td><State enabled={line.enabled} /></td>
                    <td>{line.networks.length > 0 ? line.networks.join(", ") : "any"}</td>
                    <td>{f.date(line.created_ms)}</td>
                    <td class="right">{may("put /admin/v1/tenant") && <button onClick={() => setTurning(line)} aria-label={`${line.enabled ? "Disable" : "Enable"} ${line.tenant}`}>{line.enabled ? "Disable" : "Enable"}</button>}</td>
                  </tr>
                ))}
              </Table>
            )}
            <Pager pages={pages} next={page.next} />
          </>
        )}
      </Loaded>
      {name !== undefined && (
        <Ask title="New tenant" verb="Create" run={create} close={() => setName(undefined)}>
          <Field label="Name" value={name} on={setName} required focus />
        </Ask>
      )}
      {turning && (
        <Ask title={`${turning.enabled ? "Disable" : "Enable"} the tenant ${turning.tenant}`} verb={turning.enabled ? "Disable" : "Enable"} danger={turning.enabled} run={turn} close={() => setTurning(undefined)}>
          <p>{turning.enabled ? "All of its keys are refused from then on." : "Its keys are accepted again."}</p>
        </Ask>
      )}
    </Card>
  );
}

function Users({ tenant }: { tenant: string }) {
  const pages = usePages();
  const live = useLive(() => get<Page<Schemas["UserLine"]>>("/admin/v1/users", { tenant, after: pages.after }), 15_000, [pages.after]);
  const [making, setMaking] = useState(false);
  const [user, setUser] = useState("");
  const [role, setRole] = useState("read-only");
  const [turning, setTurning] = useState<Schemas["UserLine"]>();
  const create = async () => {
    await change("POST", "/admin/v1/users", {}, { tenant, user, role, enabled: null });
    setUser("");
    await live.reload();
  };
  const turn = async () => {
    await change("PUT", "/admin/v1/user", {}, { tenant, user: turning?.user, role: null, enabled: !turning?.enabled });
    await live.reload();
  };
  return (
    <Card title={`Users of ${tenant}`} wide action={may("post /admin/v1/users") && <button onClick={() => setMaking(true)}>New user</button>}>
      <Loaded live={live}>
        {(page) => (
          <>
            {page.items.length === 0 ? (
              <Empty title="No users">Keys may belong to the tenant itself.</Empty>
            ) : (
              <Table label="Users" heads={["User", "Role", "Own policy", "State", "Created", { right: "Change" }]}>
                {page.items.map((line) => (
                  <tr>
                    <th scope="row">{line.user}</th>
                    <td>{line.role}</td>
                    <td>{line.has_policy ? "yes" : "no"}</td>
                    <td><State enabled={line.enabled} /></td>
                    <td>{f.date(line.created_ms)}</td>
                    <td class="right">{may("put /admin/v1/user") && <button onClick={() => setTurning(line)} aria-label={`${line.enabled ? "Disable" : "Enable"} ${line.user}`}>{line.enabled ? "Disable" : "Enable"}</button>}</td>
                  </tr>
                ))}
              </Table>
            )}
            <Pager pages={pages} next={page.next} />
          </>
        )}
      </Loaded>
      {making && (
        <Ask title={`New user of ${tenant}`} verb="Create" run={create} close={() => setMaking(false)}>
          <Field label="Name" value={user} on={setUser} required focus />
          <Select label="Role" value={role} options={USER_ROLES} on={setRole} />
        </Ask>
      )}
      {turning && (
        <Ask title={`${turning.enabled ? "Disable" : "Enable"} the user ${turning.user}`} verb={turning.enabled ? "Disable" : "Enable"} danger={turning.enabled} run={turn} close={() => setTurning(undefined)} />
      )}
    </Card>
  );
}

function Keys({ tenant }: { tenant: string }) {
  const pages = usePages();
  const live = useLive(() => get<Page<Schemas["KeyLine"]>>("/admin/v1/keys", { tenant, after: pages.after }), 15_000, [pages.after]);
  const [making, setMaking] = useState(false);
  const [user, setUser] = useState("");
  const [made, setMade] = useState<Shown>();
  const [turning, setTurning] = useState<Schemas["KeyLine"]>();
  const create = async () => {
    const body = { tenant, user: user || null, access_key: null, secret_key: null, networks: [] };
    const line = await change<Schemas["KeyLine"]>("POST", "/admin/v1/keys", {}, body);
    setMade({ id: line.access_key, secret: line.secret_key ?? "" });
    await live.reload();
  };
  const turn = async () => {
    await change("PUT", "/admin/v1/key", {}, { access_key: turning?.access_key, enabled: !turning?.enabled });
    await live.reload();
  };
  return (
    <Card title={`Access keys of ${tenant}`} wide action={may("post /admin/v1/keys") && <button onClick={() => setMaking(true)}>New access key</button>}>
      <Loaded live={live}>
        {(page) => (
          <>
            {page.items.length === 0 ? (
              <Empty title="No access keys">Clients of this tenant can't sign requests yet.</Empty>
            ) : (
              <Table label="Access keys" heads={["Access key", "User", "State", "Secret since", { right: "Change" }]}>
                {page.items.map((line) => (
                  <tr>
                    <th scope="row"><code>{line.access_key}</code></th>
                    <td>{line.user ?? <span class="quiet">the tenant itself</span>}</td>
                    <td><State enabled={line.enabled} /></td>
                    <td>{f.date(line.rotated_ms)}</td>
                    <td class="right">{may("put /admin/v1/key") && <button onClick={() => setTurning(line)} aria-label={`${line.enabled ? "Disable" : "Enable"} ${line.access_key}`}>{line.enabled ? "Disable" : "Enable"}</button>}</td>
                  </tr>
                ))}
              </Table>
            )}
            <Pager pages={pages} next={page.next} />
          </>
        )}
      </Loaded>
      {making && (
        <Ask title={`New access key of ${tenant}`} verb="Create" run={create} close={() => setMaking(false)}>
          <Field label="User" value={user} on={setUser} hint="Empty for a key of the tenant itself." focus />
        </Ask>
      )}
      {made && <Secret name="New access key" id={made.id} secret={made.secret} close={() => setMade(undefined)} />}
      {turning && (
        <Ask title={`${turning.enabled ? "Disable" : "Enable"} the key ${turning.access_key}`} verb={turning.enabled ? "Disable" : "Enable"} danger={turning.enabled} run={turn} close={() => setTurning(undefined)} />
      )}
    </Card>
  );
}

function AdminKeys() {
  const pages = usePages();
  const live = useLive(() => get<Page<Schemas["AdminKeyLine"]>>("/admin/v1/admin-keys", { after: pages.after }), 15_000, [pages.after]);
  const [making, setMaking] = useState(false);
  const [name, setName] = useState("");
  const [role, setRole] = useState("viewer");
  const [tenant, setTenant] = useState("");
  const [made, setMade] = useState<Shown>();
  const [revoking, setRevoking] = useState<Schemas["AdminKeyLine"]>();
  const create = async () => {
    const body = { role, name: name || null, tenant: tenant || null };
    const line = await change<Schemas["AdminKeyLine"]>("POST", "/admin/v1/admin-keys", {}, body);
    setMade({ id: line.key, secret: line.secret ?? "" });
    await live.reload();
  };
  const revoke = async () => {
    await change("DELETE", "/admin/v1/admin-key", { key: revoking?.key });
    await live.reload();
  };
  return (
    <Card title="Admin keys" note="sign in here, and sign requests of martlet admin" wide action={may("post /admin/v1/admin-keys") && <button onClick={() => setMaking(true)}>New admin key</button>}>
      <Loaded live={live}>
        {(page) => (
          <>
            {page.items.length === 0 ? (
              <Empty title="No admin keys">Operators use the root key so far, which the audit trail can't tell apart.</Empty>
            ) : (
              <Table label="Admin keys" heads={["Key", "Name", "Role", "Ends", { right: "Change" }]}>
                {page.items.map((line) => (
                  <tr>
                    <th scope="row"><code>{line.key}</code></th>
                    <td>{line.name || <span class="quiet">none</span>}</td>
                    <td>{line.role}{line.tenant ? ` of ${line.tenant}` : ""}</td>
                    <td>{line.expires_ms ? f.date(line.expires_ms) : "never"}</td>
                    <td class="right">{may("delete /admin/v1/admin-key") && <button onClick={() => setRevoking(line)} aria-label={`Revoke ${line.key}`}>Revoke</button>}</td>
                  </tr>
                ))}
              </Table>
            )}
            <Pager pages={pages} next={page.next} />
          </>
        )}
      </Loaded>
      {making && (
        <Ask title="New admin key" verb="Create" run={create} close={() => setMaking(false)}>
          <Field label="Name" value={name} on={setName} hint="For lists and the audit trail." focus />
          <Select label="Role" value={role} options={["viewer", "operator", "tenant-admin"]} on={setRole} />
          {role === "tenant-admin" && <Field label="Tenant" value={tenant} on={setTenant} required />}
        </Ask>
      )}
      {made && <Secret name="New admin key" id={made.id} secret={made.secret} close={() => setMade(undefined)} />}
      {revoking && (
        <Ask title={`Revoke ${revoking.key}`} verb="Revoke" danger run={revoke} close={() => setRevoking(undefined)}>
          <p>The key and all of its sessions end. This can't be undone.</p>
        </Ask>
      )}
    </Card>
  );
}
