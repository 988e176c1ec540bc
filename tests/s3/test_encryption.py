"""Encryption: by keys of customers (SSE-C), by the server's (SSE-S3), and by default of a bucket."""

import base64
import hashlib
import os
import urllib.request

import pytest

from conftest import client_for, running_server
from harness import wire
from helpers import assert_refused, get, header, md5, refused, status
from test_post import policy_of, post, signed_v2, usual
from with_version_2 import s3, server  # noqa: F401

MIB = 1 << 20
CHUNK = 64 * 1024
NOTHING = {}
OURS = {"ServerSideEncryption": "AES256"}


def theirs(byte, prefix="SSECustomer"):
    return {f"{prefix}Algorithm": "AES256", f"{prefix}Key": bytes([byte]) * 32}


def source(byte):
    return theirs(byte, "CopySourceSSECustomer")


def to_read(how):
    return {} if how == OURS else how


def key_md5(byte):
    return base64.b64encode(hashlib.md5(bytes([byte]) * 32).digest()).decode()


def headers(byte, **other):
    start = "x-amz-server-side-encryption-customer-"
    named = {"algorithm": "AES256", "key": base64.b64encode(bytes([byte]) * 32).decode(), "key-md5": key_md5(byte)}
    return {start + name: value for name, value in {**named, **other}.items() if value is not None}


def text(size):
    """Bytes that are easy to find, and differ from place to place."""
    return b"".join(b"plain text %012d\n" % at for at in range(size // 24 + 1))[:size]


def assert_told(response, how):
    told = {name: response.get(name) for name in ("ServerSideEncryption", "SSECustomerAlgorithm", "SSECustomerKeyMD5")}
    if how == OURS:
        assert told == {"ServerSideEncryption": "AES256", "SSECustomerAlgorithm": None, "SSECustomerKeyMD5": None}
    elif how:
        assert told["SSECustomerKeyMD5"] == key_md5(how["SSECustomerKey"][0]), told
        assert (told["SSECustomerAlgorithm"], told["ServerSideEncryption"]) == ("AES256", None)
    else:
        assert set(told.values()) == {None}


@pytest.mark.parametrize("how", [theirs(1), OURS], ids=["theirs", "ours"])
@pytest.mark.parametrize("size", [0, 1, 13, 1024, 8192, 8193, CHUNK, CHUNK + 1, MIB, 9 * MIB + 5])
def test_what_was_put_is_got(s3, bucket, how, size):
    data = text(size)
    put = s3.put_object(Bucket=bucket, Key="k", Body=data, **how)
    assert_told(put, how)
    assert put["ETag"] == f'"{md5(data)}"'
    read = s3.get_object(Bucket=bucket, Key="k", **to_read(how))
    assert read["Body"].read() == data
    assert_told(read, how)
    head = s3.head_object(Bucket=bucket, Key="k", ChecksumMode="ENABLED", **to_read(how))
    assert_told(head, how)
    assert head["ContentLength"] == size and head["ETag"] == put["ETag"]
    assert head["ChecksumCRC32"] == put["ChecksumCRC32"]
    [listed] = s3.list_objects_v2(Bucket=bucket)["Contents"]
    assert (listed["Size"], listed["ETag"]) == (size, put["ETag"])


@pytest.mark.parametrize("how", [theirs(1), OURS], ids=["theirs", "ours"])
def test_ranges(s3, bucket, how):
    data = text(5 * CHUNK + 99)
    s3.put_object(Bucket=bucket, Key="k", Body=data, **how)
    for first, last in [(0, 0), (CHUNK - 1, CHUNK), (CHUNK, 2 * CHUNK - 1), (3, 4 * CHUNK + 5), (5 * CHUNK, 10**9)]:
        read = s3.get_object(Bucket=bucket, Key="k", Range=f"bytes={first}-{last}", **to_read(how))
        assert read["Body"].read() == data[first:last + 1]
        assert read["ContentRange"] == f"bytes {first}-{min(last, len(data) - 1)}/{len(data)}"
    assert get(s3, bucket, "k", Range="bytes=-7", **to_read(how)) == data[-7:]
    with refused("InvalidRange", 416):
        get(s3, bucket, "k", Range=f"bytes={len(data)}-", **to_read(how))


def test_wrong_and_missing_keys(s3, bucket):
    key = base64.b64encode(bytes([1]) * 32).decode()
    encoded = {"SSECustomerAlgorithm": "AES256", "SSECustomerKey": key, "SSECustomerKeyMD5": key_md5(1)}
    for size in (100, 100_000):
        s3.put_object(Bucket=bucket, Key="k", Body=text(size), **theirs(1))
        with refused("InvalidRequest", 400):
            s3.get_object(Bucket=bucket, Key="k")
        with refused("400", 400):
            s3.head_object(Bucket=bucket, Key="k")
        with refused("InvalidArgument", 400):
            s3.get_object(Bucket=bucket, Key="k", **theirs(2))
        with refused("400", 400):
            s3.head_object(Bucket=bucket, Key="k", **theirs(2))
        with refused("InvalidRequest", 400):
            s3.get_object_attributes(Bucket=bucket, Key="k", ObjectAttributes=["ObjectSize"])
        found = s3.get_object_attributes(Bucket=bucket, Key="k", ObjectAttributes=["ObjectSize"],
                                         **encoded)
        assert found["ObjectSize"] == size
    # What is said about an object needs no key.
    s3.put_object_tagging(Bucket=bucket, Key="k", Tagging={"TagSet": [{"Key": "a", "Value": "1"}]})
    assert s3.get_object_tagging(Bucket=bucket, Key="k")["TagSet"] == [{"Key": "a", "Value": "1"}]
    assert get(s3, bucket, "k", **theirs(1)) == text(100_000)


def test_keys_for_what_needs_none(s3, bucket, server):
    s3.put_object(Bucket=bucket, Key="plain", Body=b"x")
    s3.put_object(Bucket=bucket, Key="ours", Body=b"x", **OURS)
    for key in ("plain", "ours"):
        with refused("InvalidRequest", 400):
            s3.get_object(Bucket=bucket, Key=key, **theirs(1))
        reply = wire.request(server, "GET", f"/{bucket}/{key}", {"x-amz-server-side-encryption": "AES256"})
        assert_refused(reply, 400, "InvalidArgument")
    reply = wire.request(server, "DELETE", f"/{bucket}/plain", headers(1))
    assert_refused(reply, 501, "NotImplemented")


@pytest.mark.parametrize("other", [
    {"key-md5": "AAAAAAAAAAAAAAAAAAAAAA=="}, {"key-md5": None}, {"key": None}, {"algorithm": None}, {"key": "AAAA"},
    {"key": "?"}, {"key": None, "key-md5": None},
])
def test_keys_that_are_none(s3, bucket, server, other):
    for method in ("PUT", "GET"):
        reply = wire.request(server, method, f"/{bucket}/k", headers(1, **other), b"x" if method == "PUT" else b"")
        assert_refused(reply, 400, "InvalidArgument")
    assert s3.list_objects_v2(Bucket=bucket)["KeyCount"] == 0


@pytest.mark.parametrize("code,status_code,asked", [
    ("NotImplemented", 501, {"": "aws:kms"}),
    ("NotImplemented", 501, {"": "aws:kms", "-aws-kms-key-id": "k"}),
    ("InvalidArgument", 400, {"": "aes:kms", "-aws-kms-key-id": "k"}),
    ("InvalidArgument", 400, {"": "AES256", "-aws-kms-key-id": "k"}),
    ("InvalidArgument", 400, {"": "AES192"}),
    ("InvalidArgument", 400, {"": "AES256", "customer": 1}),
    ("InvalidArgument", 400, {"": "aws:kms", "customer": 1}),
    ("InvalidEncryptionAlgorithmError", 400, {"customer": 1, "-customer-algorithm": "AES192"}),
])
def test_what_can_not_be_had(s3, bucket, server, code, status_code, asked):
    asked = dict(asked)
    named = headers(asked.pop("customer")) if "customer" in asked else {}
    named.update({f"x-amz-server-side-encryption{name}": value for name, value in asked.items()})
    assert_refused(wire.request(server, "PUT", f"/{bucket}/k", named, b"x"), status_code, code)
    reply = wire.request(server, "POST", f"/{bucket}/k?uploads", named)
    assert_refused(reply, status_code, code)
    assert s3.list_objects_v2(Bucket=bucket)["KeyCount"] == 0


def send(s3, bucket, key, parts, how, part_how):
    begun = s3.create_multipart_upload(Bucket=bucket, Key=key, **how)
    assert_told(begun, how)
    done = []
    for number, data in parts:
        s3.upload_part(Bucket=bucket, Key=key, UploadId=begun["UploadId"], PartNumber=number,
                       Body=data[::-1], **part_how)
        part = s3.upload_part(Bucket=bucket, Key=key, UploadId=begun["UploadId"], PartNumber=number,
                              Body=data, **part_how)
        assert_told(part, how)
        done.append({"PartNumber": number, "ETag": part["ETag"]})
    listed = s3.list_parts(Bucket=bucket, Key=key, UploadId=begun["UploadId"])["Parts"]
    assert [part["Size"] for part in listed] == [len(data) for _, data in parts]
    return s3.complete_multipart_upload(Bucket=bucket, Key=key, UploadId=begun["UploadId"],
                                        MultipartUpload={"Parts": done}, **part_how)


@pytest.mark.parametrize("how", [theirs(1), OURS], ids=["theirs", "ours"])
def test_parts(s3, bucket, how):
    parts = [(2, text(5 * MIB)), (5, os.urandom(5 * MIB + 77)), (9, text(100))]
    whole = b"".join(data for _, data in parts)
    send(s3, bucket, "k", parts, how, to_read(how))
    read = s3.get_object(Bucket=bucket, Key="k", **to_read(how))
    assert read["Body"].read() == whole
    assert_told(read, how)
    for number, (_, data) in enumerate(parts, 1):
        part = s3.get_object(Bucket=bucket, Key="k", PartNumber=number, **to_read(how))
        assert part["Body"].read() == data and part["PartsCount"] == 3
    for first, last in [(5 * MIB - 1, 5 * MIB), (3, 10 * MIB + 80), (7 * MIB, 7 * MIB), (10 * MIB + 70, 10 * MIB + 90)]:
        assert get(s3, bucket, "k", Range=f"bytes={first}-{last}", **to_read(how)) == whole[first:last + 1]
    step = 1_000_000
    for at in range(0, len(whole), step):
        assert get(s3, bucket, "k", Range=f"bytes={at}-{at + step - 1}", **to_read(how)) == whole[at:at + step]


def test_parts_under_another_key(s3, bucket, server):
    for how, part_how in [(theirs(1), NOTHING), (theirs(1), theirs(2)), (NOTHING, theirs(1)), (OURS, theirs(1))]:
        upload = s3.create_multipart_upload(Bucket=bucket, Key="k", **how)["UploadId"]
        with refused("InvalidRequest", 400):
            s3.upload_part(Bucket=bucket, Key="k", UploadId=upload, PartNumber=1, Body=b"x", **part_how)
    for how, expected in [(NOTHING, 400), (OURS, 200)]:
        upload = s3.create_multipart_upload(Bucket=bucket, Key="k", **how)["UploadId"]
        target = f"/{bucket}/k?partNumber=1&uploadId={upload}"
        reply = wire.request(server, "PUT", target, {"x-amz-server-side-encryption": "AES256"}, b"x")
        assert reply.status == expected, reply


def test_the_key_at_the_end_of_an_upload_is_the_uploads(s3, bucket):
    for how, wrong in [(theirs(1), theirs(2)), (NOTHING, theirs(1)), (OURS, theirs(1))]:
        upload = s3.create_multipart_upload(Bucket=bucket, Key="k", **how)["UploadId"]
        place = {"Bucket": bucket, "Key": "k", "UploadId": upload}
        etag = s3.upload_part(**place, PartNumber=1, Body=b"x", **to_read(how))["ETag"]
        named = {"MultipartUpload": {"Parts": [{"PartNumber": 1, "ETag": etag}]}}
        with refused("InvalidRequest", 400):
            s3.complete_multipart_upload(**place, **named, **wrong)
        done = s3.complete_multipart_upload(**place, **named, **to_read(how))
        key_md5_told = header(done, "x-amz-server-side-encryption-customer-key-md5")
        assert key_md5_told == (key_md5(1) if how == theirs(1) else None)
        assert get(s3, bucket, "k", **to_read(how)) == b"x"


def test_the_end_of_an_upload_with_checksums_needs_its_key(s3, server, bucket):
    """As S3's reference has it; an upload without checksums of the client's needs none."""
    quiet = client_for(server, request_checksum_calculation="when_required")
    for client, begun_with, needs in [(s3, {}, True), (quiet, {}, False),
                                      (quiet, {"ChecksumAlgorithm": "SHA256"}, True)]:
        upload = client.create_multipart_upload(Bucket=bucket, Key="k", **theirs(1), **begun_with)["UploadId"]
        place = {"Bucket": bucket, "Key": "k", "UploadId": upload}
        part = client.upload_part(**place, PartNumber=1, Body=b"x", **theirs(1), **begun_with)
        named = {"PartNumber": 1, **{name: part[name] for name in ("ETag", "ChecksumSHA256") if name in part}}
        named = {"MultipartUpload": {"Parts": [named]}}
        if needs:
            with refused("InvalidRequest", 400):
                client.complete_multipart_upload(**place, **named)
            client.complete_multipart_upload(**place, **named, **theirs(1))
        else:
            client.complete_multipart_upload(**place, **named)
        assert get(s3, bucket, "k", **to_read(theirs(1))) == b"x"


def test_a_part_that_there_is_not(s3, bucket):
    for how in (theirs(1), OURS, NOTHING):
        s3.put_object(Bucket=bucket, Key="k", Body=b"body", **how)
        with refused("InvalidPartNumber", 416):
            s3.get_object(Bucket=bucket, Key="k", PartNumber=2, **to_read(how))
        assert get(s3, bucket, "k", PartNumber=1, **to_read(how)) == b"body"
        # Nobody has it, with any key or none.
        with refused("InvalidPartNumber", 416):
            s3.get_object(Bucket=bucket, Key="k", PartNumber=2)


@pytest.mark.parametrize("size", [1, 1024, 8 * MIB])
def test_copies(s3, bucket, size):
    data = text(size)
    for from_how in (NOTHING, OURS, theirs(1)):
        s3.put_object(Bucket=bucket, Key="from", Body=data, **from_how)
        of_source = source(1) if from_how == theirs(1) else {}
        for how in (NOTHING, OURS, theirs(2)):
            named = {"Bucket": bucket, "CopySource": f"{bucket}/from", **of_source}
            copied = s3.copy_object(Key="to", **named, **how)
            assert_told(copied, how)
            assert get(s3, bucket, "to", **to_read(how)) == data
            upload = s3.create_multipart_upload(Bucket=bucket, Key="to", **how)["UploadId"]
            part = s3.upload_part_copy(Key="to", UploadId=upload, PartNumber=3, CopySourceRange=f"bytes=0-{size - 1}",
                                       **named, **to_read(how))
            assert_told(part, how)
            done = {"Parts": [{"PartNumber": 3, "ETag": part["CopyPartResult"]["ETag"]}]}
            s3.complete_multipart_upload(Bucket=bucket, Key="to", UploadId=upload, MultipartUpload=done)
            read = s3.get_object(Bucket=bucket, Key="to", **to_read(how))
            assert read["Body"].read() == data
            assert_told(read, how)


def test_copies_need_the_key_of_their_source(s3, bucket):
    s3.put_object(Bucket=bucket, Key="from", Body=b"x", **theirs(1))
    s3.put_object(Bucket=bucket, Key="plain", Body=b"x")
    named = {"Bucket": bucket, "Key": "to"}
    with refused("InvalidRequest", 400):
        s3.copy_object(CopySource=f"{bucket}/from", **named)
    with refused("InvalidArgument", 400):
        s3.copy_object(CopySource=f"{bucket}/from", **named, **source(2))
    with refused("InvalidRequest", 400):
        s3.copy_object(CopySource=f"{bucket}/plain", **named, **source(1))
    # Onto itself, under another key.
    s3.copy_object(CopySource=f"{bucket}/from", Bucket=bucket, Key="from", **source(1), **theirs(2))
    assert get(s3, bucket, "from", **theirs(2)) == b"x"


def configuration(algorithm="AES256", **more):
    return {"Rules": [{"ApplyServerSideEncryptionByDefault": {"SSEAlgorithm": algorithm, **more}}]}


def test_the_default_of_a_bucket(server, s3, bucket):
    missing = "ServerSideEncryptionConfigurationNotFoundError"
    with refused(missing, 404):
        s3.get_bucket_encryption(Bucket=bucket)
    assert status(s3.delete_bucket_encryption(Bucket=bucket)) == 204
    s3.put_object(Bucket=bucket, Key="before", Body=b"x")
    s3.put_bucket_encryption(Bucket=bucket, ServerSideEncryptionConfiguration=configuration())
    found = s3.get_bucket_encryption(Bucket=bucket)["ServerSideEncryptionConfiguration"]["Rules"]
    assert [rule["ApplyServerSideEncryptionByDefault"] for rule in found] == [{"SSEAlgorithm": "AES256"}]
    assert_told(s3.head_object(Bucket=bucket, Key="before"), NOTHING)
    assert_told(s3.put_object(Bucket=bucket, Key="k", Body=text(1000)), OURS)
    assert_told(s3.get_object(Bucket=bucket, Key="k"), OURS)
    reply = wire.request(server, "HEAD", f"/{bucket}/k", {"x-amz-server-side-encryption": "AES256"})
    assert reply.status == 400
    assert_told(s3.put_object(Bucket=bucket, Key="k", Body=b"x", **theirs(1)), theirs(1))
    assert_told(s3.copy_object(Bucket=bucket, Key="k", CopySource=f"{bucket}/before"), OURS)
    upload = s3.create_multipart_upload(Bucket=bucket, Key="k")
    assert_told(upload, OURS)
    assert post(server, bucket, signed_v2(policy_of(usual(bucket)), key="foo")).status == 204
    assert_told(s3.head_object(Bucket=bucket, Key="foo"), OURS)
    s3.delete_bucket_encryption(Bucket=bucket)
    with refused(missing, 404):
        s3.get_bucket_encryption(Bucket=bucket)
    assert_told(s3.put_object(Bucket=bucket, Key="after", Body=b"x"), NOTHING)
    assert_told(s3.get_object(Bucket=bucket, Key="foo"), OURS)


@pytest.mark.parametrize("code,asked", [
    ("NotImplemented", configuration("aws:kms", KMSMasterKeyID="k")), ("NotImplemented", configuration("aws:kms")),
    ("InvalidArgument", configuration(KMSMasterKeyID="k")), ("MalformedXML", configuration("AES1")),
    ("MalformedXML", {"Rules": []}), ("MalformedXML", {"Rules": configuration()["Rules"] * 2}),
])
def test_defaults_that_are_none(s3, bucket, code, asked):
    with refused(code):
        s3.put_bucket_encryption(Bucket=bucket, ServerSideEncryptionConfiguration=asked)
    with refused("ServerSideEncryptionConfigurationNotFoundError", 404):
        s3.get_bucket_encryption(Bucket=bucket)


@pytest.mark.parametrize("body", [b"", b"<X/>", b"no document"])
def test_documents_that_are_none(server, bucket, body):
    reply = wire.request(server, "PUT", f"/{bucket}?encryption", body=body)
    assert_refused(reply, 400, "MalformedXML", "MissingRequestBodyError")


def test_a_form(server, s3, bucket):
    named = headers(1)
    conditions = usual(bucket, *[["starts-with", f"${name}", ""] for name in named])
    reply = post(server, bucket, signed_v2(policy_of(conditions), key="foo.txt", **named))
    assert reply.status == 204, reply.data
    assert get(s3, bucket, "foo.txt", **theirs(1)) == b"bar"
    with refused("InvalidRequest", 400):
        get(s3, bucket, "foo.txt")


def test_presigned(s3, bucket, server):
    url = client_for(server, signature_version="s3v4").generate_presigned_url("put_object", Params={"Bucket": bucket, "Key": "k", **theirs(1)})
    request = urllib.request.Request(url, data=b"x", method="PUT", headers=headers(1))
    with urllib.request.urlopen(request, timeout=60) as reply:
        assert reply.status == 200
    assert get(s3, bucket, "k", **theirs(1)) == b"x"


def found_in(folder, words):
    """Which of the words lie in which files, as (word, file name)."""
    found = set()
    for path in folder.rglob("*"):
        if not path.is_file():
            continue
        with open(path, "rb") as file:
            before = b""
            while piece := file.read(16 * MIB):
                held = before + piece
                found.update((word, path.name) for word in words if word in held)
                before = held[-64:]
    return found


def test_what_is_on_disk_and_what_a_lost_key_loses():
    """Only what is plain lies in clear; the master key is made once, and opens what it wrapped."""
    with running_server(settings={"MARTLET_RESERVE": "64MiB"}) as server:
        s3 = client_for(server)
        s3.create_bucket(Bucket="on-disk")
        words = {"plain": b"SeenByEverybody-", "ours": b"SealedByTheServer-", "theirs": b"SealedByTheClient-"}
        how = {"plain": NOTHING, "ours": OURS, "theirs": theirs(0xA7)}
        for name, word in words.items():
            for size in (3, 1000, 400_000):
                s3.put_object(Bucket="on-disk", Key=f"{name}-{size}", Body=word * size, **how[name])
            send(s3, "on-disk", f"{name}-parts", [(1, word * 400_000), (2, word * 10)], how[name], to_read(how[name]))
        assert server.stop() == 0
        master = server.folder / "data" / "sse-master.key"
        assert master.stat().st_mode & 0o777 == 0o600
        text_of_master = master.read_text()
        key = b"\xa7" * 32
        customers = (key, base64.b64encode(key), key.hex().encode())
        masters = (bytes.fromhex(text_of_master.strip()), text_of_master.strip().encode())
        found = found_in(server.folder, (*words.values(), *customers, *masters))
        assert {word for word, _ in found} == {words["plain"], masters[1]}
        assert {name for word, name in found if word == masters[1]} == {master.name}

        server.start()
        assert get(s3, "on-disk", "ours-400000") == words["ours"] * 400_000
        server.stop()
        # Another key comes before it: it wraps, and both unwrap.
        new = "0b" * 32
        master.write_text(f"{new}\n{text_of_master}")
        server.start()
        assert get(s3, "on-disk", "ours-3") == words["ours"] * 3
        s3.copy_object(Bucket="on-disk", Key="ours-3", CopySource="on-disk/ours-3", **OURS)
        server.stop()
        master.write_text(new)
        server.start()
        assert get(s3, "on-disk", "ours-3") == words["ours"] * 3
        with refused("InternalError", 500):
            get(s3, "on-disk", "ours-1000")
        assert header(s3.head_object(Bucket="on-disk", Key="ours-1000"), "x-amz-server-side-encryption") == "AES256"
        assert get(s3, "on-disk", "theirs-3", **theirs(0xA7)) == words["theirs"] * 3
        assert get(s3, "on-disk", "plain-3") == words["plain"] * 3
