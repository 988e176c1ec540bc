"""s3cmd, which signs and lists in ways of its own."""

import os
import sys
from pathlib import Path

import suite
from commands import WORK, file_of, folder_of, new_path, run

BUCKET = os.environ["MARTLET_BUCKET"]
ROOT = f"s3://{BUCKET}"
CONFIG = WORK / "s3cfg"
CORS = b"""<CORSConfiguration><CORSRule>
<AllowedOrigin>http://*.page</AllowedOrigin><AllowedMethod>GET</AllowedMethod>
</CORSRule></CORSConfiguration>"""

CONFIG.write_text(f"""[default]
access_key = {os.environ["AWS_ACCESS_KEY_ID"]}
secret_key = {os.environ["AWS_SECRET_ACCESS_KEY"]}
host_base = {os.environ["MARTLET_HOST"]}
host_bucket = {os.environ["MARTLET_HOST"]}
bucket_location = {os.environ["AWS_REGION"]}
use_https = False
multipart_chunk_size_mb = 15
""")


def s3cmd(*words, data=None):
    # `--no-check-md5` is not given: what was sent is compared with the ETag.
    script = str(Path(sys.executable).parent / "s3cmd")
    return run(sys.executable, "-B", script, "--config", str(CONFIG), "--no-progress", *words, data=data)


class S3cmd:
    threads = 4
    # It gets a key that ends in a slash only with everything below it.
    impossible_keys = ("folder/",)
    without = {"ranges": "it has no command for them"}

    def make_bucket(self):
        s3cmd("mb", ROOT)

    def put(self, key, data):
        s3cmd("put", file_of(data), f"{ROOT}/{key}")

    def get(self, key):
        into = new_path()
        s3cmd("get", f"{ROOT}/{key}", str(into))
        return into.read_bytes()

    def put_parts(self, key, data):
        s3cmd("put", "--multipart-chunk-size-mb", "8", file_of(data), f"{ROOT}/{key}")

    def put_many(self, objects):
        s3cmd("sync", "--quiet", folder_of(objects, "many/") + "/", f"{ROOT}/many/")

    def keys(self, prefix):
        lines = s3cmd("ls", "--recursive", f"{ROOT}/{prefix}").decode().splitlines()
        return [line.partition(ROOT + "/")[2] for line in lines]

    def delete(self, key):
        s3cmd("del", f"{ROOT}/{key}")

    def empty(self):
        s3cmd("del", "--recursive", "--force", "--quiet", ROOT)

    def more(self, _):
        s3cmd("cp", f"{ROOT}/small/4096", f"{ROOT}/copied")
        s3cmd("mv", f"{ROOT}/copied", f"{ROOT}/moved")
        suite.same(len(self.get("moved")), 4096, "the size of what was copied and moved")
        s3cmd("modify", "--add-header", "x-amz-meta-colour: blue", f"{ROOT}/moved")
        told = s3cmd("info", f"{ROOT}/moved").decode()
        assert "x-amz-meta-colour: blue" in told and "FULL_CONTROL" in told, told
        self.settings()

    def settings(self):
        s3cmd("setcors", file_of(CORS), ROOT)
        told = s3cmd("info", ROOT).decode()
        assert "<AllowedOrigin>http://*.page</AllowedOrigin>" in told and "FULL_CONTROL" in told, told
        s3cmd("delcors", ROOT)
        assert "AllowedOrigin" not in s3cmd("info", ROOT).decode()
        s3cmd("setacl", "--acl-private", ROOT, f"{ROOT}/moved")

    def remove_bucket(self):
        s3cmd("rb", ROOT)


suite.main(S3cmd())
