"""Fixtures: one server for the whole run, a fresh bucket for each test that asks for one.

With `--cluster` the server is a cluster of processes, spoken to through one of its proxies. Tests that
start a server of their own start an embedded one all the same.
"""

import contextlib
import itertools
import shutil
import tempfile

import boto3
import botocore
import pytest

from harness import server as harness
from harness.cluster import Cluster

# Short enough that tests of slow clients end soon, long enough for a busy machine.
SLOW_SETTINGS = {
    "MARTLET_HEADER_TIMEOUT": "2s",
    "MARTLET_BODY_IDLE_TIMEOUT": "2s",
    # Bodies of a few bytes are sent one by one.
    "MARTLET_MIN_BODY_RATE": "1",
}

_numbers = itertools.count()


def client_for(server, **config):
    """A boto3 client that does not retry, so that every answer is seen."""
    settings = {
        # Left to itself, boto3 makes links and forms of Version 2.
        "signature_version": "s3v4",
        "retries": {"max_attempts": 1, "mode": "standard"},
        "s3": {"addressing_style": "path"},
        "max_pool_connections": 64,
        **config,
    }
    return boto3.client(
        "s3", endpoint_url=server.endpoint, region_name=harness.REGION,
        aws_access_key_id=harness.ACCESS_KEY, aws_secret_access_key=harness.SECRET_KEY,
        config=botocore.config.Config(**settings))


def pytest_addoption(parser):
    parser.addoption("--cluster", action="store_true", help="against a cluster of processes")


@contextlib.contextmanager
def running_server(kind=harness.Server, **options):
    """A server in a folder of its own, both gone afterwards."""
    folder = tempfile.mkdtemp(prefix="martlet-s3-")
    server = kind(folder, **options)
    try:
        yield server.start()
    finally:
        server.kill()
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session")
def server(request):
    with running_server(Cluster if request.config.getoption("cluster") else harness.Server) as server:
        yield server
        assert server.process.poll() is None, f"the server died:\n{server.log()}"
        assert server.stop() == 0, f"SIGTERM was not answered by a clean end:\n{server.log()}"
        # Whatever clients did wrong above, nothing went wrong in the server.
        assert server.complaints() == []


@pytest.fixture(scope="session")
def s3(server):
    return client_for(server)


@pytest.fixture
def bucket(s3):
    """A bucket that is emptied and removed again, so that DeleteBucket is tested all the time."""
    name = f"bucket-{next(_numbers)}"
    s3.create_bucket(Bucket=name)
    yield name
    empty(s3, name)
    s3.delete_bucket(Bucket=name)


def empty(s3, bucket):
    """Aborts all uploads of a bucket and deletes all its objects."""
    for upload in s3.list_multipart_uploads(Bucket=bucket).get("Uploads", []):
        s3.abort_multipart_upload(Bucket=bucket, Key=upload["Key"], UploadId=upload["UploadId"])
    for page in s3.get_paginator("list_objects_v2").paginate(Bucket=bucket):
        keys = [{"Key": item["Key"]} for item in page.get("Contents", [])]
        if keys:
            s3.delete_objects(Bucket=bucket, Delete={"Objects": keys, "Quiet": True})
