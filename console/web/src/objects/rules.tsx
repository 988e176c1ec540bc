// Forms that add a rule to the document of lifecycle rules or of CORS.
import { useState } from "preact/hooks";
import { element } from "../s3/xml";
import { Field, Select } from "../ui/parts";

export interface RuleForm {
  add: (rule: string) => void;
}

const LIMITS: Record<string, (days: string) => string> = {
  "Objects, by age": (days) => element("Expiration", [element("Days", days)]),
  "Earlier versions, by age": (days) => element("NoncurrentVersionExpiration", [element("NoncurrentDays", days)]),
  "Unfinished uploads, by age": (days) => element("AbortIncompleteMultipartUpload", [element("DaysAfterInitiation", days)]),
};

export function LifecycleRule({ add }: RuleForm) {
  const [prefix, setPrefix] = useState("");
  const [what, setWhat] = useState("Objects, by age");
  const [days, setDays] = useState("30");
  const limit = LIMITS[what]?.(days);
  const rule = () => element("Rule", [element("ID", `rule-${Date.now()}`), element("Status", "Enabled"), element("Filter", [element("Prefix", prefix)]), limit]);
  return (
    <fieldset class="filters">
      <legend>Add a rule</legend>
      <Field label="Keys that begin with" value={prefix} on={setPrefix} />
      <Select label="Remove" value={what} options={Object.keys(LIMITS)} on={setWhat} />
      <Field label="Days" type="number" value={days} on={setDays} />
      <button type="button" onClick={() => add(rule())}>Add the rule</button>
    </fieldset>
  );
}

export function CorsRule({ add }: RuleForm) {
  const [origin, setOrigin] = useState("https://");
  const [methods, setMethods] = useState("GET");
  const allowed = methods.split("+").map((one) => element("AllowedMethod", one));
  const rule = () => element("CORSRule", [element("AllowedOrigin", origin), ...allowed, element("AllowedHeader", "*"), element("ExposeHeader", "ETag"), element("MaxAgeSeconds", "3000")]);
  return (
    <fieldset class="filters">
      <legend>Add a rule</legend>
      <Field label="Origin" value={origin} on={setOrigin} />
      <Select label="Methods" value={methods} options={["GET", "GET+HEAD", "GET+PUT", "GET+PUT+POST+DELETE"]} on={setMethods} />
      <button type="button" onClick={() => add(rule())}>Add the rule</button>
    </fieldset>
  );
}

/** Document with one more rule at its end. */
export function withRule(document: string, rule: string): string {
  const at = document.lastIndexOf("</");
  return at < 0 ? document : document.slice(0, at) + rule + document.slice(at);
}
