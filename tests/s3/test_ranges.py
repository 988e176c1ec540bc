"""Ranges of objects of every kind that the engine keeps."""

import os
import random

import pytest

from harness import wire
from helpers import get, header, refused, status

KIB, MIB = 1 << 10, 1 << 20
SIZES = [1, 4000, 8 * KIB, 300 * KIB, 3 * MIB + 17, 65 * MIB]


@pytest.fixture(scope="module", params=SIZES)
def held(s3, request):
    """A bucket with one object and its bytes."""
    name = f"ranges-{request.param}"
    data = os.urandom(request.param)
    s3.create_bucket(Bucket=name)
    s3.put_object(Bucket=name, Key="k", Body=data)
    yield name, data
    s3.delete_object(Bucket=name, Key="k")
    s3.delete_bucket(Bucket=name)


def test_single_ranges(s3, held):
    bucket, data = held
    seed = random.randrange(1 << 32)
    rng = random.Random(seed)
    edges = [edge for edge in (0, 64 * KIB, MIB, 64 * MIB) if edge < len(data)]
    firsts = edges + [max(edge - 1, 0) for edge in edges] + [rng.randrange(len(data)) for _ in range(20)]
    for first in firsts:
        last = min(first + rng.choice([0, 1, 4095, 70_000]), len(data) - 1)
        response = s3.get_object(Bucket=bucket, Key="k", Range=f"bytes={first}-{last}")
        assert response["Body"].read() == data[first:last + 1], (seed, first, last)
        assert response["ContentRange"] == f"bytes {first}-{last}/{len(data)}"
        assert response["ResponseMetadata"]["HTTPStatusCode"] == 206


def test_open_suffix_and_overlong(s3, held):
    bucket, data = held
    size = len(data)
    for text, expected in [
        (f"bytes={size - 1}-", data[-1:]), (f"bytes={size // 2}-", data[size // 2:]),
        ("bytes=0-", data), ("bytes=-1", data[-1:]), (f"bytes=-{size}", data),
        (f"bytes=-{size + 5}", data), (f"bytes={size - 1}-{size + 100}", data[-1:]),
        ("bytes=0-99999999999999999999", data),
    ]:
        assert get(s3, bucket, "k", Range=text) == expected, text


def test_unsatisfiable(s3, held):
    bucket, data = held
    for text in (f"bytes={len(data)}-", f"bytes={len(data) + 7}-{len(data) + 9}", "bytes=-0"):
        with refused("InvalidRange", 416) as caught:
            s3.get_object(Bucket=bucket, Key="k", Range=text)
        assert header(caught.value.response, "content-range") == f"bytes */{len(data)}", text


@pytest.mark.parametrize("text", [
    "bytes=", "bytes=-", "bytes=a-b", "bytes=5-2", "items=0-1", "bytes 0-1", "bytes=0-1,3-4",
    "bytes=--1", "bytes= -1", "bytes= 0-1", "bytes=0 -1", "bytes=0x0-1", "", "bytes=0-18446744073709551616x",
])
def test_nonsense_is_passed_over(s3, server, bucket, text):
    s3.put_object(Bucket=bucket, Key="k", Body=b"0123456789")
    reply = wire.request(server, "GET", f"/{bucket}/k", {"range": text})
    assert (reply.status, reply.body) == (200, b"0123456789"), text


def test_head_of_a_range(s3, bucket):
    s3.put_object(Bucket=bucket, Key="k", Body=b"0123456789")
    response = s3.head_object(Bucket=bucket, Key="k", Range="bytes=2-4")
    assert (response["ContentLength"], response["ContentRange"]) == (3, "bytes 2-4/10")


def test_an_empty_object_has_no_ranges(s3, bucket):
    s3.put_object(Bucket=bucket, Key="k", Body=b"")
    for text in ("bytes=0-", "bytes=0-0", "bytes=-0"):
        with refused("InvalidRange", 416):
            s3.get_object(Bucket=bucket, Key="k", Range=text)


@pytest.mark.parametrize("part", [{"Range": "bytes=-1"}, {"PartNumber": 1}])
def test_the_end_of_an_empty_object_is_all_of_it(s3, bucket, part):
    put = s3.put_object(Bucket=bucket, Key="k", Body=b"", ChecksumAlgorithm="SHA256")
    for read in (s3.get_object, s3.head_object):
        whole = read(Bucket=bucket, Key="k", ChecksumMode="ENABLED", **part)
        assert (status(whole), whole["ContentLength"], header(whole, "content-range")) == (200, 0, None)
        assert whole["ChecksumSHA256"] == put["ChecksumSHA256"]
    assert get(s3, bucket, "k") == b""


def test_a_range_of_one_object_only(s3, bucket):
    """If-Range: of another object than the one that it names the whole is given."""
    etag = s3.put_object(Bucket=bucket, Key="k", Body=b"0123456789")["ETag"]
    modified = header(s3.head_object(Bucket=bucket, Key="k"), "last-modified")

    def ask(if_range, span="bytes=2-4"):
        add = lambda request, **_: request.headers.add_header("If-Range", if_range)
        s3.meta.events.register("before-sign.s3.GetObject", add)
        try:
            return get(s3, bucket, "k", Range=span)
        finally:
            s3.meta.events.unregister("before-sign.s3.GetObject", add)

    assert ask(etag) == ask(modified) == b"234"
    for other in ('"other"', f"W/{etag}", "Sun, 06 Nov 1994 08:49:37 GMT", "nonsense"):
        assert ask(other) == ask(other, "bytes=99-") == b"0123456789", other
    with refused("InvalidRange", 416):
        ask(etag, "bytes=99-")
