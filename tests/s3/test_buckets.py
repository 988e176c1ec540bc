"""Buckets: names, lifecycles, listings of them."""

import pytest

from helpers import assert_refused, refused, status
from harness import sigv4, wire


def test_create_head_list_delete(s3):
    s3.create_bucket(Bucket="a-life")
    assert status(s3.head_bucket(Bucket="a-life")) == 200
    assert "a-life" in [bucket["Name"] for bucket in s3.list_buckets()["Buckets"]]
    assert status(s3.delete_bucket(Bucket="a-life")) == 204
    with refused("404", 404):
        s3.head_bucket(Bucket="a-life")
    assert "a-life" not in [bucket["Name"] for bucket in s3.list_buckets()["Buckets"]]


def test_location(s3, bucket):
    # us-east-1 is written as an empty element, which boto3 shows as None.
    assert s3.get_bucket_location(Bucket=bucket)["LocationConstraint"] in (None, "us-east-1")


@pytest.mark.parametrize("name", [
    "ab", "a" * 64, "Upper-Case", "under_score", "-dash-first", "dash-last-", ".dot", "two..dots",
    "192.168.5.4", "xn--punycode", "a b",
])
def test_names_that_are_none(server, name):
    target = "/" + sigv4.encode(name.encode())
    reply = wire.request(server, "PUT", target)
    assert (reply.status, reply.code) == (400, "InvalidBucketName"), reply


@pytest.mark.parametrize("name", ["abc", "a" * 63, "with.dots.inside", "1-digit-first", "a--b"])
def test_names_that_are_good(s3, name):
    s3.create_bucket(Bucket=name)
    s3.delete_bucket(Bucket=name)


def test_a_bucket_of_ones_own_may_be_created_again(s3, bucket):
    s3.put_object(Bucket=bucket, Key="kept", Body=b"x")
    s3.create_bucket(Bucket=bucket)
    assert s3.get_object(Bucket=bucket, Key="kept")["Body"].read() == b"x"


def test_a_bucket_is_told_with_its_arn(s3, bucket):
    assert s3.create_bucket(Bucket=bucket)["Location"] == f"/{bucket}"
    assert s3.head_bucket(Bucket=bucket)["BucketArn"] == f"arn:aws:s3:::{bucket}"
    assert s3.create_bucket(Bucket="with-arn")["BucketArn"] == "arn:aws:s3:::with-arn"
    s3.delete_bucket(Bucket="with-arn")


def test_a_bucket_may_be_made_with_tags(s3):
    def create(*tags):
        tags = [{"Key": key, "Value": value} for key, value in tags]
        s3.create_bucket(Bucket="tagged", CreateBucketConfiguration={"Tags": tags})
        return tags

    wrong = [("k" * 129, "v")], [("k", "v" * 257)], [("a*b", "v")], [("k", "`v")], [("k", "1"), ("k", "2")]
    for tags in wrong:
        with refused("InvalidTag", 400):
            create(*tags)
    with refused(("InvalidTag", "BadRequest"), 400):
        create(*((f"k{number}", "v") for number in range(51)))
    with refused("404", 404):
        s3.head_bucket(Bucket="tagged")
    tags = create(("a", "1"), ("b", ""))
    assert s3.get_bucket_tagging(Bucket="tagged")["TagSet"] == tags
    with refused("BucketAlreadyOwnedByYou", 409):
        create(("a", "2"))
    s3.create_bucket(Bucket="tagged")
    assert s3.get_bucket_tagging(Bucket="tagged")["TagSet"] == tags
    s3.delete_bucket(Bucket="tagged")


def test_a_bucket_with_objects_stays(s3, bucket):
    s3.put_object(Bucket=bucket, Key="k", Body=b"")
    with refused("BucketNotEmpty", 409):
        s3.delete_bucket(Bucket=bucket)
    assert s3.list_objects_v2(Bucket=bucket)["KeyCount"] == 1


def test_a_new_bucket_knows_nothing_of_its_namesake(s3):
    for _ in range(3):
        s3.create_bucket(Bucket="phoenix")
        assert s3.list_objects_v2(Bucket="phoenix")["KeyCount"] == 0
        s3.put_object(Bucket="phoenix", Key="k", Body=b"ash")
        s3.delete_object(Bucket="phoenix", Key="k")
        s3.delete_bucket(Bucket="phoenix")
    with refused("NoSuchBucket", 404):
        s3.get_object(Bucket="phoenix", Key="k")


def test_nothing_can_be_done_in_a_bucket_that_is_not_there(s3):
    with refused("NoSuchBucket", 404):
        s3.put_object(Bucket="nowhere", Key="k", Body=b"")
    with refused("NoSuchBucket", 404):
        s3.list_objects_v2(Bucket="nowhere")
    with refused("NoSuchBucket", 404):
        s3.list_objects(Bucket="nowhere")
    with refused("NoSuchBucket", 404):
        s3.create_multipart_upload(Bucket="nowhere", Key="k")
    with refused("NoSuchBucket", 404):
        s3.delete_bucket(Bucket="nowhere")
    with refused("NoSuchBucket", 404):
        s3.delete_objects(Bucket="nowhere", Delete={"Objects": [{"Key": "k"}]})


def test_virtual_host_style(server, s3, bucket):
    s3.put_object(Bucket=bucket, Key="a/b", Body=b"virtual")
    host = f"{bucket}.localhost:{server.port}"
    signer = sigv4.Signer()
    headers = signer.headers("GET", "/a/b", {"host": host})
    reply = wire.exchange(server, wire.head("GET", "/a/b", headers))
    assert (reply.status, reply.body) == (200, b"virtual")
    headers = signer.headers("GET", "/", {"host": host})
    reply = wire.exchange(server, wire.head("GET", "/", headers))
    assert reply.status == 200 and b"<Key>a/b</Key>" in reply.body


def test_an_unknown_host_means_path_style(server, s3, bucket):
    s3.put_object(Bucket=bucket, Key="k", Body=b"path")
    target = f"/{bucket}/k"
    headers = sigv4.Signer().headers("GET", target, {"host": "somewhere.example"})
    reply = wire.exchange(server, wire.head("GET", target, headers))
    assert (reply.status, reply.body) == (200, b"path")


def test_every_reply_says_who_answered(server, s3, bucket):
    for target in (f"/{bucket}", f"/{bucket}/missing", "/"):
        reply = wire.request(server, "GET", target)
        assert reply.headers.get("x-amz-request-id") and reply.headers.get("x-amz-id-2"), target
    reply = wire.request(server, "GET", f"/{bucket}/missing")
    for element in (b"<RequestId>", b"<HostId>", b"<Resource>"):
        assert element in reply.body, reply.body
    assert reply.headers["x-amz-request-id"].encode() in reply.body


@pytest.mark.parametrize("name", [
    "xn--abc", "sthree-abc", "sthree-configurator", "amzn-s3-demo-abc", "abc-s3alias", "abc--ol-s3", "abc.mrap",
    "abc--x-s3", "abc--table-s3"])
def test_names_that_s3_keeps_for_other_things(server, name):
    assert_refused(wire.request(server, "PUT", f"/{name}"), 400, "InvalidBucketName")
