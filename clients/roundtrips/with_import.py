"""`martlet admin import` from two other S3 servers: moto, and rclone over a folder of files.

The source is filled and the copy is checked by boto3, so that the importer is trusted with neither."""

import contextlib
import json
import os
import subprocess
import sys
import time
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import boto3
from boto3.s3.transfer import TransferConfig
from botocore.config import Config

import bare
import suite
from commands import WORK, file_of

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests/s3"))

from harness.server import free_ports  # noqa: E402

BIN = Path(sys.executable).parent
KEY, SECRET = "SOURCEACCESSKEY00000", "source-secret-key-of-a-test"
MIB = suite.MIB
READY_S = 60
# Headers of an object as boto3 names them.
METADATA = {
    "CacheControl": "no-cache", "ContentDisposition": 'attachment; filename="a b"', "ContentEncoding": "gzip",
    "ContentLanguage": "ga", "ContentType": "text/x-test", "Metadata": {"one": "1", "two": "a, b"},
}


def client(endpoint, key, secret):
    config = Config(s3={"addressing_style": "path"}, retries={"max_attempts": 5})
    return boto3.client("s3", endpoint_url=endpoint, aws_access_key_id=key, aws_secret_access_key=secret,
                        region_name="us-east-1", config=config)


@contextlib.contextmanager
def served(*command, port):
    """A server on a port; its client."""
    with open(WORK / f"log-{port}", "wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL)
    try:
        endpoint = f"http://127.0.0.1:{port}"
        until = time.monotonic() + READY_S
        while not answers(endpoint):
            assert process.poll() is None and time.monotonic() < until, f"{command[0]} does not answer"
            time.sleep(0.1)
        yield endpoint
    finally:
        process.kill()
        process.wait()


def answers(endpoint):
    try:
        urllib.request.urlopen(endpoint, timeout=5).close()
    except urllib.error.HTTPError:
        return True
    except OSError:
        return False
    return True


def moto():
    port = free_ports(1)[0]
    return served(str(BIN / "moto_server"), "-H", "127.0.0.1", "-p", str(port), port=port)


def rclone():
    port = free_ports(1)[0]
    folder = WORK / "rclone-files"
    folder.mkdir()
    return served(str(BIN / "rclone"), "serve", "s3", "--addr", f"127.0.0.1:{port}", "--auth-key",
                  f"{KEY},{SECRET}", "--config", "/dev/null", str(folder), port=port)


def import_bucket(endpoint, source, target, *flags):
    """The summary of an import; the import must end well."""
    key_file = file_of(b"AWS_ACCESS_KEY_ID=%s\nAWS_SECRET_ACCESS_KEY=%s\n" % (
        os.environ["MARTLET_ROOT_ACCESS_KEY"].encode(), os.environ["MARTLET_ROOT_SECRET_KEY"].encode()))
    done = subprocess.run(
        [os.environ["MARTLET_BIN"], "admin", "import", f"s3://{source}", f"s3://{target}", "--json",
         "--source-endpoint", endpoint, "--target-endpoint", os.environ["MARTLET_ENDPOINT"],
         "--target-key-file", key_file, "--report", "report", *flags],
        cwd=WORK, capture_output=True,
        env={**os.environ, "AWS_ACCESS_KEY_ID": KEY, "AWS_SECRET_ACCESS_KEY": SECRET})
    report = (WORK / "report").read_text() if (WORK / "report").exists() else ""
    if done.returncode != 0:
        raise AssertionError(f"{done.stderr.decode()}\n{done.stdout.decode()}\n{report}")
    return json.loads(done.stdout)


def objects(s3, bucket):
    """Keys of a bucket with size and ETag."""
    pages = s3.get_paginator("list_objects_v2").paginate(Bucket=bucket)
    return {item["Key"]: (item["Size"], item["ETag"]) for page in pages for item in page.get("Contents", [])}


def fill(s3, bucket, rng, keys):
    """A bucket with these keys and objects of all sizes."""
    s3.create_bucket(Bucket=bucket)
    for key in keys:
        s3.put_object(Bucket=bucket, Key=key, Body=b"" if key.endswith("/") else rng.randbytes(100))
    with ThreadPoolExecutor(8) as pool:
        def put(number):
            s3.put_object(Bucket=bucket, Key=f"many/{number % 9}/{number:04}", Body=b"%d" % number)
        list(pool.map(put, range(1200)))
    s3.put_object(Bucket=bucket, Key="plain", Body=rng.randbytes(20 * MIB + 3))
    s3.put_object(Bucket=bucket, Key="rich", Body=b"with metadata", **METADATA)
    transfer = TransferConfig(multipart_threshold=8 * MIB, multipart_chunksize=8 * MIB)
    name = file_of(rng.randbytes(30 * MIB + 7))
    s3.upload_file(name, bucket, "parts", Config=transfer)


def compare(source, target, bucket):
    """Both buckets, by their bytes."""
    expected, found = objects(source, bucket), objects(target, bucket)
    suite.same({key: size for key, (size, _) in found.items()},
               {key: size for key, (size, _) in expected.items()}, "keys and sizes")
    for key in ["plain", "parts", "rich", "many/3/0003"]:
        one, other = (s3.get_object(Bucket=bucket, Key=key)["Body"].read() for s3 in (source, target))
        suite.same(other, one, key)
    return expected, found


def metadata(s3, bucket):
    head = s3.head_object(Bucket=bucket, Key="rich")
    return {name: head.get(name) for name in METADATA}


def from_moto(rng):
    target = client(os.environ["MARTLET_ENDPOINT"], os.environ["MARTLET_ROOT_ACCESS_KEY"],
                    os.environ["MARTLET_ROOT_SECRET_KEY"])
    with moto() as endpoint:
        source = client(endpoint, KEY, SECRET)
        fill(source, bare.BUCKET, rng, [key for key in suite.ODD_KEYS if key not in MOTO_LACKS])
        source.put_object_tagging(Bucket=bare.BUCKET, Key="rich",
                                  Tagging={"TagSet": [{"Key": "a b", "Value": "1/2"}]})
        summary = import_bucket(endpoint, bare.BUCKET, bare.BUCKET, "--create-bucket", "--tags", "--verify")
        expected, found = compare(source, target, bare.BUCKET)
        suite.same(summary["copied"]["objects"], len(expected), "objects copied")
        suite.same(found, expected, "ETags")
        suite.same(metadata(target, bare.BUCKET), metadata(source, bare.BUCKET), "metadata")
        tags = target.get_object_tagging(Bucket=bare.BUCKET, Key="rich")["TagSet"]
        suite.same(tags, [{"Key": "a b", "Value": "1/2"}], "tags")
        # Again: only what is new at the source.
        source.put_object(Bucket=bare.BUCKET, Key="new", Body=b"new")
        source.put_object(Bucket=bare.BUCKET, Key="plain", Body=b"shorter")
        summary = import_bucket(endpoint, bare.BUCKET, bare.BUCKET, "--overwrite", "changed", "--verify")
        suite.same(summary["copied"]["objects"], 2, "objects copied again")
    bare.empty()
    bare.remove_bucket()


def from_rclone(rng):
    target = client(os.environ["MARTLET_ENDPOINT"], os.environ["MARTLET_ROOT_ACCESS_KEY"],
                    os.environ["MARTLET_ROOT_SECRET_KEY"])
    with rclone() as endpoint:
        source = client(endpoint, KEY, SECRET)
        fill(source, bare.BUCKET, rng, ["odd/ünïcödé/鍵", "odd/with space", "odd/plus+plus", "odd/a%20b"])
        import_bucket(endpoint, bare.BUCKET, bare.BUCKET, "--create-bucket", "--verify")
        compare(source, target, bare.BUCKET)
        again = import_bucket(endpoint, bare.BUCKET, bare.BUCKET)
        suite.same(again["copied"]["objects"], 0, "objects copied again")
    bare.empty()
    bare.remove_bucket()


# Keys that boto3 and moto don't carry between them.
MOTO_LACKS = ()

if __name__ == "__main__":
    steps = [(step.__name__.replace("_", " "), step) for step in (from_moto, from_rclone)]
    print(", ".join(suite.run(steps)))
