"""Objects: bytes, headers and metadata come back as they were given."""

import concurrent.futures
import datetime
import os

import pytest

from harness import wire
from helpers import absent, get, header, md5, refused, status

KIB, MIB = 1 << 10, 1 << 20

# Around every bound of the engine: inline, packed, file, block, extent.
SIZES = [0, 1, 4095, 4096, 8 * KIB, 8 * KIB + 1, 64 * KIB, MIB - 1, MIB, MIB + 1,
         5 * MIB + 3, 64 * MIB, 64 * MIB + 1]


@pytest.mark.parametrize("size", SIZES)
def test_sizes(s3, bucket, size):
    data = os.urandom(size)
    put = s3.put_object(Bucket=bucket, Key="k", Body=data)
    assert put["ETag"] == f'"{md5(data)}"'
    response = s3.get_object(Bucket=bucket, Key="k")
    assert response["Body"].read() == data
    assert (response["ContentLength"], response["ETag"]) == (size, put["ETag"])
    head = s3.head_object(Bucket=bucket, Key="k")
    assert (head["ContentLength"], head["ETag"]) == (size, put["ETag"])


@pytest.mark.parametrize("key", [
    "plain", "with space", "two  spaces", "plus+plus", "percent%25", "%", "%41", "ünïcödé/日本語/🦅",
    "a//b", "/leading", "trailing/", "//", "/", ".", "..", "../up", "a/../b", "a/./b", "a/..", "./a",
    "~!@#$^&*()=[]{}|;:',<>?\"\\`", "tab\there", "k" * 1024, "日" * 341, "\u00e9", "e\u0301",
    "\ufeffbom", "<Key>&amp;", "newline\nin", "carriage\rreturn", "\x7f",
])
def test_keys_are_one_flat_space(s3, bucket, key):
    s3.put_object(Bucket=bucket, Key=key, Body=key.encode())
    assert get(s3, bucket, key) == key.encode()
    assert s3.head_object(Bucket=bucket, Key=key)["ContentLength"] == len(key.encode())
    keys = [item["Key"] for item in s3.list_objects_v2(Bucket=bucket)["Contents"]]
    assert keys == [key]
    s3.delete_object(Bucket=bucket, Key=key)
    with refused("NoSuchKey", 404):
        get(s3, bucket, key)


def test_alike_keys_stay_apart(s3, bucket):
    keys = ["a", "a/", "a//", "A", "a/b", "a//b", "a/./b", "a/../a/b", "%61", "\u00e9", "e\u0301"]
    for key in keys:
        s3.put_object(Bucket=bucket, Key=key, Body=key.encode())
    for key in keys:
        assert get(s3, bucket, key) == key.encode()
    listed = [item["Key"] for item in s3.list_objects_v2(Bucket=bucket)["Contents"]]
    assert listed == sorted(keys, key=str.encode)


def test_headers_and_metadata_come_back(s3, bucket):
    given = {
        "ContentType": "application/x-safetensors", "ContentEncoding": "gzip",
        "ContentDisposition": 'attachment; filename="x"', "ContentLanguage": "rm",
        "CacheControl": "max-age=7", "Metadata": {"epoch": "7", "note": "a b  c"},
    }
    expires = datetime.datetime(2040, 1, 2, 3, 4, 5, tzinfo=datetime.timezone.utc)
    s3.put_object(Bucket=bucket, Key="k", Body=b"x", Expires=expires, **given)
    for response in (s3.get_object(Bucket=bucket, Key="k"), s3.head_object(Bucket=bucket, Key="k")):
        assert {name: response.get(name) for name in given} == given
        assert header(response, "expires") == "Mon, 02 Jan 2040 03:04:05 GMT"


def test_metadata_has_a_limit(s3, bucket):
    s3.put_object(Bucket=bucket, Key="k", Body=b"", Metadata={"a": "x" * 2047})
    with refused("MetadataTooLarge", 400):
        s3.put_object(Bucket=bucket, Key="k2", Body=b"", Metadata={"a": "x" * 2048})
    absent(s3, bucket, "k2")


def test_a_type_is_given_where_none_came(s3, server, bucket):
    assert wire.request(server, "PUT", f"/{bucket}/k", body=b"x").status == 200
    assert s3.head_object(Bucket=bucket, Key="k")["ContentType"] == "binary/octet-stream"


def test_response_overrides(s3, bucket):
    s3.put_object(Bucket=bucket, Key="k", Body=b"x", ContentType="text/plain")
    response = s3.get_object(
        Bucket=bucket, Key="k", ResponseContentType="text/csv", ResponseCacheControl="no-store",
        ResponseContentDisposition="inline", ResponseContentEncoding="identity",
        ResponseContentLanguage="en", ResponseExpires=datetime.datetime(2030, 1, 1))
    assert response["ContentType"] == "text/csv" and response["CacheControl"] == "no-store"
    assert response["ContentDisposition"] == "inline" and response["ContentLanguage"] == "en"
    assert response["ContentEncoding"] == "identity"
    assert header(response, "expires").endswith("2030 00:00:00 GMT")
    assert s3.head_object(Bucket=bucket, Key="k")["ContentType"] == "text/plain"


@pytest.mark.parametrize("method", ["GET", "HEAD"])
def test_response_overrides_are_sent_as_they_came(server, s3, bucket, method):
    s3.put_object(Bucket=bucket, Key="k", Body=b"x", Expires=datetime.datetime(2030, 1, 1))
    # It was a Sunday.
    target = f"/{bucket}/k?response-expires=Thu%2C%2001%20Dec%202024%2016%3A00%3A00%20GMT"
    reply = wire.request(server, method, target)
    assert (reply.status, reply.headers["expires"]) == (200, "Thu, 01 Dec 2024 16:00:00 GMT")
    reply = wire.request(server, method, f"/{bucket}/k?response-content-type=a&response-nonsense=b")
    assert reply.status == 400 and reply.code in (None, "InvalidArgument"), reply


def test_overwrite_is_seen_at_once(s3, bucket):
    for turn in range(20):
        data = os.urandom(100 if turn % 2 else 20_000)
        s3.put_object(Bucket=bucket, Key="k", Body=data)
        assert get(s3, bucket, "k") == data
    assert s3.list_objects_v2(Bucket=bucket)["KeyCount"] == 1


def test_readers_see_one_version_or_the_other(s3, bucket):
    versions = [bytes([byte]) * (3 * MIB) for byte in range(6)]
    s3.put_object(Bucket=bucket, Key="k", Body=versions[0])
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        writes = [pool.submit(s3.put_object, Bucket=bucket, Key="k", Body=v) for v in versions]
        reads = [pool.submit(get, s3, bucket, "k") for _ in range(24)]
        for read in reads:
            data = read.result()
            assert len(data) == 3 * MIB and data == data[:1] * (3 * MIB)
        for write in writes:
            write.result()


def test_delete_is_idempotent_and_seen_at_once(s3, bucket):
    s3.put_object(Bucket=bucket, Key="k", Body=b"x")
    for _ in range(2):
        assert status(s3.delete_object(Bucket=bucket, Key="k")) == 204
        absent(s3, bucket, "k")
    s3.put_object(Bucket=bucket, Key="k", Body=b"again")
    assert get(s3, bucket, "k") == b"again"


def test_delete_many(s3, bucket):
    keys = [f"k/{n:04}" for n in range(1000)]
    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        list(pool.map(lambda key: s3.put_object(Bucket=bucket, Key=key, Body=b"x"), keys))
    objects = [{"Key": key} for key in keys]
    gone = s3.delete_objects(Bucket=bucket, Delete={"Objects": objects})
    assert sorted(item["Key"] for item in gone["Deleted"]) == keys
    assert s3.list_objects_v2(Bucket=bucket)["KeyCount"] == 0
    # Absent keys count as deleted; quiet says nothing of them.
    assert len(s3.delete_objects(Bucket=bucket, Delete={"Objects": objects[:3]})["Deleted"]) == 3
    quiet = s3.delete_objects(Bucket=bucket, Delete={"Objects": objects[:3], "Quiet": True})
    assert "Deleted" not in quiet and "Errors" not in quiet


def test_delete_many_odd_keys(s3, bucket):
    keys = ["a b", "a+b", "<&>\"'", "日本", "..", "a//b", "trailing/", "  spaces  "]
    for key in keys:
        s3.put_object(Bucket=bucket, Key=key, Body=b"x")
    gone = s3.delete_objects(Bucket=bucket, Delete={"Objects": [{"Key": key} for key in keys]})
    assert sorted(item["Key"] for item in gone["Deleted"]) == sorted(keys)
    assert s3.list_objects_v2(Bucket=bucket)["KeyCount"] == 0


def test_expect_100_continue(server, s3, bucket):
    data = os.urandom(100_000)
    head = wire.head("PUT", f"/{bucket}/k", wire.Signer().headers(
        "PUT", f"/{bucket}/k",
        {"host": server.host, "content-length": str(len(data)), "expect": "100-continue"},
        unsigned=("content-length", "expect")))
    with wire.Wire(server) as connection:
        connection.send(head)
        assert connection.socket.recv(1000).startswith(b"HTTP/1.1 100")
        connection.send(data)
        assert connection.reply("PUT").status == 200
    assert get(s3, bucket, "k") == data


def test_a_refused_put_is_refused_before_its_body_is_sent(server, bucket):
    headers = wire.Signer(secret="wrong").headers(
        "PUT", f"/{bucket}/k", {"host": server.host, "content-length": "1000000",
                                "expect": "100-continue"}, unsigned=("content-length", "expect"))
    reply = wire.exchange(server, wire.head("PUT", f"/{bucket}/k", headers), "PUT")
    assert reply.status == 403


def test_a_put_without_a_length(server, s3, bucket):
    reply = wire.request(server, "PUT", f"/{bucket}/k", framed=False)
    assert (reply.status, reply.code) == (411, "MissingContentLength")
    chunked = {"transfer-encoding": "chunked"}
    reply = wire.request(server, "PUT", f"/{bucket}/k", chunked, b"3\r\nabc\r\n0\r\n\r\n", framed=False)
    assert reply.status == 200 and get(s3, bucket, "k") == b"abc"


def test_date_headers_have_their_form(server, s3, bucket):
    s3.put_object(Bucket=bucket, Key="k", Body=b"x")
    reply = wire.request(server, "GET", f"/{bucket}/k")
    moment = datetime.datetime.strptime(reply.headers["last-modified"], "%a, %d %b %Y %H:%M:%S GMT")
    assert abs((datetime.datetime.utcnow() - moment).total_seconds()) < 120
    assert reply.headers["accept-ranges"] == "bytes"
