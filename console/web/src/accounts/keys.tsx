// Access keys of a tenant: list, creation, state, new secrets, limits, view and deletion.
import { useState } from "preact/hooks";
import { change, Refusal } from "../api";
import * as f from "../format";
import { may, type Schemas } from "../session";
import { Ask, Card, Empty, Field, Loaded, Secret, Select, Table } from "../ui/parts";
import { Pager } from "../ui/pager";
import { parseNetworks } from "../units";
import { Enabled, Limits, Turn, useAccounts } from "./parts";

type Key = Schemas["KeyLine"];
type What = "turn" | "limit" | "view" | "rotate" | "delete";
interface Shown {
  id: string;
  secret: string;
}

export function Keys({ tenant }: { tenant: string }) {
  const { pages, live, making, setMaking, what, line, begin, close } = useAccounts<Key, What>("/admin/v1/keys", { tenant });
  const [made, setMade] = useState<Shown>();
  const turn = async () => {
    await change("PUT", "/admin/v1/key", {}, { access_key: line?.access_key, enabled: !line?.enabled });
    await live.reload();
  };
  const remove = async () => {
    await change("DELETE", "/admin/v1/key", { access_key: line?.access_key });
    await live.reload();
  };
  const change_ = may("put /admin/v1/key");
  const button = (one: Key, what: What, label: string, name: string) => <button onClick={() => begin({ what, line: one })} aria-label={`${name} ${one.access_key}`}>{label}</button>;
  return (
    <Card title={`Access keys of ${tenant}`} wide action={may("post /admin/v1/keys") && <button onClick={() => setMaking(true)}>New access key</button>}>
      <Loaded live={live}>
        {(page) => (
          <>
            {page.items.length === 0 ? (
              <Empty title="No access keys">Clients of this tenant can't sign requests yet.</Empty>
            ) : (
              <Table label="Access keys" heads={["Access key", "User", "State", "Secret since", "Networks", "View", { right: "Change" }]}>
                {page.items.map((one) => (
                  <tr key={one.access_key}>
                    <th scope="row"><code>{one.access_key}</code></th>
                    <td>{one.user ?? <span class="quiet">the tenant itself</span>}</td>
                    <td><Enabled enabled={one.enabled} /></td>
                    <td>{f.date(one.rotated_ms)}</td>
                    <td>{one.networks.length > 0 ? one.networks.join(", ") : "any"}</td>
                    <td>{one.view || "bucket"}</td>
                    <td class="right">
                      {change_ && button(one, "limit", "Limits", "Limits of")} {change_ && button(one, "view", "View", "View of")}{" "}
                      {may("post /admin/v1/key/rotate") && button(one, "rotate", "New secret", "New secret of")}{" "}
                      {change_ && button(one, "turn", one.enabled ? "Disable" : "Enable", one.enabled ? "Disable" : "Enable")}{" "}
                      {may("delete /admin/v1/key") && button(one, "delete", "Delete", "Delete")}
                    </td>
                  </tr>
                ))}
              </Table>
            )}
            <Pager pages={pages} next={page.next} />
          </>
        )}
      </Loaded>
      {making && <NewKey tenant={tenant} made={setMade} done={live.reload} close={() => setMaking(false)} />}
      {made && <Secret name="New access key" id={made.id} secret={made.secret} close={() => setMade(undefined)} />}
      {what === "limit" && line && <Limits title={`Limits of the key ${line.access_key}`} networks={line.networks} rate={line.rate} path="/admin/v1/key" body={{ access_key: line.access_key }} done={live.reload} close={close} />}
      {what === "view" && line && <View line={line} done={live.reload} close={close} />}
      {what === "turn" && line && (
        <Turn account={`key ${line.access_key}`} enabled={line.enabled} disabled="Requests that it signs are refused within a second, until it is enabled again." accepted="Requests that it signs are accepted again." run={turn} close={close} />
      )}
      {what === "rotate" && line && <Rotate line={line} made={setMade} done={live.reload} close={close} />}
      {what === "delete" && line && (
        <Ask title={`Delete the key ${line.access_key}`} verb="Delete" danger run={remove} close={close}>
          <p>The key of {line.user ? `the user ${line.user}` : "the tenant itself"} is lost with its secret, for good. Clients that use it are refused. To try first whether one does, disable it.</p>
        </Ask>
      )}
    </Card>
  );
}

function NewKey({ tenant, made, done, close }: { tenant: string; made: (shown: Shown) => void; done: () => Promise<void>; close: () => void }) {
  const [user, setUser] = useState("");
  const [networks, setNetworks] = useState("");
  const [id, setId] = useState("");
  const [secret, setSecret] = useState("");
  const create = async () => {
    if (secret && !id) throw new Refusal("a chosen secret needs a chosen id");
    // The server takes both or none.
    const given = id ? secret || randomSecret() : null;
    const body = { tenant, user: user || null, access_key: id || null, secret_key: given, networks: parseNetworks(networks) };
    const line = await change<Key>("POST", "/admin/v1/keys", {}, body);
    made({ id: line.access_key, secret: line.secret_key ?? given ?? "" });
    await done();
  };
  return (
    <Ask title={`New access key of ${tenant}`} verb="Create" run={create} close={close}>
      <Field label="User" value={user} on={setUser} hint="Empty for a key of the tenant itself." focus />
      <Field label="Networks" value={networks} on={setNetworks} hint="Such as 10.0.0.0/8. Empty: any network." />
      <Field label="Id of the key" value={id} on={setId} hint="For clients that move here with their keys. Empty: a random one." />
      <Field label="Secret of the key" type="password" auto="new-password" value={secret} on={setSecret} hint="Only with an id. Empty: a random one." />
    </Ask>
  );
}

function Rotate({ line, made, done, close }: { line: Key; made: (shown: Shown) => void; done: () => Promise<void>; close: () => void }) {
  const [secret, setSecret] = useState("");
  const rotate = async () => {
    const rotated = await change<Key>("POST", "/admin/v1/key/rotate", {}, { access_key: line.access_key, secret_key: secret || null });
    made({ id: rotated.access_key, secret: rotated.secret_key ?? secret });
    await done();
  };
  return (
    <Ask title={`New secret of ${line.access_key}`} verb="Make a new secret" danger run={rotate} close={close}>
      <p>The present secret is lost and stops working within a second. Every client with this key needs the new one.</p>
      <Field label="Secret of the key" type="password" auto="new-password" value={secret} on={setSecret} hint="For clients that have it already. Empty: a random one." />
    </Ask>
  );
}

/** Secret of 40 random characters. */
function randomSecret(): string {
  const bytes = crypto.getRandomValues(new Uint8Array(30));
  return btoa(String.fromCharCode(...bytes)).replaceAll("+", "-").replaceAll("/", "_");
}

function View({ line, done, close }: { line: Key; done: () => Promise<void>; close: () => void }) {
  const [view, setView] = useState(line.view || "bucket");
  const save = async () => {
    await change("PUT", "/admin/v1/key", {}, { access_key: line.access_key, view });
    await done();
  };
  return (
    <Ask title={`View of the key ${line.access_key}`} verb="Save" run={save} close={close}>
      <Select label="View of buckets with checkpoint rules" value={view} options={["bucket", "committed"]} on={setView} />
      <p class="note">{view === "committed" ? "Requests see complete checkpoints only, as NAME--committed." : "Requests see the bucket itself."}</p>
    </Ask>
  );
}
