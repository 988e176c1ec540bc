// Settings of a bucket: versions and lock, encryption and tags, policy, lifecycle, CORS, and checkpoint rules. S3 checks the
// documents, and its words are shown.
import type { JSX } from "preact";
import { useState } from "preact/hooks";
import { Refusal, useLive } from "../api";
import { checked, send, storedDocument } from "../s3/client";
import { lockState } from "../s3/head";
import { element, parse } from "../s3/xml";
import { Ask, Badge, Card, Failure, Field, Head, Loaded, Select } from "../ui/parts";
import { CheckpointRules } from "./checkpoint-rules";
import { BucketEncryption, BucketTags } from "./labels";
import { BucketPolicy } from "./policy";
import { RetentionPlan } from "./retention";
import { CorsRule, LifecycleRule, withRule, type RuleForm } from "./rules";
import { Trail } from "./trail";

export function BucketSettings({ bucket }: { bucket: string }) {
  return (
    <>
      <Trail bucket={bucket} prefix="" name="Settings" />
      <Head title={`Settings of ${bucket}`} lead="Changes are in force within seconds." />
      <div class="grid">
        <Versioning bucket={bucket} />
        <Lock bucket={bucket} />
        <BucketEncryption bucket={bucket} />
        <BucketTags bucket={bucket} />
      </div>
      <BucketPolicy bucket={bucket} />
      <Document bucket={bucket} title="Lifecycle" query="lifecycle" missing="NoSuchLifecycleConfiguration" template={LIFECYCLE} note="objects, versions and unfinished uploads that are removed by age" form={LifecycleRule} />
      <Document bucket={bucket} title="CORS" query="cors" missing="NoSuchCORSConfiguration" template={CORS} note="pages of other sites that may read this bucket" form={CorsRule} />
      <CheckpointRules bucket={bucket} />
      <RetentionPlan bucket={bucket} />
    </>
  );
}

const LIFECYCLE = element("LifecycleConfiguration", [
  element("Rule", [element("ID", "old"), element("Status", "Enabled"), element("Filter", [element("Prefix", "tmp/")]), element("Expiration", [element("Days", "30")])]),
  element("Rule", [element("ID", "uploads"), element("Status", "Enabled"), element("Filter", [element("Prefix", "")]), element("AbortIncompleteMultipartUpload", [element("DaysAfterInitiation", "7")])]),
]);
const CORS = element("CORSConfiguration", [
  element("CORSRule", [element("AllowedOrigin", "https://www.example.com"), element("AllowedMethod", "GET"), element("AllowedHeader", "*"), element("MaxAgeSeconds", "3000")]),
]);

/** Document with one element on each line. */
export function indented(document: string): string {
  let depth = 0;
  const lines = document.replace(/<\?[^>]*\?>\s*/, "").replace(/>\s+</g, "><").split(/(?<=>)(?=<)/);
  const out = lines.map((line) => {
    if (line.startsWith("</")) depth -= 1;
    const shown = "  ".repeat(Math.max(0, depth)) + line;
    if (!line.startsWith("</") && !line.includes("</") && !line.endsWith("/>")) depth += 1;
    return shown;
  });
  return out.join("\n");
}

interface DocumentProps {
  bucket: string;
  title: string;
  query: string;
  missing: string;
  template: string;
  note: string;
  /** Form that adds a rule to the document. */
  form?: (props: RuleForm) => JSX.Element;
}

function Document({ bucket, title, query, missing, template, note, form: Form }: DocumentProps) {
  const load = () => storedDocument(bucket, query, missing);
  const live = useLive(load, 0, []);
  /** Text in the editor, and the stored document from which it was begun. */
  const [text, setText] = useState<string>();
  const [base, setBase] = useState("");
  const [error, setError] = useState("");
  const [busy, setBusy] = useState(false);
  const [removing, setRemoving] = useState(false);
  const begin = (document: string) => {
    setError("");
    setBase(document);
    setText(indented(document || template));
  };
  const save = async (event: Event) => {
    event.preventDefault();
    setError("");
    setBusy(true);
    try {
      parse(text ?? "");
      const now = await load();
      if (now !== base) {
        setBase(now);
        throw new Refusal("The document was changed meanwhile. Saving again replaces that change.");
      }
      // White space between elements is no part of the document.
      const document = (text ?? "").replace(/>\s+</g, "><").trim();
      await send("PUT", { bucket }, { query: { [query]: "" }, ...checked(document) });
      // The saved document is shown before the editor closes: another change must not begin from the old one.
      await live.saved(document);
      setBase(live.value.value ?? document);
      // A text that was typed during the save stays.
      setText((typed) => (typed === text ? undefined : typed));
    } catch (thrown) {
      setError(thrown instanceof Error ? thrown.message : String(thrown));
    }
    setBusy(false);
  };
  const remove = async () => {
    await send("DELETE", { bucket }, { query: { [query]: "" } });
    await live.saved("");
  };
  return (
    <Card title={title} note={note} wide>
      <Loaded live={live}>
        {(document) =>
          text === undefined ? (
            <>
              {document ? <pre class="content" tabIndex={0} aria-label={`${title} of ${bucket}`}>{indented(document)}</pre> : <p class="quiet">None is set.</p>}
              <div class="row">
                <button onClick={() => begin(document)} aria-label={`${document ? "Change" : "Set"} ${title}`}>{document ? "Change" : "Set"}</button>
                {document && <button onClick={() => setRemoving(true)} aria-label={`Remove ${title}`}>Remove</button>}
              </div>
            </>
          ) : (
            <form class="change" onSubmit={(event) => void save(event)}>
              <Field label={`Document of ${title}`} value={text} on={setText} lines={16} focus />
              {Form && <Form add={(rule) => setText(indented(withRule(text, rule)))} />}
              {error && <Failure text={error} />}
              <div class="row">
                <button class="primary" disabled={busy}>Save</button>
                <button type="button" disabled={busy} onClick={() => setText(undefined)}>Cancel</button>
              </div>
            </form>
          )
        }
      </Loaded>
      {removing && <Ask title={`Remove ${title} of ${bucket}`} verb="Remove" danger run={remove} close={() => setRemoving(false)} />}
    </Card>
  );
}

function Versioning({ bucket }: { bucket: string }) {
  const live = useLive(() => lockState(bucket), 0, []);
  const [wanted, setWanted] = useState<string>();
  const save = async () => {
    await send("PUT", { bucket }, { query: { versioning: "" }, ...checked(element("VersioningConfiguration", [element("Status", wanted ?? "")])) });
    await live.reload();
  };
  return (
    <Card title="Versions">
      <Loaded live={live}>
        {({ versioning }) => (
          <div class="row">
            <Badge tone={versioning === "Enabled" ? "good" : "calm"}>{versioning}</Badge>
            <button onClick={() => setWanted(versioning === "Enabled" ? "Suspended" : "Enabled")}>{versioning === "Enabled" ? "Suspend" : "Enable"}</button>
          </div>
        )}
      </Loaded>
      {wanted && (
        <Ask title={`${wanted === "Enabled" ? "Enable" : "Suspend"} versions of ${bucket}`} verb={wanted === "Enabled" ? "Enable" : "Suspend"} run={save} close={() => setWanted(undefined)}>
          <p>{wanted === "Enabled" ? "Overwritten and deleted objects stay as earlier versions, and use space." : "Versions that exist stay."}</p>
        </Ask>
      )}
    </Card>
  );
}

function Lock({ bucket }: { bucket: string }) {
  const live = useLive(() => lockState(bucket), 0, []);
  const [open, setOpen] = useState(false);
  const [mode, setMode] = useState("none");
  const [span, setSpan] = useState("30");
  const [unit, setUnit] = useState("Days");
  const save = async () => {
    if (mode !== "none" && !/^[1-9][0-9]*$/.test(span)) throw new Refusal("the time is a whole number above zero");
    const rule = mode === "none" ? undefined : element("Rule", [element("DefaultRetention", [element("Mode", mode), element(unit, span)])]);
    await send("PUT", { bucket }, { query: { "object-lock": "" }, ...checked(element("ObjectLockConfiguration", [element("ObjectLockEnabled", "Enabled"), rule])) });
    await live.reload();
  };
  return (
    <Card title="Object lock">
      <Loaded live={live}>
        {(state) => (
          <>
            <div class="row">
              <Badge tone={state.locked ? "good" : "calm"}>{state.locked ? "enabled" : "not enabled"}</Badge>
              <button onClick={() => { setMode(state.mode || "none"); setSpan(state.years || state.days || "30"); setUnit(state.years ? "Years" : "Days"); setOpen(true); }}>Change</button>
            </div>
            <p class="quiet">{state.mode ? `New versions: ${state.mode} for ${state.days ? `${state.days} days` : `${state.years} years`}.` : "New versions have no retention by default."}</p>
          </>
        )}
      </Loaded>
      {open && (
        <Ask title={`Object lock of ${bucket}`} verb="Save" run={save} close={() => setOpen(false)}>
          <p class="quiet">Object lock needs versions, and can't be turned off again.</p>
          <Select label="Default retention" value={mode} options={["none", "GOVERNANCE", "COMPLIANCE"]} on={setMode} />
          {mode !== "none" && <Field label="Time" value={span} on={setSpan} required />}
          {mode !== "none" && <Select label="Unit" value={unit} options={["Days", "Years"]} on={setUnit} />}
        </Ask>
      )}
    </Card>
  );
}
