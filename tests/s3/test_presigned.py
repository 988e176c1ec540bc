"""Presigned URLs, used and abused."""

import pytest
import requests

from harness import wire
from harness.sigv4 import Signer, stamp
from helpers import absent, assert_refused, get


@pytest.fixture
def key(s3, bucket):
    s3.put_object(Bucket=bucket, Key="k", Body=b"secret")
    return f"/{bucket}/k"


def test_boto3s_urls(s3, bucket):
    where = {"Bucket": bucket, "Key": "odd key +é/x"}
    url = lambda method: s3.generate_presigned_url(method, Params=where, ExpiresIn=60)
    assert requests.put(url("put_object"), data=b"by url").status_code == 200
    assert requests.get(url("get_object")).content == b"by url"
    assert requests.head(url("head_object")).headers["content-length"] == "6"
    assert requests.delete(url("delete_object")).status_code == 204
    assert requests.get(url("get_object")).status_code == 404


def test_a_range_by_url(server, key):
    reply = wire.plain(server, "GET", Signer().presign("GET", key, server.host), {"range": "bytes=1-2"})
    assert (reply.status, reply.body) == (206, b"ec")


def test_overrides_are_part_of_what_is_signed(server, key):
    url = Signer().presign("GET", key + "?response-content-type=text%2Fcsv", server.host)
    assert wire.plain(server, "GET", url).headers["content-type"] == "text/csv"
    reply = wire.plain(server, "GET", url.replace("csv", "htm"))
    assert_refused(reply, 403, "SignatureDoesNotMatch")


def test_headers_that_were_signed_must_come(server, s3, bucket):
    url = Signer().presign("PUT", f"/{bucket}/n", server.host, headers={"x-amz-meta-a": "1"})
    reply = wire.plain(server, "PUT", url, body=b"x")
    assert reply.status == 403
    assert wire.plain(server, "PUT", url, {"x-amz-meta-a": "2"}, b"x").status == 403
    absent(s3, bucket, "n")
    assert wire.plain(server, "PUT", url, {"x-amz-meta-a": "1"}, b"x").status == 200
    assert s3.head_object(Bucket=bucket, Key="n")["Metadata"] == {"a": "1"}


def test_amz_parameters_of_the_query_are_signed(server, s3, bucket):
    url = Signer().presign("PUT", f"/{bucket}/n?x-amz-meta-a=1", server.host)
    reply = wire.plain(server, "PUT", url, body=b"x")
    assert reply.status == 200, reply.body
    assert s3.head_object(Bucket=bucket, Key="n")["Metadata"] == {"a": "1"}


def test_nobody_copies_by_a_url_for_writing(server, s3, bucket, key):
    url = Signer().presign("PUT", f"/{bucket}/mine", server.host)
    for name in ("x-amz-copy-source", "X-Amz-Copy-Source"):
        reply = wire.plain(server, "PUT", url, {name: key})
        assert_refused(reply, 403, "AccessDenied", "SignatureDoesNotMatch")
    reply = wire.plain(server, "PUT", f"{url}&x-amz-copy-source={key}")
    assert reply.status == 403
    absent(s3, bucket, "mine")


def test_for_one_method_one_key_one_host(server, s3, bucket, key):
    url = Signer().presign("GET", key, server.host)
    assert wire.plain(server, "GET", url).body == b"secret"
    for method in ("PUT", "DELETE", "POST", "HEAD"):
        reply = wire.plain(server, method, url)
        assert reply.status in (403, 405), method
    assert wire.plain(server, "GET", url.replace("/k?", "/l?")).status == 403
    assert wire.plain(server, "GET", url, {"host": "other.example"}).status == 403
    assert get(s3, bucket, "k") == b"secret"


@pytest.mark.parametrize("addition", ["&acl", "&tagging", "&uploadId=x", "&partNumber=1", "&x=y", "&versionId=null"])
def test_nothing_can_be_added(server, key, addition):
    url = Signer().presign("GET", key, server.host)
    assert_refused(wire.plain(server, "GET", url + addition), 403, "SignatureDoesNotMatch")


@pytest.mark.parametrize("expires", ["x", "", "1e3", "+5"])
def test_lifetimes_that_are_none(server, key, expires):
    url = Signer().presign("GET", key, server.host, expires=expires)
    reply = wire.plain(server, "GET", url)
    assert reply.status in (400, 403) and reply.code in (
        "AuthorizationQueryParametersError", "SignatureDoesNotMatch"), (reply.status, reply.body)


@pytest.mark.parametrize("expires", ["0", "-1", "604801", "99999999999999999999"])
def test_lifetimes_that_no_link_may_have(server, key, expires):
    reply = wire.plain(server, "GET", Signer().presign("GET", key, server.host, expires=expires))
    assert_refused(reply, 403, "AccessDenied")


def test_the_longest_lifetime(server, key):
    assert wire.plain(server, "GET", Signer().presign("GET", key, server.host, expires=604_800)).status == 200


def test_too_late_and_too_early(server, key):
    url = Signer(date=stamp(-120)).presign("GET", key, server.host, expires=60)
    assert_refused(wire.plain(server, "GET", url), 403, "AccessDenied")
    assert wire.plain(server, "GET", Signer(date=stamp(-120)).presign("GET", key, server.host)).status == 200
    url = Signer(date=stamp(16 * 60)).presign("GET", key, server.host)
    assert_refused(wire.plain(server, "GET", url), 403, "AccessDenied", "RequestTimeTooSkewed")


@pytest.mark.parametrize("missing", ["X-Amz-Algorithm", "X-Amz-Credential", "X-Amz-Date", "X-Amz-Expires",
                                     "X-Amz-SignedHeaders", "X-Amz-Signature"])
def test_a_missing_parameter(server, key, missing):
    path, _, query = Signer().presign("GET", key, server.host).partition("?")
    query = "&".join(pair for pair in query.split("&") if not pair.startswith(missing + "="))
    reply = wire.plain(server, "GET", f"{path}?{query}")
    assert reply.status in (400, 403) and b"secret" not in reply.body


@pytest.mark.parametrize("doubled", ["X-Amz-Expires=604800", "X-Amz-Date=20300101T000000Z", "X-Amz-Signature=" + "0" * 64])
def test_a_doubled_parameter(server, key, doubled):
    url = Signer().presign("GET", key, server.host)
    for target in (f"{url}&{doubled}", url.replace("?", f"?{doubled}&")):
        reply = wire.plain(server, "GET", target)
        assert reply.status in (400, 403) and b"secret" not in reply.body


def test_a_signature_of_the_wrong_secret(server, key):
    url = Signer(secret="wrong").presign("GET", key, server.host)
    assert_refused(wire.plain(server, "GET", url), 403, "SignatureDoesNotMatch")


def test_headers_of_this_store_must_be_signed(server, s3, bucket, key):
    url = Signer().presign("GET", key, server.host)
    for name, value in (("x-martlet-consistency", "strict"), ("x-martlet-read-after", "x")):
        assert_refused(wire.plain(server, "GET", url, {name: value}), 403, "AccessDenied")
        unsigned = wire.request(server, "GET", key, {name: value}, unsigned={name})
        assert_refused(unsigned, 403, "AccessDenied")
    url = Signer().presign("PUT", "/a-bucket-of-another-policy", server.host)
    reply = wire.plain(server, "PUT", url, {"x-martlet-storage-policy": "ec"})
    assert_refused(reply, 403, "AccessDenied")
    assert wire.request(server, "GET", key, {"x-martlet-consistency": "quorum"}).status == 200
    url = Signer().presign("GET", key, server.host, headers={"x-martlet-consistency": "quorum"})
    assert wire.plain(server, "GET", url, {"x-martlet-consistency": "quorum"}).status == 200
