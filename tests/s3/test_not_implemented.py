"""What S3 knows and Martlet does not yet: said so, and never taken for something else."""

import pytest

from harness import wire
from helpers import get

BUCKET_RESOURCES = [
    "accelerate", "analytics", "intelligent-tiering", "inventory", "metrics",
    "replication", "website",
]
# What they say can be read, and is always the same.
FIXED_RESOURCES = ["requestPayment"]
OBJECT_RESOURCES = ["torrent", "restore", "renameObject"]
NOT = ("NotImplemented", "MethodNotAllowed")


@pytest.fixture
def key(s3, bucket):
    s3.put_object(Bucket=bucket, Key="k", Body=b"kept")
    yield f"/{bucket}/k"
    assert get(s3, bucket, "k") == b"kept"


def refuse(server, method, target, body=b"", headers=None):
    reply = wire.request(server, method, target, headers, body)
    assert reply.status in (501, 405) and reply.code in NOT, (method, target, reply.status, reply.body[:200])


@pytest.mark.parametrize("resource", BUCKET_RESOURCES + FIXED_RESOURCES)
def test_changes_of_buckets(server, s3, bucket, key, resource):
    for method in ("PUT", "POST", "DELETE"):
        refuse(server, method, f"/{bucket}?{resource}", b"<X/>" if method != "DELETE" else b"")
        refuse(server, method, f"/{bucket}?{resource}=")
    assert s3.list_objects_v2(Bucket=bucket)["KeyCount"] == 1


@pytest.mark.parametrize("resource", BUCKET_RESOURCES)
def test_of_buckets(server, s3, bucket, key, resource):
    reply = wire.request(server, "GET", f"/{bucket}?{resource}")
    assert reply.status in (501, 404) and b"<Contents>" not in reply.body, reply
    assert s3.list_objects_v2(Bucket=bucket)["KeyCount"] == 1


def test_lists_of_grants_are_read_and_put(server, bucket, key):
    for target in (f"/{bucket}?acl", f"{key}?acl"):
        for method in ("POST", "DELETE"):
            refuse(server, method, target)
        refuse(server, "PUT", target, headers={"x-amz-acl": "aws-exec-read"})


@pytest.mark.parametrize("resource", OBJECT_RESOURCES)
def test_of_objects(server, key, resource):
    for method in ("GET", "PUT", "POST", "DELETE"):
        refuse(server, method, f"{key}?{resource}", b"<X/>" if method in ("PUT", "POST") else b"")


@pytest.mark.parametrize("resource", ["nonsense-that-nobody-knows", "select&select-type=2", "versions", "session"])
def test_unknown_ones_fall_through_to_nothing(server, s3, bucket, key, resource):
    for method in ("PUT", "DELETE", "POST"):
        for target in (f"/{bucket}?{resource}", f"{key}?{resource}"):
            reply = wire.request(server, method, target, body=b"x" if method == "PUT" else b"")
            assert reply.status in (400, 405, 501), (method, target, reply.status)
    assert s3.list_objects_v2(Bucket=bucket)["KeyCount"] == 1


@pytest.mark.parametrize("name,value", [
    ("x-amz-server-side-encryption", "aws:kms"), ("x-amz-server-side-encryption-customer-algorithm", "AES256"),
    ("x-amz-object-lock-mode", "GOVERNANCE"), ("x-amz-object-lock-legal-hold", "ON"),
    ("x-amz-write-offset-bytes", "5"), ("x-amz-acl", "aws-exec-read"), ("x-amz-grant-read", "id=1"),
])
def test_headers_that_ask_for_more(server, s3, bucket, key, name, value):
    reply = wire.request(server, "PUT", f"/{bucket}/new", {name: value}, b"x")
    assert reply.status in (400, 501), (reply.status, reply.body)
    assert s3.list_objects_v2(Bucket=bucket)["KeyCount"] == 1


def test_versions_where_none_can_be_named(server, key):
    for method in ("PUT", "POST"):
        refuse(server, method, f"{key}?versionId=null")


def test_methods(server, s3, bucket, key):
    for method in ("PATCH", "TRACE", "CONNECT", "PROPFIND", "get", "X" * 1000):
        for target in (key, f"/{bucket}"):
            reply = wire.request(server, method, target)
            assert reply is None or reply.status in (400, 403, 405, 501), (method, reply)


def test_an_rdma_token_is_declined(server, s3, bucket):
    reply = wire.request(server, "PUT", f"/{bucket}/new", {"x-amz-rdma-token": "abc"}, b"")
    assert (reply.status, reply.headers.get("x-amz-rdma-reply")) == (501, "501"), reply
    assert s3.list_objects_v2(Bucket=bucket)["KeyCount"] == 0
