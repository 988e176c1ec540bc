"""PostObject: uploads by HTML form, with policies of every kind."""

import base64
import datetime
import hashlib
import hmac
import json
import os

import pytest
import urllib3

from harness import server as harness
from harness import wire
from harness.checksums import checksum
from helpers import absent, assert_refused, get
from with_version_2 import s3, server  # noqa: F401

MIB = 1 << 20
POOL = urllib3.PoolManager()


def post(server, bucket, fields, file=b"bar", name="foo.txt", redirect=False):
    """Sends a form; a field may be given as (name, value) pairs to say their order."""
    fields = list(fields.items() if isinstance(fields, dict) else fields)
    if file is not None:
        fields.append(("file", (name, file)))
    return POOL.request("POST", f"{server.endpoint}/{bucket}", fields=fields, redirect=redirect)


def code(reply):
    text = reply.data.decode()
    return text.partition("<Code>")[2].partition("</Code>")[0]


def refused(reply, status, *codes):
    assert reply.status == status and code(reply) in codes, (reply.status, reply.data)
    assert "<RequestId>" in reply.data.decode() and reply.headers["x-amz-id-2"]


def policy_of(conditions, seconds=600, **how):
    expires = datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(seconds=seconds)
    document = {"expiration": expires.strftime("%Y-%m-%dT%H:%M:%SZ"), "conditions": conditions, **how}
    return base64.b64encode(json.dumps(document).encode()).decode()


def signed_v2(policy, **fields):
    digest = hmac.new(harness.SECRET_KEY.encode(), policy.encode(), hashlib.sha1).digest()
    return {**fields, "AWSAccessKeyId": harness.ACCESS_KEY, "policy": policy,
            "signature": base64.b64encode(digest).decode()}


def usual(bucket, *more):
    return [{"bucket": bucket}, ["starts-with", "$key", "foo"], ["content-length-range", 0, 1024], *more]


def test_boto3_makes_a_form(server, s3, bucket):
    made = s3.generate_presigned_post(bucket, "foo.txt", Fields={"acl": "private", "Content-Type": "text/plain"},
                                      Conditions=[{"acl": "private"}, {"Content-Type": "text/plain"}])
    reply = post(server, bucket, made["fields"])
    assert (reply.status, reply.data) == (204, b"")
    response = s3.get_object(Bucket=bucket, Key="foo.txt")
    assert (response["Body"].read(), response["ContentType"]) == (b"bar", "text/plain")
    assert reply.headers["ETag"] == response["ETag"]
    assert reply.headers["Location"] == f"{server.endpoint}/{bucket}/foo.txt"


def test_version_2(server, s3, bucket):
    fields = signed_v2(policy_of(usual(bucket)), key="foo.txt")
    assert post(server, bucket, fields).status == 204
    assert get(s3, bucket, "foo.txt") == b"bar"
    refused(post(server, bucket, {**fields, "signature": "x"}), 403, "SignatureDoesNotMatch")
    refused(post(server, bucket, {**fields, "AWSAccessKeyId": "foo"}), 403, "InvalidAccessKeyId")
    del fields["signature"]
    refused(post(server, bucket, fields), 400, "InvalidArgument")


def test_no_case(server, s3, bucket):
    conditions = [{"bUcKeT": bucket}, ["StArTs-WiTh", "$KeY", "foo"], {"AcL": "private"},
                  ["StArTs-WiTh", "$CoNtEnT-TyPe", "text/plain"], ["content-length-range", 0, 1024]]
    fields = signed_v2(policy_of(conditions), kEy="foo.txt", aCl="private")
    fields["pOLICy"] = fields.pop("policy")
    fields["Content-Type"] = "text/plain"
    assert post(server, bucket, fields).status == 204
    assert get(s3, bucket, "foo.txt") == b"bar"


@pytest.mark.parametrize("size", [0, 1, 3 * MIB, 20 * MIB])
def test_files_of_any_size(server, s3, bucket, size):
    data = os.urandom(size)
    fields = signed_v2(policy_of([{"bucket": bucket}, {"key": "foo"}]), key="foo")
    assert post(server, bucket, fields, data).status == 204
    assert get(s3, bucket, "foo") == data


def test_a_large_file_is_not_held(server, s3, bucket):
    size = 256 * MIB
    fields = signed_v2(policy_of([{"bucket": bucket}, {"key": "foo"}]), key="foo")
    body, content_type = urllib3.encode_multipart_formdata([*fields.items(), ("file", ("n", b"<here>"))])
    before_file, _, behind_file = body.partition(b"<here>")
    length = len(before_file) + size + len(behind_file)
    head = {"host": server.host, "content-type": content_type, "content-length": str(length)}
    piece = b"\r\n--" * (MIB // 4)
    before = server.rss_bytes()
    with wire.Wire(server, 60) as connection:
        connection.send(wire.head("POST", f"/{bucket}", head) + before_file)
        for _ in range(size // MIB):
            connection.send(piece)
        connection.send(behind_file)
        reply = connection.reply("POST")
    assert reply.status == 204, reply
    assert server.rss_bytes() - before < 160 * MIB
    assert s3.head_object(Bucket=bucket, Key="foo")["ContentLength"] == size


def test_the_name_of_the_file(server, s3, bucket):
    fields = signed_v2(policy_of(usual(bucket)), key="foo/${filename}")
    assert post(server, bucket, fields, name="C:\\dir\\name.txt").status == 204
    assert get(s3, bucket, "foo/name.txt") == b"bar"


def test_keys_that_need_encoding(server, s3, bucket):
    for key in ("foo a+b%/é?&=\"<", "foo/../bar", "foo\\$x"):
        fields = signed_v2(policy_of(usual(bucket)), key=key, success_action_status="201")
        refused(post(server, bucket, fields), 403, "AccessDenied")
        fields = signed_v2(policy_of(usual(bucket, {"success_action_status": "201"})), key=key,
                           success_action_status="201")
        reply = post(server, bucket, fields)
        assert reply.status == 201 and f"<Bucket>{bucket}</Bucket>".encode() in reply.data
        assert get(s3, bucket, key) == b"bar"


def test_replies(server, s3, bucket):
    def ask(**fields):
        more = [["starts-with", f"${name}", ""] for name in fields]
        return post(server, bucket, signed_v2(policy_of(usual(bucket, *more)), key="foo.txt", **fields))

    for asked, status in (("200", 200), ("204", 204), ("404", 204), ("", 204)):
        reply = ask(success_action_status=asked)
        assert (reply.status, reply.data) == (status, b"")
    reply = ask(success_action_status="201")
    etag = s3.head_object(Bucket=bucket, Key="foo.txt")["ETag"]
    assert reply.status == 201 and reply.headers["content-type"] == "application/xml"
    for part in ("<Key>foo.txt</Key>", f"<Location>{server.endpoint}/{bucket}/foo.txt</Location>"):
        assert part in reply.data.decode()
    page = f"{server.endpoint}/page"
    reply = ask(success_action_redirect=page)
    quoted = etag.replace('"', "%22")
    assert reply.status == 303
    assert reply.headers["Location"] == f"{page}?bucket={bucket}&key=foo.txt&etag={quoted}"
    assert ask(success_action_redirect="nonsense").status == 204


def test_what_the_object_says_of_itself(server, s3, bucket):
    tags = "<Tagging><TagSet><Tag><Key>a</Key><Value>1 - 2</Value></Tag></TagSet></Tagging>"
    names = {"x-amz-meta-foo": "barclamp", "Cache-Control": "no-cache", "tagging": tags,
             "x-amz-checksum-sha256": checksum("sha256", b"bar")}
    conditions = usual(bucket, *[["starts-with", f"${name}", ""] for name in names])
    assert post(server, bucket, signed_v2(policy_of(conditions), key="foo", **names)).status == 204
    head = s3.head_object(Bucket=bucket, Key="foo", ChecksumMode="ENABLED")
    assert head["Metadata"] == {"foo": "barclamp"} and head["CacheControl"] == "no-cache"
    assert head["ChecksumSHA256"] == names["x-amz-checksum-sha256"]
    found = s3.get_object_tagging(Bucket=bucket, Key="foo")["TagSet"]
    assert found == [{"Key": "a", "Value": "1 - 2"}]
    names["x-amz-checksum-sha256"] = checksum("sha256", b"other")
    fields = signed_v2(policy_of(conditions), key="foo2", **names)
    refused(post(server, bucket, fields), 400, "BadDigest")
    absent(s3, bucket, "foo2")


@pytest.mark.parametrize("least,most,expected", [
    (0, 0, "EntityTooLarge"), (512, 1000, "EntityTooSmall"), (4, 5, "EntityTooSmall"), (3, 3, None)])
def test_sizes(server, s3, bucket, least, most, expected):
    conditions = [{"bucket": bucket}, {"key": "foo"}, ["content-length-range", least, most]]
    reply = post(server, bucket, signed_v2(policy_of(conditions), key="foo"))
    if expected:
        refused(reply, 400, expected)
        absent(s3, bucket, "foo")
    else:
        assert reply.status == 204


def test_policies_that_do_not_allow_it(server, s3, bucket):
    def denied(conditions, **fields):
        refused(post(server, bucket, signed_v2(policy_of(conditions), **fields)), 403, "AccessDenied")

    denied([["starts-with", "$key", "foo"]], key="foo")
    denied([{"bucket": "another"}, ["starts-with", "$key", "foo"]], key="foo")
    denied(usual(bucket), key="bar")
    denied(usual(bucket, ["starts-with", "$x-amz-meta-foo", "bar"]), key="foo")
    denied(usual(bucket, ["eq", "$x-amz-meta-foo", ""]), key="foo", **{"x-amz-meta-foo": "bar"})
    denied(usual(bucket), key="foo", acl="private")
    assert post(server, bucket, signed_v2(policy_of(usual(bucket)), key="foo", **{"x-ignore-a": "b"})).status == 204
    expired = signed_v2(policy_of(usual(bucket), seconds=-600), key="foo")
    refused(post(server, bucket, expired), 403, "AccessDenied")


def test_a_field_that_may_be_anything_may_be_missing(server, s3, bucket):
    policy = policy_of(usual(bucket, ["starts-with", "$x-amz-meta-a", ""]))
    assert post(server, bucket, signed_v2(policy, key="foo")).status == 204


def test_a_checksum_needs_no_condition(server, s3, bucket):
    form = lambda text: signed_v2(policy_of(usual(bucket)), key="foo", **{"x-amz-checksum-sha256": text})
    refused(post(server, bucket, form(checksum("sha256", b"other"))), 400, "BadDigest")
    absent(s3, bucket, "foo")
    assert post(server, bucket, form(checksum("sha256", b"bar"))).status == 204


def test_a_redirect_may_lead_to_the_bucket(server, s3, bucket):
    to = f"{server.endpoint}/{bucket}"
    policy = policy_of(usual(bucket, {"success_action_redirect": to}))
    reply = post(server, bucket, signed_v2(policy, key="foo", success_action_redirect=to))
    assert reply.status == 303
    target = reply.headers["location"].removeprefix(server.endpoint)
    reply = wire.request(server, "GET", target)
    assert reply.status == 200 and b"<Key>foo</Key>" in reply.body, reply.body


@pytest.mark.parametrize("document", [
    {"conditions": [["starts-with", "$key", "foo"]]}, {"expiration": "2100-01-01T00:00:00Z"},
    {"EXPIRATION": "2100-01-01T00:00:00Z", "conditions": []}, {"expiration": "2100-01-01T00:00:00Z", "CONDITIONS": []},
    {"expiration": "2100-01-01 00:00:00+00:00", "conditions": []},
    {"expiration": "2100-01-01T00:00:00Z", "conditions": [{}]},
    {"expiration": "2100-01-01T00:00:00Z", "conditions": [["content-length-range", 0]]},
    {"expiration": "2100-01-01T00:00:00Z", "conditions": [["content-length-range", -1, 0]]},
    [], "x", 7], ids=lambda document: str(document)[:40])
def test_policies_that_are_none(server, bucket, document):
    policy = base64.b64encode(json.dumps(document).encode()).decode()
    refused(post(server, bucket, signed_v2(policy, key="foo")), 400, "InvalidPolicyDocument")


def test_forms_that_are_none(server, s3, bucket):
    good = signed_v2(policy_of(usual(bucket)))
    refused(post(server, bucket, good), 400, "InvalidArgument")
    refused(post(server, bucket, {**good, "key": "foo"}, file=None), 400, "InvalidArgument")
    twice = list(good.items()) + [("key", "foo1"), ("Key", "foo2")]
    refused(post(server, bucket, twice), 400, "InvalidArgument")
    long = {**good, "key": "foo", "x-ignore-a": "x" * 21_000}
    refused(post(server, bucket, long), 400, "MaxPostPreDataLengthExceededError")
    refused(post(server, bucket, {**good, "key": "foo" + "x" * 1100}), 400, "KeyTooLongError")
    refused(post(server, "none-there", signed_v2(policy_of(usual("none-there")), key="foo")), 404, "NoSuchBucket")
    assert s3.list_objects_v2(Bucket=bucket)["KeyCount"] == 0


def test_a_form_that_breaks_off(server, s3, bucket):
    fields = signed_v2(policy_of(usual(bucket)), key="foo")
    body, content_type = urllib3.encode_multipart_formdata([*fields.items(), ("file", ("n", b"x" * 500))])
    head = {"host": server.host, "content-type": content_type, "content-length": str(len(body))}
    for cut in (10, 100, len(body) // 2, len(body) - 3):
        with wire.Wire(server) as connection:
            connection.send(wire.head("POST", f"/{bucket}", head) + body[:cut])
            connection.half_close()
            reply = connection.reply("POST")
        assert reply is None or reply.status == 400, reply
    short = {**head, "content-length": str(len(body) - 20)}
    reply = wire.exchange(server, wire.head("POST", f"/{bucket}", short) + body[:-20], "POST")
    assert_refused(reply, 400, "MalformedPOSTRequest", "IncompleteBody")
    absent(s3, bucket, "foo")


def test_what_is_no_form(server, bucket):
    assert_refused(wire.request(server, "POST", f"/{bucket}", body=b"x"), 412, "PreconditionFailed")
    body = b'--x\r\nContent-Disposition: form-data; name="key"\r\n\r\nk\r\n--x--\r\n'
    headers = {"content-type": "multipart/form-data; boundary=x"}
    reply = wire.plain(server, "POST", f"/{bucket}", headers, body)
    assert_refused(reply, 400, "InvalidArgument")
    assert_refused(wire.request(server, "POST", f"/{bucket}", headers, body), 400, "InvalidArgument")
    reply = wire.plain(server, "POST", f"/{bucket}", {"content-type": "multipart/form-data"}, body)
    assert_refused(reply, 400, "MalformedPOSTRequest")


def test_a_long_name_of_a_file_is_not_written_out_a_thousand_times(server, bucket):
    """Forms are read before it is known who sent them: what they take must not grow with what they say."""
    many = post(server, bucket, {"key": "${filename}" * 1500}, name="n" * 40_000)
    refused(many, 400, "MaxPostPreDataLengthExceededError")


def test_only_fields_say_what_the_object_is_like(server, s3, bucket):
    """A policy speaks of fields; what the request that brings the form says is of that request."""
    made = signed_v2(policy_of(usual(bucket)), key="foo")
    said = {"cache-control": "max-age=99", "content-disposition": "attachment", "content-language": "de",
            "expires": "Thu, 01 Dec 2094 16:00:00 GMT"}
    fields = [*made.items(), ("file", ("foo.txt", b"bar"))]
    reply = POOL.request("POST", f"{server.endpoint}/{bucket}", fields=fields,
                         headers={**said, "x-martlet-consistency": "bogus"})
    assert reply.status == 204
    found = s3.head_object(Bucket=bucket, Key="foo")["ResponseMetadata"]["HTTPHeaders"]
    assert not [name for name in said if name in found], found
