"""s4cmd: boto3 in threads, which splits files itself."""

import os
import sys
from pathlib import Path

import bare
import suite
from commands import file_of, folder_of, new_path, run

ROOT = f"s3://{bare.BUCKET}"
SCRIPT = str(Path(sys.executable).parent / "s4cmd.py")
PARTS = ["--max-singlepart-upload-size", str(8 * suite.MIB), "--max-singlepart-download-size", str(8 * suite.MIB),
         "--max-singlepart-copy-size", str(8 * suite.MIB), "--multipart-split-size", str(8 * suite.MIB)]


def s4cmd(command, *words):
    return run(sys.executable, "-B", SCRIPT, command, *words, "--endpoint-url", os.environ["MARTLET_ENDPOINT"],
               "--force", "--num-threads", "8", "--retry", "1")


class S4cmd:
    threads = 2
    # It gets no key that ends in a slash, and its listing has no space at the end of a line.
    impossible_keys = ("folder/", " leading and trailing ")
    without = {"ranges": "it has no command for them"}

    def make_bucket(self):
        s4cmd("mb", ROOT)

    def put(self, key, data):
        s4cmd("put", file_of(data), f"{ROOT}/{key}")

    def get(self, key):
        into = new_path()
        s4cmd("get", f"{ROOT}/{key}", str(into))
        return into.read_bytes()

    def put_parts(self, key, data):
        s4cmd("put", *PARTS, file_of(data), f"{ROOT}/{key}")
        suite.same(bare.parts(key), 4, "parts")

    def put_many(self, objects):
        s4cmd("put", "--recursive", folder_of(objects, "many/"), f"{ROOT}/many")

    def keys(self, prefix):
        lines = s4cmd("ls", "--recursive", ROOT).decode().splitlines()
        keys = [line.partition(ROOT + "/")[2] for line in lines]
        return [key for key in keys if key.startswith(prefix)]

    def delete(self, key):
        s4cmd("del", f"{ROOT}/{key}")

    def empty(self):
        s4cmd("del", "--recursive", f"{ROOT}/")

    def more(self, rng):
        data = rng.randbytes(20 * suite.MIB)
        s4cmd("put", *PARTS, file_of(data), f"{ROOT}/more/one")
        # Parts of a copy, and of a download.
        s4cmd("cp", *PARTS, f"{ROOT}/more/one", f"{ROOT}/more/two")
        suite.same(bare.get("more/two"), data, "a copy in parts")
        into = new_path()
        s4cmd("get", *PARTS, f"{ROOT}/more/two", str(into))
        suite.same(into.read_bytes(), data, "a download in parts")
        s4cmd("mv", f"{ROOT}/more/two", f"{ROOT}/more/three")
        suite.same(bare.keys("more/"), ["more/one", "more/three"], "keys after a move")
        told = s4cmd("du", "--recursive", f"{ROOT}/more").split()
        suite.same(int(told[0]), 2 * len(data), "bytes in all")
        back = new_path()
        s4cmd("dsync", "--recursive", f"{ROOT}/many", str(back))
        suite.same(len(list(back.iterdir())), suite.MANY, "files of a sync")

    def remove_bucket(self):
        bare.remove_bucket()


suite.main(S4cmd())
