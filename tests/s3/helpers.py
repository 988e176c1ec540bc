"""Small words that the tests are written in."""

import contextlib
import hashlib

import pytest
from botocore.exceptions import ClientError


@contextlib.contextmanager
def refused(code, status=None):
    """The block must end in this S3 error: one code or any of several."""
    with pytest.raises(ClientError) as caught:
        yield caught
    response = caught.value.response
    codes = (code,) if isinstance(code, str) else code
    assert response["Error"]["Code"] in codes, response
    if status is not None:
        assert response["ResponseMetadata"]["HTTPStatusCode"] == status, response


def assert_refused(reply, status, *codes):
    """A raw reply must be this error."""
    assert reply is not None, "the server hung up without a reply"
    assert reply.status == status and reply.code in codes, (reply.status, reply.code, reply.body[:500])


def get(s3, bucket, key, **how):
    return s3.get_object(Bucket=bucket, Key=key, **how)["Body"].read()


def absent(s3, bucket, key):
    """Neither GET nor LIST knows the key."""
    with refused("NoSuchKey", 404):
        s3.get_object(Bucket=bucket, Key=key)
    listed = s3.list_objects_v2(Bucket=bucket, Prefix=key).get("Contents", [])
    assert key not in [item["Key"] for item in listed]


def md5(data):
    return hashlib.md5(data).hexdigest()


def status(response):
    return response["ResponseMetadata"]["HTTPStatusCode"]


def header(response, name):
    return response["ResponseMetadata"]["HTTPHeaders"].get(name)
