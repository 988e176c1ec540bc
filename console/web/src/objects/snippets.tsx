// Commands and programs that reach a bucket. The secret is not known here, so each reads it from the environment.
import { useState } from "preact/hooks";
import { session } from "../session";
import { Card, Copy, Field, Head, Select } from "../ui/parts";
import { Trail } from "./trail";

export interface Values {
  bucket: string;
  endpoint: string;
  region: string;
  key: string;
}

const quoted = (value: string): string => `'${value.replaceAll("'", `'"'"'`)}'`;
const text = (value: string): string => JSON.stringify(value);

export const CLIENTS: Record<string, (of: Values) => string> = {
  awscli: ({ bucket, endpoint, region, key }) => `export AWS_ACCESS_KEY_ID=${quoted(key)}
export AWS_ENDPOINT_URL=${quoted(endpoint)} AWS_REGION=${quoted(region)}
read -rsp 'Secret: ' AWS_SECRET_ACCESS_KEY && export AWS_SECRET_ACCESS_KEY
aws s3 ls ${quoted(`s3://${bucket}/`)}
`,
  boto3: ({ bucket, endpoint, region, key }) => `import os
import boto3
from botocore.config import Config

s3 = boto3.client(
    "s3",
    endpoint_url=${text(endpoint)},
    region_name=${text(region)},
    aws_access_key_id=${text(key)},
    aws_secret_access_key=os.environ["AWS_SECRET_ACCESS_KEY"],
    config=Config(signature_version="s3v4", s3={"addressing_style": "path"}),
)
for entry in s3.list_objects_v2(Bucket=${text(bucket)}).get("Contents", []):
    print(entry["Key"], entry["Size"])
`,
  "PyTorch (s3torchconnector)": ({ bucket, endpoint, region, key }) => `import os
from s3torchconnector import S3ClientConfig, S3MapDataset

os.environ["AWS_ACCESS_KEY_ID"] = ${text(key)}  # AWS_SECRET_ACCESS_KEY is in the environment
dataset = S3MapDataset.from_prefix(
    ${text(`s3://${bucket}/`)},
    region=${text(region)},
    endpoint=${text(endpoint)},
    s3client_config=S3ClientConfig(force_path_style=True),
)
print(len(dataset))
`,
  DuckDB: ({ bucket, endpoint, region, key }) => `import os
import duckdb

secret = os.environ["AWS_SECRET_ACCESS_KEY"].replace("'", "''")
db = duckdb.connect()
db.execute("INSTALL httpfs; LOAD httpfs")
db.execute(f"""CREATE SECRET (
    TYPE s3, KEY_ID ${sql(key)}, SECRET '{secret}', REGION ${sql(region)},
    ENDPOINT ${sql(endpoint.replace(/^https?:\/\//, ""))}, URL_STYLE 'path', USE_SSL ${endpoint.startsWith("https:")}
)""")
print(db.sql(${text(`SELECT file FROM glob('s3://${bucket}/**') LIMIT 10`)}).fetchall())
`,
};

/** Text of SQL within a formatted text of Python. */
function sql(value: string): string {
  return `'${value.replaceAll("\\", "\\\\").replaceAll('"', '\\"').replaceAll("'", "''").replace(/[{}]/g, "$&$&")}'`;
}

export function Snippets({ bucket }: { bucket: string }) {
  const own = session.value?.s3;
  const [client, setClient] = useState("awscli");
  const [endpoint, setEndpoint] = useState(own?.endpoint ?? "");
  const made = CLIENTS[client]?.({ bucket, endpoint: endpoint.trim().replace(/\/$/, ""), region: own?.region ?? "", key: own?.access_key ?? "" }) ?? "";
  return (
    <>
      <Trail bucket={bucket} prefix="" name="Use from programs" />
      <Head title="Use from programs" lead={`${bucket} with the access key ${own?.access_key ?? ""}. Its secret comes from AWS_SECRET_ACCESS_KEY.`} />
      <Card wide>
        <div class="filters">
          <Select label="Client" value={client} options={Object.keys(CLIENTS)} on={setClient} />
          <Field label="Endpoint" value={endpoint} on={setEndpoint} hint="S3 address as the program reaches it." />
        </div>
        <Copy label={`Program for ${client}`} text={made} />
      </Card>
    </>
  );
}
