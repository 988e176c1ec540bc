"""Which of S3's errors a request that makes no sense is answered with."""

import base64
import datetime
import hashlib
import hmac
import json

import pytest
import urllib3

from harness import server as harness
from harness import wire
from harness.checksums import checksum
from harness.sigv4 import Signer, stamp
from helpers import assert_refused, refused

POOL = urllib3.PoolManager(retries=False)


@pytest.mark.parametrize("method,query,headers,status,code", [
    ("PUT", "?partNumber=1", {}, 400, "InvalidArgument"),
    ("PUT", "?uploadId=x", {}, 405, "MethodNotAllowed"),
    ("GET", "?uploads", {}, 400, "InvalidRequest"),
    ("GET", "?versions", {}, 400, "InvalidRequest"),
    ("GET", "", {"x-amz-copy-source": "b/k"}, 400, "InvalidArgument"),
    ("DELETE", "", {"x-amz-copy-source": "b/k"}, 400, "InvalidArgument"),
    ("POST", "?uploadId=x", {"x-amz-copy-source": "b/k"}, 400, "InvalidArgument"),
    ("PUT", "", {"x-amz-checksum-crc16": "AAAA"}, 400, "InvalidRequest"),
])
def test_requests_that_are_no_operation(server, bucket, method, query, headers, status, code):
    assert_refused(wire.request(server, method, f"/{bucket}/k{query}", headers), status, code)
    assert_refused(wire.plain(server, method, f"/{bucket}/k{query}", headers), status, code)


@pytest.mark.parametrize("source", ["{0}/%ZZ", "100%/k", "{0}/%A/k", "%", "{0}/%1", "{0}/%C3%"])
def test_a_source_that_is_not_encoded(server, s3, bucket, source):
    headers = {"x-amz-copy-source": source.format(bucket)}
    upload = s3.create_multipart_upload(Bucket=bucket, Key="k")["UploadId"]
    for target in ("k", f"k?partNumber=1&uploadId={upload}", "k?partNumber=1&uploadId=none"):
        assert_refused(wire.request(server, "PUT", f"/{bucket}/{target}", headers), 400, "InvalidArgument")


def test_a_part_that_is_none_is_refused_before_its_upload(s3, bucket):
    with refused("InvalidArgument", 400):
        s3.upload_part_copy(Bucket=bucket, Key="k", PartNumber=0, UploadId="none", CopySource="b/k")


@pytest.mark.parametrize("tags", ["=", "=v", "k%", "k%2=v", "k=v&k=v"])
def test_a_header_of_tags_that_is_none(server, bucket, tags):
    reply = wire.request(server, "PUT", f"/{bucket}/k", {"x-amz-tagging": tags})
    assert_refused(reply, 400, "InvalidArgument")


def test_more_tags_than_a_bucket_has(s3, bucket):
    tags = [{"Key": f"k{at}", "Value": "v"} for at in range(51)]
    s3.put_bucket_tagging(Bucket=bucket, Tagging={"TagSet": tags[:50]})
    with refused("BadRequest", 400):
        s3.put_bucket_tagging(Bucket=bucket, Tagging={"TagSet": tags})


def test_a_bucket_is_told_of_locks_by_a_document(server, s3):
    bucket = "refusals-locks"
    s3.create_bucket(Bucket=bucket, ObjectLockEnabledForBucket=True)
    reply = wire.request(server, "PUT", f"/{bucket}?object-lock")
    assert_refused(reply, 400, "MissingRequestBodyError")


def test_the_names_of_statements_may_be_empty(s3, bucket):
    def policy(*names):
        return json.dumps({"Statement": [
            {"Sid": name, "Effect": "Allow", "Principal": "*", "Action": "s3:GetObject",
             "Resource": f"arn:aws:s3:::{bucket}/*"} for name in names]})
    s3.put_bucket_policy(Bucket=bucket, Policy=policy("", "", "a", "b"))
    with refused("MalformedPolicy", 400):
        s3.put_bucket_policy(Bucket=bucket, Policy=policy("a", "a"))


def test_a_policy_may_speak_of_the_making_of_its_bucket(s3, bucket):
    def policy(action, resource):
        return json.dumps({"Statement": [
            {"Effect": "Deny", "Principal": "*", "Action": action, "Resource": f"arn:aws:s3:::{resource}"}]})
    for action in ("s3:CreateBucket", "s3:Create*"):
        s3.put_bucket_policy(Bucket=bucket, Policy=policy(action, bucket))
        with refused("MalformedPolicy", 400):
            s3.put_bucket_policy(Bucket=bucket, Policy=policy(action, f"{bucket}/*"))


@pytest.mark.parametrize("service,region", [("ec2", "us-east-1"), ("s3", "us-west-9")])
def test_a_signature_for_elsewhere_is_told_so_whoever_made_it(server, bucket, service, region):
    headers = Signer(access="NOBODYSACCESSKEY", region=region).headers("GET", f"/{bucket}", {"host": server.host})
    headers["authorization"] = headers["authorization"].replace("/s3/", f"/{service}/")
    reply = wire.exchange(server, wire.head("GET", f"/{bucket}", headers))
    assert_refused(reply, 400, "AuthorizationHeaderMalformed")


@pytest.mark.parametrize("kind,given,holds", [
    ("COMPOSITE", None, False), ("COMPOSITE", "sha256", False), ("COMPOSITE", "crc32", True),
    ("FULL_OBJECT", None, True), ("FULL_OBJECT", "sha256", False), ("FULL_OBJECT", "crc32", True),
    (None, None, True), (None, "sha256", True),
])
def test_a_part_has_the_checksum_that_its_upload_was_begun_with(server, s3, bucket, kind, given, holds):
    asked = {"ChecksumAlgorithm": "CRC32", "ChecksumType": kind} if kind else {}
    upload = s3.create_multipart_upload(Bucket=bucket, Key="k", **asked)["UploadId"]
    headers = {f"x-amz-checksum-{given}": checksum(given, b"data")} if given else {}
    reply = wire.request(server, "PUT", f"/{bucket}/k?partNumber=1&uploadId={upload}", headers, b"data")
    if holds:
        assert reply.status == 200, reply.body
    else:
        assert_refused(reply, 400, "InvalidRequest")
    # Who copies a part sends none.
    s3.put_object(Bucket=bucket, Key="source", Body=b"data")
    s3.upload_part_copy(Bucket=bucket, Key="k", PartNumber=2, UploadId=upload, CopySource=f"{bucket}/source")


@pytest.mark.parametrize("said", [
    "aws-chunked", "AWS-Chunked", "aws-chunked,gzip", "gzip,aws-chunked,br", "aws-chunked-custom",
])
def test_aws_chunked_alone_frames_nothing(server, s3, bucket, said):
    target = Signer().presign("PUT", f"/{bucket}/k", server.host)
    headers = {"content-encoding": said}
    assert wire.plain(server, "PUT", target, headers, b"hello").status == 200
    reply = s3.get_object(Bucket=bucket, Key="k")
    assert (reply["Body"].read(), reply["ContentEncoding"]) == (b"hello", said)
    if said != "aws-chunked-custom":
        reply = wire.request(server, "PUT", f"/{bucket}/k", headers, b"hello")
        assert_refused(reply, 400, "InvalidArgument")
        assert b"aws-chunked encoding is not supported when x-amz-content-sha256 UNSIGNED-PAYLOAD" in reply.body
    # Who frames says so: that is never stored as if it were data.
    framed = {**headers, "x-amz-decoded-content-length": "1"}
    if said != "aws-chunked-custom":
        target = Signer().presign("PUT", f"/{bucket}/k", server.host, headers={"x-amz-decoded-content-length": "1"})
        reply = wire.plain(server, "PUT", target, framed, b"1\r\nx\r\n0\r\n\r\n")
        assert_refused(reply, 400, "InvalidRequest")


def post(server, bucket, conditions=(), **fields):
    """A form that its signer allows, but for what `fields` change."""
    signer = Signer(date=stamp())
    given = {"key": "k", "x-amz-algorithm": "AWS4-HMAC-SHA256", "x-amz-date": signer.date,
             "x-amz-credential": f"{harness.ACCESS_KEY}/{signer.scope}"}
    expires = datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(minutes=5)
    allowed = [{"bucket": bucket}, *({name: value} for name, value in given.items()), *conditions]
    document = {"expiration": expires.strftime("%Y-%m-%dT%H:%M:%SZ"), "conditions": allowed}
    policy = base64.b64encode(json.dumps(document).encode()).decode()
    signature = hmac.new(signer.key(), policy.encode(), hashlib.sha256).hexdigest()
    given = {**given, "policy": policy, "x-amz-signature": signature, **fields, "file": ("f", b"data")}
    reply = POOL.request("POST", f"{server.endpoint}/{bucket}", fields=given, redirect=False)
    return wire.Reply(reply.status, dict(reply.headers), reply.data)


@pytest.mark.parametrize("credential", [
    "no-slashes", "{0}/20260101/us-east-1/s3/aws4_request", "{0}/{1}/us-east-1/ec2/aws4_request",
    "{0}/{1}/us-west-9/s3/aws4_request", "{0}/{1}/us-east-1/s3/aws5_request",
])
def test_the_credential_of_a_form_is_an_argument(server, bucket, credential):
    credential = credential.format(harness.ACCESS_KEY, stamp()[:8])
    assert_refused(post(server, bucket, **{"x-amz-credential": credential}), 400, "InvalidArgument")


def test_the_date_of_a_form_is_an_argument(server, bucket):
    assert post(server, bucket).status == 204
    assert_refused(post(server, bucket, **{"x-amz-date": "yesterday"}), 400, "InvalidArgument")


def test_every_type_of_a_list_must_begin_as_a_form_may(server, bucket):
    texts = [["starts-with", "$content-type", "text/"]]
    assert post(server, bucket, texts, **{"content-type": "text/plain, text/html"}).status == 204
    assert_refused(post(server, bucket, texts, **{"content-type": "text/plain,image/png"}), 403, "AccessDenied")
    assert_refused(post(server, bucket, [["eq", "content-type", "x"]]), 403, "AccessDenied")


def test_a_reply_varies_by_the_headers_that_are_asked_for(server, s3, bucket):
    s3.put_bucket_cors(Bucket=bucket, CORSConfiguration={"CORSRules": [
        {"AllowedOrigins": ["http://a.example"], "AllowedMethods": ["GET"], "AllowedHeaders": ["x-amz-date"],
         "MaxAgeSeconds": -1}]})
    for asked, granted in (("X-Amz-Date", "http://a.example"), ("X-Amz-Date,X-Other", None)):
        headers = {"origin": "http://a.example", "access-control-request-headers": asked}
        reply = wire.request(server, "GET", f"/{bucket}", headers)
        assert (reply.status, reply.headers.get("access-control-allow-origin")) == (200, granted)
