"""rclone, over aws-sdk-go-v2."""

import json
import os
import sys
from pathlib import Path

import suite
from commands import folder_of, new_path, run

RCLONE = str(Path(sys.executable).parent / "rclone")
ROOT = f"martlet:{os.environ['MARTLET_BUCKET']}"

os.environ.update({
    "RCLONE_CONFIG": "/dev/null",
    "RCLONE_CONFIG_MARTLET_TYPE": "s3",
    "RCLONE_CONFIG_MARTLET_PROVIDER": "Other",
    "RCLONE_CONFIG_MARTLET_ENV_AUTH": "true",
    "RCLONE_CONFIG_MARTLET_ENDPOINT": os.environ["MARTLET_ENDPOINT"],
    "RCLONE_CONFIG_MARTLET_REGION": os.environ["AWS_REGION"],
    # Keys as they are, but for what can be no path for rclone.
    "RCLONE_CONFIG_MARTLET_ENCODING": "Slash,InvalidUtf8,Dot",
})


def rclone(*words, data=None):
    return run(RCLONE, *words, data=data)


class Rclone:
    threads = 4
    # rclone makes paths of keys: these are other paths, or none.
    impossible_keys = ("folder/", "a/../b", "./dot", "../up", "double//slash")

    def make_bucket(self):
        rclone("mkdir", ROOT)

    def put(self, key, data):
        rclone("rcat", f"{ROOT}/{key}", data=data)

    def get(self, key):
        return rclone("cat", f"{ROOT}/{key}")

    def put_parts(self, key, data):
        source = new_path()
        source.write_bytes(data)
        rclone("copyto", "--s3-upload-cutoff", "8Mi", "--s3-chunk-size", "8Mi", str(source), f"{ROOT}/{key}")
        rclone("check", "--download", "--one-way", "--include", f"/{key}", str(self.beside(data, key)), ROOT)

    def beside(self, data, name):
        """A folder with this one file."""
        folder = new_path()
        folder.mkdir()
        (folder / name).write_bytes(data)
        return folder

    def get_range(self, key, first, last):
        return rclone("cat", "--offset", str(first), "--count", str(last - first + 1), f"{ROOT}/{key}")

    def put_many(self, objects):
        rclone("copy", "--transfers", "16", folder_of(objects, "many/"), f"{ROOT}/many")

    def keys(self, prefix):
        items = json.loads(rclone("lsjson", "--recursive", "--files-only", ROOT))
        return [item["Path"] for item in items if item["Path"].startswith(prefix)]

    def delete(self, key):
        rclone("deletefile", f"{ROOT}/{key}")

    def empty(self):
        rclone("delete", ROOT)

    def more(self, _):
        back = new_path()
        rclone("sync", f"{ROOT}/many", str(back))
        suite.same(len(list(back.iterdir())), suite.MANY, "the files of a sync")
        rclone("check", str(back), f"{ROOT}/many")
        rclone("moveto", f"{ROOT}/small/4096", f"{ROOT}/moved")
        suite.same(len(self.get("moved")), 4096, "the size of what was moved")
        assert rclone("link", "--expire", "5m", f"{ROOT}/moved").startswith(b"http://")

    def remove_bucket(self):
        rclone("rmdir", ROOT)


suite.main(Rclone())
