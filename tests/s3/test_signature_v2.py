"""Signature Version 2 as old clients send it, in a server where it is turned on."""

import base64
import email.utils
import hashlib
import hmac
import json
import time
import urllib.parse
import urllib.request

import pytest

from conftest import client_for
from harness import server as harness
from harness import wire
from helpers import absent, assert_refused, client_of, get, refused
from test_sts import Tenant as StsTenant
from test_sts import begin, client, policy
from test_tenants import Tenant
from with_version_2 import s3, server  # noqa: F401

MIB = 1 << 20


@pytest.fixture
def old(server):
    return client_for(server, signature_version="s3")


def signed(method, target, resource=None, date=None, secret=harness.SECRET_KEY, amz=(), **headers):
    """The headers of a request whose resource is that of `target`, unless another one is given."""
    date = date or email.utils.formatdate(time.time(), usegmt=True)
    extra = "".join(f"{name}:{value}\n" for name, value in sorted(amz))
    text = f"{method}\n\n{headers.get('content-type', '')}\n{date}\n{extra}{resource or target}"
    digest = hmac.new(secret.encode(), text.encode(), hashlib.sha1).digest()
    signature = base64.b64encode(digest).decode()
    return {"date": date, "authorization": f"AWS {harness.ACCESS_KEY}:{signature}", **dict(amz), **headers}


def send(server, method, target, headers, body=b""):
    framed = {"host": server.host, "content-length": str(len(body)), **headers}
    return wire.exchange(server, wire.head(method, target, framed) + body)


def test_an_old_client_does_what_a_new_one_does(s3, old, bucket):
    for key in ("plain", "a b/ü+%&?=~*'()", "_", "dir/"):
        old.put_object(Bucket=bucket, Key=key, Body=key.encode(), Metadata={"spaces": "one  two   three"},
                       ContentType="text/x; charset=utf-8", Tagging="a=1")
        read = old.get_object(Bucket=bucket, Key=key, ResponseContentType="x/y", ResponseExpires=0)
        assert read["Body"].read() == key.encode() and read["ContentType"] == "x/y"
        assert read["Metadata"] == {"spaces": "one  two   three"}
        assert old.get_object_tagging(Bucket=bucket, Key=key)["TagSet"] == [{"Key": "a", "Value": "1"}]
        assert old.head_object(Bucket=bucket, Key=key)["ContentLength"] == len(key.encode())
    assert len(old.list_objects_v2(Bucket=bucket, Prefix="a", Delimiter="/")["CommonPrefixes"]) == 1
    upload = old.create_multipart_upload(Bucket=bucket, Key="parts")["UploadId"]
    parts = [{"PartNumber": number, "ETag": old.upload_part(
        Bucket=bucket, Key="parts", UploadId=upload, PartNumber=number, Body=body)["ETag"]}
        for number, body in ((1, b"x" * 5 * MIB), (2, b"y"))]
    old.complete_multipart_upload(Bucket=bucket, Key="parts", UploadId=upload, MultipartUpload={"Parts": parts})
    assert len(get(s3, bucket, "parts")) == 5 * MIB + 1
    old.copy_object(Bucket=bucket, Key="copy", CopySource=f"{bucket}/plain")
    old.delete_objects(Bucket=bucket, Delete={"Objects": [{"Key": "plain"}, {"Key": "_"}]})
    absent(s3, bucket, "plain")
    for call in (old.get_bucket_acl, old.get_bucket_location, old.get_bucket_versioning, old.list_object_versions,
                 old.list_multipart_uploads):
        call(Bucket=bucket)
    assert bucket in [one["Name"] for one in old.list_buckets()["Buckets"]]


def test_buckets_with_locks(old):
    old.create_bucket(Bucket="locked-by-old", ObjectLockEnabledForBucket=True)
    configuration = {"ObjectLockEnabled": "Enabled"}
    old.put_object_lock_configuration(Bucket="locked-by-old", ObjectLockConfiguration=configuration)
    assert old.get_object_lock_configuration(Bucket="locked-by-old")["ObjectLockConfiguration"] == configuration
    old.delete_bucket(Bucket="locked-by-old")


def test_a_tenants_key_is_asked_for(server):
    red = Tenant(server)
    bucket = red.bucket()
    old = client_of(server.endpoint, red.key, signature_version="s3")
    old.put_object(Bucket=bucket, Key="k", Body=b"x")
    assert get(red.s3, bucket, "k") == b"x"
    wrong = client_of(server.endpoint, {**red.key, "secret_key": "wrong"}, signature_version="s3")
    with refused("SignatureDoesNotMatch", 403):
        wrong.get_object(Bucket=bucket, Key="k")
    nobody = client_of(server.endpoint, {"access_key": "NOBODY", "secret_key": "x"}, signature_version="s3")
    with refused("InvalidAccessKeyId", 403):
        nobody.list_buckets()


def test_a_policy_can_ask_for_version_4(s3, old, bucket):
    deny = {"Effect": "Deny", "Principal": "*", "Action": "s3:PutObject", "Resource": f"arn:aws:s3:::{bucket}/*",
            "Condition": {"StringEquals": {"s3:signatureversion": "AWS", "s3:authType": "REST-HEADER"}}}
    s3.put_bucket_policy(Bucket=bucket, Policy=json.dumps({"Version": "2012-10-17", "Statement": [deny]}))
    with refused("AccessDenied", 403):
        old.put_object(Bucket=bucket, Key="k", Body=b"x")
    s3.put_object(Bucket=bucket, Key="k", Body=b"x")
    s3.delete_bucket_policy(Bucket=bucket)


def test_what_was_signed_is_what_is_done(server, s3, bucket):
    target = f"/{bucket}/k"
    assert send(server, "PUT", target, signed("PUT", target), b"x").status == 200
    assert send(server, "GET", target, signed("GET", target)).body == b"x"
    acl = ("x-amz-acl", "private")
    assert send(server, "PUT", target, signed("PUT", target, amz=[acl]), b"x").status == 200
    for method, asked, headers in [
        ("DELETE", target, signed("GET", target)), ("GET", target + "?acl", signed("GET", target)),
        ("GET", f"/{bucket}/other", signed("GET", target)), ("GET", target, signed("GET", target, secret="wrong")),
        ("PUT", target, {**signed("PUT", target), "x-amz-acl": "public-read"}),
        ("PUT", target, {**signed("PUT", target, amz=[acl]), "x-amz-acl": "public-read"}),
        ("PUT", target, {**signed("PUT", target), "content-type": "text/html"}),
    ]:
        assert_refused(send(server, method, asked, headers), 403, "SignatureDoesNotMatch")
    assert get(s3, bucket, "k") == b"x"


@pytest.mark.parametrize("change,status,code", [
    ({"authorization": "AWS HAHAHA"}, 400, "InvalidArgument"), ({"authorization": "AWS "}, 400, "InvalidArgument"),
    ({"authorization": ""}, 403, "AccessDenied"), ({"date": "Bad Date"}, 403, "AccessDenied"),
    ({"date": None}, 403, "AccessDenied"), ({"date": "Tue, 07 Jul 1950 21:53:04 GMT"}, 403, "AccessDenied"),
    ({"date": "Tue, 07 Jul 2010 21:53:04 GMT"}, 403, "RequestTimeTooSkewed"),
    ({"date": "Tue, 07 Jul 2099 21:53:04 GMT"}, 403, "RequestTimeTooSkewed"),
    ({"x-amz-date": "Bad Date"}, 403, "AccessDenied"),
])
def test_what_is_no_signature(server, bucket, change, status, code):
    headers = {**signed("GET", f"/{bucket}"), **change}
    reply = send(server, "GET", f"/{bucket}", {name: value for name, value in headers.items() if value is not None})
    assert_refused(reply, status, code)


def test_the_date_may_stand_in_a_header_of_its_own(server, bucket):
    now = email.utils.formatdate(time.time(), usegmt=True)
    text = f"GET\n\n\n\nx-amz-date:{now}\n/{bucket}"
    digest = hmac.new(harness.SECRET_KEY.encode(), text.encode(), hashlib.sha1).digest()
    authorization = f"AWS {harness.ACCESS_KEY}:{base64.b64encode(digest).decode()}"
    for date in ({}, {"date": "whatever"}):
        reply = send(server, "GET", f"/{bucket}", {"x-amz-date": now, "authorization": authorization, **date})
        assert reply.status == 200, reply.body


def link(method, target, expires=None):
    """A link of Version 2 for a target without a query."""
    expires = str(expires or int(time.time()) + 300)
    digest = hmac.new(harness.SECRET_KEY.encode(), f"{method}\n\n\n{expires}\n{target}".encode(), hashlib.sha1).digest()
    signature = urllib.parse.quote(base64.b64encode(digest).decode(), safe="")
    return f"{target}?AWSAccessKeyId={harness.ACCESS_KEY}&Expires={expires}&Signature={signature}"


def test_a_link_is_good_for_what_it_was_made_for_alone(server, s3, bucket):
    """Whoever has a link may add what its signature does not cover: that must not make it another operation."""
    s3.put_object(Bucket=bucket, Key="k", Body=b"x")
    target = f"/{bucket}/k"
    assert wire.plain(server, "GET", link("GET", target)).body == b"x"
    assert wire.plain(server, "PUT", link("PUT", target), body=b"y").status == 200
    for page in ("", "&list-type=2", "&prefix=k"):
        assert b"<Key>k</Key>" in wire.plain(server, "GET", link("GET", f"/{bucket}") + page).body
    until = b"<Retention><Mode>COMPLIANCE</Mode><RetainUntilDate>2090-01-01T00:00:00Z</RetainUntilDate></Retention>"
    for method, asked, added, body in [
        ("PUT", target, "retention", until), ("PUT", target, "legal-hold", b"<LegalHold><Status>ON</Status></LegalHold>"),
        ("GET", target, "retention", b""), ("GET", target, "legal-hold", b""), ("GET", target, "attributes", b""),
        ("PUT", f"/{bucket}", "publicAccessBlock", b"<PublicAccessBlockConfiguration/>"),
        ("DELETE", f"/{bucket}", "publicAccessBlock", b""), ("DELETE", f"/{bucket}", "ownershipControls", b""),
        ("GET", f"/{bucket}", "encryption", b""), ("DELETE", f"/{bucket}", "encryption", b""),
        ("GET", f"/{bucket}", "policyStatus", b""),
    ]:
        reply = wire.plain(server, method, f"{link(method, asked)}&{added}", body=body)
        assert_refused(reply, 403, "AccessDenied")
    for method, asked, added in [("PUT", target, "acl"), ("GET", f"/{bucket}", "policy"), ("DELETE", target, "tagging")]:
        assert_refused(wire.plain(server, method, f"{link(method, asked)}&{added}"), 403, "SignatureDoesNotMatch")
    assert get(s3, bucket, "k") == b"y"


def test_a_link_is_good_for_one_request(server, s3, bucket):
    """Values are signed decoded: another request may have the same text to sign."""
    s3.put_object(Bucket=bucket, Key="k", Body=b"x")
    target, expires = f"/{bucket}/k", str(int(time.time()) + 300)
    text = f"GET\n\n\n{expires}\n{target}?response-content-language=de&response-content-type=a/b"
    signature = base64.b64encode(hmac.new(harness.SECRET_KEY.encode(), text.encode(), hashlib.sha1).digest()).decode()
    signed = f"AWSAccessKeyId={harness.ACCESS_KEY}&Expires={expires}&Signature={urllib.parse.quote(signature, safe='')}"
    asked = f"{target}?response-content-language=de&response-content-type=a/b&{signed}"
    assert wire.plain(server, "GET", asked).body == b"x"
    other = f"{target}?response-content-language=de%26response-content-type%3Da/b&{signed}"
    assert_refused(wire.plain(server, "GET", other), 403, "SignatureDoesNotMatch")


def test_sessions_sign_links(server, tmp_path):
    red = StsTenant(server, tmp_path)
    arn = red.role(text=policy(("Allow", "s3:*", f"arn:aws:s3:::{red.bucket}*")))
    session = client(server, "s3", begin(red.sts, arn)["Credentials"], signature_version="s3")
    link = session.generate_presigned_url("get_object", Params={"Bucket": red.bucket, "Key": "k"})
    assert "AWSAccessKeyId=" in link
    with urllib.request.urlopen(link, timeout=30) as reply:
        assert reply.read() == b"x"
