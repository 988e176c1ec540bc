"""Checksums of whole objects: verified, stored, returned."""

import base64
import hashlib
import os

import pytest

from harness import wire
from harness.checksums import ALGORITHMS, HASHES, checksum
from harness.sigv4 import sha256
from helpers import absent, assert_refused, get, refused


@pytest.mark.parametrize("size", [0, 1000, 100_000])
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_stored_and_returned(server, s3, bucket, algorithm, size):
    data = os.urandom(size)
    name, value = f"x-amz-checksum-{algorithm}", checksum(algorithm, data)
    reply = wire.request(server, "PUT", f"/{bucket}/k", {name: value}, data)
    assert reply.status == 200 and reply.headers[name] == value
    for method in ("GET", "HEAD"):
        reply = wire.request(server, method, f"/{bucket}/k", {"x-amz-checksum-mode": "ENABLED"})
        assert reply.headers[name] == value and reply.headers["x-amz-checksum-type"] == "FULL_OBJECT"
        assert name not in wire.request(server, method, f"/{bucket}/k").headers


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_wrong(server, s3, bucket, algorithm):
    name = f"x-amz-checksum-{algorithm}"
    reply = wire.request(server, "PUT", f"/{bucket}/k", {name: checksum(algorithm, b"other")}, b"data")
    assert_refused(reply, 400, "BadDigest")
    for nonsense in ("", "x", "AAAA", "AAAA_AA", "!!!!", checksum(algorithm, b"data")[:-4]):
        reply = wire.request(server, "PUT", f"/{bucket}/k", {name: nonsense}, b"data")
        assert_refused(reply, 400, "InvalidRequest")
    # A piece of one is a wrong one.
    for piece in ("AA", "bad", checksum(algorithm, b"data")[:6]):
        assert_refused(wire.request(server, "PUT", f"/{bucket}/k", {name: piece}, b"data"), 400, "BadDigest")
    absent(s3, bucket, "k")


def test_two_at_once_or_of_an_unknown_kind(server, s3, bucket):
    headers = {"x-amz-checksum-crc32": checksum("crc32", b"data"),
               "x-amz-checksum-sha1": checksum("sha1", b"data")}
    assert_refused(wire.request(server, "PUT", f"/{bucket}/k", headers, b"data"), 400, "InvalidRequest")
    reply = wire.request(server, "PUT", f"/{bucket}/k", {"x-amz-sdk-checksum-algorithm": "MD4"}, b"data")
    assert_refused(reply, 400, "InvalidRequest")
    reply = wire.request(server, "PUT", f"/{bucket}/k", {"x-amz-checksum-md4": "AAAA"}, b"data")
    assert_refused(reply, 400, "InvalidRequest")
    absent(s3, bucket, "k")


def test_content_md5(server, s3, bucket):
    good = base64.b64encode(hashlib.md5(b"data").digest()).decode()
    bad = base64.b64encode(hashlib.md5(b"other").digest()).decode()
    put = lambda value: wire.request(server, "PUT", f"/{bucket}/k", {"content-md5": value}, b"data")
    assert_refused(put(bad), 400, "BadDigest")
    for nonsense in ("", "x", "AAAA", good[:-2], good + "AA"):
        assert_refused(put(nonsense), 400, "InvalidDigest")
    absent(s3, bucket, "k")
    assert put(good).status == 200


def test_content_sha256(server, s3, bucket):
    target = f"/{bucket}/k"
    reply = wire.request(server, "PUT", target, body=b"data", payload=sha256(b"other"))
    assert_refused(reply, 400, "XAmzContentSHA256Mismatch")
    for nonsense in ("x", "0" * 63, "STREAMING-NONSENSE"):
        reply = wire.request(server, "PUT", target, body=b"data", payload=nonsense)
        assert_refused(reply, 400, "InvalidArgument", "InvalidRequest", "XAmzContentSHA256Mismatch")
    absent(s3, bucket, "k")
    assert wire.request(server, "PUT", target, body=b"data", payload=sha256(b"data")).status == 200


@pytest.mark.parametrize("algorithm", [name for name in ALGORITHMS if name not in ("crc64nvme", "md5")])
def test_boto3_sends_trailers(s3, bucket, algorithm):
    data = os.urandom(300_000)
    put = s3.put_object(Bucket=bucket, Key="k", Body=data, ChecksumAlgorithm=algorithm.upper())
    assert put[f"Checksum{algorithm.upper()}"] == checksum(algorithm, data)
    response = s3.get_object(Bucket=bucket, Key="k", ChecksumMode="ENABLED")
    assert response[f"Checksum{algorithm.upper()}"] == checksum(algorithm, data)
    assert response["Body"].read() == data


@pytest.mark.parametrize("algorithm", ["sha256", *HASHES[2:]])
def test_a_copy_keeps_its_checksum(s3, bucket, algorithm):
    name, value = f"Checksum{algorithm.upper()}", checksum(algorithm, b"data")
    s3.put_object(Bucket=bucket, Key="a", Body=b"data", **{name: value})
    copied = s3.copy_object(Bucket=bucket, Key="b", CopySource={"Bucket": bucket, "Key": "a"})
    assert copied["CopyObjectResult"][name] == value
    head = s3.head_object(Bucket=bucket, Key="b", ChecksumMode="ENABLED")
    assert head[name] == value
    found = s3.get_object_attributes(Bucket=bucket, Key="b", ObjectAttributes=["Checksum"])["Checksum"]
    assert found == {name: value, "ChecksumType": "FULL_OBJECT"}


@pytest.mark.parametrize("algorithm", HASHES)
def test_a_hash_of_parts_covers_no_whole(server, bucket, algorithm):
    begin = {"x-amz-checksum-algorithm": algorithm.upper(), "x-amz-checksum-type": "FULL_OBJECT"}
    reply = wire.request(server, "POST", f"/{bucket}/k?uploads", begin)
    assert_refused(reply, 400, "InvalidRequest")
    said = f"The FULL_OBJECT checksum type cannot be used with the {algorithm} checksum algorithm."
    assert f"<Message>{said}</Message>".encode() in reply.body


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_document_is_compared_with_its_checksum(server, s3, bucket, algorithm):
    body = b"<Tagging><TagSet><Tag><Key>k</Key><Value>v</Value></Tag></TagSet></Tagging>"
    put = lambda of: wire.request(server, "PUT", f"/{bucket}?tagging",
                                  {f"x-amz-checksum-{algorithm}": checksum(algorithm, of)}, body)
    assert_refused(put(b"other"), 400, "BadDigest")
    assert put(body).status == 204


def test_a_part_is_checked(s3, bucket):
    upload = s3.create_multipart_upload(Bucket=bucket, Key="k")["UploadId"]
    where = {"Bucket": bucket, "Key": "k", "UploadId": upload, "PartNumber": 1}
    with refused("BadDigest", 400):
        s3.upload_part(**where, Body=b"data", ChecksumCRC32=checksum("crc32", b"other"))
    s3.upload_part(**where, Body=b"data", ChecksumCRC32=checksum("crc32", b"data"))
    assert len(s3.list_parts(Bucket=bucket, Key="k", UploadId=upload)["Parts"]) == 1


@pytest.mark.parametrize("algorithm", ["crc32", "crc32c", *HASHES])
def test_the_checksum_of_an_upload_covers_those_of_its_parts(s3, bucket, algorithm):
    name = f"Checksum{algorithm.upper()}"
    where = {"Bucket": bucket, "Key": "k"}
    begun = s3.create_multipart_upload(**where, ChecksumAlgorithm=algorithm.upper())
    assert begun["ChecksumType"] == "COMPOSITE"
    where["UploadId"] = begun["UploadId"]
    bodies, parts = [os.urandom(5 << 20), b"tail"], []
    for number, body in enumerate(bodies, 1):
        # The client computes no MD5 of its own.
        how = {name: checksum(algorithm, body)} if algorithm == "md5" else {"ChecksumAlgorithm": algorithm.upper()}
        part = s3.upload_part(**where, PartNumber=number, Body=body, **how)
        assert part[name] == checksum(algorithm, body)
        parts.append({"PartNumber": number, "ETag": part["ETag"], name: part[name]})
    wrong = [{**parts[0], name: parts[1][name]}, parts[1]]
    with refused("InvalidPart", 400):
        s3.complete_multipart_upload(**where, MultipartUpload={"Parts": wrong})
    silent = [parts[0], {key: value for key, value in parts[1].items() if key != name}]
    with refused("InvalidRequest", 400):
        s3.complete_multipart_upload(**where, MultipartUpload={"Parts": silent})
    listed = s3.list_parts(**where)
    assert [part[name] for part in listed["Parts"]] == [part[name] for part in parts]
    assert (listed["ChecksumAlgorithm"], listed["ChecksumType"]) == (algorithm.upper(), "COMPOSITE")
    done = s3.complete_multipart_upload(**where, MultipartUpload={"Parts": parts})
    of_parts = b"".join(base64.b64decode(part[name]) for part in parts)
    expected = f"{checksum(algorithm, of_parts)}-2"
    assert (done[name], done["ChecksumType"]) == (expected, "COMPOSITE")
    head = s3.head_object(Bucket=bucket, Key="k", ChecksumMode="ENABLED")
    assert head[name] == expected
    assert get(s3, bucket, "k") == b"".join(bodies)
    assert_of_parts(s3, bucket, name, bodies, "COMPOSITE")


def assert_of_parts(s3, bucket, name, bodies, kind):
    """A part that is read bears its own checksum."""
    for number, body in enumerate(bodies, 1):
        for read in (s3.get_object, s3.head_object):
            found = read(Bucket=bucket, Key="k", PartNumber=number, ChecksumMode="ENABLED")
            of_part = checksum(name.removeprefix("Checksum").lower(), body)
            assert (found[name], found["ChecksumType"], found["ContentLength"]) == (of_part, kind, len(body))


def test_delete_many_checks_its_digest(server, s3, bucket):
    s3.put_object(Bucket=bucket, Key="k", Body=b"x")
    body = b"<Delete><Object><Key>k</Key></Object></Delete>"
    wrong = base64.b64encode(hashlib.md5(b"other").digest()).decode()
    reply = wire.request(server, "POST", f"/{bucket}?delete", {"content-md5": wrong}, body)
    assert_refused(reply, 400, "BadDigest")
    wrong = {"x-amz-checksum-crc32": checksum("crc32", b"other")}
    assert_refused(wire.request(server, "POST", f"/{bucket}?delete", wrong, body), 400, "BadDigest")
    assert get(s3, bucket, "k") == b"x"
    # Without one, nothing says that the list is as it was sent.
    assert_refused(wire.request(server, "POST", f"/{bucket}?delete", body=body), 400, "InvalidRequest")
    assert get(s3, bucket, "k") == b"x"
    right = {"x-amz-checksum-crc32": checksum("crc32", body)}
    assert wire.request(server, "POST", f"/{bucket}?delete", right, body).status == 200
    absent(s3, bucket, "k")


@pytest.mark.parametrize("algorithm", ["crc32", "crc32c", "crc64nvme"])
def test_the_checksum_of_an_upload_may_cover_the_whole(s3, bucket, algorithm):
    name = f"Checksum{algorithm.upper()}"
    where = {"Bucket": bucket, "Key": "k"}
    begun = s3.create_multipart_upload(**where, ChecksumAlgorithm=algorithm.upper(), ChecksumType="FULL_OBJECT")
    assert begun["ChecksumType"] == "FULL_OBJECT"
    where["UploadId"] = begun["UploadId"]
    bodies, parts = [os.urandom(5 << 20), b"tail"], []
    for number, body in enumerate(bodies, 1):
        part = s3.upload_part(**where, PartNumber=number, Body=body, **{name: checksum(algorithm, body)})
        parts.append({"PartNumber": number, "ETag": part["ETag"]})
    complete = lambda value: s3.complete_multipart_upload(**where, MultipartUpload={"Parts": parts}, **{name: value})
    with refused("BadDigest", 400):
        complete(checksum(algorithm, b"other"))
    expected = checksum(algorithm, b"".join(bodies))
    assert complete(expected)[name] == expected
    found = s3.get_object_attributes(Bucket=bucket, Key="k", ObjectAttributes=["Checksum"])["Checksum"]
    assert found == {name: expected, "ChecksumType": "FULL_OBJECT"}
    assert_of_parts(s3, bucket, name, bodies, "FULL_OBJECT")


def test_an_object_that_nobody_asked_a_checksum_of_has_one(server, s3, bucket):
    wire.request(server, "PUT", f"/{bucket}/k", {}, b"data")
    head = s3.head_object(Bucket=bucket, Key="k", ChecksumMode="ENABLED")
    assert (head["ChecksumCRC64NVME"], head["ChecksumType"]) == (checksum("crc64nvme", b"data"), "FULL_OBJECT")


def test_what_the_end_of_an_upload_says_of_checksums_makes_sense(s3, bucket):
    where = {"Bucket": bucket, "Key": "k"}
    where["UploadId"] = s3.create_multipart_upload(**where, ChecksumAlgorithm="CRC32")["UploadId"]
    part = s3.upload_part(**where, PartNumber=1, Body=b"data", ChecksumCRC32=checksum("crc32", b"data"))
    good = {"PartNumber": 1, "ETag": part["ETag"], "ChecksumCRC32": part["ChecksumCRC32"]}

    def complete(named, **how):
        return s3.complete_multipart_upload(**where, MultipartUpload={"Parts": [named]}, **how)

    sha1 = {"ChecksumSHA1": checksum("sha1", b"data")}
    for wrong in (good | {"ChecksumCRC32": "nonsense"}, good | sha1):
        with refused("InvalidArgument", 400):
            complete(wrong)
    for wrong in ("nonsense", "AAAAAA==-x", "AAAAAA==-1-2", "AAAAAA==--1"):
        with refused("InvalidRequest", 400):
            complete(good, ChecksumCRC32=wrong)
    assert complete(good)["ChecksumType"] == "COMPOSITE"
    del where["UploadId"]
    # Of an upload whose checksum covers the whole, a part may be named without one, or with one of
    # another kind; then somebody must have computed it.
    begun = s3.create_multipart_upload(**where, ChecksumAlgorithm="CRC32", ChecksumType="FULL_OBJECT")
    where["UploadId"] = begun["UploadId"]
    part = s3.upload_part(**where, PartNumber=1, Body=b"data", ChecksumCRC32=checksum("crc32", b"data"))
    with refused("BadDigest", 400):
        complete({"PartNumber": 1, "ETag": part["ETag"], **sha1})
    complete({"PartNumber": 1, "ETag": part["ETag"]})


def test_types_of_checksums_have_no_case(server, s3, bucket):
    given = {"x-amz-checksum-algorithm": "crc32C", "x-amz-checksum-type": "full_Object"}
    reply = wire.request(server, "POST", f"/{bucket}/k?uploads", given)
    assert reply.status == 200, reply
    told = (reply.headers["x-amz-checksum-algorithm"], reply.headers["x-amz-checksum-type"])
    assert told == ("CRC32C", "FULL_OBJECT")
