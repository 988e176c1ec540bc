"""GETs from a bucket with a policy, a list and logging beside those from a bare one."""

import json

from martlet import Martlet
from rows import Row
from runs import KIB, PER_REQUEST, measure
from s3 import Client

POLICY_BYTES_MAX = 20 * KIB
GRANTS = 20
LOAD = ["--op", "get", "--size", "4KiB", "--objects", "256", "--concurrency", "16"]


@measure("policy")
def policies(bench):
    """GET 4 KiB from a bucket with a 20 KiB policy, a list and logging beside a bare one"""
    with Martlet(bench.folder / "policy") as martlet:
        for bucket in "ruled", "bare":
            martlet.bench(*LOAD, "--bucket", bucket, "--keep", "--duration", "100ms")
        rule(Client(martlet.endpoint()), "ruled")
        get = [*LOAD, "--prepared", "--presigned", *bench.duration, "--bucket"]
        f = bench.in_turns(ruled=lambda: martlet.bench(*get, "ruled"),
                           bare=lambda: martlet.bench(*get, "bare")).figure
    return [Row("GET 4 KiB, bucket with policy, list and logs, CPU ms", f("ruled", *PER_REQUEST),
                f("bare", *PER_REQUEST), "bare bucket", most_of_limit=1.10)]


def rule(client, bucket):
    """Gives a bucket a list, logging, and a policy as long as a policy may be."""
    client.send("PUT", f"/{bucket}?ownershipControls=", body=(
        b"<OwnershipControls><Rule><ObjectOwnership>ObjectWriter</ObjectOwnership></Rule></OwnershipControls>"))
    owner = client.send("GET", f"/{bucket}?acl=").decode().split("<ID>")[1].split("</ID>")[0]
    grantee = ('<Grant><Grantee xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance" '
               f'xsi:type="CanonicalUser"><ID>{owner}</ID></Grantee><Permission>{{}}</Permission></Grant>')
    rights = ["FULL_CONTROL", "READ", "WRITE", "READ_ACP", "WRITE_ACP"]
    grants = "".join(grantee.format(rights[number % len(rights)]) for number in range(GRANTS))
    client.send("PUT", f"/{bucket}?acl=", body=(
        f"<AccessControlPolicy><Owner><ID>{owner}</ID></Owner><AccessControlList>{grants}"
        "</AccessControlList></AccessControlPolicy>").encode())
    client.send("PUT", f"/{bucket}-logs")
    client.send("PUT", f"/{bucket}-logs?policy=", body=document([{
        "Effect": "Allow", "Principal": {"Service": "logging.s3.amazonaws.com"}, "Action": "s3:PutObject",
        "Resource": f"arn:aws:s3:::{bucket}-logs/*"}]))
    client.send("PUT", f"/{bucket}?logging=", body=(
        f"<BucketLoggingStatus><LoggingEnabled><TargetBucket>{bucket}-logs</TargetBucket>"
        "<TargetPrefix>logs/</TargetPrefix></LoggingEnabled></BucketLoggingStatus>").encode())
    client.send("PUT", f"/{bucket}?policy=", body=long_policy(bucket))


def long_policy(bucket):
    """A policy of almost 20 KiB whose statements name folders, and refuse no GET of the load."""
    statements = []
    while len(policy := document([*statements, refusal(bucket, len(statements))])) <= POLICY_BYTES_MAX:
        statements, longest = [*statements, refusal(bucket, len(statements))], policy
    return longest


def refusal(bucket, number):
    """A statement that refuses reads of one folder outside of some networks."""
    return {"Sid": f"Folder{number}", "Effect": "Deny", "Principal": "*", "Action": ["s3:GetObject", "s3:PutObject"],
            "Resource": f"arn:aws:s3:::{bucket}/folder-{number}/*/part-*",
            "Condition": {"NotIpAddress": {"aws:SourceIp": [f"10.{number}.0.0/16"]}}}


def document(statements):
    """A policy as JSON."""
    return json.dumps({"Version": "2012-10-17", "Statement": statements}).encode()
