"""boto3: its transfer manager, its low-level client, and both ways to name a bucket."""

import io
import os
import socket
from concurrent.futures import ThreadPoolExecutor

import boto3
from boto3.s3.transfer import TransferConfig
from botocore.config import Config

import suite

BUCKET = os.environ["MARTLET_BUCKET"]
MIB = suite.MIB


def connect(endpoint=os.environ["MARTLET_ENDPOINT"], style="path", **settings):
    config = Config(s3={"addressing_style": style}, max_pool_connections=32, **settings)
    return boto3.client("s3", endpoint_url=endpoint, config=config)


class Boto3:
    def __init__(self):
        self.s3 = connect()

    def make_bucket(self):
        self.s3.create_bucket(Bucket=BUCKET)

    def put(self, key, data):
        if len(data) > MIB:
            self.s3.upload_fileobj(io.BytesIO(data), BUCKET, key)
        else:
            self.s3.put_object(Bucket=BUCKET, Key=key, Body=data)

    def get(self, key):
        into = io.BytesIO()
        self.s3.download_fileobj(BUCKET, key, into)
        return into.getvalue()

    def get_range(self, key, first, last):
        reply = self.s3.get_object(Bucket=BUCKET, Key=key, Range=f"bytes={first}-{last}")
        return reply["Body"].read()

    def put_parts(self, key, data):
        transfer = TransferConfig(multipart_threshold=8 * MIB, multipart_chunksize=8 * MIB)
        self.s3.upload_fileobj(io.BytesIO(data), BUCKET, key, Config=transfer)
        assert self.s3.head_object(Bucket=BUCKET, Key=key)["ETag"].endswith('-4"')

    def put_many(self, objects):
        with ThreadPoolExecutor(16) as pool:
            list(pool.map(lambda item: self.put(*item), objects.items()))

    def keys(self, prefix):
        pages = self.s3.get_paginator("list_objects_v2").paginate(Bucket=BUCKET, Prefix=prefix)
        return [item["Key"] for page in pages for item in page.get("Contents", [])]

    def delete(self, key):
        self.s3.delete_object(Bucket=BUCKET, Key=key)

    def delete_many(self, keys):
        for at in range(0, len(keys), 1000):
            objects = [{"Key": key} for key in keys[at:at + 1000]]
            reply = self.s3.delete_objects(Bucket=BUCKET, Delete={"Objects": objects})
            assert "Errors" not in reply, reply["Errors"]

    def more(self, rng):
        self.metadata_and_tags()
        self.by_host_name()
        for algorithm in ("CRC32", "CRC32C", "CRC64NVME", "SHA1", "SHA256", "SHA512", "XXHASH64", "XXHASH3",
                          "XXHASH128"):
            self.checksum(algorithm, rng.randbytes(1000))
        self.every_page()

    def metadata_and_tags(self):
        self.s3.put_object(Bucket=BUCKET, Key="more", Body=b"x", ContentType="text/plain",
                           Metadata={"colour": "blue"}, Tagging="a=b")
        head = self.s3.head_object(Bucket=BUCKET, Key="more")
        suite.same((head["ContentType"], head["Metadata"]), ("text/plain", {"colour": "blue"}), "more")
        tags = self.s3.get_object_tagging(Bucket=BUCKET, Key="more")["TagSet"]
        suite.same(tags, [{"Key": "a", "Value": "b"}], "tags")
        self.s3.copy({"Bucket": BUCKET, "Key": "more"}, BUCKET, "copied")
        suite.same(self.get("copied"), b"x", "the copy")

    def by_host_name(self):
        # Names below localhost mean this machine, but not every C library knows it.
        look_up = socket.getaddrinfo
        socket.getaddrinfo = lambda host, *rest, **named: look_up(
            "127.0.0.1" if host.endswith(".localhost") else host, *rest, **named)
        port = os.environ["MARTLET_HOST"].rpartition(":")[2]
        s3 = connect(f"http://localhost:{port}", "virtual")
        s3.put_object(Bucket=BUCKET, Key="virtual", Body=b"host")
        suite.same(self.get("virtual"), b"host", "an object written by host name")

    def checksum(self, algorithm, data):
        name = f"Checksum{algorithm}"
        wrote = self.s3.put_object(Bucket=BUCKET, Key="sum", Body=io.BytesIO(data), ChecksumAlgorithm=algorithm)
        read = self.s3.get_object(Bucket=BUCKET, Key="sum", ChecksumMode="ENABLED")
        suite.same(read["Body"].read(), data, algorithm)
        suite.same(read[name], wrote[name], algorithm)

    def every_page(self):
        for operation in ("list_objects", "list_objects_v2"):
            pages = self.s3.get_paginator(operation).paginate(
                Bucket=BUCKET, Prefix="many/", PaginationConfig={"PageSize": 100})
            found = [item["Key"] for page in pages for item in page["Contents"]]
            suite.same(found, [f"many/{number:04}" for number in range(suite.MANY)], operation)

    def remove_bucket(self):
        self.s3.delete_bucket(Bucket=BUCKET)


suite.main(Boto3())
