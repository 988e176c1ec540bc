"""CopyObject."""

import os

import pytest

from harness import wire
from helpers import absent, assert_refused, get, refused

MIB = 1 << 20


@pytest.fixture
def source(s3, bucket):
    s3.put_object(Bucket=bucket, Key="src", Body=b"bytes", ContentType="x/y", CacheControl="max-age=1",
                  Metadata={"a": "1"}, Tagging="t=1")
    return {"Bucket": bucket, "Key": "src"}


@pytest.mark.parametrize("size", [0, 10, 100_000, 3 * MIB, 66 * MIB])
def test_bytes_of_every_kind(s3, bucket, size):
    data = os.urandom(size)
    tag = s3.put_object(Bucket=bucket, Key="a", Body=data)["ETag"]
    copied = s3.copy_object(Bucket=bucket, Key="b", CopySource={"Bucket": bucket, "Key": "a"})
    assert copied["CopyObjectResult"]["ETag"] == tag
    # A copy has bytes of its own.
    s3.delete_object(Bucket=bucket, Key="a")
    assert get(s3, bucket, "b") == data


def test_everything_goes_along(s3, bucket, source):
    s3.copy_object(Bucket=bucket, Key="dst", CopySource=source)
    head = s3.head_object(Bucket=bucket, Key="dst")
    assert (head["ContentType"], head["CacheControl"], head["Metadata"]) == ("x/y", "max-age=1", {"a": "1"})
    assert s3.get_object_tagging(Bucket=bucket, Key="dst")["TagSet"] == [{"Key": "t", "Value": "1"}]


def test_everything_is_replaced_on_wish(s3, bucket, source):
    s3.copy_object(Bucket=bucket, Key="dst", CopySource=source, MetadataDirective="REPLACE",
                   Metadata={"b": "2"}, ContentType="n/m", TaggingDirective="REPLACE", Tagging="u=2")
    head = s3.head_object(Bucket=bucket, Key="dst")
    assert (head["ContentType"], head.get("CacheControl"), head["Metadata"]) == ("n/m", None, {"b": "2"})
    assert s3.get_object_tagging(Bucket=bucket, Key="dst")["TagSet"] == [{"Key": "u", "Value": "2"}]


def test_onto_itself(s3, bucket, source):
    with refused("InvalidRequest", 400):
        s3.copy_object(**source, CopySource=source)
    s3.copy_object(**source, CopySource=source, MetadataDirective="REPLACE", Metadata={"c": "3"})
    assert s3.head_object(**source)["Metadata"] == {"c": "3"}
    assert get(s3, bucket, "src") == b"bytes"


@pytest.mark.parametrize("key", ["a b", "a+b", "é/日本", "%41", "a//b/../c", "?x=1", "trailing/"])
def test_odd_keys(s3, bucket, key):
    s3.put_object(Bucket=bucket, Key=key, Body=key.encode())
    s3.copy_object(Bucket=bucket, Key=key + "2", CopySource={"Bucket": bucket, "Key": key})
    assert get(s3, bucket, key + "2") == key.encode()


def test_from_one_bucket_to_another(s3, bucket, source):
    s3.create_bucket(Bucket="copy-target")
    s3.copy_object(Bucket="copy-target", Key="k", CopySource=source)
    assert get(s3, "copy-target", "k") == b"bytes"
    s3.delete_object(Bucket="copy-target", Key="k")
    s3.delete_bucket(Bucket="copy-target")


def test_sources_that_are_not_there(s3, bucket):
    with refused("NoSuchKey", 404):
        s3.copy_object(Bucket=bucket, Key="dst", CopySource={"Bucket": bucket, "Key": "none"})
    with refused("NoSuchBucket", 404):
        s3.copy_object(Bucket=bucket, Key="dst", CopySource={"Bucket": "not-there", "Key": "k"})
    for text in ("", "/", bucket, f"{bucket}/", "%ff/k"):
        with refused(("InvalidArgument", "InvalidRequest", "NoSuchKey", "NoSuchBucket", "InvalidBucketName")):
            s3.copy_object(Bucket=bucket, Key="dst", CopySource=text)
    absent(s3, bucket, "dst")


@pytest.mark.parametrize("source", ["{}/%ZZ", "{}/%", "{}/%4", "{}/a%C3%", "100%/{}/k"])
def test_sources_that_nobody_can_decode(server, s3, bucket, source):
    """As they stand they would name other keys, which may be there."""
    s3.put_object(Bucket=bucket, Key="%ZZ", Body=b"another")
    reply = wire.request(server, "PUT", f"/{bucket}/dst", {"x-amz-copy-source": source.format(bucket)})
    assert_refused(reply, 400, "InvalidArgument")
    absent(s3, bucket, "dst")


def test_conditions_on_the_source(s3, bucket, source):
    head = s3.head_object(**source)
    good, bad = head["ETag"], '"nope"'
    s3.copy_object(Bucket=bucket, Key="d1", CopySource=source, CopySourceIfMatch=good)
    s3.copy_object(Bucket=bucket, Key="d2", CopySource=source, CopySourceIfNoneMatch=bad)
    for how in ({"CopySourceIfMatch": bad}, {"CopySourceIfNoneMatch": good},
                {"CopySourceIfModifiedSince": head["LastModified"]}):
        with refused("PreconditionFailed", 412):
            s3.copy_object(Bucket=bucket, Key="d3", CopySource=source, **how)
    absent(s3, bucket, "d3")


def test_a_multipart_object_becomes_a_whole_one(s3, bucket):
    upload = s3.create_multipart_upload(Bucket=bucket, Key="m")["UploadId"]
    where = {"Bucket": bucket, "Key": "m", "UploadId": upload}
    part = s3.upload_part(**where, PartNumber=1, Body=b"one part")
    s3.complete_multipart_upload(
        **where, MultipartUpload={"Parts": [{"PartNumber": 1, "ETag": part["ETag"]}]})
    copied = s3.copy_object(Bucket=bucket, Key="w", CopySource={"Bucket": bucket, "Key": "m"})
    assert "-" not in copied["CopyObjectResult"]["ETag"]
    assert get(s3, bucket, "w") == b"one part"
