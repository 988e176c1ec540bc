// Checkpoint rules of a bucket, with a form for the retention of one set or of many.
import { useState } from "preact/hooks";
import { withRetention } from "../json/rules";
import type { Adding } from "../ui/document";
import { Failure, Field, Select } from "../ui/parts";
import { JsonDocument } from "./json-document";

const TEMPLATE = JSON.stringify({ rules: [{ pattern: "run-*/step-*/", profile: "dcp", keep: 3 }] }, null, 2);
const PROFILES = ["dcp", "megatron", "hf", "orbax", "custom"];

export function CheckpointRules({ bucket }: { bucket: string }) {
  return (
    <JsonDocument
      bucket={bucket}
      title="Checkpoint rules"
      query="checkpoints"
      missing="NoSuchCheckpointConfiguration"
      template={TEMPLATE}
      note="folders that become visible as a whole"
      lost="The bucket's sets leave the view at once. After 24 hours without a rule they are withdrawn for good. Objects stay."
      form={(props) => <RetentionForm {...props} />}
    />
  );
}

function RetentionForm({ text, put }: Adding) {
  const [pattern, setPattern] = useState("");
  const [profile, setProfile] = useState("dcp");
  const [keep, setKeep] = useState("");
  const [minAge, setMinAge] = useState("");
  const [abandonAfter, setAbandonAfter] = useState("");
  const [error, setError] = useState("");
  const add = () => {
    setError("");
    try {
      put(withRetention(text, { pattern, profile, keep, minAge, abandonAfter }));
    } catch (thrown) {
      setError(thrown instanceof Error ? thrown.message : String(thrown));
    }
  };
  return (
    <fieldset class="filters">
      <legend>Retention of one set, or of many</legend>
      <Field label="Folders" value={pattern} on={setPattern} hint="run-7/step-1000/ is one set. * stands for anything in one part. A rule for equal folders is changed." />
      <Select label="Profile" value={profile} options={PROFILES} on={setProfile} />
      <Field label="Generations to keep" value={keep} on={setKeep} hint="The newest of a parent folder. Empty: all." />
      <Field label="Kept at least, in hours" value={minAge} on={setMinAge} hint="After its commit. Empty: 0." />
      <Field label="Abandoned after, in hours" value={abandonAfter} on={setAbandonAfter} hint="Without a write, if incomplete. Empty: never." />
      <button type="button" onClick={add}>Add or change</button>
      {error && <Failure text={error} />}
    </fieldset>
  );
}
