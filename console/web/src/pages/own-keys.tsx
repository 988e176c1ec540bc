// Own access keys of a user: list, creation, new secrets and deletion. The store decides by the user's policy.
import { useState } from "preact/hooks";
import { change, get, useLive } from "../api";
import * as f from "../format";
import { farewell, logout, session } from "../session";
import { Ask, Badge, Card, Empty, Head, Loaded, Secret, Table } from "../ui/parts";

interface OwnKey {
  access_key: string;
  enabled: boolean;
  created_ms: number;
  rotated_ms: number;
  is_current: boolean;
}
interface Made {
  access_key: string;
  secret_key: string;
  ends_session: boolean;
}
type What = "create" | "rotate" | "delete";

/** User of an ARN of a user, or undefined for tenants, roles and the root key. */
export function userOf(arn: string): string | undefined {
  const [, tenant, user] = /^arn:aws:iam::([^:]+):user\/(.+)$/.exec(arn) ?? [];
  return user === tenant ? undefined : user;
}

export function OwnKeys() {
  const [asked, setAsked] = useState<{ what: What; key?: OwnKey }>();
  const [made, setMade] = useState<Made>();
  const live = useLive(() => get<{ items: OwnKey[] }>("/own/keys"), 30_000, []);
  const user = userOf(session.value?.s3?.arn ?? "") ?? "";
  const close = () => setAsked(undefined);
  const create = async () => {
    setMade(await change<Made>("POST", "/own/keys", {}));
    await live.reload();
  };
  const rotate = async () => {
    const one = await change<Made>("POST", "/own/keys/rotate", {}, { access_key: asked?.key?.access_key });
    setMade(one);
    if (!one.ends_session) await live.reload();
  };
  const remove = async () => {
    await change("DELETE", "/own/keys", { access_key: asked?.key?.access_key });
    await live.reload();
  };
  // The session of a key with a new secret ends only once the person has kept the secret.
  const kept = async () => {
    if (made?.ends_session) {
      await logout();
      farewell.value = "The key has a new secret. Sign in with it.";
    }
    setMade(undefined);
  };
  const button = (key: OwnKey, what: What, label: string, name: string) => <button onClick={() => setAsked({ what, key })} aria-label={`${name} ${key.access_key}`}>{label}</button>;
  return (
    <>
      <Head title="My keys" lead={`Access keys of the user ${user}.`} action={<button class="primary" onClick={() => setAsked({ what: "create" })}>New access key</button>} />
      <Card wide>
        <Loaded live={live}>
          {(page) =>
            page.items.length === 0 ? (
              <Empty title="No access keys" />
            ) : (
              <Table label="Access keys" heads={["Access key", "State", "Created", "Secret since", { right: "Change" }]}>
                {page.items.map((key) => (
                  <tr key={key.access_key}>
                    <th scope="row"><code>{key.access_key}</code> {key.is_current && <Badge tone="calm">this session</Badge>}</th>
                    <td>{key.enabled ? <Badge tone="good">enabled</Badge> : <Badge tone="bad">disabled</Badge>}</td>
                    <td>{f.date(key.created_ms)}</td>
                    <td>{f.date(key.rotated_ms)}</td>
                    <td class="right">
                      {button(key, "rotate", "New secret", "New secret of")} {!key.is_current && button(key, "delete", "Delete", "Delete")}
                    </td>
                  </tr>
                ))}
              </Table>
            )
          }
        </Loaded>
        <p class="note">A new key has the policies of the user, and the networks and the view of the key of this session.</p>
      </Card>
      {asked?.what === "create" && (
        <Ask title="New access key" verb="Create" run={create} close={close}>
          <p>The secret is shown once. A user has eight keys at most.</p>
        </Ask>
      )}
      {asked?.what === "rotate" && asked.key && (
        <Ask title={`New secret of ${asked.key.access_key}`} verb="Make a new secret" danger run={rotate} close={close}>
          <p>The present secret is lost and stops working within a second. Every client with this key needs the new one.</p>
          {asked.key.is_current && <p>This session ends, because it signs with the key.</p>}
        </Ask>
      )}
      {asked?.what === "delete" && asked.key && (
        <Ask title={`Delete the key ${asked.key.access_key}`} verb="Delete" danger run={remove} close={close}>
          <p>The key is lost with its secret, for good. Clients that use it are refused.</p>
        </Ask>
      )}
      {made && <Secret name="Access key" id={made.access_key} secret={made.secret_key} close={() => void kept()} />}
    </>
  );
}
