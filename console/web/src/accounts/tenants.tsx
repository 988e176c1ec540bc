// Tenants: list, creation, state, limits and deletion.
import { useState } from "preact/hooks";
import { change } from "../api";
import * as f from "../format";
import { may, type Schemas } from "../session";
import { Ask, Card, Empty, Field, Loaded, Table } from "../ui/parts";
import { Pager } from "../ui/pager";
import { parseNetworks } from "../units";
import { Enabled, Limits, Turn, useAccounts } from "./parts";

type Tenant = Schemas["TenantLine"];
type What = "turn" | "limit" | "delete";

export function Tenants({ chosen, choose }: { chosen: string | undefined; choose: (tenant: string | undefined) => void }) {
  const { pages, live, making, setMaking, what, line, begin, close } = useAccounts<Tenant, What>("/admin/v1/tenants");
  const turn = async () => {
    await change("PUT", "/admin/v1/tenant", {}, { tenant: line?.tenant, enabled: !line?.enabled });
    await live.reload();
  };
  const remove = async () => {
    await change("DELETE", "/admin/v1/tenant", { tenant: line?.tenant });
    if (chosen === line?.tenant) choose(undefined);
    await live.reload();
  };
  return (
    <Card title="Tenants" wide action={may("post /admin/v1/tenants") && <button class="primary" onClick={() => setMaking(true)}>New tenant</button>}>
      <Loaded live={live}>
        {(page) => (
          <>
            {page.items.length === 0 ? (
              <Empty title="No tenants">All buckets belong to the root identity so far.</Empty>
            ) : (
              <Table label="Tenants" heads={["Tenant", "State", "Networks", "Created", { right: "Change" }]}>
                {page.items.map((one) => (
                  <tr key={one.tenant} class={one.tenant === chosen ? "chosen" : ""}>
                    <th scope="row">
                      <button class="link" aria-pressed={one.tenant === chosen} onClick={() => choose(one.tenant)}>{one.tenant}</button>
                      {one.display_name !== one.tenant && <small class="quiet"> {one.display_name}</small>}
                    </th>
                    <td><Enabled enabled={one.enabled} /></td>
                    <td>{one.networks.length > 0 ? one.networks.join(", ") : "any"}</td>
                    <td>{f.date(one.created_ms)}</td>
                    <td class="right">
                      {may("put /admin/v1/tenant") && <button onClick={() => begin({ what: "limit", line: one })} aria-label={`Limits of ${one.tenant}`}>Limits</button>}{" "}
                      {may("put /admin/v1/tenant") && <button onClick={() => begin({ what: "turn", line: one })} aria-label={`${one.enabled ? "Disable" : "Enable"} ${one.tenant}`}>{one.enabled ? "Disable" : "Enable"}</button>}{" "}
                      {may("delete /admin/v1/tenant") && <button onClick={() => begin({ what: "delete", line: one })} aria-label={`Delete ${one.tenant}`}>Delete</button>}
                    </td>
                  </tr>
                ))}
              </Table>
            )}
            <Pager pages={pages} next={page.next} />
          </>
        )}
      </Loaded>
      {making && <NewTenant done={live.reload} close={() => setMaking(false)} />}
      {what === "turn" && line && (
        <Turn account={`tenant ${line.tenant}`} enabled={line.enabled} disabled="All of its keys are refused from then on." accepted="Its keys are accepted again." run={turn} close={close} />
      )}
      {what === "limit" && line && <Limits title={`Limits of the tenant ${line.tenant}`} networks={line.networks} rate={line.rate} path="/admin/v1/tenant" body={{ tenant: line.tenant }} done={live.reload} close={close} />}
      {what === "delete" && line && (
        <Ask title={`Delete the tenant ${line.tenant}`} verb="Delete" danger run={remove} close={close}>
          <p>The tenant with its quota, networks and rates is lost. The server refuses that while the tenant has users, roles, keys or buckets.</p>
        </Ask>
      )}
    </Card>
  );
}

function NewTenant({ done, close }: { done: () => Promise<void>; close: () => void }) {
  const [name, setName] = useState("");
  const [display, setDisplay] = useState("");
  const [networks, setNetworks] = useState("");
  const create = async () => {
    await change("POST", "/admin/v1/tenants", {}, { tenant: name, display_name: display || null, networks: parseNetworks(networks) });
    await done();
  };
  return (
    <Ask title="New tenant" verb="Create" run={create} close={close}>
      <Field label="Name" value={name} on={setName} required focus />
      <Field label="Display name" value={display} on={setDisplay} hint="In replies of S3. Empty: the name." />
      <Field label="Networks" value={networks} on={setNetworks} hint="Such as 10.0.0.0/8. Empty: any network." />
    </Ask>
  );
}
