"""aws-chunked bodies, framed by hand: signed and unsigned, with and without trailers, and broken."""

import os
import re

import pytest

from harness import sigv4, wire
from harness.checksums import ALGORITHMS, checksum
from helpers import absent, assert_refused, get

SIGNED = "STREAMING-AWS4-HMAC-SHA256-PAYLOAD"
SIGNED_TRAILER = "STREAMING-AWS4-HMAC-SHA256-PAYLOAD-TRAILER"
UNSIGNED_TRAILER = "STREAMING-UNSIGNED-PAYLOAD-TRAILER"
KIB = 1 << 10


class Put:
    """A chunked PUT: its head, its chunks, and the reply."""

    def __init__(self, server, bucket, payload, length, trailer=None, extra=None, key="k"):
        self.server, self.target = server, f"/{bucket}/{key}"
        self.signer = sigv4.Signer()
        self.headers = {"host": server.host, "content-encoding": "aws-chunked", **(extra or {})}
        if length is not None:
            self.headers["x-amz-decoded-content-length"] = str(length)
        if trailer:
            self.headers["x-amz-trailer"] = trailer
        self.headers = self.signer.headers("PUT", self.target, self.headers, payload)
        seed = re.search("Signature=(.*)", self.headers["authorization"]).group(1)
        self.chunks = sigv4.Chunks(None if payload == UNSIGNED_TRAILER else self.signer, seed)

    def send(self, body, framing="length", half_close=False):
        headers = dict(self.headers)
        if framing == "length":
            headers["content-length"] = str(len(body))
        elif framing == "chunked":
            headers["transfer-encoding"] = "chunked"
            pieces = [body[at:at + 5000] for at in range(0, len(body), 5000)]
            body = b"".join(b"%x\r\n%s\r\n" % (len(piece), piece) for piece in pieces) + b"0\r\n\r\n"
        data = wire.head("PUT", self.target, headers) + body
        with wire.Wire(self.server) as connection:
            connection.send(data)
            if half_close:
                connection.half_close()
            return connection.reply("PUT")


def frame(put, data, size=64 * KIB):
    """All chunks of some data, with the empty one at the end."""
    chunks = [data[at:at + size] for at in range(0, len(data), size)] + [b""]
    return b"".join(put.chunks.chunk(chunk) for chunk in chunks)


def complete(put, payload, data, size=64 * KIB, algorithm="crc32c", value=None):
    body = frame(put, data, size)
    if payload == SIGNED:
        return body + b"\r\n"
    return body + put.chunks.trailer(f"x-amz-checksum-{algorithm}", value or checksum(algorithm, data))


@pytest.mark.parametrize("framing", ["length", "chunked"])
@pytest.mark.parametrize("payload", [SIGNED, SIGNED_TRAILER, UNSIGNED_TRAILER])
@pytest.mark.parametrize("size", [0, 1, 8 * KIB, 300_000])
def test_round_trip(server, s3, bucket, payload, size, framing):
    data = os.urandom(size)
    trailer = None if payload == SIGNED else "x-amz-checksum-crc32c"
    put = Put(server, bucket, payload, size, trailer)
    reply = put.send(complete(put, payload, data), framing)
    assert reply.status == 200, (reply.status, reply.body)
    assert get(s3, bucket, "k") == data
    head = s3.head_object(Bucket=bucket, Key="k", ChecksumMode="ENABLED")
    assert "ContentEncoding" not in head or head["ContentEncoding"] == ""
    if trailer:
        assert head["ChecksumCRC32C"] == checksum("crc32c", data)


@pytest.mark.parametrize("payload", [SIGNED_TRAILER, UNSIGNED_TRAILER])
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_every_trailer(server, s3, bucket, payload, algorithm):
    data = os.urandom(20_000)
    put = Put(server, bucket, payload, len(data), f"x-amz-checksum-{algorithm}")
    reply = put.send(complete(put, payload, data, 8 * KIB, algorithm))
    assert reply.status == 200, reply.body
    head = s3.head_object(Bucket=bucket, Key="k", ChecksumMode="ENABLED")
    assert head[f"Checksum{algorithm.upper()}"] == checksum(algorithm, data)


def test_another_encoding_stays(server, s3, bucket):
    put = Put(server, bucket, SIGNED, 4, extra={"content-encoding": "aws-chunked,gzip"})
    assert put.send(complete(put, SIGNED, b"data")).status == 200
    assert s3.head_object(Bucket=bucket, Key="k")["ContentEncoding"] == "gzip"


@pytest.mark.parametrize("size", [8 * KIB, 9999, 1 << 20])
def test_chunks_of_many_sizes(server, s3, bucket, size):
    data = os.urandom(2 << 20)
    put = Put(server, bucket, SIGNED, len(data))
    assert put.send(complete(put, SIGNED, data, size)).status == 200
    assert get(s3, bucket, "k") == data


@pytest.mark.parametrize("payload", [SIGNED, UNSIGNED_TRAILER])
@pytest.mark.parametrize("sizes", [(10, 10), (100, 8 * KIB), (8 * KIB, 10, 20), (9000, 8191, 9000)])
def test_only_the_last_chunk_may_be_short(server, s3, bucket, payload, sizes):
    put = Put(server, bucket, payload, sum(sizes), None if payload == SIGNED else "x-amz-checksum-crc32c")
    body = b"".join(put.chunks.chunk(b"x" * size) for size in (*sizes, 0))
    assert_refused(put.send(body + b"\r\n"), 400, "InvalidChunkSizeError")
    absent(s3, bucket, "k")


@pytest.mark.parametrize("payload", [SIGNED_TRAILER, UNSIGNED_TRAILER])
def test_a_wrong_trailer(server, s3, bucket, payload):
    put = Put(server, bucket, payload, 4, "x-amz-checksum-crc32c")
    reply = put.send(complete(put, payload, b"data", value=checksum("crc32c", b"other")))
    assert_refused(reply, 400, "BadDigest")
    absent(s3, bucket, "k")


def test_a_trailer_that_was_not_announced_or_is_missing(server, s3, bucket):
    put = Put(server, bucket, UNSIGNED_TRAILER, 4, "x-amz-checksum-crc32c")
    assert_refused(put.send(frame(put, b"data") + b"\r\n"), 400, "MalformedTrailerError")
    put = Put(server, bucket, UNSIGNED_TRAILER, 4, "x-amz-checksum-crc32c")
    other = put.chunks.trailer("x-amz-checksum-sha1", checksum("sha1", b"data"))
    assert_refused(put.send(frame(put, b"data") + other), 400, "MalformedTrailerError")
    absent(s3, bucket, "k")


def test_a_forged_chunk_signature(server, s3, bucket):
    chunks = [b"four" * KIB * 2, b"more", b""]
    for position in (0, 1, 2):
        put = Put(server, bucket, SIGNED, sum(map(len, chunks)))
        body = b"".join(
            put.chunks.chunk(chunk, signature="0" * 64 if at == position else None)
            for at, chunk in enumerate(chunks))
        assert_refused(put.send(body + b"\r\n"), 403, "SignatureDoesNotMatch")
    absent(s3, bucket, "k")


def test_a_forged_trailer_signature(server, s3, bucket):
    put = Put(server, bucket, SIGNED_TRAILER, 4, "x-amz-checksum-crc32c")
    body = frame(put, b"data")
    body += put.chunks.trailer("x-amz-checksum-crc32c", checksum("crc32c", b"data"), signature="0" * 64)
    assert_refused(put.send(body), 403, "SignatureDoesNotMatch")
    absent(s3, bucket, "k")


def test_chunks_in_another_order(server, s3, bucket):
    put = Put(server, bucket, SIGNED, 16 * KIB)
    first, second, last = [put.chunks.chunk(chunk) for chunk in (b"four" * 2 * KIB, b"more" * 2 * KIB, b"")]
    assert_refused(put.send(second + first + last + b"\r\n"), 403, "SignatureDoesNotMatch")
    absent(s3, bucket, "k")


@pytest.mark.parametrize("payload", [SIGNED, UNSIGNED_TRAILER])
@pytest.mark.parametrize("announced", [0, 3, 5, 1 << 40])
def test_a_decoded_length_that_differs(server, s3, bucket, payload, announced):
    put = Put(server, bucket, payload, announced, None if payload == SIGNED else "x-amz-checksum-crc32c")
    reply = put.send(complete(put, payload, b"data"), half_close=True)
    assert reply.status == 400 and reply.code in ("IncompleteBody", "InvalidRequest", "EntityTooLarge"), reply
    absent(s3, bucket, "k")


@pytest.mark.parametrize("announced", ["-1", "x", "4.0", "18446744073709551616"])
def test_a_decoded_length_that_is_none(server, s3, bucket, announced):
    put = Put(server, bucket, SIGNED, announced)
    reply = put.send(complete(put, SIGNED, b"data"), half_close=True)
    assert_refused(reply, 411, "MissingContentLength")
    absent(s3, bucket, "k")


def test_no_decoded_length(server, s3, bucket):
    put = Put(server, bucket, SIGNED, None)
    assert_refused(put.send(complete(put, SIGNED, b"data")), 411, "MissingContentLength")
    absent(s3, bucket, "k")


@pytest.mark.parametrize("cut", ["no-final-chunk", "in-a-chunk", "in-a-header", "nothing"])
@pytest.mark.parametrize("payload", [SIGNED, UNSIGNED_TRAILER])
def test_truncated(server, s3, bucket, payload, cut):
    put = Put(server, bucket, payload, 4, None if payload == SIGNED else "x-amz-checksum-crc32c")
    body = put.chunks.chunk(b"data")
    body = {"no-final-chunk": body, "in-a-chunk": body[:-3], "in-a-header": body[:1], "nothing": b""}[cut]
    assert_refused(put.send(body), 400, "IncompleteBody")
    absent(s3, bucket, "k")


@pytest.mark.parametrize("body", [
    b"plain bytes without any frame", b"x" * 100_000, b"\r\n\r\n", b"zz\r\ndata\r\n0\r\n\r\n",
    b"-4\r\ndata\r\n0\r\n\r\n", b"ffffffffffffffff\r\ndata\r\n", b"fffffffffffffffffffff\r\ndata\r\n",
    b"4" * 100_000, b"4;" + b"e=1;" * 50_000 + b"\r\ndata\r\n0\r\n\r\n", b"4\ndata\n0\n\n",
    b"4\r\ndataXX0\r\n\r\n", b"0x4\r\ndata\r\n0\r\n\r\n", b" 4\r\ndata\r\n0\r\n\r\n",
    b"4\r\ndata\r\n0\r\n" + b"x-amz-checksum-crc32c:" + b"A" * 100_000,
    b"4\r\ndata\r\n0\r\n" + b"a:b\r\n" * 20_000 + b"\r\n",
], ids=lambda body: body[:12].decode())
def test_absurd_frames(server, s3, bucket, body):
    for payload in (UNSIGNED_TRAILER, SIGNED):
        put = Put(server, bucket, payload, 4, None if payload == SIGNED else "x-amz-checksum-crc32c")
        reply = put.send(body, half_close=True)
        assert reply is not None and reply.status in (400, 403), reply
        absent(s3, bucket, "k")


def test_framing_without_a_signature_is_not_stored_as_data(server, s3, bucket):
    headers = {"host": server.host, "content-encoding": "aws-chunked", "content-length": "17",
               "x-amz-decoded-content-length": "4", "x-amz-content-sha256": UNSIGNED_TRAILER}
    reply = wire.exchange(server, wire.head("PUT", f"/{bucket}/k", headers) + b"4\r\ndata\r\n0\r\n\r\n\r\n")
    assert_refused(reply, 403, "AccessDenied")
    absent(s3, bucket, "k")
