"""Signed requests put together at random: whatever they ask for, nothing goes wrong in the server."""

import random

import pytest

from harness import sigv4, wire
from helpers import get

REQUESTS = 1500
MIB = 1 << 20

QUERIES = [
    "acl", "attributes", "cors", "delete", "encryption", "legal-hold", "lifecycle", "location", "policy",
    "renameObject", "restore", "select", "select-type=2", "tagging", "tagging=", "torrent", "uploads",
    "uploads=x", "uploadId=x", "versionId=null", "versions", "list-type=1", "list-type=2", "max-keys=2",
    "max-keys=-1", "prefix=a", "prefix=%00", "prefix=%ff", "delimiter=%2F", "delimiter=", "marker=zz",
    "start-after=%F0%9F%92%A5", "continuation-token=AAAA", "encoding-type=url", "fetch-owner=x",
    "partNumber=1", "partNumber=0", "partNumber=99999", "part-number-marker=-1", "max-parts=0",
    "part-number-marker=999999999999", "max-uploads=0", "key-marker=%FF", "upload-id-marker=x",
    "response-content-type=a%0Ab", "response-expires=x", "x-id=GetObject", "&&&", "=", "a=b=c",
    "X-Amz-Meta-a=b",
]
HEADERS = [
    ("range", "bytes=0-"), ("range", "bytes=-0"), ("range", "bytes=5-1"), ("range", "bytes=" + "9" * 30 + "-"),
    ("if-match", "*"), ("if-match", '"x"'), ("if-none-match", "*"), ("if-none-match", 'W/"x"'),
    ("if-modified-since", "Sat, 29 Oct 1994 19:43:31 GMT"), ("if-unmodified-since", "yesterday"),
    ("content-md5", "x"), ("content-md5", "1B2M2Y8AsgTpgAmY7PhCfg=="), ("content-encoding", "aws-chunked"),
    ("content-type", "multipart/form-data; boundary=x"), ("content-type", "application/xml"),
    ("expect", "100-continue"), ("expires", "never"), ("connection", "close"), ("upgrade", "h2c"),
    ("x-amz-acl", "private"), ("x-amz-checksum-algorithm", "CRC32"), ("x-amz-checksum-crc32", "AAAAAA=="),
    ("x-amz-checksum-mode", "ENABLED"), ("x-amz-checksum-type", "COMPOSITE"), ("x-amz-copy-source", "bkt"),
    ("x-amz-copy-source", "/{bucket}/kept"), ("x-amz-copy-source", "/%ff/k"),
    ("x-amz-copy-source", "/{bucket}/kept?versionId=x"), ("x-amz-copy-source-if-match", "x"),
    ("x-amz-copy-source-range", "bytes=0-1"), ("x-amz-decoded-content-length", "3"), ("x-amz-meta-", "b"),
    ("x-amz-metadata-directive", "REPLACE"), ("x-amz-metadata-directive", "x"), ("x-amz-mp-object-size", "-5"),
    ("x-amz-rdma-token", "a"), ("x-amz-sdk-checksum-algorithm", "SHA256"), ("x-amz-storage-class", "GLACIER"),
    ("x-amz-tagging", "a=b"), ("x-amz-tagging", "%ff=%ff&&"), ("x-amz-tagging-directive", "REPLACE"),
    ("x-amz-trailer", "x-amz-checksum-crc32"), ("x-amz-website-redirect-location", "/x"),
    ("x-amz-write-offset-bytes", "1"),
]
BODIES = [
    b"", b"x", b"3\r\nabc\r\n0\r\n\r\n", b"y" * (2 * MIB), b"<X/>",
    b"<Delete><Object><Key>gone</Key></Object></Delete>",
    b"<Tagging><TagSet><Tag><Key>a</Key><Value>b</Value></Tag></TagSet></Tagging>",
    b"<CompleteMultipartUpload><Part><PartNumber>1</PartNumber><ETag>x</ETag></Part></CompleteMultipartUpload>",
]
PATHS = [
    "/", "/{bucket}", "/{bucket}/", "/{bucket}/k", "/{bucket}/other", "/{bucket}/none", "/none", "/none/k",
    "//", "//k", "/{bucket}//", "/{bucket}/%2e%2e", "/..", "/{bucket}/a/../../x", "/{bucket}/%00",
    "/{bucket}/k%0a", "/{bucket}/k;v=1",
]
METHODS = ["GET", "GET", "PUT", "PUT", "POST", "DELETE", "HEAD", "PATCH", "OPTIONS"]
PAYLOADS = ["STREAMING-UNSIGNED-PAYLOAD-TRAILER", "STREAMING-AWS4-HMAC-SHA256-PAYLOAD", sigv4.sha256(b"other")]


def any_request(rng, bucket):
    """Method, target, headers, body and what is said of the payload."""
    method = rng.choice(METHODS)
    target = rng.choice(PATHS).format(bucket=bucket)
    query = "&".join(rng.sample(QUERIES, rng.choice([0, 0, 1, 1, 2, 3])))
    headers = dict(rng.sample(HEADERS, rng.choice([0, 0, 1, 1, 2, 3])))
    headers = {name: value.format(bucket=bucket) for name, value in headers.items()}
    body = rng.choice(BODIES) if method in ("PUT", "POST") else b""
    payload = rng.choice([sigv4.UNSIGNED] * 5 + [sigv4.sha256(body)] + PAYLOADS)
    return method, target + ("?" + query if query else ""), headers, body, payload


# Objects that are left behind are the bucket fixture's to remove; a key of its own shows that no
# request did more than it said.
@pytest.mark.parametrize("turn", range(2))
def test_nothing_at_random_does_harm(server, s3, bucket, turn):
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    rng = random.Random(seed)
    s3.put_object(Bucket=bucket, Key="kept", Body=b"kept")
    for _ in range(REQUESTS // 2):
        method, target, headers, body, payload = any_request(rng, bucket)
        reply = wire.request(server, method, target, headers, body, payload)
        told = (seed, method, target, headers, body[:40], payload)
        assert reply is not None, told
        assert reply.status < 500 or reply.status == 501, (told, reply)
        assert reply.status < 400 or method == "HEAD" or reply.code, (told, reply)
    assert get(s3, bucket, "kept") == b"kept"
    assert server.complaints() == []
