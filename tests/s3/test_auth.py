"""Who is let in: signatures by header and by URL, and everything that is nearly one."""

import time

import pytest
import urllib3

from conftest import client_for
from harness import server as harness
from harness import sigv4, wire
from harness.sigv4 import Signer, stamp
from helpers import absent, assert_refused, get, refused

MINUTE = 60


@pytest.fixture
def key(s3, bucket):
    s3.put_object(Bucket=bucket, Key="k", Body=b"secret")
    return f"/{bucket}/k"


def test_nobody_is_let_in_unsigned(server, s3, bucket, key):
    for method, target in [("GET", key), ("HEAD", key), ("PUT", key), ("DELETE", key), ("GET", "/"),
                           ("GET", f"/{bucket}"), ("PUT", "/new-bucket"), ("DELETE", f"/{bucket}"),
                           ("POST", f"/{bucket}?delete"), ("POST", f"{key}?uploads")]:
        reply = wire.plain(server, method, target)
        assert reply.status == 403 and reply.code == ("AccessDenied" if method != "HEAD" else None), target
    assert get(s3, bucket, "k") == b"secret"


def test_a_wrong_secret_or_key(server, key):
    assert_refused(wire.request(server, "GET", key, signer=Signer(secret="wrong")), 403, "SignatureDoesNotMatch")
    assert_refused(wire.request(server, "GET", key, signer=Signer(access="NOBODY")), 403, "InvalidAccessKeyId")


UNSUPPORTED = b"The authorization mechanism you have provided is not supported. Please use AWS4-HMAC-SHA256."


def test_version_2_is_refused_unless_it_is_turned_on(server, s3, bucket, key):
    old = client_for(server, signature_version="s3")
    with refused("InvalidRequest", 400):
        old.get_object(Bucket=bucket, Key="k")
    link = old.generate_presigned_url("get_object", Params={"Bucket": bucket, "Key": "k"})
    assert "AWSAccessKeyId=" in link
    reply = wire.plain(server, "GET", link.removeprefix(server.endpoint))
    assert_refused(reply, 400, "InvalidRequest")
    assert UNSUPPORTED in reply.body
    form = old.generate_presigned_post(bucket, "posted")
    assert "AWSAccessKeyId" in form["fields"]
    body, content_type = urllib3.encode_multipart_formdata([*form["fields"].items(), ("file", ("n", b"x"))])
    reply = wire.plain(server, "POST", f"/{bucket}", {"content-type": content_type}, body)
    assert_refused(reply, 400, "InvalidRequest")
    assert UNSUPPORTED in reply.body
    absent(s3, bucket, "posted")


def test_a_wrong_region_or_service(server, key):
    reply = wire.request(server, "GET", key, signer=Signer(region="mars-1"))
    assert reply.status in (400, 403) and reply.code in ("AuthorizationHeaderMalformed", "SignatureDoesNotMatch")


@pytest.mark.parametrize("minutes", [-16, 16, -60 * 24 * 365, 60 * 24 * 365])
def test_a_clock_that_is_off(server, key, minutes):
    reply = wire.request(server, "GET", key, signer=Signer(date=stamp(minutes * MINUTE)))
    assert_refused(reply, 403, "RequestTimeTooSkewed")


@pytest.mark.parametrize("minutes", [-14, 14])
def test_a_clock_that_is_nearly_right(server, key, minutes):
    assert wire.request(server, "GET", key, signer=Signer(date=stamp(minutes * MINUTE))).status == 200


def bend(server, target, change):
    """A good request with its Authorization header changed."""
    headers = Signer().headers("GET", target, {"host": server.host})
    headers["authorization"] = change(headers["authorization"])
    return wire.exchange(server, wire.head("GET", target, headers))


@pytest.mark.parametrize("change", [
    lambda text: text[:-1], lambda text: text[:-64], lambda text: text + "0",
    lambda text: text[:-1] + ("0" if text[-1] != "0" else "1"), lambda text: text.split(",")[0],
    lambda text: text.replace("AWS4-HMAC-SHA256", "AWS4-HMAC-SHA1"), lambda text: text.replace("/s3/", "/ec2/"),
    lambda text: text.replace("aws4_request", "aws5_request"), lambda text: "AWS4-HMAC-SHA256",
    lambda text: text.replace("host;", ""), lambda text: text.replace("SignedHeaders=", "SignedHeaders=x;"),
    lambda text: "AWS " + harness.ACCESS_KEY + ":AAAA", lambda text: "Bearer abc", lambda text: "",
    lambda text: "A" * 8000, lambda text: text.replace("Credential=", "Credential=/"),
], ids=range(16))
def test_a_bent_signature(server, key, change):
    reply = bend(server, key, change)
    assert reply.status in (400, 403), (reply.status, reply.body)
    assert b"secret" not in reply.body


def test_what_was_signed_is_what_is_done(server, s3, bucket, key):
    headers = Signer().headers("GET", key, {"host": server.host})
    for method, target in [("GET", f"/{bucket}/other"), ("DELETE", key), ("GET", key + "?acl"),
                           ("GET", key + "?x-id=y"), ("GET", key + "/"), ("GET", f"/{bucket}//k")]:
        reply = wire.exchange(server, wire.head(method, target, headers))
        assert_refused(reply, 403, "SignatureDoesNotMatch")
    headers["host"] = "other.example"
    assert_refused(wire.exchange(server, wire.head("GET", key, headers)), 403, "SignatureDoesNotMatch")
    assert get(s3, bucket, "k") == b"secret"


@pytest.mark.parametrize("name,value", [
    ("x-amz-copy-source", "/{bucket}/k"), ("x-amz-meta-a", "b"), ("x-amz-tagging", "a=b"),
    ("x-amz-acl", "public-read"), ("x-amz-website-redirect-location", "/x"), ("x-amz-anything", "1"),
    ("x-amz-checksum-crc32", "AAAAAA=="), ("X-AMZ-Meta-Case", "b"),
])
def test_every_amz_header_must_be_signed(server, s3, bucket, key, name, value):
    value = value.format(bucket=bucket)
    target = f"/{bucket}/new"
    reply = wire.request(server, "PUT", target, {name: value}, b"x", unsigned=(name.lower(),))
    assert_refused(reply, 403, "AccessDenied", "SignatureDoesNotMatch")
    url = Signer().presign("PUT", target, server.host)
    assert_refused(wire.plain(server, "PUT", url, {name: value}, b"x"), 403, "AccessDenied", "SignatureDoesNotMatch")
    absent(s3, bucket, "new")


def test_nobody_has_a_session(server, key):
    for unsigned in ((), ("x-amz-security-token",)):
        reply = wire.request(server, "GET", key, {"x-amz-security-token": "x"}, unsigned=unsigned)
        assert_refused(reply, 400, "InvalidToken")


def test_harmless_headers_may_stay_unsigned(server, key):
    for name, value in [("user-agent", "x"), ("x-amz-user-agent", "x"), ("accept", "*/*"),
                        ("x-amz-checksum-mode", "ENABLED")]:
        assert wire.request(server, "GET", key, {name: value}, unsigned=(name,)).status == 200, name


def test_a_payload_hash_is_asked_for(server, key):
    signer = Signer()
    headers = {"host": server.host, "x-amz-date": signer.date}
    names = sorted(headers)
    signature = signer.signature("GET", key, headers, names, sigv4.UNSIGNED)
    headers["authorization"] = (f"AWS4-HMAC-SHA256 Credential={signer.access}/{signer.scope}, "
                                f"SignedHeaders={';'.join(names)}, Signature={signature}")
    reply = wire.exchange(server, wire.head("GET", key, headers))
    assert reply.status in (400, 403) and b"secret" not in reply.body


def test_a_date_header_serves_too(server, key):
    signer = Signer()
    now = time.strftime("%a, %d %b %Y %H:%M:%S GMT", time.gmtime())
    signer.date = time.strftime("%Y%m%dT%H%M%SZ", time.strptime(now, "%a, %d %b %Y %H:%M:%S GMT"))
    headers = {"host": server.host, "date": now, "x-amz-content-sha256": sigv4.UNSIGNED}
    names = sorted(headers)
    signature = signer.signature("GET", key, headers, names, sigv4.UNSIGNED)
    headers["authorization"] = (f"AWS4-HMAC-SHA256 Credential={signer.access}/{signer.scope}, "
                                f"SignedHeaders={';'.join(names)}, Signature={signature}")
    assert wire.exchange(server, wire.head("GET", key, headers)).body == b"secret"


def test_two_signatures_are_one_too_many(server, key):
    url = Signer().presign("GET", key, server.host)
    headers = Signer().headers("GET", url, {"host": server.host})
    reply = wire.exchange(server, wire.head("GET", url, headers))
    assert reply.status in (400, 403) and b"secret" not in reply.body


def test_spaces_in_header_values_are_canonical(server, s3, bucket):
    reply = wire.request(server, "PUT", f"/{bucket}/k", {"x-amz-meta-a": "  b   c  "}, b"x")
    assert reply.status == 200, reply.body
    assert s3.head_object(Bucket=bucket, Key="k")["Metadata"]["a"].split() == ["b", "c"]


@pytest.mark.parametrize("target", ["/%41", "/a%2Fb", "/a%2fb", "/a+b", "/a%20b", "/~x", "/%7Ex", "/a=b&c", "/a:b@c"])
def test_one_path_for_signature_and_storage(server, s3, bucket, target):
    path = f"/{bucket}{target}"
    assert wire.request(server, "PUT", path, body=b"x").status == 200
    assert wire.request(server, "GET", path).body == b"x"
    keys = [item["Key"] for item in s3.list_objects_v2(Bucket=bucket)["Contents"]]
    assert keys == [sigv4.unquote_to_bytes(target).decode()[1:]]
