"""Versions of objects, through boto3."""

import concurrent.futures

import pytest

from harness import wire
from helpers import absent, get, header, refused, status


@pytest.fixture
def versioned(s3, bucket):
    turn(s3, bucket, "Enabled")
    yield bucket
    for page in s3.get_paginator("list_object_versions").paginate(Bucket=bucket):
        named = page.get("Versions", []) + page.get("DeleteMarkers", [])
        objects = [{"Key": it["Key"], "VersionId": it["VersionId"]} for it in named]
        if objects:
            assert "Errors" not in s3.delete_objects(Bucket=bucket, Delete={"Objects": objects})
    listed = s3.list_object_versions(Bucket=bucket)
    assert "Versions" not in listed and "DeleteMarkers" not in listed


def turn(s3, bucket, status):
    s3.put_bucket_versioning(Bucket=bucket, VersioningConfiguration={"Status": status})
    assert s3.get_bucket_versioning(Bucket=bucket)["Status"] == status


def put(s3, bucket, body, key="k"):
    return s3.put_object(Bucket=bucket, Key=key, Body=body)["VersionId"]


def versions(s3, bucket, **how):
    listed = s3.list_object_versions(Bucket=bucket, **how)
    return [(it["Key"], it["VersionId"], it["IsLatest"]) for it in listed.get("Versions", [])]


def test_a_life_of_versions(s3, versioned):
    ids = [put(s3, versioned, body) for body in (b"one", b"two" * 10_000, b"three" * 1_000_000)]
    assert [it[1:] for it in versions(s3, versioned)] == [(ids[2], True), (ids[1], False), (ids[0], False)]
    assert get(s3, versioned, "k", VersionId=ids[0]) == b"one"
    assert get(s3, versioned, "k", VersionId=ids[1]) == b"two" * 10_000
    assert get(s3, versioned, "k") == b"three" * 1_000_000
    assert s3.head_object(Bucket=versioned, Key="k", VersionId=ids[1])["ContentLength"] == 30_000
    gone = s3.delete_object(Bucket=versioned, Key="k", VersionId=ids[2])
    assert gone["VersionId"] == ids[2] and "DeleteMarker" not in gone
    assert get(s3, versioned, "k") == b"two" * 10_000
    with refused("NoSuchVersion", 404):
        get(s3, versioned, "k", VersionId=ids[2])
    with refused("InvalidArgument", 400):
        get(s3, versioned, "k", VersionId="3HL4kqtJvjVBH40Nrjfkd")
    assert status(s3.delete_object(Bucket=versioned, Key="k", VersionId=ids[2])) == 204


def test_pages_may_begin_with_empty_markers(s3, versioned):
    """As those do who empty buckets and write the first page like all others."""
    ids = [put(s3, versioned, b"x", key) for key in ("a", "a", "b")]
    found, key, version = [], "", ""
    while key is not None:
        page = s3.list_object_versions(Bucket=versioned, KeyMarker=key, VersionIdMarker=version, MaxKeys=2)
        found += [it["VersionId"] for it in page["Versions"]]
        key, version = page.get("NextKeyMarker"), page.get("NextVersionIdMarker")
    assert found == [ids[1], ids[0], ids[2]]
    with refused("InvalidArgument", 400):
        s3.list_object_versions(Bucket=versioned, KeyMarker="", VersionIdMarker=ids[0])


def test_delete_markers(s3, versioned):
    version = put(s3, versioned, b"x")
    deleted = s3.delete_object(Bucket=versioned, Key="k")
    assert deleted["DeleteMarker"] is True
    absent(s3, versioned, "k")
    with refused("NoSuchKey", 404) as caught:
        get(s3, versioned, "k")
    assert header(caught.value.response, "x-amz-delete-marker") == "true"
    assert header(caught.value.response, "x-amz-version-id") == deleted["VersionId"]
    with refused("405", 405) as caught:
        s3.head_object(Bucket=versioned, Key="k", VersionId=deleted["VersionId"])
    with refused("MethodNotAllowed", 405) as caught:
        get(s3, versioned, "k", VersionId=deleted["VersionId"])
    assert header(caught.value.response, "x-amz-delete-marker") == "true"
    assert get(s3, versioned, "k", VersionId=version) == b"x"
    markers = s3.list_object_versions(Bucket=versioned)["DeleteMarkers"]
    assert [(it["VersionId"], it["IsLatest"]) for it in markers] == [(deleted["VersionId"], True)]
    with refused("BucketNotEmpty", 409):
        s3.delete_bucket(Bucket=versioned)
    undone = s3.delete_object(Bucket=versioned, Key="k", VersionId=deleted["VersionId"])
    assert undone["DeleteMarker"] is True
    assert get(s3, versioned, "k") == b"x"


def test_the_null_version(s3, bucket):
    s3.put_object(Bucket=bucket, Key="k", Body=b"before")
    turn(s3, bucket, "Enabled")
    kept = put(s3, bucket, b"kept")
    assert get(s3, bucket, "k", VersionId="null") == b"before"
    turn(s3, bucket, "Suspended")
    for body in (b"first", b"second"):
        s3.put_object(Bucket=bucket, Key="k", Body=body)
        assert versions(s3, bucket) == [("k", "null", True), ("k", kept, False)]
        assert get(s3, bucket, "k", VersionId="null") == body
    assert s3.delete_object(Bucket=bucket, Key="k")["VersionId"] == "null"
    assert versions(s3, bucket) == [("k", kept, False)]
    s3.delete_object(Bucket=bucket, Key="k", VersionId="null")
    assert get(s3, bucket, "k") == b"kept"
    s3.delete_object(Bucket=bucket, Key="k", VersionId=kept)
    assert versions(s3, bucket) == []


def test_pages_of_listings(s3, versioned):
    for key in ("a", "a/1", "a/2", "b"):
        for number in range(3):
            put(s3, versioned, str(number).encode(), key)
    s3.delete_object(Bucket=versioned, Key="b")
    whole = versions(s3, versioned)
    assert len(whole) == 12
    for size in (1, 2, 5, 13):
        pages = s3.get_paginator("list_object_versions").paginate(
            Bucket=versioned, PaginationConfig={"PageSize": size})
        found, markers = [], 0
        for page in pages:
            found += [(it["Key"], it["VersionId"], it["IsLatest"]) for it in page.get("Versions", [])]
            markers += len(page.get("DeleteMarkers", []))
        assert (found, markers) == (whole, 1), size
    folded = s3.list_object_versions(Bucket=versioned, Delimiter="/", Prefix="a")
    assert [it["Key"] for it in folded["Versions"]] == ["a"] * 3
    assert folded["CommonPrefixes"] == [{"Prefix": "a/"}]


def test_conditions_are_judged_by_the_current_version(s3, versioned):
    etag = s3.put_object(Bucket=versioned, Key="k", Body=b"one", IfNoneMatch="*")["ETag"]
    with refused("PreconditionFailed", 412):
        s3.put_object(Bucket=versioned, Key="k", Body=b"two", IfNoneMatch="*")
    s3.put_object(Bucket=versioned, Key="k", Body=b"two", IfMatch=etag)
    with refused("PreconditionFailed", 412):
        s3.put_object(Bucket=versioned, Key="k", Body=b"three", IfMatch=etag)
    s3.delete_object(Bucket=versioned, Key="k")
    s3.put_object(Bucket=versioned, Key="k", Body=b"four", IfNoneMatch="*")
    assert len(versions(s3, versioned)) == 3, "what was refused left no version"


def test_everyone_who_writes_at_once_has_a_version(s3, versioned):
    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        ids = list(pool.map(lambda number: put(s3, versioned, str(number).encode()), range(48)))
    assert sorted(ids) == sorted(it[1] for it in versions(s3, versioned))
    for number, version in enumerate(ids):
        assert get(s3, versioned, "k", VersionId=version) == str(number).encode()


def test_uploads_and_copies(s3, versioned):
    old = put(s3, versioned, b"old")
    upload = s3.create_multipart_upload(Bucket=versioned, Key="k", ChecksumAlgorithm="CRC32C")["UploadId"]
    named = {"Bucket": versioned, "Key": "k", "UploadId": upload}
    part = s3.upload_part(**named, PartNumber=1, Body=b"x" * 100, ChecksumAlgorithm="CRC32C")
    parts = [{"PartNumber": 1, "ETag": part["ETag"], "ChecksumCRC32C": part["ChecksumCRC32C"]}]
    done = s3.complete_multipart_upload(**named, MultipartUpload={"Parts": parts})
    told = s3.get_object_attributes(
        Bucket=versioned, Key="k", VersionId=done["VersionId"], ObjectAttributes=["ObjectParts", "ObjectSize"])
    assert told["ObjectSize"] == 100
    assert told["ObjectParts"]["Parts"][0]["ChecksumCRC32C"] == part["ChecksumCRC32C"]
    source = {"Bucket": versioned, "Key": "k", "VersionId": old}
    copied = s3.copy_object(Bucket=versioned, Key="k", CopySource=source)
    assert copied["CopySourceVersionId"] == old
    assert get(s3, versioned, "k") == b"old"
    assert [it[1] for it in versions(s3, versioned)] == [copied["VersionId"], done["VersionId"], old]
    current = s3.copy_object(Bucket=versioned, Key="copy", CopySource={"Bucket": versioned, "Key": "k"})
    assert current["CopySourceVersionId"] == copied["VersionId"]


def test_an_upload_is_completed_again_behind_what_came_in_front(s3, versioned):
    upload = s3.create_multipart_upload(Bucket=versioned, Key="k")["UploadId"]
    etag = s3.upload_part(Bucket=versioned, Key="k", UploadId=upload, PartNumber=1, Body=b"one")["ETag"]
    named = {"Parts": [{"PartNumber": 1, "ETag": etag}]}
    done = s3.complete_multipart_upload(Bucket=versioned, Key="k", UploadId=upload, MultipartUpload=named)
    put(s3, versioned, b"two")
    s3.delete_object(Bucket=versioned, Key="k")
    again = s3.complete_multipart_upload(Bucket=versioned, Key="k", UploadId=upload, MultipartUpload=named)
    assert (again["ETag"], again["VersionId"]) == (done["ETag"], done["VersionId"])
    s3.delete_object(Bucket=versioned, Key="k", VersionId=done["VersionId"])
    gone = s3.complete_multipart_upload(Bucket=versioned, Key="k", UploadId=upload, MultipartUpload=named)
    assert gone["ETag"] == done["ETag"] and "VersionId" not in gone
    assert len(versions(s3, versioned)) == 1


def test_tags_of_a_version(s3, versioned):
    old, new = put(s3, versioned, b"old"), put(s3, versioned, b"new")
    tags = {"TagSet": [{"Key": "a", "Value": "1"}]}
    s3.put_object_tagging(Bucket=versioned, Key="k", VersionId=old, Tagging=tags)
    assert s3.get_object_tagging(Bucket=versioned, Key="k", VersionId=old)["TagSet"] == tags["TagSet"]
    assert s3.get_object_tagging(Bucket=versioned, Key="k")["TagSet"] == []
    s3.delete_object_tagging(Bucket=versioned, Key="k", VersionId=old)
    assert s3.get_object_tagging(Bucket=versioned, Key="k", VersionId=old)["TagSet"] == []
    assert [it[1] for it in versions(s3, versioned)] == [new, old]


@pytest.mark.parametrize("document,code", [
    (b"<VersioningConfiguration/>", "IllegalVersioningConfigurationException"),
    (b"<VersioningConfiguration><Status>on</Status></VersioningConfiguration>", "MalformedXML"),
])
def test_states_that_are_none(server, s3, bucket, document, code):
    reply = wire.request(server, "PUT", f"/{bucket}?versioning", body=document)
    assert (reply.status, reply.code) == (400, code)
    assert "Status" not in s3.get_bucket_versioning(Bucket=bucket)
