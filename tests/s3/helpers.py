"""Small words that the tests are written in."""

import contextlib
import hashlib
import time

import boto3
import botocore
import pytest
from botocore.exceptions import ClientError
from harness import server as harness

# For what takes a second or so on a machine that does nothing else.
PATIENCE_S = 40


def soon(check):
    """What `check` gives once it raises no more: what was changed is in force a little later."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        try:
            return check()
        except (AssertionError, ClientError, pytest.fail.Exception):
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)


def until(is_so):
    """What `is_so` gives once that is true."""
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        result = is_so()
        if result:
            return result
        time.sleep(0.05)
    raise AssertionError("it did not come to this in time")


def client_of(endpoint, key, **config):
    """A client with the credentials that `admin key create` printed. It asks once."""
    settings = {"signature_version": "s3v4", "retries": {"total_max_attempts": 1, "mode": "standard"},
                "s3": {"addressing_style": "path"}, "max_pool_connections": 64}
    return boto3.client(
        "s3", endpoint_url=endpoint, region_name=harness.REGION,
        aws_access_key_id=key["access_key"], aws_secret_access_key=key["secret_key"],
        config=botocore.config.Config(**{**settings, **config}))


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


def code_of(call, *arguments, **named):
    """The status and the code of the S3 error that a call must end in."""
    with pytest.raises(ClientError) as caught:
        call(*arguments, **named)
    response = caught.value.response
    return response["ResponseMetadata"]["HTTPStatusCode"], response["Error"]["Code"]


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
