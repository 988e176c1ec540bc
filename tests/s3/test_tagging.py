"""Object tags."""

import pytest

from helpers import get, refused, status


def tags(s3, bucket, key="k"):
    found = s3.get_object_tagging(Bucket=bucket, Key=key)["TagSet"]
    return {tag["Key"]: tag["Value"] for tag in found}


def put(s3, bucket, pairs):
    tag_set = [{"Key": key, "Value": value} for key, value in pairs]
    return s3.put_object_tagging(Bucket=bucket, Key="k", Tagging={"TagSet": tag_set})


def test_a_life_of_tags(s3, bucket):
    s3.put_object(Bucket=bucket, Key="k", Body=b"x", Tagging="a=1&b%20c=%C3%BC")
    assert tags(s3, bucket) == {"a": "1", "b c": "ü"}
    assert s3.get_object(Bucket=bucket, Key="k")["TagCount"] == 2
    put(s3, bucket, [("n", "2")])
    assert tags(s3, bucket) == {"n": "2"}
    assert status(s3.delete_object_tagging(Bucket=bucket, Key="k")) == 204
    assert tags(s3, bucket) == {}
    assert "TagCount" not in s3.get_object(Bucket=bucket, Key="k")
    assert get(s3, bucket, "k") == b"x"


def test_tags_are_told_by_their_keys(s3, bucket):
    s3.put_object(Bucket=bucket, Key="k", Body=b"x", Tagging="foo=bar&bar&Hello=World")
    found = s3.get_object_tagging(Bucket=bucket, Key="k")["TagSet"]
    assert [tag["Key"] for tag in found] == ["Hello", "bar", "foo"]


def test_tags_change_nothing_else(s3, bucket):
    s3.put_object(Bucket=bucket, Key="k", Body=b"x" * 100_000, Metadata={"a": "1"})
    before = s3.head_object(Bucket=bucket, Key="k")
    put(s3, bucket, [("n", "2")])
    after = s3.head_object(Bucket=bucket, Key="k")
    assert (before["ETag"], before["Metadata"], before["LastModified"]) == (
        after["ETag"], after["Metadata"], after["LastModified"])


@pytest.mark.parametrize("pairs", [
    [(f"k{n}", "v") for n in range(11)], [("a", "1"), ("a", "2")], [("k" * 129, "v")],
    [("k", "v" * 257)], [("aws:k", "v")], [("k!", "v")], [("k", "<v>")],
])
def test_tags_that_are_none(s3, bucket, pairs):
    s3.put_object(Bucket=bucket, Key="k", Body=b"x", Tagging="kept=1")
    with refused(("InvalidTag", "BadRequest", "MalformedXML"), 400):
        put(s3, bucket, pairs)
    assert tags(s3, bucket) == {"kept": "1"}


def test_of_objects_that_are_not_there(s3, bucket):
    with refused("NoSuchKey", 404):
        tags(s3, bucket)
    with refused("NoSuchKey", 404):
        put(s3, bucket, [("a", "1")])


def test_bad_header(s3, bucket):
    for header in ("a=1&a=2", "=", "=b", "a%", "a=%zz"):
        with refused("InvalidArgument", 400):
            s3.put_object(Bucket=bucket, Key="k", Body=b"", Tagging=header)
    with refused("InvalidTag", 400):
        s3.put_object(Bucket=bucket, Key="k", Body=b"", Tagging="a*=1")
    with refused("NoSuchKey", 404):
        get(s3, bucket, "k")
