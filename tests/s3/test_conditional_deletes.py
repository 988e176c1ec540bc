"""Deletes that say what they delete: by its tag, its size or when it was last modified."""

import datetime

import pytest

from harness import wire
from helpers import absent, assert_refused, get, header, refused, status
from test_versions import versioned, versions  # noqa: F401: a fixture

LONG_AGO = datetime.datetime(2015, 1, 1, tzinfo=datetime.timezone.utc)
KINDS = ["etag", "time", "size"]


def one(kind, value):
    return {{"etag": "IfMatch", "time": "IfMatchLastModifiedTime", "size": "IfMatchSize"}[kind]: value}


def many(kind, value):
    return {{"etag": "ETag", "time": "LastModifiedTime", "size": "Size"}[kind]: value}


def true_of(s3, bucket, kind, **which):
    head = s3.head_object(Bucket=bucket, Key="k", **which)
    return {"etag": head["ETag"], "time": head["LastModified"], "size": head["ContentLength"]}[kind]


def false_of(kind):
    return {"etag": "another", "time": LONG_AGO, "size": 9999}[kind]


def delete_many(s3, bucket, kind, value, **which):
    """The one outcome: what was deleted, or the code of an error."""
    reply = s3.delete_objects(Bucket=bucket, Delete={"Objects": [{"Key": "k", **which, **many(kind, value)}]})
    [outcome] = reply.get("Deleted", []) + [error["Code"] for error in reply.get("Errors", [])]
    return outcome


@pytest.mark.parametrize("kind", KINDS)
def test_an_object(s3, bucket, kind):
    s3.put_object(Bucket=bucket, Key="k", Body=b"abc")
    with refused("PreconditionFailed", 412):
        s3.delete_object(Bucket=bucket, Key="k", **one(kind, false_of(kind)))
    assert delete_many(s3, bucket, kind, false_of(kind)) == "PreconditionFailed"
    assert get(s3, bucket, "k") == b"abc"
    s3.delete_object(Bucket=bucket, Key="k", **one(kind, true_of(s3, bucket, kind)))
    absent(s3, bucket, "k")
    # What isn't there isn't another one.
    assert status(s3.delete_object(Bucket=bucket, Key="k", **one(kind, false_of(kind)))) == 204
    assert delete_many(s3, bucket, kind, false_of(kind)) == {"Key": "k"}
    s3.put_object(Bucket=bucket, Key="k", Body=b"abc")
    assert delete_many(s3, bucket, kind, true_of(s3, bucket, kind)) == {"Key": "k"}
    absent(s3, bucket, "k")


@pytest.mark.parametrize("kind", KINDS)
def test_the_current_version(s3, versioned, kind):  # noqa: F811
    s3.put_object(Bucket=versioned, Key="k", Body=b"abc")
    with refused("PreconditionFailed", 412):
        s3.delete_object(Bucket=versioned, Key="k", **one(kind, false_of(kind)))
    assert s3.delete_object(Bucket=versioned, Key="k", **one(kind, true_of(s3, versioned, kind)))["DeleteMarker"]
    with refused("PreconditionFailed", 412):
        s3.delete_object(Bucket=versioned, Key="k", **one(kind, false_of(kind)))
    assert delete_many(s3, versioned, kind, false_of(kind)) == "PreconditionFailed"
    s3.put_object(Bucket=versioned, Key="k", Body=b"abcd")
    assert delete_many(s3, versioned, kind, true_of(s3, versioned, kind))["DeleteMarker"]
    assert len(s3.list_object_versions(Bucket=versioned)["DeleteMarkers"]) == 2


@pytest.mark.parametrize("kind", KINDS)
def test_a_version_by_its_id(s3, versioned, kind):  # noqa: F811
    ids = [{"VersionId": s3.put_object(Bucket=versioned, Key="k", Body=body)["VersionId"]} for body in (b"1", b"22", b"333")]
    for which in (ids[0], ids[2]):
        with refused("PreconditionFailed", 412):
            s3.delete_object(Bucket=versioned, Key="k", **which, **one(kind, false_of(kind)))
    assert delete_many(s3, versioned, kind, false_of(kind), **ids[1]) == "PreconditionFailed"
    assert len(versions(s3, versioned)) == 3
    wanted = true_of(s3, versioned, kind, **ids[0])
    gone = s3.delete_object(Bucket=versioned, Key="k", **ids[0], **one(kind, wanted))
    assert "DeleteMarker" not in gone and gone["VersionId"] == ids[0]["VersionId"]
    wanted = true_of(s3, versioned, kind, **ids[1])
    assert delete_many(s3, versioned, kind, wanted, **ids[1]) == {"Key": "k", **ids[1]}
    assert [it[1] for it in versions(s3, versioned)] == [ids[2]["VersionId"]]
    assert status(s3.delete_object(Bucket=versioned, Key="k", **ids[0], **one(kind, false_of(kind)))) == 204


def test_all_that_is_said_must_hold(s3, bucket):
    etag = s3.put_object(Bucket=bucket, Key="k", Body=b"abc")["ETag"]
    with refused("PreconditionFailed", 412):
        s3.delete_object(Bucket=bucket, Key="k", IfMatch=etag, IfMatchSize=4)
    with refused("PreconditionFailed", 412):
        s3.delete_object(Bucket=bucket, Key="k", IfMatch="*", IfMatchLastModifiedTime=LONG_AGO)
    s3.delete_object(Bucket=bucket, Key="k", IfMatch=etag, IfMatchSize=3)
    absent(s3, bucket, "k")
    # Whoever asks for any object at all is told that there is none.
    with refused("PreconditionFailed", 412):
        s3.delete_object(Bucket=bucket, Key="k", IfMatch="*")


@pytest.mark.parametrize("name,value", [
    ("x-amz-if-match-size", "-1"), ("x-amz-if-match-size", "three"), ("x-amz-if-match-last-modified-time", "yesterday"),
])
def test_what_is_no_condition(server, s3, bucket, name, value):
    s3.put_object(Bucket=bucket, Key="k", Body=b"abc")
    reply = wire.request(server, "DELETE", f"/{bucket}/k", {name: value})
    assert_refused(reply, 400, "InvalidArgument", "InvalidRequest")
    assert get(s3, bucket, "k") == b"abc"


@pytest.mark.parametrize("name", ["x-amz-if-match-size", "x-amz-if-match-last-modified-time"])
def test_they_are_for_deletes_alone(server, bucket, name):
    reply = wire.request(server, "PUT", f"/{bucket}/k", {name: "3"}, b"abc")
    assert_refused(reply, 501, "NotImplemented")


def test_a_write_where_versions_are_suspended_has_no_id(s3, versioned):  # noqa: F811
    kept = s3.put_object(Bucket=versioned, Key="k", Body=b"1")["VersionId"]
    s3.put_bucket_versioning(Bucket=versioned, VersioningConfiguration={"Status": "Suspended"})
    written = [s3.put_object(Bucket=versioned, Key="k", Body=b"2"),
               s3.copy_object(Bucket=versioned, Key="k", CopySource=f"{versioned}/k", MetadataDirective="REPLACE")]
    upload = s3.create_multipart_upload(Bucket=versioned, Key="k")["UploadId"]
    etag = s3.upload_part(Bucket=versioned, Key="k", UploadId=upload, PartNumber=1, Body=b"3")["ETag"]
    written.append(s3.complete_multipart_upload(
        Bucket=versioned, Key="k", UploadId=upload, MultipartUpload={"Parts": [{"PartNumber": 1, "ETag": etag}]}))
    assert [header(it, "x-amz-version-id") for it in written] == [None] * 3
    assert s3.head_object(Bucket=versioned, Key="k")["VersionId"] == "null"
    assert versions(s3, versioned) == [("k", "null", True), ("k", kept, False)]
    assert s3.delete_object(Bucket=versioned, Key="k")["VersionId"] == "null"
