"""Keys, documents and headers that no honest client sends."""

import base64
import hashlib
import json
import os
from xml.etree import ElementTree

import pytest

from harness import wire
from harness.sigv4 import sha256
from helpers import absent, assert_refused, get, refused

MIB = 1 << 20


def digest(body):
    return {"content-md5": base64.b64encode(hashlib.md5(body).digest()).decode()}


def delete_many(server, bucket, body):
    return wire.request(server, "POST", f"/{bucket}?delete", digest(body), body)


def test_keys_over_the_limit(s3, bucket):
    for key in ("k" * 1025, "é" * 513, "k" * 3000):
        with refused("KeyTooLongError", 400):
            s3.put_object(Bucket=bucket, Key=key, Body=b"")
        with refused(("KeyTooLongError", "NoSuchKey")):
            s3.get_object(Bucket=bucket, Key=key)
        with refused("KeyTooLongError", 400):
            s3.create_multipart_upload(Bucket=bucket, Key=key)
    assert s3.list_objects_v2(Bucket=bucket)["KeyCount"] == 0


@pytest.mark.parametrize("path", ["%ff", "a%c3%28", "%ed%a0%80", "%c0%ae%c0%ae", "a%f5%80%80%80", "%80"])
def test_invalid_utf8(server, s3, bucket, path):
    for method in ("PUT", "GET", "DELETE"):
        reply = wire.request(server, method, f"/{bucket}/{path}", body=b"x" if method == "PUT" else b"")
        assert_refused(reply, 400, "InvalidURI")
    assert s3.list_objects_v2(Bucket=bucket)["KeyCount"] == 0


@pytest.mark.parametrize("path", ["%", "%4", "%zz", "a%", "%%41"])
def test_broken_escapes(server, s3, bucket, path):
    reply = wire.request(server, "PUT", f"/{bucket}/{path}", body=b"x")
    assert reply.status in (400, 403), reply
    assert s3.list_objects_v2(Bucket=bucket)["KeyCount"] == 0


def test_nul_in_a_key(server, s3, bucket):
    reply = wire.request(server, "PUT", f"/{bucket}/a%00b", body=b"x")
    # Either it is a key like any other or it is refused; never is it cut short.
    assert reply.status in (200, 400)
    absent(s3, bucket, "a")
    if reply.status == 200:
        assert wire.request(server, "GET", f"/{bucket}/a%00b").body == b"x"
        assert wire.request(server, "DELETE", f"/{bucket}/a%00b").status == 204


def test_no_line_of_a_key_becomes_a_header(server, s3, bucket):
    key = "a\r\nx-injected: 1\r\n\r\n"
    s3.put_object(Bucket=bucket, Key=key, Body=b"x", Metadata={"a": "b"})
    upload = s3.create_multipart_upload(Bucket=bucket, Key=key)
    assert upload["Key"] == key
    path = "a%0D%0Ax-injected:%201%0D%0A%0D%0A"
    reply = wire.request(server, "GET", f"/{bucket}/{path}")
    assert reply.status == 200 and "x-injected" not in reply.headers
    s3.abort_multipart_upload(Bucket=bucket, Key=key, UploadId=upload["UploadId"])


@pytest.mark.parametrize("raw", [
    b"GET /a b HTTP/1.1\r\nhost: x\r\n\r\n", b"GET /a\x00 HTTP/1.1\r\nhost: x\r\n\r\n",
    b"GET /\xff HTTP/1.1\r\nhost: x\r\n\r\n", b"nonsense\r\n\r\n", b"\x16\x03\x01\x02\x00\x01\x00\x01",
    b"GET / HTTP/9.9\r\n\r\n", b"GET /  HTTP/1.1\r\n\r\n", b"GET / HTTP/1.1\r\nhost: a\r\nhost: b\r\n\r\n",
    b"GET / HTTP/1.1\r\nbad header\r\n\r\n", b"GET / HTTP/1.1\r\n: x\r\n\r\n",
    b"PUT /b/k HTTP/1.1\r\nhost: x\r\ncontent-length: 5\r\ncontent-length: 6\r\n\r\nhello",
    b"PUT /b/k HTTP/1.1\r\nhost: x\r\ncontent-length: -1\r\n\r\n",
    b"PUT /b/k HTTP/1.1\r\nhost: x\r\ncontent-length: 99999999999999999999999\r\n\r\n",
    b"PUT /b/k HTTP/1.1\r\nhost: x\r\ncontent-length: 5\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
    b"PUT /b/k HTTP/1.1\r\nhost: x\r\ntransfer-encoding: gzip\r\n\r\n",
    b"GET / HTTP/1.1\r\nhost: x\r\nx: " + b"a" * (2 * MIB) + b"\r\n\r\n",
    b"GET / HTTP/1.1\r\nhost: x\r\n" + b"".join(b"h%d: x\r\n" % n for n in range(5000)) + b"\r\n",
    b"GET /" + b"a" * 200_000 + b" HTTP/1.1\r\nhost: x\r\n\r\n",
    b"GET /?" + b"a=b&" * 20_000 + b" HTTP/1.1\r\nhost: x\r\n\r\n",
], ids=lambda raw: repr(raw[:24]))
def test_raw_nonsense(server, raw):
    with wire.Wire(server) as connection:
        connection.send(raw)
        connection.half_close()
        reply = connection.reply()
    assert reply is None or 400 <= reply.status < 500, reply
    assert server.process.poll() is None


def test_header_values_that_are_no_text(server, s3, bucket):
    headers = wire.Signer().headers("PUT", f"/{bucket}/k", {"host": server.host, "x-amz-meta-a": "\xff\xfe"})
    reply = wire.exchange(server, wire.head("PUT", f"/{bucket}/k", {**headers, "content-length": "1"}) + b"x")
    assert reply.status in (200, 400, 403), reply


BOMB = b"""<?xml version="1.0"?><!DOCTYPE d [<!ENTITY a "aaaaaaaaaa">
<!ENTITY b "&a;&a;&a;&a;&a;&a;&a;&a;&a;&a;"><!ENTITY c "&b;&b;&b;&b;&b;&b;&b;&b;&b;&b;">
]><Delete><Object><Key>&c;</Key></Object></Delete>"""
ENTITY = b"""<!DOCTYPE d [<!ENTITY x SYSTEM "file:///etc/passwd">]><Delete><Object><Key>&x;</Key></Object></Delete>"""


@pytest.mark.parametrize("body", [
    BOMB, ENTITY, b"<!DOCTYPE d><Delete><Object><Key>k</Key></Object></Delete>",
    b"<Delete><Object><Key><![CDATA[k]]></Key></Object></Delete>",
    b"", b"x", b"<", b"<Delete>", b"<Delete></Wrong>", b"<Wrong/>", b"<Delete/>",
    b"<Delete><Object></Object></Delete>",
    b"<Delete><Object><Key>k</Key></Object>", b"<Delete><Object><Key>&unknown;</Key></Object></Delete>",
    b"<Delete><Object><Key>\xff</Key></Object></Delete>", b"{\"Delete\": []}",
    b"<a>" * 100_000, b"<a>" * 1000 + b"</a>" * 1000, b"<Delete>" + b"<Object>" * 20_000,
    b"<Delete " + b"".join(b'a%d="b" ' % n for n in range(20_000)) + b"></Delete>",
    b"<Delete>" + b"<!-- x -->" * 300_000 + b"</Delete>",
    b"<Delete><Object><Key>" + b"k" * (3 * MIB) + b"</Key></Object></Delete>",
], ids=lambda body: repr(body[:30]))
def test_documents(server, s3, bucket, body):
    s3.put_object(Bucket=bucket, Key="k", Body=b"kept")
    before = server.rss_bytes()
    reply = delete_many(server, bucket, body)
    assert reply is not None and 400 <= reply.status < 500, (reply.status, reply.body[:300])
    assert server.rss_bytes() - before < 64 * MIB
    assert b"root:" not in reply.body
    assert get(s3, bucket, "k") == b"kept"


def test_of_many_keys_one_that_is_none(server, s3, bucket):
    s3.put_object(Bucket=bucket, Key="k", Body=b"")
    body = b"<Delete><Object><Key></Key></Object><Object><Key>k</Key></Object></Delete>"
    reply = delete_many(server, bucket, body)
    assert reply.status == 200 and b"<Code>UserKeyMustBeSpecified</Code>" in reply.body, reply
    assert b"<Deleted><Key>k</Key></Deleted>" in reply.body
    absent(s3, bucket, "k")


def test_a_thousand_and_one_keys(server, s3, bucket):
    s3.put_object(Bucket=bucket, Key="0", Body=b"kept")
    objects = "".join(f"<Object><Key>{n}</Key></Object>" for n in range(1001))
    reply = delete_many(server, bucket, f"<Delete>{objects}</Delete>".encode())
    assert_refused(reply, 400, "MalformedXML")
    assert get(s3, bucket, "0") == b"kept"


@pytest.mark.parametrize("body", [
    BOMB.replace(b"Delete", b"CompleteMultipartUpload"), b"x", b"<CompleteMultipartUpload/>",
    b"<CompleteMultipartUpload><Part><PartNumber>x</PartNumber><ETag>e</ETag></Part></CompleteMultipartUpload>",
    b"<CompleteMultipartUpload><Part><PartNumber>1</PartNumber></Part></CompleteMultipartUpload>",
    b"<CompleteMultipartUpload><Part><PartNumber>99999999999999</PartNumber><ETag>e</ETag></Part></CompleteMultipartUpload>",
    b"<CompleteMultipartUpload>" + b" " * (3 * MIB) + b"</CompleteMultipartUpload>",
], ids=lambda body: repr(body[:30]))
def test_documents_of_complete(server, s3, bucket, body):
    upload = s3.create_multipart_upload(Bucket=bucket, Key="k")["UploadId"]
    s3.upload_part(Bucket=bucket, Key="k", UploadId=upload, PartNumber=1, Body=b"x")
    reply = wire.request(server, "POST", f"/{bucket}/k?uploadId={upload}", body=body)
    assert reply is not None and 400 <= reply.status < 500, reply
    absent(s3, bucket, "k")
    assert len(s3.list_parts(Bucket=bucket, Key="k", UploadId=upload)["Parts"]) == 1


def test_no_file_is_named_by_a_key(server, s3, bucket):
    for key in ("../../../../tmp/martlet-escape", "/etc/martlet-escape", "..", "a/../../martlet-escape"):
        s3.put_object(Bucket=bucket, Key=key, Body=os.urandom(2 * MIB))
    names = [name for _, folders, files in os.walk(server.folder) for name in folders + files]
    assert not [name for name in names if "escape" in name]
    assert not os.path.exists("/tmp/martlet-escape") and not os.path.exists("/etc/martlet-escape")


def test_a_put_longer_than_any_may_be(server, s3, bucket):
    headers = wire.Signer().headers("PUT", f"/{bucket}/k", {"host": server.host})
    headers["content-length"] = str(5 * (1 << 30) + 1)
    reply = wire.exchange(server, wire.head("PUT", f"/{bucket}/k", headers), "PUT")
    assert_refused(reply, 400, "EntityTooLarge")
    absent(s3, bucket, "k")


def test_many_requests_on_one_connection(server, s3, bucket):
    s3.put_object(Bucket=bucket, Key="k", Body=b"x")
    target = f"/{bucket}/k"
    one = wire.head("GET", target, wire.Signer().headers("GET", target, {"host": server.host}))
    with wire.Wire(server) as connection:
        connection.send(one * 50)
        for _ in range(50):
            # Replies to pipelined requests come in one stream: read each by its length.
            status_line = read_until(connection.socket, b"\r\n\r\n")
            assert status_line.startswith(b"HTTP/1.1 200")
            assert connection.socket.recv(1) == b"x"


def read_until(socket, end):
    data = b""
    while not data.endswith(end):
        byte = socket.recv(1)
        assert byte, data
        data += byte
    return data


def test_an_error_names_what_is_missing(server, s3, bucket):
    for target, element in (
        (f"/{bucket}/a%20b/%C3%BC", "<Key>a b/ü</Key>"), (f"/{bucket}/k?tagging", "<Key>k</Key>"),
        (f"/{bucket}/k?uploadId=xyz", "<UploadId>xyz</UploadId>"), ("/none-there", "<BucketName>none-there</BucketName>"),
    ):
        reply = wire.request(server, "GET", target)
        assert reply.status == 404 and element in reply.body.decode(), (target, reply.body)
        for name in ("Message", "Resource", "RequestId", "HostId"):
            assert f"<{name}>" in reply.body.decode(), (name, reply.body)


def test_methods_that_a_resource_does_not_have(server, bucket):
    for method, target in (("POST", f"/{bucket}/k"), ("PUT", "/"), ("PATCH", f"/{bucket}")):
        assert_refused(wire.request(server, method, target), 405, "MethodNotAllowed")


def test_aws_chunked_is_kept_of_a_body_that_is_not_chunked(server, s3, bucket):
    for said in ("aws-chunked", "gzip, aws-chunked", "aws-chunked, deflate, gzip"):
        reply = wire.request(server, "PUT", f"/{bucket}/k", {"content-encoding": said}, b"x", payload=sha256(b"x"))
        assert reply.status == 200, reply
        response = s3.get_object(Bucket=bucket, Key="k")
        assert (response["Body"].read(), response["ContentEncoding"]) == (b"x", said)


@pytest.mark.parametrize("target", ["?max-keys=%1B%5B2J", "?max-keys=%00%07", "?encoding-type=%08", "?list-type=2&max-keys=%7F"])
def test_errors_are_xml_whatever_they_quote(server, bucket, target):
    reply = wire.request(server, "GET", f"/{bucket}{target}")
    assert reply.status == 400
    ElementTree.fromstring(reply.body)
    assert not set(reply.body) & (set(range(32)) - set(b"\t\r\n")), reply.body
    policy = json.dumps({"Version": "\0\x1b", "Statement": []}).encode()
    for document in (policy, policy.replace(b"Version", b"\\u0000Field")):
        reply = wire.request(server, "PUT", f"/{bucket}?policy", body=document)
        assert_refused(reply, 400, "MalformedPolicy")
        ElementTree.fromstring(reply.body)
