"""GetObjectAttributes: what an object says of itself, and of its parts."""

import os

import pytest

from harness import wire
from harness.checksums import checksum
from helpers import assert_refused, refused
from test_multipart import Upload

MIB = 1 << 20
ALL = ["ETag", "Checksum", "ObjectParts", "StorageClass", "ObjectSize"]


def attributes(s3, bucket, names=ALL, key="k", **how):
    return s3.get_object_attributes(Bucket=bucket, Key=key, ObjectAttributes=names, **how)


def test_of_a_whole_object(s3, bucket):
    put = s3.put_object(Bucket=bucket, Key="k", Body=b"data", ChecksumSHA256=checksum("sha256", b"data"))
    found = attributes(s3, bucket)
    assert found["ETag"] == put["ETag"].strip('"') and found["ObjectSize"] == 4
    assert found["Checksum"] == {"ChecksumSHA256": checksum("sha256", b"data"), "ChecksumType": "FULL_OBJECT"}
    assert found["StorageClass"] == "STANDARD" and "ObjectParts" not in found
    head = s3.head_object(Bucket=bucket, Key="k")
    assert found["LastModified"] == head["LastModified"]


@pytest.mark.parametrize("name", ALL)
def test_one_at_a_time(s3, bucket, name):
    s3.put_object(Bucket=bucket, Key="k", Body=b"data")
    found = attributes(s3, bucket, [name])
    assert [key for key in found if key in ALL] == ([] if name == "ObjectParts" else [name])


def test_of_an_object_in_parts(s3, bucket):
    upload = Upload(s3, bucket)
    sizes = [5 * MIB, 5 * MIB + 3, 5 * MIB, 9]
    for number, size in enumerate(sizes, 1):
        upload.part(number, os.urandom(size))
    done = upload.complete()
    found = attributes(s3, bucket)
    assert (found["ETag"], found["ObjectSize"]) == (done["ETag"].strip('"'), sum(sizes))
    parts = found["ObjectParts"]
    assert [(part["PartNumber"], part["Size"]) for part in parts["Parts"]] == list(enumerate(sizes, 1))
    assert (parts["TotalPartsCount"], parts["IsTruncated"], parts["MaxParts"]) == (4, False, 1000)

    page = attributes(s3, bucket, MaxParts=1, PartNumberMarker=2)["ObjectParts"]
    assert [part["PartNumber"] for part in page["Parts"]] == [3]
    assert (page["IsTruncated"], page["PartNumberMarker"], page["NextPartNumberMarker"]) == (True, 2, 3)
    rest = attributes(s3, bucket, MaxParts=10, PartNumberMarker=3)["ObjectParts"]
    assert [part["PartNumber"] for part in rest["Parts"]] == [4] and rest["IsTruncated"] is False


def test_bad_requests(server, s3, bucket):
    s3.put_object(Bucket=bucket, Key="k", Body=b"data")
    target = f"/{bucket}/k?attributes"
    assert_refused(wire.request(server, "GET", target), 400, "InvalidRequest")
    for headers in ({"x-amz-object-attributes": "Colour"}, {"x-amz-object-attributes": "etag"},
                    {"x-amz-object-attributes": "ETag", "x-amz-max-parts": "-1"}):
        assert_refused(wire.request(server, "GET", target, headers), 400, "InvalidArgument")
    with refused("NoSuchKey", 404):
        attributes(s3, bucket, key="none")


def test_an_upload_nobody_asked_a_checksum_of_has_one(s3, bucket):
    upload = Upload(s3, bucket)
    data = [os.urandom(5 * MIB), b"tail"]
    for number, part in enumerate(data, 1):
        upload.part(number, part, ChecksumAlgorithm="CRC32")
    done = upload.complete()
    expected = checksum("crc64nvme", b"".join(data))
    assert (done["ChecksumCRC64NVME"], done["ChecksumType"]) == (expected, "FULL_OBJECT")
    head = s3.head_object(Bucket=bucket, Key="k", ChecksumMode="ENABLED")
    assert (head["ChecksumCRC64NVME"], head["ChecksumType"]) == (expected, "FULL_OBJECT")


def test_the_size_that_complete_names_is_checked(s3, bucket):
    upload = Upload(s3, bucket)
    upload.part(1, b"five!")
    with refused("InvalidRequest", 400):
        upload.complete(MpuObjectSize=6)
    assert upload.complete(MpuObjectSize=5)["ETag"]
