// Retention and legal hold of a version, where the bucket has object lock.
import { useState } from "preact/hooks";
import { Refusal } from "../api";
import { checked, send } from "../s3/client";
import type { Details } from "../s3/head";
import { element } from "../s3/xml";
import { Ask, Field, Select } from "../ui/parts";

interface Props {
  bucket: string;
  name: string;
  version: string | undefined;
  details: Details | undefined;
  done: () => Promise<void>;
  close: () => void;
}

export function LockDialog({ bucket, name, version, details, done, close }: Props) {
  const [mode, setMode] = useState(details?.lockMode || "none");
  const [until, setUntil] = useState(details?.lockedUntil.slice(0, 10) ?? "");
  const [hold, setHold] = useState(details?.held ? "on" : "off");
  const save = async () => {
    const put = (query: string, document: string) => send("PUT", { bucket, key: name }, { query: { [query]: "", versionId: version }, ...checked(document) });
    const changed = mode !== (details?.lockMode || "none") || until !== (details?.lockedUntil.slice(0, 10) ?? "");
    if (changed && mode === "none") throw new Refusal("a retention is removed by S3 alone: choose another date");
    if (changed) await put("retention", element("Retention", [element("Mode", mode), element("RetainUntilDate", `${until}T00:00:00Z`)]));
    if ((hold === "on") !== (details?.held ?? false)) await put("legal-hold", element("LegalHold", [element("Status", hold.toUpperCase())]));
    await done();
  };
  return (
    <Ask title="Lock" verb="Save" run={save} close={close}>
      <p class="quiet">A version under retention or legal hold can't be deleted. COMPLIANCE can't be shortened by any key.</p>
      <Select label="Retention" value={mode} options={["none", "GOVERNANCE", "COMPLIANCE"]} on={setMode} />
      {mode !== "none" && <Field label="Until the beginning of" type="date" value={until} on={setUntil} required />}
      <Select label="Legal hold" value={hold} options={["off", "on"]} on={setHold} />
    </Ask>
  );
}
