// Parts of the cards of accounts.
import { useState } from "preact/hooks";
import { change, get, useLive } from "../api";
import { Ask, Badge, Field } from "../ui/parts";
import { usePages } from "../ui/pager";
import { bound, countText, parseBytes, parseCount, parseNetworks, sizeText } from "../units";
import type { Schemas } from "../session";

export interface Page<T> {
  items: T[];
  next?: string | null;
}

/** Pages of a list of accounts, and the dialog that is open: `what` is done to `line`. */
export function useAccounts<T, What extends string>(path: string, query: Record<string, string> = {}) {
  const pages = usePages();
  const live = useLive(() => get<Page<T>>(path, { ...query, after: pages.after }), 15_000, [pages.after]);
  const [making, setMaking] = useState(false);
  const [doing, begin] = useState<{ what: What; line: T }>();
  const close = () => begin(undefined);
  return { pages, live, making, setMaking, what: doing?.what, line: doing?.line, begin, close };
}

interface Turned {
  /** Kind of account and its name. */
  account: string;
  enabled: boolean;
  /** What follows when the account is disabled, or enabled. */
  disabled: string;
  accepted: string;
  run: () => Promise<void>;
  close: () => void;
}

/** Dialog that disables an account, or enables it again. */
export function Turn({ account, enabled, disabled, accepted, run, close }: Turned) {
  const verb = enabled ? "Disable" : "Enable";
  return (
    <Ask title={`${verb} the ${account}`} verb={verb} danger={enabled} run={run} close={close}>
      <p>{enabled ? disabled : accepted}</p>
    </Ask>
  );
}

export function Enabled({ enabled }: { enabled: boolean }) {
  return <Badge tone={enabled ? "good" : "calm"}>{enabled ? "enabled" : "disabled"}</Badge>;
}

interface Limited {
  title: string;
  networks: string[];
  rate: Schemas["RateLine"] | undefined;
  /** Route and name of what is limited. */
  path: "/admin/v1/tenant" | "/admin/v1/key";
  body: Record<string, string>;
  done: () => Promise<void>;
  close: () => void;
}

/** Dialog for the networks and rates of a tenant or a key. */
export function Limits({ title, networks, rate, path, body, done, close }: Limited) {
  const before = { networks: networks.join(", "), requests: countText(rate?.requests), bytes: sizeText(rate?.bytes) };
  const [from, setFrom] = useState(before.networks);
  const [requests, setRequests] = useState(before.requests);
  const [bytes, setBytes] = useState(before.bytes);
  const save = async () => {
    await change("PUT", path, {}, {
      ...body,
      networks: from === before.networks ? null : parseNetworks(from),
      rate: { requests: bound(requests, before.requests, parseCount), bytes: bound(bytes, before.bytes, parseBytes) },
    });
    await done();
  };
  return (
    <Ask title={title} verb="Save" run={save} close={close}>
      <p class="quiet">Requests from elsewhere are refused, and those beyond a rate get SlowDown. Changes are in force within seconds.</p>
      <Field label="Networks" value={from} on={setFrom} hint="Such as 10.0.0.0/8, separated by commas. Empty: any network." focus />
      <Field label="Requests per second" value={requests} on={setRequests} hint="At each proxy: a number, or none." />
      <Field label="Bytes per second" value={bytes} on={setBytes} hint="Bodies in both directions, at each proxy: 50MiB, or none." />
    </Ask>
  );
}
