"""How much tenants and buckets may hold, how fast they may ask, and who makes way when all turns are taken."""

import itertools
import urllib.error
import urllib.request

import pytest

from conftest import client_for, running_server
from harness.admin import Refused, admin
from helpers import client_of, get, refused, soon

KIB = 1024
MIB = 1024 * KIB

_numbers = itertools.count()


class Tenant:
    """A tenant with a key, a client of it, and a bucket."""

    def __init__(self, server):
        self.server = server
        self.name = f"quota-{next(_numbers)}"
        self.ask("tenant", "create", self.name)
        self.key = self.ask("key", "create", "--tenant", self.name)
        self.s3 = client_of(server.endpoint, self.key)
        self.bucket = self.another()

    def ask(self, *words):
        return admin(self.server.admin_port, *words)

    def another(self):
        name = f"of-{self.name}-{next(_numbers)}"
        self.s3.create_bucket(Bucket=name)
        return name

    def put(self, key, size, bucket=None):
        return self.s3.put_object(Bucket=bucket or self.bucket, Key=key, Body=b"x" * size)

    def full(self, key="more", size=1, bucket=None):
        with refused("QuotaExceeded", 403) as caught:
            self.put(key, size, bucket)
        return caught.value.response["Error"]

    def count(self, bucket=None):
        """Has a bucket counted now."""
        return self.ask("bucket", "usage", bucket or self.bucket, "--now")


@pytest.fixture
def tenant(server):
    return Tenant(server)


def quota(tenant, *words):
    return tenant.ask("bucket", "quota", tenant.bucket, *words)


def test_a_bucket_holds_no_more_bytes_than_it_may(tenant, server):
    before = server.metric("requests_limited") or 0
    line = quota(tenant, "--bytes", "10KiB")
    assert (line["bytes_max"], line["objects_max"]) == (10 * KIB, None)
    tenant.put("a", 6 * KIB)
    error = tenant.full("b", 4 * KIB + 1)
    assert "10240 bytes" in error["Message"] and error["ExceededQuota"] == "bucket"
    tenant.put("b", 4 * KIB)
    tenant.full("a", 1)
    # Reads, lists and deletes are never refused; what they free counts once it was counted.
    assert len(get(tenant.s3, tenant.bucket, "a")) == 6 * KIB
    tenant.s3.delete_object(Bucket=tenant.bucket, Key="a")
    counted = tenant.count()
    assert (counted["bytes"], counted["objects"]) == (4 * KIB, 1)
    soon(lambda: tenant.put("a", 6 * KIB))
    tenant.full()
    assert server.metric("requests_limited") >= before + 3
    assert quota(tenant, "--bytes", "none")["bytes_max"] is None
    soon(lambda: tenant.put("c", 50 * KIB))


def test_a_bucket_holds_no_more_objects_than_it_may(tenant):
    quota(tenant, "--objects", "2")
    tenant.put("a", 0)
    tenant.put("b", 0)
    assert "2 objects" in tenant.full("c", 0)["Message"]
    shown = quota(tenant)
    assert (shown["objects_max"], shown["bytes_max"]) == (2, None)
    quota(tenant, "--bytes", "1MiB")
    assert (quota(tenant)["objects_max"], quota(tenant)["bytes_max"]) == (2, MIB)


def test_copies_parts_and_forms_count_too(tenant):
    s3, bucket = tenant.s3, tenant.bucket
    tenant.put("a", 6 * MIB)
    tenant.count()
    quota(tenant, "--bytes", "12MiB", "--objects", "2")
    tenant.count()
    upload = s3.create_multipart_upload(Bucket=bucket, Key="u")["UploadId"]
    part = {"Bucket": bucket, "Key": "u", "UploadId": upload}
    tagged = soon(lambda: s3.upload_part(**part, PartNumber=1, Body=b"x" * (5 * MIB)))
    with refused("QuotaExceeded", 403):
        s3.upload_part(**part, PartNumber=2, Body=b"x" * (2 * MIB))
    with refused("QuotaExceeded", 403):
        s3.upload_part_copy(**part, PartNumber=2, CopySource={"Bucket": bucket, "Key": "a"})
    with refused("QuotaExceeded", 403):
        s3.copy_object(Bucket=bucket, Key="c", CopySource={"Bucket": bucket, "Key": "a"})
    form = s3.generate_presigned_post(bucket, "f")
    assert post(form, b"x" * (2 * MIB)) == 403
    assert tenant.count()["bytes"] == 11 * MIB
    done = {"Parts": [{"PartNumber": 1, "ETag": tagged["ETag"]}]}
    s3.complete_multipart_upload(**part, MultipartUpload=done)
    counted = tenant.count()
    assert (counted["bytes"], counted["objects"]) == (11 * MIB, 2)
    # The third object is one too many, though there is room for its byte.
    upload = s3.create_multipart_upload(Bucket=bucket, Key="v")["UploadId"]
    part = {"Bucket": bucket, "Key": "v", "UploadId": upload}
    tagged = soon(lambda: s3.upload_part(**part, PartNumber=1, Body=b"x"))
    done = {"Parts": [{"PartNumber": 1, "ETag": tagged["ETag"]}]}
    with refused("QuotaExceeded", 403):
        s3.complete_multipart_upload(**part, MultipartUpload=done)
    s3.abort_multipart_upload(**part)


def post(form, content):
    """The status of an upload by form."""
    boundary = "a-line-between"
    fields = "".join(
        f'--{boundary}\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n{value}\r\n'
        for name, value in form["fields"].items())
    head = f'--{boundary}\r\nContent-Disposition: form-data; name="file"; filename="f"\r\n\r\n'
    body = (fields + head).encode() + content + f"\r\n--{boundary}--\r\n".encode()
    request = urllib.request.Request(
        form["url"], data=body, method="POST",
        headers={"Content-Type": f"multipart/form-data; boundary={boundary}"})
    try:
        with urllib.request.urlopen(request, timeout=60) as reply:
            return reply.status
    except urllib.error.HTTPError as error:
        return error.code


def test_every_version_counts(tenant):
    s3, bucket = tenant.s3, tenant.bucket
    s3.put_bucket_versioning(Bucket=bucket, VersioningConfiguration={"Status": "Enabled"})
    quota(tenant, "--bytes", "1000")
    first = tenant.put("a", 600)["VersionId"]
    tenant.full("a", 600)
    s3.delete_object(Bucket=bucket, Key="a")
    counted = tenant.count()
    assert (counted["bytes"], counted["objects"]) == (600, 1), "the marker hides it"
    s3.delete_object(Bucket=bucket, Key="a", VersionId=first)
    assert tenant.count()["bytes"] == 0
    soon(lambda: tenant.put("a", 600))


def test_what_fills_the_index_is_bounded_too(tenant):
    s3, bucket = tenant.s3, tenant.bucket
    s3.put_bucket_versioning(Bucket=bucket, VersioningConfiguration={"Status": "Enabled"})
    version = tenant.put("a", 10)["VersionId"]
    line = quota(tenant, "--index", "20KB")
    assert (line["index_max"], line["bytes_max"]) == (20_000, None)
    with refused("QuotaExceeded", 403) as caught:
        for _ in range(100):
            s3.delete_object(Bucket=bucket, Key="a")
    assert "20000 bytes of the index" in caught.value.response["Error"]["Message"]
    with refused("QuotaExceeded", 403):
        s3.create_multipart_upload(Bucket=bucket, Key="u")
    with refused("QuotaExceeded", 403):
        s3.put_object(Bucket=bucket, Key="e", Body=b"")
    # What removes something is never refused.
    s3.delete_object(Bucket=bucket, Key="a", VersionId=version)
    assert 10_000 < tenant.count()["index"] <= 20_000 + 2_000


def test_a_tenants_quota_is_over_all_its_buckets(tenant):
    other = tenant.another()
    line = tenant.ask("tenant", "quota", tenant.name, "--bytes", "10KB")
    assert line["bytes_max"] == 10_000
    soon(lambda: tenant.full("big", 10_001))
    # It may have been taken first, by the quota that was known when its bucket was made.
    tenant.s3.delete_object(Bucket=tenant.bucket, Key="big")
    soon(lambda: tenant.put("a", 6_000))
    tenant.put("a", 4_000, other)
    assert tenant.full("b", 1, other)["ExceededQuota"] == "tenant"
    tenant.full("b", 1)
    # Who counts is the owner of the bucket, whoever writes to it.
    root = client_for(tenant.server)
    with refused("QuotaExceeded", 403):
        root.put_object(Bucket=tenant.bucket, Key="by-root", Body=b"x")
    # The worker goes through the buckets by itself.
    soon(lambda: held(tenant, 10_000, 2))
    tenant.s3.delete_object(Bucket=other, Key="a")
    soon(lambda: held(tenant, 6_000, 1))
    soon(lambda: tenant.put("b", 4_000, other))
    assert tenant.ask("tenant", "quota", tenant.name, "--bytes", "none")["bytes_max"] is None
    soon(lambda: tenant.put("c", 20_000))


def held(tenant, size, objects):
    line = tenant.ask("tenant", "quota", tenant.name)
    assert (line["bytes"], line["objects"]) == (size, objects), line


def test_a_bucket_without_a_quota_is_counted_too(tenant):
    for number in range(5):
        tenant.put(f"k{number}", 7)
    line = tenant.ask("bucket", "usage", tenant.bucket)
    assert (line["bytes"], line["objects"], line["bytes_max"]) == (35, 5, None)

    def kept():
        assert quota(tenant)["bytes"] == 35, "the devices keep the count"

    soon(kept)


def test_requests_come_no_faster_than_they_may(tenant):
    key = tenant.key["access_key"]
    assert tenant.ask("key", "limit", key, "--requests", "2")["rate"]["requests"] == 2

    def listed():
        with refused("SlowDown", 503) as caught:
            for _ in range(200):
                tenant.s3.list_buckets()
        return caught.value.response["ResponseMetadata"]["HTTPHeaders"]

    assert soon(listed)["retry-after"] == "1"
    # Another key of the tenant has a rate of its own, until the tenant has one.
    other = client_of(tenant.server.endpoint, tenant.ask("key", "create", "--tenant", tenant.name))
    for _ in range(20):
        other.list_buckets()
    tenant.ask("key", "limit", key, "--requests", "none")
    tenant.ask("tenant", "limit", tenant.name, "--requests", "1")
    tenant.s3 = other
    soon(listed)
    line = tenant.ask("tenant", "show", tenant.name)
    assert (line["rate"], line["networks"]) == ({"requests": 1, "bytes": None}, [])
    tenant.ask("tenant", "limit", tenant.name, "--requests", "none")
    soon(lambda: [other.list_buckets() for _ in range(20)])


def test_bytes_that_are_owed_are_paid_before_more_are_let_in(tenant):
    tenant.put("a", 32 * MIB)
    tenant.ask("tenant", "limit", tenant.name, "--bytes", "1MiB")

    def owes(spend):
        spend()
        with refused("SlowDown", 503) as caught:
            tenant.s3.list_buckets()
        wait_s = int(caught.value.response["ResponseMetadata"]["HTTPHeaders"]["retry-after"])
        assert 1 <= wait_s <= 32

    for spend in (lambda: get(tenant.s3, tenant.bucket, "a"), lambda: tenant.put("b", 32 * MIB)):
        soon(lambda: owes(spend))
        tenant.ask("tenant", "limit", tenant.name, "--bytes", "none")
        soon(tenant.s3.list_buckets)
        tenant.ask("tenant", "limit", tenant.name, "--bytes", "1GiB")
        soon(tenant.s3.list_buckets)
        tenant.ask("tenant", "limit", tenant.name, "--bytes", "1MiB")


def test_nobody_takes_all_turns():
    with running_server(settings={"MARTLET_MAX_REQUESTS": "16"}) as server:
        greedy, modest = Tenant(server), Tenant(server)
        greedy.put("a", 48 * MIB)
        held = []
        with refused("SlowDown", 503) as caught:
            for _ in range(16):
                held.append(greedy.s3.get_object(Bucket=greedy.bucket, Key="a")["Body"])
        assert caught.value.response["ResponseMetadata"]["HTTPHeaders"]["retry-after"] == "1"
        assert 8 <= len(held) < 16
        for number in range(10):
            modest.put(f"k{number}", 10)
        assert server.metric("requests_limited") == 1, "none of the other tenant"
        for body in held:
            body.close()
        soon(lambda: greedy.put("b", 10))
        assert server.stop() == 0


def test_mistakes_are_told(tenant):
    for words, sentence in [
        (("bucket", "quota", "no-such-bucket", "--bytes", "1"), "does not exist"),
        (("bucket", "usage", "no-such-bucket"), "does not exist"),
        (("tenant", "quota", "nobody", "--objects", "1"), "there is no tenant nobody"),
        (("tenant", "limit", tenant.name, "--requests", "0"), "at least 1 per second"),
        (("key", "limit", tenant.key["access_key"], "--bytes", "much"), "is not a number of bytes"),
        (("tenant", "limit", tenant.name), "required"),
    ]:
        with pytest.raises(Refused) as caught:
            tenant.ask(*words)
        assert sentence in str(caught.value), caught.value
