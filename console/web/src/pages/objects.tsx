// Objects of the session's access key: buckets, one bucket, or one object, by the address.
import { Browser } from "../objects/browser";
import { Buckets } from "../objects/buckets";
import { ObjectPage } from "../objects/object";
import { BucketSettings } from "../objects/settings";
import { Snippets } from "../objects/snippets";
import { parameters } from "../route";
import { isBucket } from "../s3/client";

export function Objects() {
  const of = (name: string) => parameters.value.get(name) ?? undefined;
  const [bucket, key, version, view] = [of("bucket"), of("key"), of("version"), of("view")];
  if (bucket === undefined || !isBucket(bucket)) return <Buckets />;
  if (key) return <ObjectPage key={`${bucket}\n${key}\n${version ?? ""}`} bucket={bucket} name={key} version={version} />;
  if (view === "settings") return <BucketSettings key={bucket} bucket={bucket} />;
  if (view === "clients") return <Snippets bucket={bucket} />;
  return <Browser key={bucket} bucket={bucket} prefix={of("prefix") ?? ""} />;
}
