// Policy of a bucket, and whether it makes the bucket public.
import { useLive } from "../api";
import { setting } from "../s3/client";
import { text } from "../s3/xml";
import { Badge } from "../ui/parts";
import { JsonDocument } from "./json-document";

/** Policy that lets one other tenant read all objects. */
const template = (bucket: string): string =>
  JSON.stringify({ Version: "2012-10-17", Statement: [{ Effect: "Allow", Principal: { AWS: "arn:aws:iam::TENANT:root" }, Action: "s3:GetObject", Resource: `arn:aws:s3:::${bucket}/*` }] }, null, 2);

export function BucketPolicy({ bucket }: { bucket: string }) {
  const status = useLive(async () => setting({ bucket }, { policyStatus: "" }, ["NoSuchBucketPolicy"]), 0, []);
  const found = status.value.value;
  const isPublic = found && text(found, "IsPublic").toLowerCase() === "true";
  return (
    <JsonDocument
      bucket={bucket}
      title="Policy"
      query="policy"
      missing="NoSuchBucketPolicy"
      template={template(bucket)}
      note="who else may use this bucket, and what is denied"
      lost="The document is lost. What it allows to others ends within a second, and what it denies to users of this tenant may be permitted then."
      changed={status.reload}
    >
      {found && <p><Badge tone={isPublic ? "warn" : "calm"}>{isPublic ? "public: requests without a key are allowed" : "not public"}</Badge></p>}
    </JsonDocument>
  );
}
