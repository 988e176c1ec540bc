"""Pages of other origins: the rules of a bucket, preflights, and what replies say."""

import pytest

from harness import wire
from helpers import assert_refused, refused, status

ALLOW = "access-control-allow-"
RULES = [
    {"AllowedMethods": ["GET", "HEAD"], "AllowedOrigins": ["http://*.page", "start*end"],
     "AllowedHeaders": ["x-amz-*", "Range"], "ExposeHeaders": ["ETag", "x-amz-meta-a"], "MaxAgeSeconds": 3000, "ID": "one"},
    {"AllowedMethods": ["PUT"], "AllowedOrigins": ["http://writer"], "AllowedHeaders": ["*"]},
    {"AllowedMethods": ["POST"], "AllowedOrigins": ["*"]},
]


@pytest.fixture
def open_bucket(s3, bucket):
    s3.put_bucket_cors(Bucket=bucket, CORSConfiguration={"CORSRules": RULES})
    return bucket


def preflight(server, target, origin=None, method=None, headers=None):
    asked = {"origin": origin, "access-control-request-method": method, "access-control-request-headers": headers}
    return wire.plain(server, "OPTIONS", target, {name: value for name, value in asked.items() if value})


def test_a_life_of_rules(s3, bucket):
    with refused("NoSuchCORSConfiguration", 404):
        s3.get_bucket_cors(Bucket=bucket)
    s3.put_bucket_cors(Bucket=bucket, CORSConfiguration={"CORSRules": RULES})
    assert s3.get_bucket_cors(Bucket=bucket)["CORSRules"] == RULES
    s3.put_bucket_cors(Bucket=bucket, CORSConfiguration={"CORSRules": RULES[1:2]})
    assert s3.get_bucket_cors(Bucket=bucket)["CORSRules"] == RULES[1:2]
    for _ in range(2):
        assert status(s3.delete_bucket_cors(Bucket=bucket)) == 204
        with refused("NoSuchCORSConfiguration", 404):
            s3.get_bucket_cors(Bucket=bucket)


@pytest.mark.parametrize("change,code", [
    ({"AllowedMethods": ["PATCH"]}, "InvalidRequest"), ({"AllowedMethods": []}, "MalformedXML"),
    ({"AllowedOrigins": ["*.*"]}, "InvalidRequest"), ({"AllowedOrigins": []}, "MalformedXML"),
    ({"AllowedHeaders": ["*a*"]}, "InvalidRequest"), ({"ExposeHeaders": ["*"]}, "InvalidRequest"),
    ({"AllowedHeaders": ["x-amz-date", "a b"]}, "InvalidRequest"), ({"ExposeHeaders": ["a/b"]}, "InvalidRequest"),
    ({"ID": "x" * 256}, "InvalidRequest"),
])
def test_rules_that_are_none(s3, bucket, change, code):
    with refused(code, 400):
        s3.put_bucket_cors(Bucket=bucket, CORSConfiguration={"CORSRules": [{**RULES[0], **change}]})
    with refused("NoSuchCORSConfiguration", 404):
        s3.get_bucket_cors(Bucket=bucket)


def test_an_answer_that_nobody_is_to_keep(s3, bucket):
    rules = [{**RULES[0], "MaxAgeSeconds": -200}]
    s3.put_bucket_cors(Bucket=bucket, CORSConfiguration={"CORSRules": rules})
    assert s3.get_bucket_cors(Bucket=bucket)["CORSRules"] == rules


def test_too_many_rules(s3, bucket):
    s3.put_bucket_cors(Bucket=bucket, CORSConfiguration={"CORSRules": RULES[2:] * 100})
    with refused("InvalidRequest", 400):
        s3.put_bucket_cors(Bucket=bucket, CORSConfiguration={"CORSRules": RULES[2:] * 101})


def test_preflights_that_are_allowed(server, open_bucket):
    for target in (f"/{open_bucket}", f"/{open_bucket}/k?X-Amz-Signature=0"):
        reply = preflight(server, target, "http://a.page", "HEAD", "X-Amz-Date, range")
        assert reply.status == 200 and reply.body == b"", reply
        assert reply.headers[ALLOW + "origin"] == "http://a.page"
        assert reply.headers[ALLOW + "methods"] == "GET, HEAD"
        assert reply.headers[ALLOW + "headers"] == "x-amz-date, range"
        assert reply.headers[ALLOW + "credentials"] == "true"
        assert reply.headers["access-control-expose-headers"] == "ETag, x-amz-meta-a"
        assert reply.headers["access-control-max-age"] == "3000"
        assert "Origin" in reply.headers["vary"]
    reply = preflight(server, f"/{open_bucket}/k", "http://anybody", "POST")
    assert reply.headers[ALLOW + "origin"] == "*" and ALLOW + "credentials" not in reply.headers


@pytest.mark.parametrize("origin,method,headers", [
    ("http://page", "GET", None), ("http://a.page.evil", "GET", None), ("0startend", "GET", None),
    ("http://a.page", "PUT", None), ("http://a.page", "GET", "content-type"), ("http://writer", "GET", None),
    ("http://any", "POST", "x-amz-date"),
])
def test_preflights_that_no_rule_allows(server, open_bucket, origin, method, headers):
    reply = preflight(server, f"/{open_bucket}/k", origin, method, headers)
    assert_refused(reply, 403, "AccessForbidden")
    assert ALLOW + "origin" not in reply.headers
    assert b"<ResourceType>OBJECT</ResourceType>" in reply.body and f"<Method>{method}</Method>".encode() in reply.body


def test_preflights_without_rules(server, s3, bucket):
    for target in (f"/{bucket}/k", "/not-there-at-all/k"):
        assert_refused(preflight(server, target, "http://a.page", "GET"), 403, "AccessForbidden")
    for asked in ({}, {"method": "GET"}, {"origin": "http://a.page"}, {"origin": "http://a", "method": "TRACE"}):
        assert_refused(preflight(server, f"/{bucket}", **asked), 400, "BadRequest")


@pytest.mark.parametrize("headers", [
    "X-Amz-Date,invalid header", "X-Custom:Header", "X(Custom)", " Bad/Header", "X[Key]", "Bad=Name", 'X"Quote"',
    "NonAscii\u00e9", "bad@char", "tab\tchar,X-Amz-Date",
])
def test_preflights_for_headers_that_there_cannot_be(server, open_bucket, headers):
    reply = preflight(server, f"/{open_bucket}/k", "http://a.page", "GET", headers)
    assert_refused(reply, 400, "BadRequest")


def test_replies_carry_the_rule_that_allows_them(server, s3, open_bucket):
    s3.put_object(Bucket=open_bucket, Key="k", Body=b"x")
    for origin in ("http://a.page", "startend", "startxend"):
        reply = wire.request(server, "GET", f"/{open_bucket}/k", {"origin": origin})
        assert (reply.status, reply.body) == (200, b"x")
        assert reply.headers[ALLOW + "origin"] == origin and reply.headers[ALLOW + "methods"] == "GET, HEAD"
    reply = wire.request(server, "GET", f"/{open_bucket}/k", {"origin": "http://writer"})
    assert reply.status == 200 and ALLOW + "origin" not in reply.headers and "Origin" in reply.headers["vary"]
    reply = wire.request(server, "GET", f"/{open_bucket}/k")
    assert ALLOW + "origin" not in reply.headers and "vary" not in reply.headers


def test_errors_carry_it_too(server, s3, open_bucket):
    reply = wire.request(server, "GET", f"/{open_bucket}/missing", {"origin": "http://a.page"})
    assert reply.status == 404 and reply.headers[ALLOW + "origin"] == "http://a.page"
    unsigned = {"origin": "http://a.page", "access-control-request-method": "GET"}
    reply = wire.plain(server, "PUT", f"/{open_bucket}/k", unsigned)
    assert reply.status in (403, 411) and reply.headers[ALLOW + "origin"] == "http://a.page"


def test_a_change_is_in_force_at_once_through_who_answered_it(server, s3, bucket):
    for _ in range(3):
        s3.put_bucket_cors(Bucket=bucket, CORSConfiguration={"CORSRules": RULES})
        assert preflight(server, f"/{bucket}", "http://a.page", "GET").status == 200
        s3.delete_bucket_cors(Bucket=bucket)
        assert preflight(server, f"/{bucket}", "http://a.page", "GET").status == 403
