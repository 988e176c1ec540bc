"""Two tenants through a real SDK: each with buckets of its own, made and limited by `martlet admin`."""

import contextlib
import itertools
import json
import shutil
import tempfile
import time
import urllib.error
import urllib.request

import pytest

from harness import server as harness
from harness.admin import Refused, admin
from harness.cluster import Cluster
from helpers import client_of, get, refused, soon

_numbers = itertools.count()


def denied(call, code="AccessDenied", **how):
    with refused((code, "403"), 403):
        call(**how)


@contextlib.contextmanager
def no(words):
    """The block must end in a sentence of the admin command that has these words."""
    with pytest.raises(Refused) as caught:
        yield
    assert words in str(caught.value), caught.value


class Tenant:
    """A tenant with a key, and a client of it."""

    def __init__(self, server):
        self.server = server
        self.name = f"tenant-{next(_numbers)}"
        self.line = self.ask("tenant", "create", self.name, "--display-name", f"{self.name} Ltd")
        self.key = self.ask("key", "create", "--tenant", self.name)
        self.s3 = client_of(server.endpoint, self.key)

    def ask(self, *words, **how):
        return admin(self.server.admin_port, *words, **how)

    def bucket(self):
        name = f"of-{self.name}-{next(_numbers)}"
        self.s3.create_bucket(Bucket=name)
        return name

    def user(self, name, role):
        self.ask("user", "create", "--tenant", self.name, name, "--role", role)
        return client_of(self.server.endpoint,
                      self.ask("key", "create", "--tenant", self.name, "--user", name))


@pytest.fixture
def red(server):
    return Tenant(server)


@pytest.fixture
def blue(server):
    return Tenant(server)


def test_each_tenant_has_buckets_of_its_own(s3, red, blue):
    mine, other = red.bucket(), blue.bucket()
    red.s3.put_object(Bucket=mine, Key="k", Body=b"red")
    blue.s3.put_object(Bucket=other, Key="k", Body=b"blue")
    listed = red.s3.list_buckets()
    assert [one["Name"] for one in listed["Buckets"]] == [mine]
    assert listed["Owner"]["ID"] == red.line["canonical_id"] == red.key["canonical_id"]
    assert listed["Owner"]["DisplayName"] == f"{red.name} Ltd" == red.key["display_name"]
    denied(red.s3.get_object, Bucket=other, Key="k")
    denied(red.s3.list_objects_v2, Bucket=other)
    denied(red.s3.head_bucket, Bucket=other)
    denied(red.s3.delete_bucket, Bucket=other)
    with refused("BucketAlreadyExists", 409):
        red.s3.create_bucket(Bucket=other)
    everything = [one["Name"] for one in s3.list_buckets()["Buckets"]]
    assert mine in everything and other in everything
    assert get(s3, other, "k") == b"blue"


def test_owners_have_their_canonical_id_and_display_name(s3, red):
    bucket = red.bucket()
    red.s3.put_object(Bucket=bucket, Key="k", Body=b"x")
    owner = {"ID": red.line["canonical_id"], "DisplayName": f"{red.name} Ltd"}
    for who in (red.s3, s3):
        acl = who.get_bucket_acl(Bucket=bucket)
        assert acl["Owner"] == owner
        assert [grant["Grantee"]["ID"] for grant in acl["Grants"]] == [owner["ID"]]
        assert who.get_object_acl(Bucket=bucket, Key="k")["Owner"] == owner
        listed = who.list_objects_v2(Bucket=bucket, FetchOwner=True)
        assert [one["Owner"] for one in listed["Contents"]] == [owner]


def test_a_policy_lets_the_other_tenant_in(red, blue):
    bucket = red.bucket()
    red.s3.put_object(Bucket=bucket, Key="k", Body=b"shared")
    for principal in ({"AWS": f"arn:aws:iam::{blue.name}:root"},
                      {"CanonicalUser": blue.line["canonical_id"]}):
        red.s3.put_bucket_policy(Bucket=bucket, Policy=json.dumps({
            "Version": "2012-10-17",
            "Statement": [{"Effect": "Allow", "Principal": principal, "Action": "s3:GetObject",
                           "Resource": f"arn:aws:s3:::{bucket}/*"}]}))
        soon(lambda: blue.s3.get_object(Bucket=bucket, Key="k"))
        denied(blue.s3.put_object, Bucket=bucket, Key="k", Body=b"x")
        red.s3.delete_bucket_policy(Bucket=bucket)
        soon(lambda: denied(blue.s3.get_object, Bucket=bucket, Key="k"))


def allow(red, blue, bucket, *statements):
    """Puts a policy that lets the other tenant do what its statements say, and waits until it is in force."""
    def allowing(actions, resource="/*", condition=None):
        return {"Effect": "Allow", "Principal": {"AWS": blue.name}, "Action": actions,
                "Resource": f"arn:aws:s3:::{bucket}{resource}", "Condition": condition or {}}

    mark = allowing("s3:GetBucketLocation", "")
    denied(blue.s3.get_bucket_location, Bucket=bucket)
    policy = {"Version": "2012-10-17", "Statement": [mark, *(allowing(*one) for one in statements)]}
    red.s3.put_bucket_policy(Bucket=bucket, Policy=json.dumps(policy))
    soon(lambda: blue.s3.get_bucket_location(Bucket=bucket))


def test_the_removal_of_a_version_says_nothing_of_if_match(red, blue):
    bucket = red.bucket()
    etag = red.s3.put_object(Bucket=bucket, Key="k", Body=b"x")["ETag"]
    allow(red, blue, bucket, ("s3:*", "/*", {"Null": {"s3:if-match": "false"}}))
    denied(blue.s3.delete_object, Bucket=bucket, Key="k", VersionId="null", IfMatch=etag)
    denied(blue.s3.delete_object, Bucket=bucket, Key="k")
    blue.s3.delete_object(Bucket=bucket, Key="k", IfMatch=etag)


def test_a_copy_that_names_tags_needs_the_right_to_set_some(red, blue):
    bucket = red.bucket()
    red.s3.put_object(Bucket=bucket, Key="src", Body=b"x")
    allow(red, blue, bucket, (["s3:GetObject", "s3:PutObject"],))
    copy = {"Bucket": bucket, "Key": "dst", "CopySource": f"{bucket}/src"}
    denied(blue.s3.copy_object, **copy, Tagging="a=b")
    denied(blue.s3.copy_object, **copy, Tagging="a=b", TaggingDirective="REPLACE")
    blue.s3.copy_object(**copy)


def test_binary_values_are_compared_as_they_are_written(red, blue):
    bucket = red.bucket()
    allow(red, blue, bucket, ("s3:ListBucket", "", {"BinaryEquals": {"s3:prefix": "cGhvdG9zLw=="}}))
    blue.s3.list_objects_v2(Bucket=bucket, Prefix="cGhvdG9zLw==")
    denied(blue.s3.list_objects_v2, Bucket=bucket, Prefix="photos/")


def test_users_are_held_to_their_role(red):
    bucket = red.bucket()
    red.s3.put_object(Bucket=bucket, Key="k", Body=b"x")
    reader, writer = red.user("reader", "read-only"), red.user("writer", "read-write")
    for user in (reader, writer):
        assert get(user, bucket, "k") == b"x"
        denied(user.create_bucket, Bucket=f"{bucket}-more")
        denied(user.delete_bucket, Bucket=bucket)
    denied(reader.put_object, Bucket=bucket, Key="new", Body=b"x")
    denied(reader.delete_object, Bucket=bucket, Key="k")
    writer.put_object(Bucket=bucket, Key="new", Body=b"x")
    writer.delete_object(Bucket=bucket, Key="new")
    red.ask("user", "set", "--tenant", red.name, "writer", "--role", "read-only")
    soon(lambda: denied(writer.put_object, Bucket=bucket, Key="new", Body=b"x"))


def test_uploads_say_who_began_them(s3, red):
    bucket = red.bucket()
    owner = {"ID": red.line["canonical_id"], "DisplayName": f"{red.name} Ltd"}
    began = {"ID": f"arn:aws:iam::{red.name}:user/writer", "DisplayName": "writer"}
    writer = red.user("writer", "read-write")
    for who, initiator in ((writer, began), (red.s3, owner)):
        upload = who.create_multipart_upload(Bucket=bucket, Key="k")["UploadId"]
        how = {"Bucket": bucket, "Key": "k", "UploadId": upload}
        [found] = red.s3.list_multipart_uploads(Bucket=bucket)["Uploads"]
        parts = red.s3.list_parts(**how)
        for told in (found, parts):
            assert (told["Initiator"], told["Owner"]) == (initiator, owner)
        etag = who.upload_part(PartNumber=1, Body=b"x", **how)["ETag"]
        who.complete_multipart_upload(
            MultipartUpload={"Parts": [{"PartNumber": 1, "ETag": etag}]}, **how)
        assert get(red.s3, bucket, "k") == b"x"
    upload = s3.create_multipart_upload(Bucket=bucket, Key="k")["UploadId"]
    [found] = red.s3.list_multipart_uploads(Bucket=bucket)["Uploads"]
    assert found["Owner"] == owner and found["Initiator"] != owner
    s3.abort_multipart_upload(Bucket=bucket, Key="k", UploadId=upload)


def test_keys_are_disabled_rotated_and_deleted(red):
    bucket, name = red.bucket(), red.key["access_key"]
    red.ask("key", "disable", name)
    soon(lambda: denied(red.s3.list_buckets, "InvalidAccessKeyId"))
    red.ask("key", "enable", name)
    soon(red.s3.list_buckets)
    rotated = red.ask("key", "rotate", name)
    soon(lambda: denied(red.s3.list_buckets, "SignatureDoesNotMatch"))
    soon(client_of(red.server.endpoint, rotated).list_buckets)
    red.ask("tenant", "disable", red.name)
    soon(lambda: denied(client_of(red.server.endpoint, rotated).list_buckets, "InvalidAccessKeyId"))
    red.ask("tenant", "enable", red.name)
    with no(f"still has the access key {name}"):
        red.ask("tenant", "delete", red.name)
    red.ask("key", "delete", name)
    soon(lambda: denied(client_of(red.server.endpoint, rotated).list_buckets, "InvalidAccessKeyId"))
    with no(f"still has the bucket {bucket}"):
        red.ask("tenant", "delete", red.name)


def test_requests_come_from_where_they_may(red):
    name = red.key["access_key"]
    red.ask("key", "limit", name, "--network", "192.0.2.0/24")
    soon(lambda: denied(red.s3.list_buckets))
    red.ask("key", "limit", name, "--network", "192.0.2.0/24", "--network", "127.0.0.0/8")
    soon(red.s3.list_buckets)
    red.ask("tenant", "limit", red.name, "--network", "2001:db8::/32")
    soon(lambda: denied(red.s3.list_buckets))
    red.ask("tenant", "limit", red.name, "--anywhere")
    soon(red.s3.list_buckets)


def test_links_of_tenants_work_as_long_as_their_key(red):
    bucket = red.bucket()
    red.s3.put_object(Bucket=bucket, Key="k", Body=b"linked")
    link = red.s3.generate_presigned_url("get_object", Params={"Bucket": bucket, "Key": "k"})

    def follow():
        with urllib.request.urlopen(link, timeout=30) as reply:
            return reply.read()

    assert follow() == b"linked"
    red.ask("key", "disable", red.key["access_key"])

    def void():
        with pytest.raises(urllib.error.HTTPError) as caught:
            follow()
        assert caught.value.code == 403

    soon(void)


def test_given_keys_are_taken_and_mistakes_are_told(red):
    given = {"access_key": f"AKIA{red.name}", "secret_key": "a/secret+from=elsewhere"}
    words = ("key", "create", "--tenant", red.name, "--access-key", given["access_key"])
    made = red.ask(*words, environment={"MARTLET_NEW_SECRET_KEY": given["secret_key"]})
    assert (made["access_key"], made["secret_key"]) == (given["access_key"], given["secret_key"])
    assert client_of(red.server.endpoint, given).list_buckets()["Owner"]["ID"] == made["canonical_id"]
    assert "secret_key" not in red.ask("key", "show", given["access_key"])
    keys = red.ask("key", "list", "--tenant", red.name)
    assert {key["access_key"] for key in keys} == {given["access_key"], red.key["access_key"]}
    assert red.name in [one["tenant"] for one in red.ask("tenant", "list")]
    with no(f"the access key {given['access_key']} already exists"):
        red.ask(*words, "--secret-key", given["secret_key"])
    with no("is the root access key"):
        red.ask("key", "create", "--tenant", red.name, "--access-key", harness.ACCESS_KEY,
                "--secret-key", "12345678")
    with no("there is no tenant nobody"):
        red.ask("key", "create", "--tenant", "nobody")
    with no("there is no user"):
        red.ask("key", "create", "--tenant", red.name, "--user", "nobody")
    with no(f"the tenant {red.name} already exists"):
        red.ask("tenant", "create", red.name)
    with no("can't be the name of a tenant"):
        red.ask("tenant", "create", "a/b")
    with no("there is no access key AKIDNONE"):
        red.ask("key", "rotate", "AKIDNONE")
    with no("8 to 256 bytes"):
        red.ask("key", "rotate", given["access_key"], "--secret-key", "short")
    with no("is not a network"):
        red.ask("tenant", "limit", red.name, "--network", "10.0.0.0/33")
    with no("is not a role"):
        red.ask("user", "create", "--tenant", red.name, "u", "--role", "writer")


def test_secrets_lie_sealed_by_a_master_key_that_is_made_or_given(server, red):
    assert red.key["sealed"] is True
    folder = tempfile.mkdtemp(prefix="martlet-s3-")
    sealing = harness.Server(folder, settings={"MARTLET_MASTER_KEYS": "0b" * 32})
    try:
        sealing.start()
        tenant = Tenant(sealing)
        assert tenant.key["sealed"] is True
        bucket = tenant.bucket()
        assert sealing.stop() == 0
        secret = tenant.key["secret_key"].encode()
        files = [path for path in sealing.folder.rglob("*") if path.is_file()]
        assert files and not any(secret in path.read_bytes() for path in files)
        sealing.start()
        assert [one["Name"] for one in tenant.s3.list_buckets()["Buckets"]] == [bucket]
        assert sealing.stop() == 0
        # Without its master key, nobody can tell what a key is.
        sealing.settings = {}
        sealing.start()
        with refused("ServiceUnavailable", 503):
            tenant.s3.list_buckets()
    finally:
        sealing.kill()
        shutil.rmtree(folder, ignore_errors=True)


def test_a_cluster_knows_of_changes_everywhere():
    folder = tempfile.mkdtemp(prefix="martlet-s3-")
    cluster = Cluster(folder)
    try:
        cluster.start()
        (_, first), (port, _) = cluster.proxies
        endpoint = f"http://127.0.0.1:{port}"
        clients = []
        for name in ("red", "blue"):
            admin(first, "tenant", "create", name)
            clients.append(client_of(endpoint, admin(first, "key", "create", "--tenant", name)))
        red, blue = clients
        soon(red.list_buckets)
        red.create_bucket(Bucket="of-red")
        red.put_object(Bucket="of-red", Key="k", Body=b"red")
        soon(blue.list_buckets)
        denied(blue.get_object, Bucket="of-red", Key="k")
        assert blue.list_buckets()["Buckets"] == []
        admin(first, "tenant", "disable", "red")
        since = time.monotonic()
        soon(lambda: denied(red.get_object, "InvalidAccessKeyId", Bucket="of-red", Key="k"))
        print(f"void at the other proxy after {time.monotonic() - since:.2f} s")
        blue.list_buckets()
        admin(first, "tenant", "enable", "red")
        soon(lambda: red.get_object(Bucket="of-red", Key="k"))
    finally:
        cluster.stop()
        shutil.rmtree(folder, ignore_errors=True)
