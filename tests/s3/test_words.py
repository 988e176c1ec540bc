"""Errors in S3's own words: sentences to the letter, further elements, and which of several faults is named."""

import base64
import hashlib
import os
from xml.etree import ElementTree

import pytest

from harness import wire
from harness.checksums import ALGORITHMS, checksum
from harness.sigv4 import UNSIGNED, sha256
from helpers import absent, get, soon
from test_chunked import KIB, SIGNED, SIGNED_TRAILER, UNSIGNED_TRAILER, Put, complete, frame

OTHER = hashlib.md5(b"other")
TERMINATED = "The request body terminated unexpectedly"
SIGNATURE = ("The request signature we calculated does not match the signature you provided. Check your key and "
             "signing method.")
SHA256_MISMATCH = "The provided 'x-amz-content-sha256' header does not match what was computed."
ONE_CHECKSUM = "Expecting a single x-amz-checksum- header. Multiple checksum Types are not allowed."
NO_CHECKSUM = ("x-amz-sdk-checksum-algorithm specified, but no corresponding x-amz-checksum-* or x-amz-trailer "
               "headers were found.")


def said(reply, status, code):
    """The elements of an error that has this status and code."""
    document = ElementTree.fromstring(reply.body)
    elements = {element.tag: element.text for element in document}
    assert (reply.status, elements["Code"]) == (status, code), elements
    assert b"&apos;" not in reply.body
    assert {"Message", "Resource", "RequestId", "HostId"} <= elements.keys(), elements
    return elements


def put(server, bucket, headers=None, payload=UNSIGNED, body=b"data"):
    return wire.request(server, "PUT", f"/{bucket}/k", headers or {}, body, payload)


def encoded(digest):
    return base64.b64encode(digest).decode()


def test_digests(server, s3, bucket):
    error = said(put(server, bucket, payload=sha256(b"other")), 400, "XAmzContentSHA256Mismatch")
    assert error["Message"] == SHA256_MISMATCH
    assert error["ClientComputedContentSHA256"] == sha256(b"other")
    assert error["S3ComputedContentSHA256"] == sha256(b"data")
    error = said(put(server, bucket, {"content-md5": encoded(OTHER.digest())}), 400, "BadDigest")
    assert error["Message"] == "The Content-MD5 you specified did not match what we received."
    assert error["ExpectedDigest"] == OTHER.hexdigest()
    assert error["CalculatedDigest"] == encoded(hashlib.md5(b"data").digest())
    error = said(put(server, bucket, {"content-md5": "nonsense"}), 400, "InvalidDigest")
    assert (error["Message"], error["Content-MD5"]) == ("The Content-MD5 you specified was invalid.", "nonsense")
    error = said(put(server, bucket, payload="nonsense"), 400, "InvalidArgument")
    assert error["Message"].startswith("x-amz-content-sha256 must be UNSIGNED-PAYLOAD, STREAMING-")
    assert error["Message"].endswith(", or a valid sha256 value.")
    assert (error["ArgumentName"], error["ArgumentValue"]) == ("x-amz-content-sha256", "nonsense")
    absent(s3, bucket, "k")


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_checksums(server, s3, bucket, algorithm):
    name = f"x-amz-checksum-{algorithm}"
    sentence = f"The {algorithm.upper()} you specified did not match the calculated checksum."
    wrong = checksum(algorithm, b"other")
    assert said(put(server, bucket, {name: wrong}), 400, "BadDigest")["Message"] == sentence
    for payload in (SIGNED_TRAILER, UNSIGNED_TRAILER):
        one = Put(server, bucket, payload, 4, name)
        reply = one.send(complete(one, payload, b"data", algorithm=algorithm, value=wrong))
        assert said(reply, 400, "BadDigest")["Message"] == sentence
        one = Put(server, bucket, payload, 4, name)
        reply = one.send(complete(one, payload, b"data", algorithm=algorithm, value="nonsense"))
        assert said(reply, 400, "InvalidRequest")["Message"] == f"Value for {name} trailing header is invalid."
    invalid = said(put(server, bucket, {name: "!!!!"}), 400, "InvalidRequest")
    assert invalid["Message"] == f"Value for {name} header is invalid."
    document = b"<Delete><Object><Key>k</Key></Object></Delete>"
    reply = wire.request(server, "POST", f"/{bucket}?delete", {name: wrong}, document)
    assert said(reply, 400, "BadDigest")["Message"] == sentence
    absent(s3, bucket, "k")


def test_one_checksum_and_the_one_that_was_announced(server, s3, bucket):
    crc, sha1 = ("x-amz-checksum-crc32", checksum("crc32", b"data")), ("x-amz-checksum-sha1", checksum("sha1", b"data"))
    assert said(put(server, bucket, dict([crc, sha1])), 400, "InvalidRequest")["Message"] == ONE_CHECKSUM
    for extra in (dict([crc]), dict([sha1])):
        one = Put(server, bucket, UNSIGNED_TRAILER, 4, "x-amz-checksum-crc32", extra)
        reply = one.send(complete(one, UNSIGNED_TRAILER, b"data", algorithm="crc32"))
        assert said(reply, 400, "InvalidRequest")["Message"] == ONE_CHECKSUM
    announced = {"x-amz-sdk-checksum-algorithm": "CRC32"}
    assert said(put(server, bucket, announced), 400, "InvalidRequest")["Message"] == NO_CHECKSUM
    mismatch = said(put(server, bucket, {**announced, **dict([sha1])}), 400, "InvalidRequest")
    assert mismatch["Message"] == "Value for x-amz-sdk-checksum-algorithm header is invalid."
    body = b"<Tagging><TagSet/></Tagging>"
    reply = wire.request(server, "PUT", f"/{bucket}?tagging", announced, body)
    assert said(reply, 400, "InvalidRequest")["Message"] == NO_CHECKSUM
    trailer = {"x-amz-trailer": "x-amz-checksum-crc32"}
    assert said(put(server, bucket, trailer), 400, "InvalidRequest")["Message"] == (
        "The value specified in the x-amz-trailer header is not supported")
    absent(s3, bucket, "k")
    assert put(server, bucket, {**announced, **dict([crc])}).status == 200


def test_lists_of_keys_say_that_they_are_whole(server, s3, bucket):
    s3.put_object(Bucket=bucket, Key="k", Body=b"kept")
    document = b"<Delete><Object><Key>k</Key></Object></Delete>"
    error = said(wire.request(server, "POST", f"/{bucket}?delete", body=document), 400, "InvalidRequest")
    assert error["Message"] == "Missing required header for this request: Content-MD5 OR x-amz-checksum-*"
    assert get(s3, bucket, "k") == b"kept"


def test_a_copy_takes_no_range(server, s3, bucket):
    s3.put_object(Bucket=bucket, Key="k", Body=b"data")
    upload = s3.create_multipart_upload(Bucket=bucket, Key="n")["UploadId"]
    for target in (f"/{bucket}/n", f"/{bucket}/n?partNumber=1&uploadId={upload}"):
        headers = {"x-amz-copy-source": f"/{bucket}/k", "range": "bytes=0-1"}
        error = said(wire.request(server, "PUT", target, headers), 501, "NotImplemented")
        assert error["Header"] == "Range"
    absent(s3, bucket, "n")


def test_the_payloads_hash_is_named_before_the_md5_and_that_before_the_checksum(server, bucket):
    faults = [("XAmzContentSHA256Mismatch", {}), ("BadDigest", {"content-md5": encoded(OTHER.digest())}),
              ("BadDigest", {"x-amz-checksum-crc32": checksum("crc32", b"other")})]
    every = {**faults[1][1], **faults[2][1]}
    for target, body in ((f"/{bucket}/k", b"data"), (f"/{bucket}?tagging", b"<Tagging><TagSet/></Tagging>")):
        reply = wire.request(server, "PUT", target, every, body, sha256(b"other"))
        assert said(reply, 400, "XAmzContentSHA256Mismatch")["Message"] == SHA256_MISMATCH
        reply = wire.request(server, "PUT", target, every, body, sha256(body))
        assert "Content-MD5" in said(reply, 400, "BadDigest")["Message"]


def test_chunks(server, s3, bucket):
    def refused(payload, body, status, code, length=10, trailer=None):
        one = Put(server, bucket, payload, length, trailer)
        return said(one.send(body(one) if callable(body) else body), status, code)["Message"]

    name = "x-amz-checksum-crc32"
    for body in (b"A\ndummy data\r\n0\r\n\r\n", b"A\r\ndummy data0\r\n\r\n", b"invalid\r\ndummy data\r\n0\r\n\r\n",
                 b"A\r\ndummy data\r\n0\r\n", b"A\r\n"):
        assert refused(UNSIGNED_TRAILER, body, 400, "IncompleteBody", trailer=name) == TERMINATED
    mismatch = "You did not provide the number of bytes specified by the Content-Length HTTP header"
    for length in (5, 200):
        message = refused(UNSIGNED_TRAILER, b"a\r\ndummy data\r\n0\r\n\r\n", 400, "IncompleteBody", length)
        assert message == mismatch
    malformed = ("The request contained trailing data that was not well-formed or did not conform to our published "
                 "schema")
    for trailer in (b"", b":AAAAAA==\r\n", b"x-amz-checksum-sha1:AAAAAA==\r\n"):
        body = b"a\r\ndummy data\r\n0\r\n" + trailer + b"\r\n"
        assert refused(UNSIGNED_TRAILER, body, 400, "MalformedTrailerError", trailer=name) == malformed
    for signature in ("0" * 64, "0" * 63, "nonsense"):
        body = lambda one: one.chunks.chunk(b"dummy data", signature) + one.chunks.chunk(b"") + b"\r\n"
        assert refused(SIGNED, body, 403, "SignatureDoesNotMatch") == SIGNATURE
        body = lambda one: frame(one, b"dummy data") + one.chunks.trailer(
            name, checksum("crc32", b"dummy data"), signature)
        assert refused(SIGNED_TRAILER, body, 403, "SignatureDoesNotMatch", trailer=name) == SIGNATURE
    assert refused(SIGNED, b"a\r\ndummy data\r\n0\r\n\r\n", 400, "IncompleteBody") == TERMINATED
    absent(s3, bucket, "k")


def test_chunks_that_s3_takes(server, s3, bucket):
    data = os.urandom(20 * KIB)
    blank = lambda body: body.replace(b";chunk-signature=", b" ; chunk-signature = ")
    for change in (blank, lambda body: body + b"\r\n\r\n", lambda body: body.removesuffix(b"\r\n"),
                   lambda body: body.removesuffix(b"\r\n\r\n")):
        one = Put(server, bucket, SIGNED_TRAILER, len(data), "x-amz-checksum-crc32c")
        reply = one.send(change(complete(one, SIGNED_TRAILER, data)))
        assert reply.status == 200, reply.body
        assert get(s3, bucket, "k") == data
        s3.delete_object(Bucket=bucket, Key="k")
    for declared in ("x-amz-checksum-crc32c,", ", x-amz-checksum-crc32c , "):
        one = Put(server, bucket, UNSIGNED_TRAILER, len(data), declared)
        trailer = one.chunks.trailer("x-amz-checksum-crc32c", checksum("crc32c", data))
        assert one.send(frame(one, data) + trailer).status == 200, declared
    one = Put(server, bucket, UNSIGNED_TRAILER, len(data), "x-amz-checksum-crc32c")
    body = frame(one, data) + b"x-amz-checksum-crc32c:AAAAAA==\r\n"
    reply = one.send(body + one.chunks.trailer("x-amz-checksum-crc32c", checksum("crc32c", data)))
    assert reply.status == 200, reply.body


def test_what_reads_may_say_anything_of_its_body(server, s3, bucket):
    s3.put_object(Bucket=bucket, Key="k", Body=b"data")
    for method in ("GET", "HEAD"):
        assert wire.request(server, method, f"/{bucket}/k", payload="nonsense").status == 200
    assert wire.request(server, "HEAD", "/", payload="nonsense").status == 405
    assert wire.request(server, "DELETE", f"/{bucket}/k", payload="nonsense").status == 400


def test_numbers_of_parts(server, s3, bucket):
    upload = s3.create_multipart_upload(Bucket=bucket, Key="k")["UploadId"]
    where = {"Bucket": bucket, "Key": "k", "UploadId": upload}
    part = s3.upload_part(**where, PartNumber=1, Body=b"data")
    within = "Part number must be an integer between 1 and 10000, inclusive"
    for number in ("0", "-3", "10001"):
        for method, target in (("PUT", f"/{bucket}/k?partNumber={number}&uploadId={upload}"),
                               ("GET", f"/{bucket}/k?partNumber={number}")):
            error = said(wire.request(server, method, target, body=b"x" if method == "PUT" else b""),
                         400, "InvalidArgument")
            assert error["Message"] == within
            assert (error["ArgumentName"], error["ArgumentValue"]) == ("partNumber", number)
    document = ("<CompleteMultipartUpload><Part><PartNumber>{}</PartNumber><ETag>{}</ETag></Part>"
                "</CompleteMultipartUpload>")
    target = f"/{bucket}/k?uploadId={upload}"
    error = said(wire.request(server, "POST", target, body=document.format(-4, "x").encode()), 400, "InvalidArgument")
    assert error["Message"] == "PartNumber must be >= 1"
    assert (error["ArgumentName"], error["ArgumentValue"]) == ("PartNumber", "-4")
    error = said(wire.request(server, "POST", target, body=document.format(2, "x").encode()), 400, "InvalidPart")
    assert error["Message"].startswith("One or more of the specified parts could not be found. ")
    assert error["PartNumber"] == "2"
    s3.complete_multipart_upload(**where, MultipartUpload={"Parts": [{"PartNumber": 1, "ETag": part["ETag"]}]})
    error = said(wire.request(server, "GET", f"/{bucket}/k?partNumber=2"), 416, "InvalidPartNumber")
    assert error["Message"] == "The requested partnumber is not satisfiable"
    assert (error["ActualPartCount"], error["PartNumberRequested"]) == ("1", "2")


def test_arguments(server, bucket):
    for query, name, value in (("max-keys=-1", "max-keys", "-1"), ("uploads&max-uploads=-1", "max-uploads", "-1")):
        error = said(wire.request(server, "GET", f"/{bucket}?{query}"), 400, "InvalidArgument")
        assert error["Message"] == f"Argument {name} must be an integer between 0 and 2147483647"
        assert (error["ArgumentName"], error["ArgumentValue"]) == (name, value)
    for query, name in (("max-keys=x", "max-keys"), ("uploads&max-uploads=1x", "max-uploads")):
        error = said(wire.request(server, "GET", f"/{bucket}?{query}"), 400, "InvalidArgument")
        assert error["Message"] == f"Provided {name} not an integer or within integer range"
        assert error["ArgumentName"] == name
    error = said(wire.request(server, "GET", f"/{bucket}/k?partNumber=x"), 400, "InvalidArgument")
    assert (error["ArgumentName"], error["ArgumentValue"]) == ("partNumber", "x")
    error = said(wire.request(server, "GET", f"/{bucket}/k?versionId=no-version"), 400, "InvalidArgument")
    assert (error["ArgumentName"], error["ArgumentValue"]) == ("versionId", "no-version")


@pytest.mark.parametrize("method,path,headers,name,value", [
    ("GET", "{}?encoding-type=base64", {}, "encoding-type", "base64"),
    ("GET", "{}?versions&encoding-type=x", {}, "encoding-type", "x"),
    ("GET", "{}?list-type=2&continuation-token=x", {}, "continuation-token", None),
    ("GET", "?max-buckets=0", {}, "max-buckets", "0"),
    ("GET", "?continuation-token=x", {}, "continuation-token", None),
    ("GET", "{}?versions&version-id-marker=null", {}, "version-id-marker", "null"),
    ("GET", "{}?versions&key-marker=k&version-id-marker=x", {}, "version-id-marker", "x"),
    ("GET", "{}/k?response-colour=red", {}, "response-colour", "red"),
    ("PUT", "{}/k?partNumber=1", {}, "partNumber", None),
    ("PUT", "{}-other", {"x-amz-object-ownership": "x"}, "x-amz-object-ownership", None),
    ("PUT", "{}?acl", {"x-amz-acl": "public"}, "x-amz-acl", "public"),
    ("PUT", "{}?acl", {"x-amz-grant-read": "bob"}, "x-amz-grant-read", "bob"),
    ("PUT", "{}?acl", {"x-amz-grant-read": "id=nobody"}, "id", "nobody"),
    ("PUT", "{}?acl", {"x-amz-grant-read": "uri=http://group"}, "uri", "http://group"),
    ("PUT", "{}/k", {"x-amz-copy-source": "/bucket/"}, "x-amz-copy-source", None),
    ("PUT", "{}/k", {"x-amz-copy-source": "/bucket/%zz"}, "x-amz-copy-source", "/bucket/%zz"),
    ("PUT", "{}/k", {"x-amz-copy-source": "/bucket/k", "x-amz-metadata-directive": "x"},
     "x-amz-metadata-directive", "x"),
    ("PUT", "{}/k", {"x-amz-object-lock-mode": "GOVERNANCE"}, "x-amz-object-lock-retain-until-date", None),
    ("PUT", "{}/k", {"x-amz-object-lock-mode": "x", "x-amz-object-lock-retain-until-date": "2099-01-01T00:00:00Z"},
     "x-amz-object-lock-mode", "x"),
    ("PUT", "{}/k", {"x-amz-object-lock-legal-hold": "on"}, "x-amz-object-lock-legal-hold", "on"),
    ("PUT", "{}/k", {"x-amz-server-side-encryption": "x"}, "x-amz-server-side-encryption", "x"),
    ("PUT", "{}/k", {"x-amz-server-side-encryption-customer-algorithm": "AES256"},
     "x-amz-server-side-encryption", None),
    ("DELETE", "{}/k", {"x-amz-if-match-size": "-1"}, "x-amz-if-match-size", "-1"),
])
def test_arguments_are_named(server, bucket, method, path, headers, name, value):
    reply = wire.request(server, method, "/" + path.format(bucket), headers)
    error = said(reply, 400, "InvalidArgument")
    assert (error["ArgumentName"], error.get("ArgumentValue")) == (name, value), error


def test_cross_origin_requests(server, s3, bucket):
    def refused(message):
        asked = {"origin": "http://a", "access-control-request-method": "PUT"}
        error = said(wire.plain(server, "OPTIONS", f"/{bucket}/k", asked), 403, "AccessForbidden")
        assert (error["Message"], error["Method"], error["ResourceType"]) == (message, "PUT", "OBJECT")

    refused("CORSResponse: CORS is not enabled for this bucket.")
    rule = {"AllowedMethods": ["GET"], "AllowedOrigins": ["*"]}
    s3.put_bucket_cors(Bucket=bucket, CORSConfiguration={"CORSRules": [rule]})
    soon(lambda: refused(
        "CORSResponse: This CORS request is not allowed. This is usually because the evalution of Origin, request "
        "method / Access-Control-Request-Method or Access-Control-Request-Headers are not whitelisted by the "
        "resource's CORS spec."))


@pytest.mark.parametrize("query,document,code,message", [
    ("cors", "<CORSConfiguration><CORSRule><AllowedMethod>PATCH</AllowedMethod><AllowedOrigin>*</AllowedOrigin>"
             "</CORSRule></CORSConfiguration>", "InvalidRequest",
     "Found unsupported HTTP method in CORS config. Unsupported method is PATCH"),
    ("lifecycle", "<LifecycleConfiguration><Rule><Prefix/><Status>Enabled</Status></Rule></LifecycleConfiguration>",
     "InvalidRequest", "At least one action needs to be specified in a rule"),
    ("tagging", "<Tagging><TagSet><Tag><Key>aws:a</Key><Value/></Tag></TagSet></Tagging>", "InvalidTag",
     "System tags cannot be added/updated by requester"),
    ("notification", "<NotificationConfiguration><QueueConfiguration><Queue>x</Queue><Event>s3:ObjectCreated:*</Event>"
                     "</QueueConfiguration></NotificationConfiguration>", "InvalidArgument",
     "The ARN could not be parsed"),
])
def test_settings_that_make_no_sense(server, bucket, query, document, code, message):
    body = document.encode()
    digest = {"content-md5": encoded(hashlib.md5(body).digest())}
    error = said(wire.request(server, "PUT", f"/{bucket}?{query}", digest, body), 400, code)
    assert error["Message"] == message
