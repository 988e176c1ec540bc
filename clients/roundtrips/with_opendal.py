"""OpenDAL: its core in Rust through the binding for Python."""

import asyncio
import os
import urllib.request
from concurrent.futures import ThreadPoolExecutor

import opendal
from opendal.exceptions import ConditionNotMatch

import bare
import suite


class OpenDal:
    # It trims paths and leaves out their empty parts; those of one or two dots are resolved after they were signed.
    impossible_keys = (" leading and trailing ", "double//slash", "a/../b", "./dot", "../up")

    def __init__(self):
        self.settings = {"bucket": bare.BUCKET, "endpoint": os.environ["MARTLET_ENDPOINT"], "root": "/",
                         "region": os.environ["AWS_REGION"]}
        self.op = opendal.Operator("s3", **self.settings)

    def make_bucket(self):
        bare.make_bucket()

    def put(self, key, data):
        if key.endswith("/"):
            self.op.create_dir(key)
        else:
            self.op.write(key, data)

    def get(self, key):
        return b"" if key.endswith("/") and self.op.stat(key).mode.is_dir() else bytes(self.op.read(key))

    def put_parts(self, key, data):
        self.op.write(key, data, chunk=8 * suite.MIB, concurrent=4)
        suite.same(bare.parts(key), 4, "parts")

    def get_range(self, key, first, last):
        return bytes(self.op.read(key, offset=first, size=last - first + 1))

    def put_many(self, objects):
        with ThreadPoolExecutor(16) as pool:
            list(pool.map(lambda item: self.put(*item), objects.items()))

    def keys(self, prefix):
        # What is listed is among it, if it looks like a folder.
        return [entry.path for entry in self.op.list(prefix, recursive=True) if entry.path not in (prefix, "/")]

    def delete(self, key):
        self.op.delete(key)

    def empty(self):
        self.op.delete("", recursive=True)

    def more(self, rng):
        self.conditions()
        data = rng.randbytes(20 * suite.MIB)
        self.op.write("more", data)
        suite.same(bytes(self.op.read("more", chunk=suite.MIB, concurrent=8)), data, "what was read in pieces")
        self.op.copy("more", "copied")
        suite.same(self.get("copied"), data, "a copy")
        self.op.write("told", b"x", content_type="text/plain", user_metadata={"colour": "blue"})
        told = self.op.stat("told")
        suite.same((told.content_type, told.user_metadata), ("text/plain", {"colour": "blue"}), "what was told")
        asyncio.run(self.presigned())

    def conditions(self):
        self.op.write("once", b"1", if_not_exists=True)
        refused(lambda: self.op.write("once", b"2", if_not_exists=True))
        seen = self.op.stat("once").etag
        self.op.write("once", b"3", if_match=seen)
        refused(lambda: self.op.write("once", b"4", if_match=seen))
        refused(lambda: self.op.read("once", if_match=seen))
        suite.same(self.get("once"), b"3", "the object under conditions")

    async def presigned(self):
        op = opendal.AsyncOperator("s3", **self.settings)
        await op.write("asked", b"0123456789")
        suite.same(bytes(await op.read("asked")), b"0123456789", "what was written asynchronously")
        signed = await op.presign_read("asked", 60)
        request = urllib.request.Request(signed.url, headers=dict(signed.headers), method=signed.method)
        with urllib.request.urlopen(request, timeout=30) as reply:
            suite.same(reply.read(), b"0123456789", "what a presigned URL gives")

    def remove_bucket(self):
        bare.remove_bucket()


def refused(step):
    try:
        step()
    except ConditionNotMatch:
        return
    raise AssertionError("a condition that did not hold was let through")


suite.main(OpenDal())
