"""Lifecycle rules, through boto3: what is taken, what is said of it, and what goes by it."""

import datetime
import re
import time

import pytest

from conftest import client_for, empty, running_server
from harness import wire
from helpers import absent, get, header, refused, status

# A day of a second: what is due goes within a few.
SHORT_DAYS = {"MARTLET_LIFECYCLE_DAY_SECONDS": "1"}
# Long enough for a busy machine.
WAIT_S = 60
NEVER = 100_000


def set_rules(s3, bucket, *rules, **how):
    named = [{"ID": f"rule{at}", "Status": "Enabled", **rule} for at, rule in enumerate(rules)]
    return s3.put_bucket_lifecycle_configuration(
        Bucket=bucket, LifecycleConfiguration={"Rules": named}, **how)


def after(days, prefix="", **filter):
    return {"Filter": {"Prefix": prefix, **filter}, "Expiration": {"Days": days}}


def wait_until(holds):
    deadline = time.monotonic() + WAIT_S
    while not holds():
        assert time.monotonic() < deadline, "it did not come to pass"
        time.sleep(0.2)


# --- rules ---

def test_rules_are_given_back_as_they_came(s3, bucket):
    with refused("NoSuchLifecycleConfiguration", 404):
        s3.get_bucket_lifecycle_configuration(Bucket=bucket)
    tag = {"Key": "k", "Value": "v w"}
    rules = [
        {"ID": "old", "Prefix": "a/", "Status": "Disabled", "Expiration": {"Days": 31}},
        {"ID": "all", "Filter": {}, "Status": "Enabled",
         "Expiration": {"ExpiredObjectDeleteMarker": True},
         "NoncurrentVersionExpiration": {"NoncurrentDays": 3, "NewerNoncurrentVersions": 2},
         "AbortIncompleteMultipartUpload": {"DaysAfterInitiation": 7}},
        {"ID": "tag", "Filter": {"Tag": tag}, "Status": "Enabled",
         "Expiration": {"Date": datetime.datetime(2100, 1, 1, tzinfo=datetime.timezone.utc)}},
        {"ID": "and", "Status": "Enabled", "Expiration": {"Days": 1},
         "Filter": {"And": {"Prefix": "p", "Tags": [tag], "ObjectSizeGreaterThan": 5,
                            "ObjectSizeLessThan": 2**40}}},
    ]
    how = {"TransitionDefaultMinimumObjectSize": "varies_by_storage_class"}
    put = s3.put_bucket_lifecycle_configuration(
        Bucket=bucket, LifecycleConfiguration={"Rules": rules}, **how)
    assert status(put) == 200 and put["TransitionDefaultMinimumObjectSize"] == "varies_by_storage_class"
    given = s3.get_bucket_lifecycle_configuration(Bucket=bucket)
    assert given["Rules"] == rules
    assert given["TransitionDefaultMinimumObjectSize"] == "varies_by_storage_class"
    assert status(s3.delete_bucket_lifecycle(Bucket=bucket)) == 204
    with refused("NoSuchLifecycleConfiguration", 404):
        s3.get_bucket_lifecycle_configuration(Bucket=bucket)
    assert status(s3.delete_bucket_lifecycle(Bucket=bucket)) == 204


def test_rules_without_an_id_get_one(s3, bucket):
    rules = [{"Expiration": {"Days": days}, "Prefix": f"p{days}/", "Status": "Enabled"} for days in (1, 2)]
    s3.put_bucket_lifecycle_configuration(Bucket=bucket, LifecycleConfiguration={"Rules": rules})
    given = s3.get_bucket_lifecycle_configuration(Bucket=bucket)
    assert given["TransitionDefaultMinimumObjectSize"] == "all_storage_classes_128K"
    assert len({rule["ID"] for rule in given["Rules"]}) == 2
    assert [{k: v for k, v in rule.items() if k != "ID"} for rule in given["Rules"]] == rules


@pytest.mark.parametrize("code, changes", [
    ("InvalidArgument", {"ID": "a" * 256}),
    ("MalformedXML", {"Status": "enabled"}),
    ("InvalidArgument", {"Expiration": {"Days": 0}}),
    ("InvalidArgument", {"Expiration": {"Date": "2030-01-01T10:00:00Z"}}),
    ("MalformedXML", {"Expiration": {"Days": 1, "ExpiredObjectDeleteMarker": True}}),
    ("InvalidRequest", {"Expiration": None}),
    ("MalformedXML", {"Prefix": "also/"}),
    ("InvalidArgument", {"NoncurrentVersionExpiration": {"NoncurrentDays": 0}}),
    ("InvalidArgument", {"AbortIncompleteMultipartUpload": {"DaysAfterInitiation": 0}}),
    ("NotImplemented", {"Transitions": [{"Days": 1, "StorageClass": "GLACIER"}]}),
    ("InvalidArgument", {"Transitions": [{"Date": "20220927", "StorageClass": "GLACIER"}]}),
    ("InvalidRequest", {"Filter": {"ObjectSizeGreaterThan": 5, "ObjectSizeLessThan": 5}}),
    ("InvalidRequest", {"Filter": {"Tag": {"Key": "k", "Value": "v"}},
                        "Expiration": {"ExpiredObjectDeleteMarker": True}}),
])
def test_rules_that_make_no_sense_are_refused(s3, bucket, code, changes):
    rule = {**after(1), **changes}
    with refused(code, 501 if code == "NotImplemented" else 400):
        set_rules(s3, bucket, {key: value for key, value in rule.items() if value is not None})
    with refused("NoSuchLifecycleConfiguration", 404):
        s3.get_bucket_lifecycle_configuration(Bucket=bucket)


def test_documents_of_rules_are_checked_as_a_whole(s3, bucket):
    with refused("InvalidArgument", 400):
        set_rules(s3, bucket, {**after(1), "ID": "a"}, {**after(2, "x"), "ID": "a"})
    with refused("MalformedXML", 400):
        set_rules(s3, bucket)
    with refused("MalformedXML", 400):
        set_rules(s3, bucket, *[after(1, f"{at}/") for at in range(1001)])
    with refused("InvalidRequest", 400):
        set_rules(s3, bucket, after(1), TransitionDefaultMinimumObjectSize="tiny")
    set_rules(s3, bucket, *[after(1, f"{at}/") for at in range(1000)])
    assert len(s3.get_bucket_lifecycle_configuration(Bucket=bucket)["Rules"]) == 1000


def test_a_document_that_is_none_is_malformed(server, bucket):
    for body in (b"", b"<LifecycleConfiguration/>", b"<LifecycleConfiguration><Rule/>"):
        reply = wire.request(server, "PUT", f"/{bucket}?lifecycle", body=body)
        assert (reply.status, reply.code) == (400, "MalformedXML"), reply.body


# --- what replies say ---

def expiry(response):
    said = header(response, "x-amz-expiration")
    if said is None:
        return None
    date, rule = re.fullmatch(r'expiry-date="(.+)", rule-id="(.+)"', said).groups()
    return datetime.datetime.strptime(date, "%a, %d %b %Y %H:%M:%S GMT"), rule


def test_replies_say_when_an_object_expires(s3, bucket):
    set_rules(s3, bucket, {**after(3, "a/"), "ID": "three days"}, after(9, "a/"))
    now = datetime.datetime.now(datetime.timezone.utc).replace(tzinfo=None)
    tags = {"TagSet": [{"Key": "k", "Value": "v"}]}
    put = s3.put_object(Bucket=bucket, Key="a/1", Body=b"x")
    copied = s3.copy_object(Bucket=bucket, Key="a/2", CopySource=f"{bucket}/a/1")
    upload = s3.create_multipart_upload(Bucket=bucket, Key="a/3")["UploadId"]
    how = {"Bucket": bucket, "Key": "a/3", "UploadId": upload}
    part = s3.upload_part(PartNumber=1, Body=b"x", **how)
    parts = {"Parts": [{"PartNumber": 1, "ETag": part["ETag"]}]}
    completed = s3.complete_multipart_upload(MultipartUpload=parts, **how)
    for response in (put, copied, completed, s3.get_object(Bucket=bucket, Key="a/2"),
                     s3.head_object(Bucket=bucket, Key="a/3")):
        date, rule = expiry(response)
        assert rule == "three%20days" and date.time() == datetime.time()
        assert 3 <= (date - now).total_seconds() / 86400 <= 4.1
    assert expiry(s3.put_object(Bucket=bucket, Key="b", Body=b"x")) is None
    set_rules(s3, bucket, {"Filter": {"Tag": {"Key": "k", "Value": "v"}}, "Expiration": {"Days": 1}})
    assert expiry(s3.head_object(Bucket=bucket, Key="a/1")) is None
    s3.put_object_tagging(Bucket=bucket, Key="a/1", Tagging=tags)
    assert expiry(s3.head_object(Bucket=bucket, Key="a/1"))[1] == "rule0"


def test_replies_say_when_an_upload_is_aborted(s3, bucket):
    set_rules(s3, bucket, {"Prefix": "a/", "AbortIncompleteMultipartUpload": {"DaysAfterInitiation": 2}})
    now = datetime.datetime.now(datetime.timezone.utc)
    begun = s3.create_multipart_upload(Bucket=bucket, Key="a/1")
    listed = s3.list_parts(Bucket=bucket, Key="a/1", UploadId=begun["UploadId"])
    for response in (begun, listed):
        assert response["AbortRuleId"] == "rule0"
        assert 2 <= (response["AbortDate"] - now).total_seconds() / 86400 <= 3.1
    assert "AbortDate" not in s3.create_multipart_upload(Bucket=bucket, Key="b/1")


# --- what goes ---

@pytest.fixture(scope="module")
def hasty():
    """A client of a server whose days are short."""
    with running_server(settings=SHORT_DAYS) as server:
        yield client_for(server)
        assert server.complaints() == []


@pytest.fixture
def place(hasty, request):
    name = re.sub("[^a-z]+", "-", request.node.name)[:60].strip("-")
    hasty.create_bucket(Bucket=name)
    yield name
    hasty.delete_bucket_lifecycle(Bucket=name)
    listed = hasty.list_object_versions(Bucket=name)
    for version in listed.get("Versions", []) + listed.get("DeleteMarkers", []):
        hasty.delete_object(Bucket=name, Key=version["Key"], VersionId=version["VersionId"])
    empty(hasty, name)
    hasty.delete_bucket(Bucket=name)


def keys(s3, bucket):
    return [item["Key"] for item in s3.list_objects_v2(Bucket=bucket).get("Contents", [])]


def versions(s3, bucket):
    """Keys of versions, and of delete markers."""
    listed = s3.list_object_versions(Bucket=bucket)
    return tuple([it["Key"] for it in listed.get(kind, [])] for kind in ("Versions", "DeleteMarkers"))


def keep_versions(s3, bucket):
    s3.put_bucket_versioning(Bucket=bucket, VersioningConfiguration={"Status": "Enabled"})


def test_objects_go_by_days_dates_tags_and_sizes(hasty, place):
    for key in ("days/a", "late/a", "date/a", "future/a", "tag/a", "large/a", "other"):
        hasty.put_object(Bucket=place, Key=key, Body=b"x" * 100)
    hasty.put_object(Bucket=place, Key="tag/both", Body=b"x", Tagging="a=1&b=2")
    hasty.put_object(Bucket=place, Key="tag/one", Body=b"x", Tagging="a=1")
    hasty.put_object(Bucket=place, Key="large/b", Body=b"x" * 5000)
    both = {"Tag": {"Key": "a", "Value": "1"}, "And": {"Prefix": "tag", "Tags": [{"Key": "b", "Value": "2"}]}}
    set_rules(
        hasty, place, after(1, "days/"), after(NEVER, "late/"), after(1, "tag/", **both),
        {"Prefix": "date/", "Expiration": {"Date": "2015-01-01"}},
        {"Prefix": "future/", "Expiration": {"Date": "2100-01-01"}},
        {"Filter": {"And": {"Prefix": "large/", "ObjectSizeGreaterThan": 1000}}, "Expiration": {"Days": 1}},
        {**after(1, "other"), "Status": "Disabled"})
    stay = ["future/a", "large/a", "late/a", "other", "tag/a", "tag/one"]
    wait_until(lambda: keys(hasty, place) == stay)
    absent(hasty, place, "days/a")
    assert get(hasty, place, "tag/one") == b"x"


def test_versions_go_one_after_the_other(hasty, place):
    keep_versions(hasty, place)
    for key in ("k/1", "k/2", "stays"):
        hasty.put_object(Bucket=place, Key=key, Body=b"x")
    set_rules(hasty, place, after(1, "k/"))
    wait_until(lambda: versions(hasty, place) == (["k/1", "k/2", "stays"], ["k/1", "k/2"]))
    with refused("NoSuchKey", 404) as caught:
        hasty.get_object(Bucket=place, Key="k/1")
    assert header(caught.value.response, "x-amz-delete-marker") == "true"
    noncurrent = {"Prefix": "k/", "NoncurrentVersionExpiration": {"NoncurrentDays": 1}}
    set_rules(hasty, place, noncurrent)
    wait_until(lambda: versions(hasty, place) == (["stays"], ["k/1", "k/2"]))
    set_rules(hasty, place, {"Prefix": "k/1", "Expiration": {"ExpiredObjectDeleteMarker": True}},
              after(NEVER, "k/"))
    wait_until(lambda: versions(hasty, place) == (["stays"], ["k/2"]))


def test_the_newest_noncurrent_versions_stay(hasty, place):
    keep_versions(hasty, place)
    ids = [hasty.put_object(Bucket=place, Key="k", Body=b"%d" % at)["VersionId"] for at in range(10)]
    rule = {"NoncurrentDays": 1, "NewerNoncurrentVersions": 4}
    set_rules(hasty, place, {"Filter": {"Prefix": ""}, "NoncurrentVersionExpiration": rule})
    wait_until(lambda: len(versions(hasty, place)[0]) == 5)
    listed = hasty.list_object_versions(Bucket=place)["Versions"]
    assert [it["VersionId"] for it in listed] == ids[:4:-1]
    assert get(hasty, place, "k", VersionId=ids[5]) == b"5"


def test_uploads_are_aborted_by_rule(hasty, place):
    for key in ("a/k", "b/k"):
        hasty.create_multipart_upload(Bucket=place, Key=key)
    set_rules(hasty, place, {"Prefix": "a/", "AbortIncompleteMultipartUpload": {"DaysAfterInitiation": 1}})
    uploads = lambda: [it["Key"] for it in hasty.list_multipart_uploads(Bucket=place).get("Uploads", [])]
    wait_until(lambda: uploads() == ["b/k"])
