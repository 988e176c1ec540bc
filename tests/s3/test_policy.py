"""Bucket policies through a real SDK: what is kept, what is refused, whom they let in."""

import json

import boto3
import botocore
import pytest

from harness import server as harness
from helpers import get, refused, soon, status


@pytest.fixture(scope="module")
def anyone(server):
    """A client that signs nothing."""
    return boto3.client(
        "s3", endpoint_url=server.endpoint, region_name=harness.REGION,
        config=botocore.config.Config(signature_version=botocore.UNSIGNED,
                                      retries={"max_attempts": 1, "mode": "standard"},
                                      s3={"addressing_style": "path"}))


def statement(bucket, actions, resource="/*", effect="Allow", **more):
    return {"Effect": effect, "Principal": "*", "Action": actions,
            "Resource": f"arn:aws:s3:::{bucket}{resource}", **more}


def put_policy(s3, bucket, *statements):
    document = json.dumps({"Version": "2012-10-17", "Statement": list(statements)})
    assert status(s3.put_bucket_policy(Bucket=bucket, Policy=document)) == 204
    return document


def denied(call, **how):
    with refused(("AccessDenied", "403"), 403):
        call(**how)


def test_a_policy_is_kept_and_its_status_told(s3, bucket):
    with refused("NoSuchBucketPolicy", 404):
        s3.get_bucket_policy(Bucket=bucket)
    assert s3.get_bucket_policy_status(Bucket=bucket)["PolicyStatus"]["IsPublic"] is False
    document = put_policy(s3, bucket, statement(bucket, "s3:GetObject"))
    assert s3.get_bucket_policy(Bucket=bucket)["Policy"] == document
    assert s3.get_bucket_policy_status(Bucket=bucket)["PolicyStatus"]["IsPublic"] is True
    near = statement(bucket, "s3:GetObject",
                     Condition={"IpAddress": {"aws:SourceIp": "10.0.0.0/32"}})
    put_policy(s3, bucket, near)
    assert s3.get_bucket_policy_status(Bucket=bucket)["PolicyStatus"]["IsPublic"] is False
    assert status(s3.delete_bucket_policy(Bucket=bucket)) == 204
    with refused("NoSuchBucketPolicy", 404):
        s3.get_bucket_policy(Bucket=bucket)


@pytest.mark.parametrize("change", [
    {"Effect": "Permit"}, {"Principal": {"AWS": "arn:aws:iam::x:role/*"}}, {"Principal": "someone"},
    {"Action": "s3:FetchObject"}, {"Resource": "arn:aws:s3:::another/*"}, {"Comment": "none"},
    {"Condition": {"StringResembles": {"s3:prefix": "a"}}},
    {"Condition": {"StringEquals": {"aws:Mood": "good"}}},
    {"NotPrincipal": "*"}, {"Action": "s3:ListBucket"},
])
def test_what_is_no_policy(s3, bucket, change):
    document = {"Version": "2012-10-17", "Statement": [statement(bucket, "s3:GetObject") | change]}
    with refused("MalformedPolicy", 400):
        s3.put_bucket_policy(Bucket=bucket, Policy=json.dumps(document))
    with refused("NoSuchBucketPolicy", 404):
        s3.get_bucket_policy(Bucket=bucket)


def test_everyone_is_let_in_where_it_says_so(s3, anyone, bucket):
    for key in ("open/k", "closed/k"):
        s3.put_object(Bucket=bucket, Key=key, Body=b"bytes")
    denied(anyone.get_object, Bucket=bucket, Key="open/k")
    put_policy(s3, bucket, statement(bucket, "s3:GetObject", "/open/*"),
               statement(bucket, "s3:PutObject", "/in/*"))
    soon(lambda: anyone.head_object(Bucket=bucket, Key="open/k"))
    assert get(anyone, bucket, "open/k") == b"bytes"
    denied(anyone.get_object, Bucket=bucket, Key="closed/k")
    denied(anyone.get_object, Bucket=bucket, Key="open/none")
    denied(anyone.list_objects_v2, Bucket=bucket)
    denied(anyone.delete_object, Bucket=bucket, Key="open/k")
    denied(anyone.get_bucket_policy, Bucket=bucket)
    anyone.put_object(Bucket=bucket, Key="in/k", Body=b"from anyone")
    assert get(s3, bucket, "in/k") == b"from anyone"
    denied(anyone.put_object, Bucket=bucket, Key="open/k", Body=b"x")
    s3.delete_bucket_policy(Bucket=bucket)
    soon(lambda: denied(anyone.get_object, Bucket=bucket, Key="open/k"))


def test_the_address_of_the_connection_counts(s3, anyone, bucket):
    s3.put_object(Bucket=bucket, Key="k", Body=b"bytes")

    def at(network):
        return statement(bucket, "s3:GetObject", Condition={"IpAddress": {"aws:SourceIp": network}})

    put_policy(s3, bucket, at("127.0.0.0/8"))
    soon(lambda: anyone.get_object(Bucket=bucket, Key="k"))
    put_policy(s3, bucket, at("192.0.2.0/24"))
    soon(lambda: denied(anyone.get_object, Bucket=bucket, Key="k"))


def test_a_deny_is_for_the_owner_too(s3, bucket):
    s3.put_object(Bucket=bucket, Key="k", Body=b"bytes")
    put_policy(s3, bucket, statement(bucket, "s3:*", "*", effect="Deny"))
    soon(lambda: denied(s3.get_object, Bucket=bucket, Key="k"))
    denied(s3.list_objects_v2, Bucket=bucket)
    s3.get_bucket_policy(Bucket=bucket)
    s3.delete_bucket_policy(Bucket=bucket)
    soon(lambda: s3.get_object(Bucket=bucket, Key="k"))


def test_a_public_access_block_keeps_the_public_out(s3, anyone, bucket):
    s3.put_object(Bucket=bucket, Key="k", Body=b"bytes")
    put_policy(s3, bucket, statement(bucket, "s3:GetObject"))
    soon(lambda: anyone.get_object(Bucket=bucket, Key="k"))
    s3.put_public_access_block(Bucket=bucket, PublicAccessBlockConfiguration={
        "RestrictPublicBuckets": True, "BlockPublicPolicy": True})
    soon(lambda: denied(anyone.get_object, Bucket=bucket, Key="k"))
    assert get(s3, bucket, "k") == b"bytes"
    document = {"Version": "2012-10-17", "Statement": [statement(bucket, "s3:GetObject")]}
    denied(s3.put_bucket_policy, Bucket=bucket, Policy=json.dumps(document))


def test_a_version_is_judged_by_its_own_tags(s3, anyone, bucket):
    """What another version of the key is tagged with says nothing of the one that is asked for."""
    s3.put_bucket_versioning(Bucket=bucket, VersioningConfiguration={"Status": "Enabled"})
    put = lambda body, key="k", **how: s3.put_object(Bucket=bucket, Key=key, Body=body, **how)["VersionId"]
    secret, shown = put(b"secret", Tagging="show=no"), put(b"shown", Tagging="show=yes")
    put(b"old", "mine", Tagging="show=yes")
    is_shown = {"StringEquals": {"s3:ExistingObjectTag/show": "yes"}}
    reading = ["s3:GetObject", "s3:GetObjectVersion", "s3:GetObjectVersionTagging", "s3:DeleteObjectVersion"]
    put_policy(s3, bucket, statement(bucket, reading, Condition=is_shown), statement(bucket, "s3:PutObject", "/copy"),
               statement(bucket, "s3:ListBucket", ""))
    soon(lambda: get(anyone, bucket, "k"))
    assert get(anyone, bucket, "k", VersionId=shown) == b"shown"
    named = {"Bucket": bucket, "Key": "k", "VersionId": secret}
    denied(anyone.get_object, **named)
    denied(anyone.head_object, **named)
    denied(anyone.get_object_tagging, **named)
    denied(anyone.delete_object, **named)
    copy = {"Bucket": bucket, "Key": "copy", "TaggingDirective": "REPLACE"}
    denied(anyone.copy_object, CopySource=named, **copy)
    listed = anyone.delete_objects(Bucket=bucket, Delete={"Objects": [{"Key": "k", "VersionId": secret}]})
    assert [it["Code"] for it in listed["Errors"]] == ["AccessDenied"]
    # And a delete marker in front takes nothing from the versions behind it.
    s3.delete_object(Bucket=bucket, Key="k")
    assert get(anyone, bucket, "k", VersionId=shown) == b"shown"
    denied(anyone.get_object, **named)
    anyone.copy_object(CopySource={**named, "VersionId": shown}, **copy)
    anyone.delete_object(**{**named, "VersionId": shown})
    s3.delete_bucket_policy(Bucket=bucket)
    forget(s3, bucket)


def test_conditions_on_versions_hold_for_the_keys_of_one_request(s3, anyone, bucket):
    s3.put_bucket_versioning(Bucket=bucket, VersioningConfiguration={"Status": "Enabled"})
    one, other = (s3.put_object(Bucket=bucket, Key="k", Body=body)["VersionId"] for body in (b"1", b"2"))
    only = {"StringEquals": {"s3:VersionId": one}}
    put_policy(s3, bucket, statement(bucket, ["s3:GetObjectVersion", "s3:DeleteObjectVersion"], Condition=only),
               statement(bucket, "s3:PutObject", "/copy"), statement(bucket, "s3:ListBucket", ""))
    soon(lambda: get(anyone, bucket, "k", VersionId=one))
    denied(anyone.get_object, Bucket=bucket, Key="k", VersionId=other)
    source = {"Bucket": bucket, "Key": "k"}
    denied(anyone.copy_object, Bucket=bucket, Key="copy", CopySource={**source, "VersionId": other})
    anyone.copy_object(Bucket=bucket, Key="copy", CopySource={**source, "VersionId": one})
    both = [{"Key": "k", "VersionId": version} for version in (one, other)]
    done = anyone.delete_objects(Bucket=bucket, Delete={"Objects": both})
    assert [it["VersionId"] for it in done["Deleted"]] == [one]
    assert [it["VersionId"] for it in done["Errors"]] == [other]
    s3.delete_bucket_policy(Bucket=bucket)
    forget(s3, bucket)


def forget(s3, bucket):
    """Removes all versions, once the policy is."""
    listed = s3.list_object_versions(Bucket=bucket)
    for it in listed.get("Versions", []) + listed.get("DeleteMarkers", []):
        s3.delete_object(Bucket=bucket, Key=it["Key"], VersionId=it["VersionId"])


def test_whoever_may_list_a_prefix_is_told_of_keys_below_it_alone(s3, anyone, bucket):
    below = {"StringLike": {"s3:prefix": "public/*"}}
    put_policy(s3, bucket, statement(bucket, "s3:ListBucket", "", Condition=below),
               statement(bucket, "s3:GetObject"))
    with refused("404", 404):
        soon(lambda: anyone.list_objects_v2(Bucket=bucket, Prefix="public/"))
        anyone.head_object(Bucket=bucket, Key="public/none")
    with refused("NoSuchKey", 404):
        anyone.get_object(Bucket=bucket, Key="public/none")
    denied(anyone.head_object, Bucket=bucket, Key="private/none")


def test_services_are_those_that_there_are(s3, bucket):
    for service in ("logging.s3.amazonaws.com", "cloudtrail.amazonaws.com", "logs.eu-west-1.amazonaws.com"):
        put_policy(s3, bucket, {**statement(bucket, "s3:PutObject"), "Principal": {"Service": service}})
    for service in ("no-such-service.amazonaws.com", "logging.s3.amazonaws.comx", "amazonaws.com", "sns"):
        with refused("MalformedPolicy", 400):
            put_policy(s3, bucket, {**statement(bucket, "s3:PutObject"), "Principal": {"Service": service}})


def test_a_canonical_user_is_somebody(s3, bucket):
    root = s3.list_buckets()["Owner"]["ID"]
    put_policy(s3, bucket, {**statement(bucket, "s3:GetObject"), "Principal": {"CanonicalUser": root}})
    with refused("MalformedPolicy", 400):
        put_policy(s3, bucket, {**statement(bucket, "s3:GetObject"), "Principal": {"CanonicalUser": "f" * 64}})
