// Dialog that makes a bucket under the id of one whose register is lost.
import { useState } from "preact/hooks";
import { change, get, useLive } from "../api";
import type { Schemas } from "../session";
import { Ask, Field, Select } from "../ui/parts";
import { parseCount } from "../units";

const VERSIONING = ["off", "suspended", "enabled", "locked"] as const;
const DEFAULT = "the default";

export function Adopt({ id: known, done, close }: { id: string; done: (sentence: string) => void; close: () => void }) {
  const policies = useLive(() => get<Schemas["PolicyLine"][]>("/admin/v1/policies"), 0, []);
  const [id, setId] = useState(known);
  const [bucket, setBucket] = useState("");
  const [tenant, setTenant] = useState("");
  const [shards, setShards] = useState("16");
  const [versioning, setVersioning] = useState("");
  const [policy, setPolicy] = useState(DEFAULT);
  const make = async () => {
    const query = { id: id.trim(), bucket, tenant, index_shards: parseCount(shards), versioning, storage_policy: policy === DEFAULT ? null : policy };
    const line = await change<Schemas["BucketLine"]>("PUT", "/admin/v1/index/bucket", query);
    done(`The bucket ${line.bucket} was made under the id ${line.id}.`);
  };
  const names = policies.value.value?.map((one) => one.name) ?? [];
  return (
    <Ask title="Make a lost bucket" verb="Make the bucket" run={make} close={close}>
      <p class="quiet">Clients can write to it at once, and a plain write replaces the current version of a key, whatever locked it. Restore its tenant before, and its settings from a backup before the next rebuild.</p>
      <Field label="Id" value={id} on={setId} required hint="32 hexadecimal digits, as a rebuild names it." focus={!known} />
      <Field label="Name" value={bucket} on={setBucket} required focus={!!known} />
      <Field label="Tenant" value={tenant} on={setTenant} hint="Owner of the bucket. Empty: root." />
      <Field label="Shards of the index" value={shards} on={setShards} required hint="16, unless the bucket was made with another number. A backup names it. Under a wrong number the rebuild leaves keys out." />
      <Select label="Versioning that the bucket had" value={versioning} options={["", ...VERSIONING]} on={setVersioning} required />
      <Select label="Storage policy of new objects" value={policy} options={[DEFAULT, ...names]} on={setPolicy} />
    </Ask>
  );
}
