"""Conditional reads and writes: never ignored, and exact among racers."""

import base64
import concurrent.futures
import datetime
import hashlib

import pytest

from harness import wire
from helpers import absent, assert_refused, get, refused, status

HOUR = datetime.timedelta(hours=1)


@pytest.fixture
def made(s3, bucket):
    s3.put_object(Bucket=bucket, Key="k", Body=b"first")
    return s3.head_object(Bucket=bucket, Key="k")


def read(s3, bucket, how):
    s3.head_object(Bucket=bucket, Key="k", **how)
    return s3.get_object(Bucket=bucket, Key="k", **how)


def test_reads_that_hold(s3, bucket, made):
    etag, modified = made["ETag"], made["LastModified"]
    for how in ({"IfMatch": etag}, {"IfMatch": "*"}, {"IfMatch": etag.strip('"')},
                {"IfMatch": f'"nope", {etag}'}, {"IfNoneMatch": '"nope"'},
                {"IfModifiedSince": modified - HOUR}, {"IfUnmodifiedSince": modified + HOUR},
                # A tag that matches outweighs a date that does not.
                {"IfMatch": etag, "IfUnmodifiedSince": modified - HOUR},
                {"IfNoneMatch": '"nope"', "IfModifiedSince": modified + HOUR}):
        assert read(s3, bucket, how)["Body"].read() == b"first", how


def test_reads_that_do_not(s3, bucket, made):
    etag, modified = made["ETag"], made["LastModified"]
    for how in ({"IfMatch": '"nope"'}, {"IfUnmodifiedSince": modified - HOUR}):
        with refused("PreconditionFailed", 412):
            s3.get_object(Bucket=bucket, Key="k", **how)
        with refused("412", 412):
            s3.head_object(Bucket=bucket, Key="k", **how)
    for how in ({"IfNoneMatch": etag}, {"IfNoneMatch": "*"}, {"IfModifiedSince": modified},
                {"IfNoneMatch": etag, "IfModifiedSince": modified - HOUR}):
        with refused("304", 304):
            s3.get_object(Bucket=bucket, Key="k", **how)
        with refused("304", 304):
            s3.head_object(Bucket=bucket, Key="k", **how)


def test_create_once(s3, bucket):
    s3.put_object(Bucket=bucket, Key="k", Body=b"first", IfNoneMatch="*")
    with refused("PreconditionFailed", 412):
        s3.put_object(Bucket=bucket, Key="k", Body=b"second", IfNoneMatch="*")
    assert get(s3, bucket, "k") == b"first"
    s3.delete_object(Bucket=bucket, Key="k")
    s3.put_object(Bucket=bucket, Key="k", Body=b"third", IfNoneMatch="*")
    assert get(s3, bucket, "k") == b"third"


def test_replace_what_was_read(s3, bucket, made):
    second = s3.put_object(Bucket=bucket, Key="k", Body=b"second", IfMatch=made["ETag"])
    with refused("PreconditionFailed", 412):
        s3.put_object(Bucket=bucket, Key="k", Body=b"lost", IfMatch=made["ETag"])
    assert get(s3, bucket, "k") == b"second"
    s3.put_object(Bucket=bucket, Key="k", Body=b"third", IfMatch=second["ETag"])
    assert get(s3, bucket, "k") == b"third"


def test_nothing_to_replace(s3, bucket):
    with refused("NoSuchKey", 404):
        s3.put_object(Bucket=bucket, Key="none", Body=b"x", IfMatch='"d41d8cd98f00b204e9800998ecf8427e"')
    absent(s3, bucket, "none")


def race(count, attempt):
    """Outcomes of `count` attempts at the same time."""
    with concurrent.futures.ThreadPoolExecutor(count) as pool:
        return list(pool.map(attempt, range(count)))


def outcome(call):
    """200 or the error's code."""
    def run(*arguments):
        try:
            return status(call(*arguments))
        except Exception as error:  # botocore makes its classes at run time
            return error.response["Error"]["Code"]
    return run


@pytest.mark.parametrize("size", [10, 200_000])
def test_fifty_race_to_create_and_one_wins(s3, bucket, size):
    bodies = [bytes([racer]) * size for racer in range(50)]
    for key in ("a", "b", "c"):
        put = outcome(lambda racer: s3.put_object(
            Bucket=bucket, Key=key, Body=bodies[racer], IfNoneMatch="*"))
        outcomes = race(50, put)
        assert outcomes.count(200) == 1, outcomes
        assert set(outcomes) <= {200, "PreconditionFailed", "ConditionalRequestConflict"}, outcomes
        assert get(s3, bucket, key) == bodies[outcomes.index(200)]


def test_fifty_race_to_replace_and_one_wins(s3, bucket, made):
    put = outcome(lambda racer: s3.put_object(
        Bucket=bucket, Key="k", Body=b"%d" % racer, IfMatch=made["ETag"]))
    outcomes = race(50, put)
    assert outcomes.count(200) == 1, outcomes
    assert get(s3, bucket, "k") == b"%d" % outcomes.index(200)


def test_a_counter_loses_no_step(s3, bucket):
    s3.put_object(Bucket=bucket, Key="n", Body=b"0")

    def step(_):
        while True:
            response = s3.get_object(Bucket=bucket, Key="n")
            value = int(response["Body"].read())
            try:
                return s3.put_object(Bucket=bucket, Key="n", Body=b"%d" % (value + 1),
                                     IfMatch=response["ETag"])
            except s3.exceptions.ClientError as error:
                code = error.response["Error"]["Code"]
                assert code in ("PreconditionFailed", "ConditionalRequestConflict"), code

    race(40, step)
    assert get(s3, bucket, "n") == b"40"


def upload(s3, bucket, key, data=b"part"):
    upload = s3.create_multipart_upload(Bucket=bucket, Key=key)["UploadId"]
    part = s3.upload_part(Bucket=bucket, Key=key, UploadId=upload, PartNumber=1, Body=data)
    return {"Bucket": bucket, "Key": key, "UploadId": upload,
            "MultipartUpload": {"Parts": [{"PartNumber": 1, "ETag": part["ETag"]}]}}


def test_complete_creates_once(s3, bucket):
    first, second = upload(s3, bucket, "k", b"one"), upload(s3, bucket, "k", b"two")
    s3.complete_multipart_upload(**first, IfNoneMatch="*")
    with refused("PreconditionFailed", 412):
        s3.complete_multipart_upload(**second, IfNoneMatch="*")
    assert get(s3, bucket, "k") == b"one"
    # The upload is still there: it can be completed after all.
    s3.complete_multipart_upload(**second)
    assert get(s3, bucket, "k") == b"two"


def test_complete_replaces_what_was_read(s3, bucket, made):
    with refused("PreconditionFailed", 412):
        s3.complete_multipart_upload(**upload(s3, bucket, "k", b"lost"), IfMatch='"nope"')
    s3.complete_multipart_upload(**upload(s3, bucket, "k", b"won"), IfMatch=made["ETag"])
    assert get(s3, bucket, "k") == b"won"


def test_uploads_race_to_create_and_one_wins(s3, bucket):
    uploads = [upload(s3, bucket, "k", b"%d" % racer) for racer in range(20)]
    complete = outcome(lambda racer: s3.complete_multipart_upload(**uploads[racer], IfNoneMatch="*"))
    outcomes = race(20, complete)
    assert outcomes.count(200) == 1, outcomes
    assert get(s3, bucket, "k") == b"%d" % outcomes.index(200)


UNREADABLE = ["", " ", "*, *", '*,"x"', '"x", *', '""', '"x', ",", '"a",']


@pytest.mark.parametrize("name", ["if-match", "if-none-match"])
@pytest.mark.parametrize("value", UNREADABLE)
def test_a_condition_that_can_not_be_read_stops_a_write(server, s3, bucket, made, name, value):
    target = f"/{bucket}/k"
    assert_refused(wire.request(server, "PUT", target, {name: value}, b"lost"), 400, "InvalidArgument")
    assert_refused(wire.request(server, "DELETE", target, {name: value}), 400, "InvalidArgument")
    copy = {name: value, "x-amz-copy-source": target, "x-amz-metadata-directive": "REPLACE"}
    assert_refused(wire.request(server, "PUT", f"/{bucket}/copy", copy), 400, "InvalidArgument")
    complete = upload(s3, bucket, "k", b"lost")
    etag = complete["MultipartUpload"]["Parts"][0]["ETag"]
    body = (f"<CompleteMultipartUpload><Part><PartNumber>1</PartNumber><ETag>{etag}</ETag></Part>"
            "</CompleteMultipartUpload>").encode()
    reply = wire.request(server, "POST", f"{target}?uploadId={complete['UploadId']}", {name: value}, body)
    assert_refused(reply, 400, "InvalidArgument")
    assert get(s3, bucket, "k") == b"first"
    absent(s3, bucket, "copy")


@pytest.mark.parametrize("name", ["if-match", "if-modified-since", "if-none-match", "if-unmodified-since"])
def test_so_does_one_of_a_source(server, s3, bucket, made, name):
    copy = {f"x-amz-copy-source-{name}": "", "x-amz-copy-source": f"/{bucket}/k"}
    assert_refused(wire.request(server, "PUT", f"/{bucket}/copy", copy), 400, "InvalidArgument")
    absent(s3, bucket, "copy")


@pytest.mark.parametrize("value", ["", "5x", "5 5", "1,000", "1e3", "5.0", "+5", "x"])
def test_a_size_that_is_no_number_deletes_nothing(server, s3, bucket, made, value):
    reply = wire.request(server, "DELETE", f"/{bucket}/k", {"x-amz-if-match-size": value})
    assert_refused(reply, 400, "InvalidArgument")
    assert get(s3, bucket, "k") == b"first"
    reply = wire.request(server, "DELETE", f"/{bucket}/k", {"x-amz-if-match-last-modified-time": ""})
    assert_refused(reply, 400, "InvalidArgument")
    body = (f"<Delete><Object><Key>k</Key><Size>{value}</Size></Object></Delete>").encode()
    digest = base64.b64encode(hashlib.md5(body).digest()).decode()
    reply = wire.request(server, "POST", f"/{bucket}?delete", {"content-md5": digest}, body)
    assert_refused(reply, 400, "MalformedXML")
    assert get(s3, bucket, "k") == b"first"
