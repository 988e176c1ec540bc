// Accounts: tenants, and users, roles, keys and the quota of one of them; keys of the admin API.
import { useState } from "preact/hooks";
import { AdminKeys } from "../accounts/admin-keys";
import { Keys } from "../accounts/keys";
import { Roles } from "../accounts/roles";
import { Tenants } from "../accounts/tenants";
import { Users } from "../accounts/users";
import { may, session } from "../session";
import { Head } from "../ui/parts";
import { Quota } from "../ui/quota";

/** Tenant that was chosen last, which is shown again after another page. */
let last: string | undefined;

export function Accounts() {
  const own = session.value?.principal?.tenant ?? undefined;
  const [tenant, setTenant] = useState<string | undefined>(own ?? last);
  const choose = (name: string | undefined) => {
    last = name;
    setTenant(name);
  };
  return (
    <>
      <Head title="Accounts" lead="Tenants with their users, roles, policies and access keys, and the keys of the admin API." />
      {may("get /admin/v1/tenants") && <Tenants chosen={tenant} choose={choose} />}
      {tenant !== undefined && (
        <div key={tenant} class="stack">
          <Quota of="tenant" name={tenant} />
          <Users tenant={tenant} />
          <Roles tenant={tenant} />
          <Keys tenant={tenant} />
        </div>
      )}
      {may("get /admin/v1/admin-keys") && <AdminKeys />}
    </>
  );
}
