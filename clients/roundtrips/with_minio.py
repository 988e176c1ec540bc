"""minio-py, which signs bodies in chunks and parses XML by itself."""

import io
import os
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

from minio import Minio
from minio.commonconfig import CopySource, Tags
from minio.deleteobjects import DeleteObject

import suite

BUCKET = os.environ["MARTLET_BUCKET"]


class MinioPy:
    # It refuses names with a part of one or two dots itself.
    impossible_keys = ("a/../b", "./dot", "../up")

    def __init__(self):
        self.s3 = Minio(os.environ["MARTLET_HOST"], access_key=os.environ["AWS_ACCESS_KEY_ID"],
                        secret_key=os.environ["AWS_SECRET_ACCESS_KEY"], secure=False)

    def make_bucket(self):
        self.s3.make_bucket(BUCKET)
        assert self.s3.bucket_exists(BUCKET) and not self.s3.bucket_exists(BUCKET + "-none")

    def put(self, key, data):
        self.s3.put_object(BUCKET, key, io.BytesIO(data), len(data))

    def get(self, key):
        return self.read(self.s3.get_object(BUCKET, key))

    def read(self, reply):
        try:
            return reply.read()
        finally:
            reply.close()
            reply.release_conn()

    def put_parts(self, key, data):
        self.s3.put_object(BUCKET, key, io.BytesIO(data), -1, part_size=8 * suite.MIB)
        assert self.s3.stat_object(BUCKET, key).etag.endswith("-4")

    def get_range(self, key, first, last):
        return self.read(self.s3.get_object(BUCKET, key, offset=first, length=last - first + 1))

    def put_many(self, objects):
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(lambda item: self.put(*item), objects.items()))

    def keys(self, prefix):
        return [item.object_name for item in self.s3.list_objects(BUCKET, prefix, recursive=True)]

    def delete(self, key):
        self.s3.remove_object(BUCKET, key)

    def delete_many(self, keys):
        errors = list(self.s3.remove_objects(BUCKET, [DeleteObject(key) for key in keys]))
        suite.same(errors, [], "errors of a bulk delete")

    def more(self, _):
        tags = Tags.new_object_tags()
        tags["colour"] = "blue"
        self.s3.put_object(BUCKET, "more", io.BytesIO(b"abc"), 3, tags=tags, metadata={"size": "small"})
        suite.same(dict(self.s3.get_object_tags(BUCKET, "more")), {"colour": "blue"}, "tags")
        self.s3.copy_object(BUCKET, "copied", CopySource(BUCKET, "more"))
        suite.same(self.s3.stat_object(BUCKET, "copied").metadata["x-amz-meta-size"], "small", "metadata")
        link = self.s3.presigned_get_object(BUCKET, "copied", expires=timedelta(minutes=5))
        suite.same(self.s3._http.request("GET", link).data, b"abc", "what a presigned link gives")
        folders = [item.object_name for item in self.s3.list_objects(BUCKET) if item.is_dir]
        assert "many/" in folders, folders

    def remove_bucket(self):
        self.s3.remove_bucket(BUCKET)


suite.main(MinioPy())
