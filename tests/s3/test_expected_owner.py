"""x-amz-expected-bucket-owner: a bucket that somebody else took meanwhile is neither read nor written."""

import pytest

from harness import wire
from helpers import assert_refused, get
from test_acl import nobody  # noqa: F401
from test_tenants import blue, denied, red  # noqa: F401


@pytest.fixture
def made(red):
    bucket = f"owned-{red.name}"
    red.s3.create_bucket(Bucket=bucket, ACL="public-read-write")
    red.s3.put_object(Bucket=bucket, Key="k", Body=b"x")
    return bucket


def test_by_its_id_and_by_its_own_name(red, blue, made):
    for owner in (red.line["canonical_id"], red.name):
        assert get(red.s3, made, "k", ExpectedBucketOwner=owner) == b"x"
        red.s3.list_objects_v2(Bucket=made, ExpectedBucketOwner=owner)
        red.s3.put_bucket_acl(Bucket=made, ACL="public-read-write", ExpectedBucketOwner=owner)
    blue.s3.list_objects_v2(Bucket=made, ExpectedBucketOwner=red.line["canonical_id"])


def test_of_anybody_else_nothing_is_done(red, blue, nobody, made):
    for one in (red.s3, blue.s3, nobody):
        for owner in (blue.line["canonical_id"], blue.name, "123456789012", red.line["canonical_id"] + "foo"):
            denied(one.list_objects, Bucket=made, ExpectedBucketOwner=owner)
            denied(one.put_object, Bucket=made, Key="new", Body=b"y", ExpectedBucketOwner=owner)
            with pytest.raises(one.exceptions.ClientError):
                one.head_bucket(Bucket=made, ExpectedBucketOwner=owner)
    keys = [item["Key"] for item in red.s3.list_objects_v2(Bucket=made)["Contents"]]
    assert keys == ["k"]


def test_of_the_source_of_a_copy(red, blue, made):
    target = red.bucket()
    source = {"Bucket": made, "Key": "k"}
    owner = red.line["canonical_id"]
    red.s3.copy_object(Bucket=target, Key="k", CopySource=source, ExpectedSourceBucketOwner=owner)
    for wrong in (blue.name, owner[:-1]):
        denied(red.s3.copy_object, Bucket=target, Key="l", CopySource=source, ExpectedSourceBucketOwner=wrong)
    upload = red.s3.create_multipart_upload(Bucket=target, Key="m")["UploadId"]
    part = {"Bucket": target, "Key": "m", "UploadId": upload, "PartNumber": 1, "CopySource": source}
    denied(red.s3.upload_part_copy, **part, ExpectedSourceBucketOwner=blue.name)
    red.s3.upload_part_copy(**part, ExpectedSourceBucketOwner=owner)


def test_where_there_is_no_bucket_to_be_anybodys(server):
    header = {"x-amz-expected-bucket-owner": "root"}
    assert_refused(wire.request(server, "GET", "/", header), 501, "NotImplemented")
    assert_refused(wire.request(server, "PUT", "/owned-by-whom", header), 501, "NotImplemented")
