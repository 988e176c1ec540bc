"""Reading in place: locate at the S3 port, bytes and checksums at the data port."""

import base64
import http.client
import json
import time
import urllib.parse

import botocore.credentials
import pytest
from botocore.auth import S3SigV4Auth, S3SigV4QueryAuth
from botocore.awsrequest import AWSRequest

from conftest import client_for, running_server
from harness import server as harness
from harness import wire
from harness.admin import admin
from harness.server import free_ports
from helpers import get, header, until

BLOCK = 65536
MIB = 1 << 20


def crc32c_table():
    table = []
    for value in range(256):
        for _ in range(8):
            value = (value >> 1) ^ (0x82F63B78 if value & 1 else 0)
        table.append(value)
    return table


TABLE = crc32c_table()


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc = TABLE[(crc ^ byte) & 255] ^ (crc >> 8)
    return crc ^ 0xFFFFFFFF


def pattern(length, seed=1):
    block = bytes((seed * 7 + at * at) % 251 for at in range(65521))
    return (block * (length // len(block) + 1))[:length]


@pytest.fixture(scope="module")
def direct():
    """An embedded server with a data port."""
    port, = free_ports(1)
    settings = {"MARTLET_DATA_ADDRESS": f"127.0.0.1:{port}"}
    with running_server(settings=settings) as server:
        yield server
        assert server.stop() == 0, server.log()
        assert server.complaints() == []


@pytest.fixture(scope="module")
def there(direct):
    client_for(direct).create_bucket(Bucket="there")
    return client_for(direct)


class Reply:
    def __init__(self, response):
        self.status, self.headers, self.body = response.status, response.headers, response.read()

    def json(self):
        assert self.status == 200 and self.headers["x-martlet-locate"] == "1", (self.status, self.body)
        return json.loads(self.body)


def fetch(url, method="GET", headers=None):
    parts = urllib.parse.urlsplit(url)
    connection = http.client.HTTPConnection(parts.netloc, timeout=30)
    try:
        path = parts.path + (f"?{parts.query}" if parts.query else "")
        connection.request(method, path, headers=headers or {})
        return Reply(connection.getresponse())
    finally:
        connection.close()


def locate(server, key, headers=None, query="locate=", keys=None):
    access, secret = keys or (harness.ACCESS_KEY, harness.SECRET_KEY)
    credentials = botocore.credentials.Credentials(access, secret)
    request = AWSRequest("GET", f"{server.endpoint}/there/{key}?{query}", headers=headers or {})
    S3SigV4Auth(credentials, "s3", harness.REGION).add_auth(request)
    return fetch(request.url, headers=dict(request.headers))


def holders(located):
    return [(extent, piece, holder) for extent in located["extents"] for piece in extent["pieces"]
            for holder in piece["holders"]]


def read(holder, more="", **headers):
    return fetch(f"{holder['url']}?t={holder['token']}{more}", headers=headers)


def test_locate_is_off_without_a_data_port(server, s3, bucket):
    s3.put_object(Bucket=bucket, Key="k", Body=pattern(20_000))
    request = AWSRequest("GET", f"{server.endpoint}/{bucket}/k?locate=")
    credentials = botocore.credentials.Credentials(harness.ACCESS_KEY, harness.SECRET_KEY)
    S3SigV4Auth(credentials, "s3", harness.REGION).add_auth(request)
    reply = fetch(request.url, headers=dict(request.headers))
    assert reply.status == 501 and b"NotImplemented" in reply.body


@pytest.mark.parametrize("length", [8193, BLOCK, 300_000, MIB + 1, 3 * MIB + 17])
def test_the_bytes_of_a_get(direct, there, length):
    body = pattern(length, length)
    there.put_object(Bucket="there", Key="k", Body=body)
    located = locate(direct, "k").json()
    assert located["size"] == length and located["direct"] and located["next"] is None
    assert located["etag"] == there.head_object(Bucket="there", Key="k")["ETag"]
    found = b""
    for extent, piece, holder in holders(located):
        assert extent["offset"] + piece["from"] == len(found)
        for more, verifier in (("", "node"), ("&verify=client", "client")):
            reply = read(holder, more)
            assert reply.status == 200 and reply.headers["x-martlet-verified"] == verifier
            assert reply.headers["etag"] == f'"{extent["blake3"]}"'
            assert len(reply.body) == piece["length"]
        found += reply.body
        sums = base64.b64decode(reply.headers["x-martlet-block-crc32c"])
        assert len(sums) == 4 * -(-len(reply.body) // BLOCK)
        first = crc32c(reply.body[:BLOCK])
        assert sums[:4] == first.to_bytes(4, "big")
    assert found == body


def test_objects_of_several_extents_and_ranges(direct, there):
    body = pattern(66 * MIB)
    there.put_object(Bucket="there", Key="long", Body=body)
    located = locate(direct, "long").json()
    assert [extent["length"] for extent in located["extents"]] == [64 * MIB, 2 * MIB]
    first = 64 * MIB - 10
    ranged = locate(direct, "long", {"Range": f"bytes={first}-{64 * MIB + 9}"}).json()
    found = b""
    for extent, piece, holder in holders(ranged):
        begin = max(first - extent["offset"], 0)
        end = min(64 * MIB + 10 - extent["offset"], piece["length"])
        reply = read(holder, Range=f"bytes={begin}-{end - 1}")
        assert reply.status == 206
        found += reply.body
        whole = read(holder)
        assert (whole.status, whole.headers["x-martlet-refused"]) == (403, "range")
    assert found == body[first:first + 20]
    assert locate(direct, "long", {"Range": "bytes=99999999999-"}).status == 416


def test_conditions_versions_and_links(direct, there):
    there.put_object(Bucket="there", Key="k", Body=pattern(20_000))
    etag = there.head_object(Bucket="there", Key="k")["ETag"]
    assert locate(direct, "k", {"If-Match": etag}).status == 200
    assert locate(direct, "k", {"If-Match": '"other"'}).status == 412
    assert locate(direct, "k", {"If-None-Match": etag}).status == 304
    assert locate(direct, "none").status == 404
    assert locate(direct, "k", query="locate=&partNumber=1").status in (400, 501)
    credentials = botocore.credentials.Credentials(harness.ACCESS_KEY, harness.SECRET_KEY)
    request = AWSRequest("GET", f"{direct.endpoint}/there/k?locate=")
    S3SigV4QueryAuth(credentials, "s3", harness.REGION, expires=60).add_auth(request)
    assert fetch(request.url).json()["size"] == 20_000
    assert fetch(request.url.replace("/there/k", "/there/j")).status == 403
    assert fetch(f"{direct.endpoint}/there/k?locate").status == 403


def test_what_is_not_direct(direct, there):
    there.put_object(Bucket="there", Key="small", Body=b"x" * 100)
    small = locate(direct, "small").json()
    assert (small["direct"], small["reason"], small["extents"]) == (False, "inline", [])
    there.put_object(Bucket="there", Key="sealed", Body=pattern(50_000), ServerSideEncryption="AES256")
    sealed = locate(direct, "sealed").json()
    assert (sealed["direct"], sealed["reason"]) == (False, "encrypted")
    there.put_object(Bucket="there", Key="empty", Body=b"")
    empty = locate(direct, "empty").json()
    assert (empty["direct"], empty["extents"]) == (True, [])


def test_tokens_are_for_readers_and_their_bytes_alone(direct, there):
    for key in ("one", "two"):
        there.put_object(Bucket="there", Key=key, Body=pattern(200_000, len(key)))
    (_, _, one), (_, _, two) = (holders(locate(direct, key).json())[0] for key in ("one", "two"))
    exchanged = fetch(f"{two['url']}?t={one['token']}")
    assert (exchanged.status, exchanged.headers["x-martlet-refused"]) == (403, "extent")
    token = one["token"]
    flipped = token[:40] + ("A" if token[40] != "A" else "B") + token[41:]
    for wrong in (flipped, token[:-1], token + "A", "", "x"):
        reply = fetch(f"{one['url']}?t={wrong}")
        assert (reply.status, reply.headers["x-martlet-refused"]) == (403, "invalid"), wrong
    for method in ("PUT", "POST", "DELETE"):
        assert fetch(f"{one['url']}?t={token}", method).status == 405
    admin(direct.admin_port, "tenant", "create", "strangers")
    key = admin(direct.admin_port, "key", "create", "--tenant", "strangers")
    stranger = (key["access_key"], key["secret_key"])
    assert locate(direct, "one", keys=stranger).status == 403


def test_an_overwritten_object_keeps_its_bytes_for_those_who_located_it(direct, there):
    there.put_object(Bucket="there", Key="k", Body=pattern(2 * MIB, 3))
    located = locate(direct, "k").json()
    there.put_object(Bucket="there", Key="k", Body=pattern(2 * MIB, 4))
    assert b"".join(read(holder).body for _, _, holder in holders(located)) == pattern(2 * MIB, 3)
    assert locate(direct, "k", {"If-Match": located["etag"]}).status == 412


def test_the_reads_are_counted(direct, there):
    there.put_object(Bucket="there", Key="k", Body=pattern(100_000))
    for _, _, holder in holders(locate(direct, "k").json()):
        read(holder)
    deadline = time.monotonic() + 10
    line = 'martlet_data_port_bytes_total{tenant="root",verified="node"}'
    while time.monotonic() < deadline:
        metrics = fetch(f"http://127.0.0.1:{direct.admin_port}/metrics").body.decode()
        if line in metrics:
            return
        time.sleep(0.1)
    raise AssertionError(metrics)


def test_a_read_with_a_token_for_rdma_is_a_plain_read(direct, there):
    there.put_object(Bucket="there", Key="k", Body=b"bytes")
    credentials = botocore.credentials.Credentials(harness.ACCESS_KEY, harness.SECRET_KEY)
    for name in ("x-amz-rdma-token", "x-amz-meta-rdma-token"):
        for method, body in (("GET", b"bytes"), ("HEAD", b"")):
            request = AWSRequest(method, f"{direct.endpoint}/there/k", headers={name: "abc"})
            S3SigV4Auth(credentials, "s3", harness.REGION).add_auth(request)
            reply = fetch(request.url, method, dict(request.headers))
            assert (reply.status, reply.body) == (200, body)
            assert reply.headers["x-amz-rdma-reply"] == "501"
            assert "x-amz-rdma-bytes-transferred" not in reply.headers
        request = AWSRequest("PUT", f"{direct.endpoint}/there/new", headers={name: "abc"}, data=b"")
        S3SigV4Auth(credentials, "s3", harness.REGION).add_auth(request)
        reply = fetch(request.url, "PUT", {**dict(request.headers), "Content-Length": "0"})
        assert (reply.status, reply.headers["x-amz-rdma-reply"]) == (501, "501")
        assert reply.headers["etag"] is None
    assert "new" not in [item["Key"] for item in there.list_objects_v2(Bucket="there")["Contents"]]


def test_the_view_of_a_checkpoint_is_located_as_it_is_read(direct):
    s3 = client_for(direct)
    s3.create_bucket(Bucket="train")
    s3.put_bucket_versioning(Bucket="train", VersioningConfiguration={"Status": "Enabled"})
    rules = {"rules": [{"pattern": "step-*/", "profile": "custom", "markers": ["done"]}]}
    reply = wire.request(direct, "PUT", "/train?checkpoints", body=json.dumps(rules).encode())
    assert reply.status == 204

    def save(seed):
        s3.put_object(Bucket="train", Key="step-1/shard", Body=pattern(100_000, seed))
        return header(s3.put_object(Bucket="train", Key="step-1/done", Body=b"x"), "x-martlet-checkpoint") or ""

    # A change applies to writes that begin a second later.
    until(lambda: save(1).startswith("committed"))
    s3.put_object(Bucket="train", Key="step-1/shard", Body=pattern(100_000, 2))

    def shard(bucket, key="step-1/shard"):
        located = json.loads(wire.request(direct, "GET", f"/{bucket}/{key}?locate").body)
        return b"".join(read(holder).body for _, _, holder in holders(located))

    assert shard("train") == pattern(100_000, 2)
    assert shard("train--committed") == pattern(100_000, 1) == get(s3, "train--committed", "step-1/shard")
    assert shard("train--committed", "step-1@1/shard") == get(s3, "train--committed", "step-1@1/shard")
    missing = wire.request(direct, "GET", "/train--committed/step-1/other?locate")
    assert missing.status == 404
