"""Multipart uploads: parts, order, retries, ends."""

import concurrent.futures
import hashlib
import os

import pytest

from harness import wire
from helpers import absent, assert_refused, get, md5, refused, status

MIB = 1 << 20


class Upload:
    """An upload under way."""

    def __init__(self, s3, bucket, key="k", **how):
        self.s3, self.where = s3, {"Bucket": bucket, "Key": key}
        self.where["UploadId"] = s3.create_multipart_upload(**self.where, **how)["UploadId"]
        self.parts = {}

    def part(self, number, data, **how):
        response = self.s3.upload_part(**self.where, PartNumber=number, Body=data, **how)
        self.parts[number] = response["ETag"]
        return response

    def complete(self, numbers=None, **how):
        numbers = sorted(self.parts) if numbers is None else numbers
        parts = [{"PartNumber": n, "ETag": self.parts.get(n, '"' + "0" * 32 + '"')} for n in numbers]
        return self.s3.complete_multipart_upload(**self.where, MultipartUpload={"Parts": parts}, **how)

    def abort(self):
        return self.s3.abort_multipart_upload(**self.where)


def multipart_etag(parts):
    digests = b"".join(hashlib.md5(part).digest() for part in parts)
    return f'"{hashlib.md5(digests).hexdigest()}-{len(parts)}"'


@pytest.fixture
def upload(s3, bucket):
    return Upload(s3, bucket)


def test_parts_become_an_object(s3, bucket):
    upload = Upload(s3, bucket, ContentType="x/y", Metadata={"a": "b"}, Tagging="t=1")
    parts = [os.urandom(size) for size in (5 * MIB, 70 * MIB, 6 * MIB + 1, 17)]
    for number, data in reversed(list(enumerate(parts, 1))):
        assert upload.part(number, data)["ETag"] == f'"{md5(data)}"'
    absent(s3, bucket, "k")
    done = upload.complete()
    assert done["ETag"] == multipart_etag(parts) and (done["Bucket"], done["Key"]) == (bucket, "k")
    response = s3.get_object(Bucket=bucket, Key="k")
    assert response["Body"].read() == b"".join(parts)
    assert response["ETag"] == done["ETag"] and response["ContentType"] == "x/y"
    assert response["Metadata"] == {"a": "b"} and response["TagCount"] == 1
    edge = 75 * MIB
    whole = b"".join(parts)
    assert get(s3, bucket, "k", Range=f"bytes={edge - 5}-{edge + 4}") == whole[edge - 5:edge + 5]


def test_numbers_may_have_gaps_and_parts_may_be_left_out(s3, bucket, upload):
    for number in (1, 7, 10_000):
        upload.part(number, bytes([number % 256]) * (5 * MIB))
    upload.part(3, b"left out")
    upload.complete([1, 7, 10_000])
    assert get(s3, bucket, "k") == b"".join(bytes([n % 256]) * (5 * MIB) for n in (1, 7, 10_000))


def test_a_part_may_be_sent_again(s3, bucket, upload):
    upload.part(1, b"old" * 100)
    old = upload.parts[1]
    upload.part(1, b"new")
    upload.parts[1], new = old, upload.parts[1]
    with refused("InvalidPart", 400):
        upload.complete()
    upload.parts[1] = new
    upload.complete()
    assert get(s3, bucket, "k") == b"new"


def test_a_part_that_was_sent_twice_may_be_named_twice(s3, bucket, upload):
    upload.part(1, b"first")
    parts = [{"PartNumber": 1, "ETag": upload.parts[1]}]
    upload.part(1, b"second")
    parts.append({"PartNumber": 1, "ETag": upload.parts[1]})
    s3.complete_multipart_upload(**upload.where, MultipartUpload={"Parts": parts})
    assert get(s3, bucket, "k") == b"second"


def test_order_sizes_and_tags_are_checked(s3, bucket, upload):
    upload.part(1, b"a" * (5 * MIB))
    upload.part(2, b"b")
    upload.part(3, b"c")
    for numbers in ([2, 1], [1, 1], [3, 2]):
        with refused("InvalidPartOrder", 400):
            upload.complete(numbers)
    with refused("EntityTooSmall", 400):
        upload.complete([1, 2, 3])
    with refused("InvalidPart", 400):
        upload.complete([1, 4])
    with refused(("MalformedXML", "InvalidRequest"), 400):
        upload.complete([])
    absent(s3, bucket, "k")
    upload.complete([1, 3])
    assert get(s3, bucket, "k") == b"a" * (5 * MIB) + b"c"


@pytest.mark.parametrize("number", ["0", "-1", "10001", "x", "", "1.5", "4294967297"])
def test_part_numbers_that_are_none(server, upload, bucket, number):
    target = f"/{bucket}/k?partNumber={number}&uploadId={upload.where['UploadId']}"
    assert_refused(wire.request(server, "PUT", target, body=b"x"), 400, "InvalidArgument")


def test_ten_thousand_and_one_parts(server, s3, bucket, upload):
    etag = upload.part(1, b"x")["ETag"]
    parts = "".join(f"<Part><PartNumber>{n}</PartNumber><ETag>{etag}</ETag></Part>"
                    for n in range(1, 10_002))
    body = f"<CompleteMultipartUpload>{parts}</CompleteMultipartUpload>".encode()
    target = f"/{bucket}/k?uploadId={upload.where['UploadId']}"
    reply = wire.request(server, "POST", target, body=body)
    assert_refused(reply, 400, "InvalidArgument", "MalformedXML", "InvalidRequest", "InvalidPart")
    absent(s3, bucket, "k")


def test_uploads_that_are_not_there(s3, bucket, upload):
    real = upload.where["UploadId"]
    for fake in ("x", "0" * len(real), real[:-1], real + "0", "../../etc", "💥"):
        upload.where["UploadId"] = fake
        with refused("NoSuchUpload", 404):
            upload.part(1, b"x")
        with refused("NoSuchUpload", 404):
            upload.complete([1])
        with refused("NoSuchUpload", 404):
            upload.abort()
        with refused("NoSuchUpload", 404):
            s3.list_parts(**upload.where)
    # The upload of one key says nothing to another.
    with refused("NoSuchUpload", 404):
        s3.upload_part(Bucket=bucket, Key="other", UploadId=real, PartNumber=1, Body=b"x")


def test_abort(s3, bucket, upload):
    upload.part(1, b"x" * MIB)
    assert status(upload.abort()) == 204
    with refused("NoSuchUpload", 404):
        upload.part(2, b"x")
    with refused("NoSuchUpload", 404):
        upload.complete()
    assert "Uploads" not in s3.list_multipart_uploads(Bucket=bucket)
    absent(s3, bucket, "k")


def test_a_retried_complete_gives_the_same_answer(s3, bucket, upload):
    upload.part(1, b"once")
    first = upload.complete()
    again = upload.complete()
    assert again["ETag"] == first["ETag"]
    assert get(s3, bucket, "k") == b"once"


def test_a_complete_of_other_parts_is_no_retry(s3, bucket, upload):
    for number, body in ((1, b"a" * (5 * MIB)), (2, b"b"), (3, b"c")):
        upload.part(number, body)
    done = upload.complete([1, 2], IfNoneMatch="*")
    for others in ([1, 3], [1], [1, 2, 3], [4]):
        with refused("NoSuchUpload", 404):
            upload.complete(others)
    # What is sent again met its condition when it was carried out.
    for how in ({}, {"IfNoneMatch": "*"}):
        assert upload.complete([1, 2], **how)["ETag"] == done["ETag"]
    assert get(s3, bucket, "k") == b"a" * (5 * MIB) + b"b"


def test_a_retried_complete_does_not_undo_what_came_after(s3, bucket, upload):
    upload.part(1, b"old")
    upload.complete()
    s3.put_object(Bucket=bucket, Key="k", Body=b"newer")
    try:
        upload.complete()
    except s3.exceptions.ClientError as error:
        assert error.response["Error"]["Code"] == "NoSuchUpload"
    assert get(s3, bucket, "k") == b"newer"


def test_completes_at_the_same_time_agree(s3, bucket, upload):
    upload.part(1, b"agreed")
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        tags = {done["ETag"] for done in pool.map(lambda _: upload.complete(), range(8))}
    assert len(tags) == 1 and get(s3, bucket, "k") == b"agreed"


def test_parts_at_the_same_time(s3, bucket, upload):
    parts = [os.urandom(5 * MIB) for _ in range(8)]
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda pair: upload.part(*pair), enumerate(parts, 1)))
    assert upload.complete()["ETag"] == multipart_etag(parts)
    assert get(s3, bucket, "k") == b"".join(parts)


def test_list_parts(s3, bucket, upload):
    for number in (1, 2, 5, 9):
        upload.part(number, b"x" * number)
    page = s3.list_parts(**upload.where)
    assert [(p["PartNumber"], p["Size"], p["ETag"]) for p in page["Parts"]] == [
        (n, n, upload.parts[n]) for n in (1, 2, 5, 9)]
    assert page["IsTruncated"] is False
    numbers, marker = [], 0
    while True:
        page = s3.list_parts(**upload.where, MaxParts=3, PartNumberMarker=marker)
        numbers += [part["PartNumber"] for part in page["Parts"]]
        if not page["IsTruncated"]:
            break
        marker = page["NextPartNumberMarker"]
    assert numbers == [1, 2, 5, 9]


def test_list_uploads(s3, bucket):
    keys = ["a", "a", "b/1", "b/2", "c"]
    ids = sorted((key, Upload(s3, bucket, key).where["UploadId"]) for key in keys)

    def walk(**how):
        found, markers = [], {}
        while True:
            page = s3.list_multipart_uploads(Bucket=bucket, **how, **markers)
            found += [(item["Key"], item["UploadId"]) for item in page.get("Uploads", [])]
            found += [(item["Prefix"], None) for item in page.get("CommonPrefixes", [])]
            if not page["IsTruncated"]:
                return found
            markers = {"KeyMarker": page["NextKeyMarker"]}
            if page.get("NextUploadIdMarker"):
                markers["UploadIdMarker"] = page["NextUploadIdMarker"]

    for size in (1, 2, 1000):
        assert sorted(walk(MaxUploads=size)) == ids
    # An id without a key is passed over, and not told again.
    page = s3.list_multipart_uploads(Bucket=bucket, UploadIdMarker=ids[2][1])
    assert (len(page["Uploads"]), page["UploadIdMarker"]) == (5, "")
    assert sorted(walk(Prefix="b/")) == [pair for pair in ids if pair[0].startswith("b/")]
    folded = walk(Delimiter="/", MaxUploads=2)
    assert [key for key, _ in folded if key in ("b/",)] == ["b/"] and len(folded) == 4


def test_reads_by_part(s3, bucket, upload):
    parts = [b"a" * (5 * MIB), b"b" * (5 * MIB + 7), b"c"]
    for number, data in enumerate(parts, 1):
        upload.part(number * 10, data)
    upload.complete()
    for number, data in enumerate(parts, 1):
        response = s3.get_object(Bucket=bucket, Key="k", PartNumber=number)
        assert response["Body"].read() == data
        assert response["PartsCount"] == 3 and status(response) == 206
        head = s3.head_object(Bucket=bucket, Key="k", PartNumber=number)
        assert (head["ContentLength"], head["PartsCount"]) == (len(data), 3)
    with refused("InvalidPartNumber", 416):
        s3.get_object(Bucket=bucket, Key="k", PartNumber=4)
    with refused("InvalidRequest", 400):
        s3.get_object(Bucket=bucket, Key="k", PartNumber=1, Range="bytes=0-1")


def test_a_whole_object_is_its_own_first_part(s3, bucket):
    s3.put_object(Bucket=bucket, Key="k", Body=b"whole")
    assert get(s3, bucket, "k", PartNumber=1) == b"whole"
    with refused("InvalidPartNumber", 416):
        s3.get_object(Bucket=bucket, Key="k", PartNumber=2)


def test_parts_are_copied(s3, bucket, upload):
    data = os.urandom(11 * MIB)
    s3.put_object(Bucket=bucket, Key="source +é", Body=data)
    source = {"Bucket": bucket, "Key": "source +é"}
    for number, span in enumerate([(0, 5 * MIB - 1), (5 * MIB, 10 * MIB - 1)], 1):
        copied = s3.upload_part_copy(**upload.where, PartNumber=number, CopySource=source,
                                     CopySourceRange=f"bytes={span[0]}-{span[1]}")
        upload.parts[number] = copied["CopyPartResult"]["ETag"]
    small = {"Bucket": bucket, "Key": "small"}
    s3.put_object(**small, Body=b"end")
    copied = s3.upload_part_copy(**upload.where, PartNumber=3, CopySource=small)
    upload.parts[3] = copied["CopyPartResult"]["ETag"]
    upload.complete()
    assert get(s3, bucket, "k") == data[:10 * MIB] + b"end"


@pytest.mark.parametrize("span", ["bytes=0-100", "bytes=5-", "bytes=-5", "0-1", "bytes=3-2", "bytes=a-b"])
def test_ranges_of_copied_parts_are_exact(s3, bucket, upload, span):
    s3.put_object(Bucket=bucket, Key="source", Body=b"0123456789")
    with refused(("InvalidArgument", "InvalidRange", "InvalidRequest")):
        s3.upload_part_copy(**upload.where, PartNumber=1, CopySourceRange=span,
                            CopySource={"Bucket": bucket, "Key": "source"})


def test_a_bucket_with_an_upload_can_be_removed_or_says_why(s3):
    s3.create_bucket(Bucket="uploading")
    upload = Upload(s3, "uploading")
    upload.part(1, b"x")
    try:
        s3.delete_bucket(Bucket="uploading")
    except s3.exceptions.ClientError as error:
        assert error.response["Error"]["Code"] == "BucketNotEmpty"
        upload.abort()
        s3.delete_bucket(Bucket="uploading")
    with refused("NoSuchBucket", 404):
        upload.complete()
