"""The AWS CLI: `aws s3` for what people do, `aws s3api` where only that can."""

import json
import os
import sys
from pathlib import Path

import suite
from commands import file_of, folder_of, new_path, run

AWS = str(Path(sys.executable).parent / "aws")
BUCKET = os.environ["MARTLET_BUCKET"]
ROOT = f"s3://{BUCKET}"

os.environ["AWS_ENDPOINT_URL"] = os.environ["MARTLET_ENDPOINT"]


def s3(*words, data=None):
    return run(AWS, "s3", *words, data=data)


def api(operation, *words, **named):
    flags = [part for name, value in named.items() for part in (f"--{name.replace('_', '-')}", value)]
    said = run(AWS, "s3api", operation, "--bucket", BUCKET, "--output", "json", *flags, *words)
    return json.loads(said) if said.strip() else {}


class AwsCli:
    threads = 4

    def make_bucket(self):
        s3("mb", ROOT)

    def put(self, key, data):
        # To `aws s3 cp` a slash at the end means a folder to copy into.
        if key.endswith("/"):
            api("put-object", key=key, body=file_of(data))
            return
        s3("cp", "-", f"{ROOT}/{key}", data=data)

    def get(self, key):
        if key.endswith("/"):
            into = new_path()
            api("get-object", str(into), key=key)
            return into.read_bytes()
        return s3("cp", f"{ROOT}/{key}", "-")

    def put_parts(self, key, data):
        upload = api("create-multipart-upload", key=key)["UploadId"]
        tags = []
        for number, at in enumerate(range(0, len(data), 8 * suite.MIB), 1):
            body = file_of(data[at:at + 8 * suite.MIB])
            part = api("upload-part", key=key, upload_id=upload, part_number=str(number), body=body)
            tags.append({"PartNumber": number, "ETag": part["ETag"]})
        done = api("complete-multipart-upload", key=key, upload_id=upload,
                   multipart_upload=json.dumps({"Parts": tags}))
        assert done["ETag"].endswith(f'-{len(tags)}"'), done

    def get_range(self, key, first, last):
        into = new_path()
        api("get-object", str(into), key=key, range=f"bytes={first}-{last}")
        return into.read_bytes()

    def put_many(self, objects):
        s3("sync", "--only-show-errors", folder_of(objects, "many/"), f"{ROOT}/many/")

    def keys(self, prefix):
        return [item["Key"] for item in api("list-objects-v2", prefix=prefix).get("Contents", [])]

    def delete(self, key):
        s3("rm", f"{ROOT}/{key}")

    def delete_many(self, keys):
        said = api("delete-objects", delete=json.dumps({"Objects": [{"Key": key} for key in keys]}))
        assert "Errors" not in said, said

    def empty(self):
        s3("rm", "--recursive", "--only-show-errors", ROOT)

    def more(self, _):
        s3("mv", f"{ROOT}/small/4096", f"{ROOT}/moved")
        assert "small/4096" not in self.keys("small/") and len(self.get("moved")) == 4096
        listed = s3("ls", f"{ROOT}/").decode()
        assert "PRE many/" in listed and " 4096 moved" in listed, listed
        back = new_path()
        s3("sync", "--only-show-errors", f"{ROOT}/many/", str(back))
        suite.same(len(list(back.iterdir())), suite.MANY, "the files of a sync")
        assert s3("sync", f"{ROOT}/many/", str(back)) == b"", "the second sync had something to do"

    def remove_bucket(self):
        s3("rb", ROOT)


suite.main(AwsCli())
