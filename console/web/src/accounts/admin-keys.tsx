// Keys of the admin API: list, creation and revocation.
import { useState } from "preact/hooks";
import { change, get, useLive } from "../api";
import * as f from "../format";
import { may, type Schemas } from "../session";
import { Ask, Card, Empty, Field, Loaded, Secret, Select, Table } from "../ui/parts";
import { Pager, usePages } from "../ui/pager";
import { parseSpan } from "../units";
import type { Page } from "./parts";

type Key = Schemas["AdminKeyLine"];
interface Shown {
  id: string;
  secret: string;
}

export function AdminKeys() {
  const pages = usePages();
  const live = useLive(() => get<Page<Key>>("/admin/v1/admin-keys", { after: pages.after }), 15_000, [pages.after]);
  const [making, setMaking] = useState(false);
  const [made, setMade] = useState<Shown>();
  const [revoking, setRevoking] = useState<Key>();
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
                  <tr key={line.key}>
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
      {making && <NewAdminKey made={setMade} done={live.reload} close={() => setMaking(false)} />}
      {made && <Secret name="New admin key" id={made.id} secret={made.secret} close={() => setMade(undefined)} />}
      {revoking && (
        <Ask title={`Revoke ${revoking.key}`} verb="Revoke" danger run={revoke} close={() => setRevoking(undefined)}>
          <p>The key and all of its sessions end. This can't be undone.</p>
        </Ask>
      )}
    </Card>
  );
}

function NewAdminKey({ made, done, close }: { made: (shown: Shown) => void; done: () => Promise<void>; close: () => void }) {
  const [name, setName] = useState("");
  const [role, setRole] = useState("viewer");
  const [tenant, setTenant] = useState("");
  const [span, setSpan] = useState("");
  const create = async () => {
    const expires_in_s = span.trim() === "" ? null : Math.round(parseSpan(span) / 1000);
    const line = await change<Key>("POST", "/admin/v1/admin-keys", {}, { role, name: name || null, tenant: tenant || null, expires_in_s });
    made({ id: line.key, secret: line.secret ?? "" });
    await done();
  };
  return (
    <Ask title="New admin key" verb="Create" run={create} close={close}>
      <Field label="Name" value={name} on={setName} hint="For lists and the audit trail." focus />
      <Select label="Role" value={role} options={["viewer", "operator", "tenant-admin"]} on={setRole} />
      {role === "tenant-admin" && <Field label="Tenant" value={tenant} on={setTenant} required />}
      <Field label="Lifetime" value={span} on={setSpan} hint="Such as 90d. Empty: no end." />
    </Ask>
  );
}
