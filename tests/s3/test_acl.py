"""Access control lists through a real SDK: two tenants, and whoever comes."""

import concurrent.futures
import itertools

import boto3
import botocore
import pytest

from harness import server as harness
from helpers import client_of, get, refused, soon, status
from test_tenants import Tenant, denied

ALL = "http://acs.amazonaws.com/groups/global/AllUsers"
KNOWN = "http://acs.amazonaws.com/groups/global/AuthenticatedUsers"

_numbers = itertools.count()


@pytest.fixture
def red(server):
    return Tenant(server)


@pytest.fixture
def blue(server):
    return Tenant(server)


@pytest.fixture
def nobody(server):
    return boto3.client(
        "s3", endpoint_url=server.endpoint, region_name=harness.REGION,
        config=botocore.config.Config(signature_version=botocore.UNSIGNED, retries={"max_attempts": 1},
                                      s3={"addressing_style": "path"}))


def bucket_of(tenant, **how):
    name = f"acl-{next(_numbers)}"
    tenant.s3.create_bucket(Bucket=name, **how)
    return name


def user(tenant):
    return {"Type": "CanonicalUser", "ID": tenant.line["canonical_id"]}


def told(tenant):
    return {**user(tenant), "DisplayName": f"{tenant.name} Ltd"}


def grants(response):
    return [(grant["Grantee"], grant["Permission"]) for grant in response["Grants"]]


def policy(owner, *granted):
    listed = [{"Grantee": grantee, "Permission": permission} for grantee, permission in granted]
    return {"Owner": {"ID": owner.line["canonical_id"]}, "Grants": listed}


def group(uri):
    return {"Type": "Group", "URI": uri}


CANNED = [
    ("private", []),
    ("public-read", [(group(ALL), "READ")]),
    ("public-read-write", [(group(ALL), "READ"), (group(ALL), "WRITE")]),
    ("authenticated-read", [(group(KNOWN), "READ")]),
]


def test_who_may_make_an_object_may_tag_it(red, nobody):
    bucket = bucket_of(red, ACL="public-read-write")
    nobody.put_object(Bucket=bucket, Key="k", Body=b"x", Tagging="a=1")
    assert red.s3.get_object_tagging(Bucket=bucket, Key="k")["TagSet"] == [{"Key": "a", "Value": "1"}]
    denied(nobody.put_object_tagging, Bucket=bucket, Key="k", Tagging={"TagSet": [{"Key": "a", "Value": "2"}]})
    closed = bucket_of(red, ACL="public-read")
    denied(nobody.put_object, Bucket=closed, Key="k", Body=b"x", Tagging="a=1")


@pytest.mark.parametrize("name,more", CANNED)
def test_canned_lists_are_told_with_groups_first(red, name, more):
    expected = [*more, (told(red), "FULL_CONTROL")]
    owner = {"ID": red.line["canonical_id"], "DisplayName": f"{red.name} Ltd"}
    bucket = bucket_of(red, ACL=name)
    found = red.s3.get_bucket_acl(Bucket=bucket)
    assert found["Owner"] == owner and grants(found) == expected
    red.s3.put_object(Bucket=bucket, Key="put", Body=b"x", ACL=name)
    red.s3.copy_object(Bucket=bucket, Key="copied", CopySource=f"{bucket}/put", ACL=name)
    upload = red.s3.create_multipart_upload(Bucket=bucket, Key="uploaded", ACL=name)["UploadId"]
    part = red.s3.upload_part(Bucket=bucket, Key="uploaded", UploadId=upload, PartNumber=1, Body=b"x")
    red.s3.complete_multipart_upload(
        Bucket=bucket, Key="uploaded", UploadId=upload,
        MultipartUpload={"Parts": [{"PartNumber": 1, "ETag": part["ETag"]}]})
    red.s3.put_object(Bucket=bucket, Key="later", Body=b"x")
    red.s3.put_object_acl(Bucket=bucket, Key="later", ACL=name)
    for key in ("put", "copied", "uploaded", "later"):
        found = red.s3.get_object_acl(Bucket=bucket, Key=key)
        assert found["Owner"] == owner and grants(found) == expected, key
    red.s3.put_bucket_acl(Bucket=bucket, ACL="private")
    assert grants(red.s3.get_bucket_acl(Bucket=bucket)) == [(told(red), "FULL_CONTROL")]


def test_what_was_put_is_told_with_groups_first(red, blue):
    bucket = bucket_of(red)
    everybody = [(user(red), "FULL_CONTROL"), (group(KNOWN), "READ_ACP"), (user(blue), "READ"), (group(ALL), "READ")]
    expected = [(group(KNOWN), "READ_ACP"), (group(ALL), "READ"), (told(red), "FULL_CONTROL"), (told(blue), "READ")]
    red.s3.put_bucket_acl(Bucket=bucket, AccessControlPolicy=policy(red, *everybody))
    assert grants(red.s3.get_bucket_acl(Bucket=bucket)) == expected
    red.s3.put_object(Bucket=bucket, Key="k", Body=b"x")
    red.s3.put_object_acl(Bucket=bucket, Key="k", AccessControlPolicy=policy(red, *everybody))
    assert grants(red.s3.get_object_acl(Bucket=bucket, Key="k")) == expected


@pytest.mark.parametrize("of_bucket", [True, False])
def test_what_was_told_can_be_put_again(red, blue, of_bucket):
    bucket = bucket_of(red)
    red.s3.put_object(Bucket=bucket, Key="k", Body=b"x")
    read = red.s3.get_bucket_acl if of_bucket else red.s3.get_object_acl
    put = red.s3.put_bucket_acl if of_bucket else red.s3.put_object_acl
    where = {"Bucket": bucket} if of_bucket else {"Bucket": bucket, "Key": "k"}
    found = read(**where)
    for permission in ("READ", "WRITE", "READ_ACP", "WRITE_ACP", "FULL_CONTROL"):
        listed = [*found["Grants"], {"Grantee": user(blue), "Permission": permission}]
        put(AccessControlPolicy={"Owner": found["Owner"], "Grants": listed}, **where)
        assert grants(read(**where)) == [(told(red), "FULL_CONTROL"), (told(blue), permission)]
    put(AccessControlPolicy={"Owner": found["Owner"], "Grants": []}, **where)
    assert read(**where)["Grants"] == []
    put(AccessControlPolicy={"Owner": found["Owner"], "Grants": found["Grants"]}, **where)
    denied(blue.s3.get_object, Bucket=bucket, Key="k")
    for listed, code in [
            (policy(blue, (user(blue), "FULL_CONTROL")), "AccessDenied"),
            (policy(red, ({"Type": "CanonicalUser", "ID": "_foo"}, "READ")), "InvalidArgument"),
            (policy(red, (group("http://example.com"), "READ")), "InvalidArgument"),
            (policy(red, ({"Type": "AmazonCustomerByEmail", "EmailAddress": "no@example.invalid"}, "READ")),
             "UnresolvableGrantByEmailAddress"),
            (policy(red, *[(user(blue), "READ")] * 101), "MalformedACLError")]:
        with refused(code, 403 if code == "AccessDenied" else 400):
            put(AccessControlPolicy=listed, **where)
    with refused("InvalidArgument", 400):
        put(ACL="public-ready", **where)
    assert grants(read(**where)) == [(told(red), "FULL_CONTROL")]


def test_headers_grant_and_nobody_else_has_anything(red, blue):
    who = f'id="{blue.line["canonical_id"]}"'
    bucket = bucket_of(red, GrantRead=who, GrantWrite=who, GrantReadACP=who, GrantWriteACP=who,
                       GrantFullControl=who)
    expected = [(told(blue), name) for name in ("READ", "WRITE", "READ_ACP", "WRITE_ACP", "FULL_CONTROL")]
    assert grants(red.s3.get_bucket_acl(Bucket=bucket)) == expected
    blue.s3.put_object(Bucket=bucket, Key="k", Body=b"blue")
    denied(red.s3.put_object, Bucket=bucket, Key="k", Body=b"red")
    blue.s3.put_bucket_acl(Bucket=bucket, ACL="public-read-write")
    soon(lambda: red.s3.put_object(Bucket=bucket, Key="red", Body=b"red", GrantRead=who))
    assert get(blue.s3, bucket, "red") == b"red"
    assert grants(red.s3.get_object_acl(Bucket=bucket, Key="red")) == [(told(blue), "READ")]
    with refused("InvalidRequest", 400):
        red.s3.put_object(Bucket=bucket, Key="red", Body=b"x", ACL="private", GrantRead=who)
    with refused("InvalidArgument", 400):
        red.s3.put_object(Bucket=bucket, Key="red", Body=b"x", GrantRead='id="nobody"')


# What others may do with a bucket and an object in it: list, read, write.
ACCESS = [
    ("private", "private", (False, False, False)),
    ("private", "public-read", (False, True, False)),
    ("public-read", "private", (True, False, False)),
    ("public-read", "public-read-write", (True, True, False)),
    ("public-read-write", "private", (True, False, True)),
    ("public-read-write", "public-read", (True, True, True)),
]


@pytest.mark.parametrize("of_bucket,of_object,may", ACCESS)
def test_whoever_comes_is_let_in_where_that_is_granted(red, blue, nobody, of_bucket, of_object, may):
    bucket = bucket_of(red)
    red.s3.put_bucket_acl(Bucket=bucket, ACL=of_bucket)
    for who in (blue.s3, nobody):
        red.s3.put_object(Bucket=bucket, Key="foo", Body=b"foo")
        red.s3.put_object_acl(Bucket=bucket, Key="foo", ACL=of_object)
        red.s3.put_object(Bucket=bucket, Key="bar", Body=b"bar")
        attempts = [
            (may[0], who.list_objects_v2, {}), (may[0], who.list_objects, {}), (may[0], who.head_bucket, {}),
            (may[1], who.get_object, {"Key": "foo"}), (may[1], who.head_object, {"Key": "foo"}),
            (False, who.get_object, {"Key": "bar"}), (False, who.get_object_acl, {"Key": "foo"}),
            (False, who.put_object_acl, {"Key": "foo", "ACL": "private"}),
            (False, who.get_bucket_acl, {}), (False, who.get_bucket_policy, {}), (False, who.delete_bucket, {}),
            (may[2], who.put_object, {"Key": "new", "Body": b"new"}),
            (may[2], who.put_object, {"Key": "foo", "Body": b"again"}),
            (may[2], who.delete_object, {"Key": "new"}),
        ]
        for is_allowed, call, how in attempts:
            if is_allowed:
                assert status(call(Bucket=bucket, **how)) in (200, 204), (call, how)
            else:
                denied(call, Bucket=bucket, **how)
        with refused("NoSuchKey" if may[0] else "AccessDenied", 404 if may[0] else 403):
            who.get_object(Bucket=bucket, Key="none")


def test_objects_are_their_writers_and_listed_so(red, blue, nobody):
    bucket = bucket_of(red, ACL="public-read-write")
    blue.s3.put_object(Bucket=bucket, Key="blue", Body=b"blue")
    nobody.put_object(Bucket=bucket, Key="nobody", Body=b"nobody")
    denied(red.s3.get_object, Bucket=bucket, Key="blue")
    denied(red.s3.get_object_acl, Bucket=bucket, Key="blue")
    assert get(red.s3, bucket, "nobody") == b"nobody"
    owner = {"ID": blue.line["canonical_id"], "DisplayName": f"{blue.name} Ltd"}
    mine = {"ID": red.line["canonical_id"], "DisplayName": f"{red.name} Ltd"}
    listed = red.s3.list_objects_v2(Bucket=bucket, FetchOwner=True)["Contents"]
    assert [one["Owner"] for one in listed] == [owner, mine]
    upload = blue.s3.create_multipart_upload(Bucket=bucket, Key="up")["UploadId"]
    [found] = red.s3.list_multipart_uploads(Bucket=bucket)["Uploads"]
    assert (found["UploadId"], found["Owner"], found["Initiator"]) == (upload, owner, owner)
    red.s3.abort_multipart_upload(Bucket=bucket, Key="up", UploadId=upload)
    blue.s3.put_object(Bucket=bucket, Key="blue", Body=b"given", ACL="bucket-owner-full-control")
    assert get(red.s3, bucket, "blue") == b"given"
    red.s3.put_object_acl(Bucket=bucket, Key="blue", ACL="public-read")
    assert get(nobody, bucket, "blue") == b"given"
    assert blue.s3.get_object_acl(Bucket=bucket, Key="blue")["Owner"] == owner
    red.s3.delete_object(Bucket=bucket, Key="blue")


def test_versions_have_lists_of_their_own(red, nobody):
    bucket = bucket_of(red)
    red.s3.put_bucket_versioning(Bucket=bucket, VersioningConfiguration={"Status": "Enabled"})
    old, new = [red.s3.put_object(Bucket=bucket, Key="k", Body=body)["VersionId"] for body in (b"old", b"new")]
    before = red.s3.head_object(Bucket=bucket, Key="k", VersionId=old)["LastModified"]
    red.s3.put_object_acl(Bucket=bucket, Key="k", VersionId=old, ACL="public-read")
    assert get(nobody, bucket, "k", VersionId=old) == b"old"
    denied(nobody.get_object, Bucket=bucket, Key="k", VersionId=new)
    denied(nobody.get_object, Bucket=bucket, Key="k")
    assert len(red.s3.get_object_acl(Bucket=bucket, Key="k", VersionId=old)["Grants"]) == 2
    assert len(red.s3.get_object_acl(Bucket=bucket, Key="k")["Grants"]) == 1
    assert red.s3.head_object(Bucket=bucket, Key="k", VersionId=old)["LastModified"] == before


def test_many_put_a_list_at_once(red):
    bucket = bucket_of(red)
    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        put = [pool.submit(client_of(red.server.endpoint, red.key).put_bucket_acl, Bucket=bucket, ACL="public-read")
               for _ in range(32)]
        assert [status(one.result()) for one in put] == [200] * 32
    assert len(red.s3.get_bucket_acl(Bucket=bucket)["Grants"]) == 2


def test_the_bucket_owner_owns_all_where_that_is_enforced(red, blue, nobody):
    bucket = bucket_of(red, ObjectOwnership="BucketOwnerEnforced")
    for call, how in [(red.s3.put_object, {"Key": "k", "Body": b"x"}), (red.s3.put_bucket_acl, {}),
                      (red.s3.create_multipart_upload, {"Key": "k"})]:
        with refused("AccessControlListNotSupported", 400):
            call(Bucket=bucket, ACL="public-read", **how)
    red.s3.put_object(Bucket=bucket, Key="k", Body=b"x", ACL="bucket-owner-full-control")
    with refused("AccessControlListNotSupported", 400):
        red.s3.put_object_acl(Bucket=bucket, Key="k", ACL="public-read")
    assert grants(red.s3.get_object_acl(Bucket=bucket, Key="k")) == [(told(red), "FULL_CONTROL")]
    denied(nobody.get_object, Bucket=bucket, Key="k")
    open_to_all = bucket_of(red, ACL="public-read")
    enforced = {"Rules": [{"ObjectOwnership": "BucketOwnerEnforced"}]}
    with refused("InvalidBucketAclWithObjectOwnership", 400):
        red.s3.put_bucket_ownership_controls(Bucket=open_to_all, OwnershipControls=enforced)
    denied(blue.s3.put_bucket_acl, Bucket=open_to_all, ACL="private")


def test_a_block_keeps_public_lists_out(red, nobody):
    bucket = bucket_of(red, ACL="public-read")
    red.s3.put_object(Bucket=bucket, Key="k", Body=b"x", ACL="public-read")
    assert red.s3.get_bucket_policy_status(Bucket=bucket)["PolicyStatus"]["IsPublic"] is True
    assert get(nobody, bucket, "k") == b"x"

    def block(**what):
        red.s3.put_public_access_block(Bucket=bucket, PublicAccessBlockConfiguration=what)

    block(IgnorePublicAcls=True)
    soon(lambda: denied(nobody.get_object, Bucket=bucket, Key="k"))
    denied(nobody.list_objects_v2, Bucket=bucket)
    assert red.s3.get_bucket_policy_status(Bucket=bucket)["PolicyStatus"]["IsPublic"] is False
    block(BlockPublicAcls=True)
    soon(lambda: get(nobody, bucket, "k"))
    denied(red.s3.put_bucket_acl, Bucket=bucket, ACL="authenticated-read")
    denied(red.s3.put_object, Bucket=bucket, Key="k", Body=b"x", ACL="public-read")
    denied(red.s3.put_object_acl, Bucket=bucket, Key="k", ACL="public-read-write")
    red.s3.put_object(Bucket=bucket, Key="k", Body=b"x", ACL="private")
