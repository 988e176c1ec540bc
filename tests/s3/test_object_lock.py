"""Object lock, through boto3."""

import concurrent.futures
import datetime
import itertools
import time

import pytest
import urllib3

from harness import wire
from helpers import get, header, refused, status

UTC = datetime.timezone.utc
SOON, LATE = datetime.datetime(2100, 1, 1, tzinfo=UTC), datetime.datetime(2100, 1, 3, tzinfo=UTC)
_numbers = itertools.count()


@pytest.fixture
def locked(s3):
    """A bucket with object lock. What it holds may be locked for as long as the server runs, so it stays."""
    name = f"locked-{next(_numbers)}"
    s3.create_bucket(Bucket=name, ObjectLockEnabledForBucket=True)
    return name


def put(s3, bucket, key="k", body=b"x", **how):
    return s3.put_object(Bucket=bucket, Key=key, Body=body, **how)["VersionId"]


def governed(date):
    return {"Mode": "GOVERNANCE", "RetainUntilDate": date}


def rule(mode="GOVERNANCE", **period):
    return {"ObjectLockEnabled": "Enabled", "Rule": {"DefaultRetention": {"Mode": mode, **period}}}


def configure(s3, bucket, configuration):
    return s3.put_object_lock_configuration(Bucket=bucket, ObjectLockConfiguration=configuration)


def test_a_bucket_says_what_was_set(s3, locked):
    assert s3.get_object_lock_configuration(Bucket=locked)["ObjectLockConfiguration"] == {"ObjectLockEnabled": "Enabled"}
    for configuration in (rule(Days=1), rule("COMPLIANCE", Years=1), {"ObjectLockEnabled": "Enabled"}):
        configure(s3, locked, configuration)
        assert s3.get_object_lock_configuration(Bucket=locked)["ObjectLockConfiguration"] == configuration
    assert s3.get_bucket_versioning(Bucket=locked)["Status"] == "Enabled"
    with refused("InvalidBucketState", 409):
        s3.put_bucket_versioning(Bucket=locked, VersioningConfiguration={"Status": "Suspended"})
    s3.put_bucket_versioning(Bucket=locked, VersioningConfiguration={"Status": "Enabled"})
    s3.delete_bucket(Bucket=locked)


@pytest.mark.parametrize("configuration,code", [
    (rule(Days=1, Years=1), "MalformedXML"),
    (rule(), "MalformedXML"),
    (rule("abc", Years=1), "MalformedXML"),
    (rule("governance", Years=1), "MalformedXML"),
    ({**rule(Years=1), "ObjectLockEnabled": "Disabled"}, "MalformedXML"),
    (rule(Days=0), "InvalidRetentionPeriod"),
    (rule(Years=-1), "InvalidRetentionPeriod"),
    (rule(Days=36_501), "InvalidRetentionPeriod"),
])
def test_what_is_no_configuration(s3, locked, configuration, code):
    with refused(code, 400):
        configure(s3, locked, configuration)
    assert "Rule" not in s3.get_object_lock_configuration(Bucket=locked)["ObjectLockConfiguration"]


def test_a_bucket_gets_it_later_if_it_keeps_versions(s3):
    bucket = f"locked-{next(_numbers)}"
    s3.create_bucket(Bucket=bucket)
    with refused("ObjectLockConfigurationNotFoundError", 404):
        s3.get_object_lock_configuration(Bucket=bucket)
    put_version = lambda state: s3.put_bucket_versioning(Bucket=bucket, VersioningConfiguration={"Status": state})
    with refused("InvalidBucketState", 409):
        configure(s3, bucket, rule(Days=1))
    put_version("Suspended")
    with refused("InvalidBucketState", 409):
        configure(s3, bucket, rule(Days=1))
    s3.put_object(Bucket=bucket, Key="k", Body=b"null")
    put_version("Enabled")
    configure(s3, bucket, rule(Days=1))
    with refused("InvalidBucketState", 409):
        put_version("Suspended")
    with refused("NoSuchObjectLockConfiguration", 404):
        s3.get_object_retention(Bucket=bucket, Key="k")
    s3.put_object_legal_hold(Bucket=bucket, Key="k", LegalHold={"Status": "ON"})
    with refused("AccessDenied", 403):
        s3.delete_object(Bucket=bucket, Key="k", VersionId="null")


def test_a_bucket_without_it(s3, bucket):
    s3.put_object(Bucket=bucket, Key="k", Body=b"x")
    with refused("InvalidRequest", 400):
        s3.put_object_retention(Bucket=bucket, Key="k", Retention=governed(SOON))
    with refused("InvalidRequest", 400):
        s3.get_object_retention(Bucket=bucket, Key="k")
    with refused("InvalidRequest", 400):
        s3.put_object_legal_hold(Bucket=bucket, Key="k", LegalHold={"Status": "ON"})
    with refused("InvalidRequest", 400):
        s3.get_object_legal_hold(Bucket=bucket, Key="k")
    with refused("InvalidRequest", 400):
        put(s3, bucket, ObjectLockMode="GOVERNANCE", ObjectLockRetainUntilDate=SOON)
    with refused("InvalidRequest", 400):
        s3.create_multipart_upload(Bucket=bucket, Key="k", ObjectLockLegalHoldStatus="ON")
    for read in (s3.get_object_retention, s3.get_object_legal_hold):
        with refused("NoSuchKey", 404):
            read(Bucket=bucket, Key="none")
    passed = {"ObjectLockMode": "GOVERNANCE", "ObjectLockRetainUntilDate": datetime.datetime(2020, 1, 1, tzinfo=UTC)}
    with refused("InvalidArgument", 400):
        s3.create_multipart_upload(Bucket=bucket, Key="k", **passed)


def test_retention(s3, locked):
    version = put(s3, locked)
    retain = lambda retention, **how: s3.put_object_retention(Bucket=locked, Key="k", Retention=retention, **how)
    for retention in ({**governed(SOON), "Mode": "governance"}, {**governed(SOON), "Mode": "abc"}):
        with refused("MalformedXML", 400):
            retain(retention)
    with refused("InvalidArgument", 400):
        retain(governed(datetime.datetime(2020, 1, 1, tzinfo=UTC)))
    retain(governed(SOON))
    retain(governed(LATE), VersionId=version)
    found = s3.get_object_retention(Bucket=locked, Key="k", VersionId=version)
    assert found["Retention"] == governed(LATE)
    with refused("AccessDenied", 403):
        retain(governed(SOON))
    with refused("AccessDenied", 403):
        s3.delete_object(Bucket=locked, Key="k", VersionId=version)
    retain(governed(SOON), BypassGovernanceRetention=True)
    assert s3.get_object_retention(Bucket=locked, Key="k")["Retention"] == governed(SOON)
    deleted = s3.delete_object(Bucket=locked, Key="k", VersionId=version, BypassGovernanceRetention=True)
    assert status(deleted) == 204
    s3.delete_bucket(Bucket=locked)


def test_modes_change_by_bypass_alone_and_compliance_never(s3, locked):
    put(s3, locked, ObjectLockMode="GOVERNANCE", ObjectLockRetainUntilDate=SOON)
    compliant = {"Mode": "COMPLIANCE", "RetainUntilDate": SOON}
    with refused("AccessDenied", 403):
        s3.put_object_retention(Bucket=locked, Key="k", Retention=compliant)
    s3.put_object_retention(Bucket=locked, Key="k", Retention=compliant, BypassGovernanceRetention=True)
    for retention in (governed(SOON), governed(LATE), {**compliant, "RetainUntilDate": SOON - datetime.timedelta(1)}):
        with refused("AccessDenied", 403):
            s3.put_object_retention(Bucket=locked, Key="k", Retention=retention, BypassGovernanceRetention=True)
    head = s3.head_object(Bucket=locked, Key="k")
    with refused("AccessDenied", 403):
        s3.delete_object(Bucket=locked, Key="k", VersionId=head["VersionId"], BypassGovernanceRetention=True)
    with refused("BucketNotEmpty", 409):
        s3.delete_bucket(Bucket=locked)


def test_a_retention_ends_by_itself(s3, locked):
    # Whole seconds: the header says no more.
    until = datetime.datetime.now(UTC).replace(microsecond=0) + datetime.timedelta(seconds=4)
    version = put(s3, locked, ObjectLockMode="COMPLIANCE", ObjectLockRetainUntilDate=until)
    with refused("AccessDenied", 403):
        s3.delete_object(Bucket=locked, Key="k", VersionId=version, BypassGovernanceRetention=True)
    deadline = time.monotonic() + 40
    while True:
        try:
            s3.delete_object(Bucket=locked, Key="k", VersionId=version)
            break
        except s3.exceptions.ClientError as error:
            assert error.response["Error"]["Code"] == "AccessDenied" and time.monotonic() < deadline
            time.sleep(0.2)
    assert datetime.datetime.now(UTC) >= until
    s3.delete_bucket(Bucket=locked)


def test_a_legal_hold(s3, locked):
    version = put(s3, locked)
    hold = lambda status: s3.put_object_legal_hold(Bucket=locked, Key="k", LegalHold={"Status": status})
    with refused("NoSuchObjectLockConfiguration", 404):
        s3.get_object_legal_hold(Bucket=locked, Key="k")
    with refused("MalformedXML", 400):
        hold("abc")
    hold("ON")
    assert s3.get_object_legal_hold(Bucket=locked, Key="k")["LegalHold"] == {"Status": "ON"}
    with refused("AccessDenied", 403):
        s3.delete_object(Bucket=locked, Key="k", VersionId=version, BypassGovernanceRetention=True)
    hold("OFF")
    assert s3.get_object_legal_hold(Bucket=locked, Key="k")["LegalHold"] == {"Status": "OFF"}
    assert status(s3.delete_object(Bucket=locked, Key="k", VersionId=version)) == 204


def test_reads_show_it(s3, locked):
    until = datetime.datetime.now(UTC) + datetime.timedelta(days=365)
    put(s3, locked, ObjectLockMode="GOVERNANCE", ObjectLockRetainUntilDate=SOON, ObjectLockLegalHoldStatus="ON")
    for reply in (s3.head_object(Bucket=locked, Key="k"), s3.get_object(Bucket=locked, Key="k")):
        assert (reply["ObjectLockMode"], reply["ObjectLockRetainUntilDate"]) == ("GOVERNANCE", SOON)
        assert reply["ObjectLockLegalHoldStatus"] == "ON"
    s3.put_object_retention(Bucket=locked, Key="k", Retention=governed(until), BypassGovernanceRetention=True)
    text = header(s3.head_object(Bucket=locked, Key="k"), "x-amz-object-lock-retain-until-date")
    shown = datetime.datetime.fromisoformat(text.replace("Z", "+00:00"))
    assert abs((shown - until).total_seconds()) < 0.001


def test_many_deletes(s3, locked):
    held, free = put(s3, locked, "held"), put(s3, locked, "free")
    s3.put_object_retention(Bucket=locked, Key="held", Retention=governed(SOON))
    named = lambda *pairs: {"Objects": [{"Key": key, "VersionId": version} for key, version in pairs]}
    reply = s3.delete_objects(Bucket=locked, Delete=named(("held", held), ("free", free)))
    assert [(it["Key"], it["VersionId"]) for it in reply["Deleted"]] == [("free", free)]
    assert [(it["Code"], it["Key"], it["VersionId"]) for it in reply["Errors"]] == [("AccessDenied", "held", held)]
    reply = s3.delete_objects(Bucket=locked, Delete=named(("held", held)), BypassGovernanceRetention=True)
    assert "Errors" not in reply and reply["Deleted"][0]["VersionId"] == held
    s3.delete_bucket(Bucket=locked)


def test_markers_and_writes_go_on_in_front(s3, locked):
    version = put(s3, locked, body=b"first", ObjectLockMode="COMPLIANCE", ObjectLockRetainUntilDate=SOON)
    put(s3, locked, body=b"second")
    assert s3.delete_object(Bucket=locked, Key="k")["DeleteMarker"] is True
    assert get(s3, locked, "k", VersionId=version) == b"first"
    with refused("AccessDenied", 403):
        s3.delete_object(Bucket=locked, Key="k", VersionId=version)


@pytest.mark.parametrize("how", [
    {"ObjectLockMode": "GOVERNANCE"},
    {"ObjectLockRetainUntilDate": SOON},
    {"ObjectLockMode": "governance", "ObjectLockRetainUntilDate": SOON},
    {"ObjectLockMode": "GOVERNANCE", "ObjectLockRetainUntilDate": datetime.datetime(2020, 1, 1, tzinfo=UTC)},
    {"ObjectLockLegalHoldStatus": "on"},
])
def test_what_is_no_lock(s3, locked, how):
    with refused("InvalidArgument", 400):
        put(s3, locked, **how)
    assert "Versions" not in s3.list_object_versions(Bucket=locked)


def test_a_default_retention(s3, locked):
    configure(s3, locked, rule(Days=10))
    before = datetime.datetime.now(UTC) - datetime.timedelta(seconds=1)
    version = put(s3, locked)
    head = s3.head_object(Bucket=locked, Key="k")
    left = head["ObjectLockRetainUntilDate"] - before
    assert head["ObjectLockMode"] == "GOVERNANCE"
    assert datetime.timedelta(days=10) <= left <= datetime.timedelta(days=10, minutes=5)
    with refused("AccessDenied", 403):
        s3.delete_object(Bucket=locked, Key="k", VersionId=version)
    own = put(s3, locked, ObjectLockMode="COMPLIANCE", ObjectLockRetainUntilDate=SOON)
    assert s3.head_object(Bucket=locked, Key="k", VersionId=own)["ObjectLockRetainUntilDate"] == SOON


@pytest.mark.parametrize("how", [
    {}, {"ObjectLockMode": "GOVERNANCE", "ObjectLockRetainUntilDate": SOON}, {"ObjectLockLegalHoldStatus": "ON"},
])
def test_an_upload(s3, locked, how):
    if not how:
        configure(s3, locked, rule(Days=10))
    upload = s3.create_multipart_upload(Bucket=locked, Key="k", **how)["UploadId"]
    part = s3.upload_part(Bucket=locked, Key="k", UploadId=upload, PartNumber=1, Body=b"x" * 100)
    parts = {"Parts": [{"PartNumber": 1, "ETag": part["ETag"]}]}
    done = s3.complete_multipart_upload(Bucket=locked, Key="k", UploadId=upload, MultipartUpload=parts)
    version = done.get("VersionId") or s3.head_object(Bucket=locked, Key="k")["VersionId"]
    with refused("AccessDenied", 403):
        s3.delete_object(Bucket=locked, Key="k", VersionId=version)
    if "ObjectLockLegalHoldStatus" in how:
        s3.put_object_legal_hold(Bucket=locked, Key="k", LegalHold={"Status": "OFF"})
    s3.delete_object(Bucket=locked, Key="k", VersionId=version, BypassGovernanceRetention=True)
    s3.delete_bucket(Bucket=locked)


def test_a_copy(s3, locked):
    put(s3, locked, "source", ObjectLockLegalHoldStatus="ON")
    copy = lambda key, **how: s3.copy_object(Bucket=locked, Key=key, CopySource=f"{locked}/source", **how)
    copy("plain")
    assert "ObjectLockLegalHoldStatus" not in s3.head_object(Bucket=locked, Key="plain")
    copy("own", ObjectLockMode="COMPLIANCE", ObjectLockRetainUntilDate=SOON, MetadataDirective="REPLACE")
    head = s3.head_object(Bucket=locked, Key="own")
    assert (head["ObjectLockMode"], head["ObjectLockRetainUntilDate"]) == ("COMPLIANCE", SOON)


def test_of_a_lock_and_a_removal_that_race_one_is_refused(s3, locked):
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        for at in range(20):
            key = f"k{at}"
            version = put(s3, locked, key)
            if at % 2:
                put(s3, locked, key, b"in front")

            def hold():
                s3.put_object_legal_hold(Bucket=locked, Key=key, VersionId=version, LegalHold={"Status": "ON"})

            def remove():
                s3.delete_object(Bucket=locked, Key=key, VersionId=version)

            tasks = [pool.submit(task) for task in (hold, remove, hold, remove)]
            held = [task.exception() for task in tasks[::2]]
            removed = [task.exception() for task in tasks[1::2]]
            codes = {it.response["Error"]["Code"] for it in (*held, *removed) if it}
            assert codes <= {"AccessDenied", "NoSuchVersion", "NoSuchKey"}, codes
            if None in held:
                assert get(s3, locked, key, VersionId=version) == b"x"
            else:
                with refused("NoSuchVersion", 404):
                    get(s3, locked, key, VersionId=version)


def test_bodies_that_are_none(server, s3, locked):
    put(s3, locked)
    for resource in ("retention", "legal-hold"):
        for body in (b"", b"<", b"<X/>", b"<Retention><Mode>GOVERNANCE</Mode></Retention>"):
            reply = wire.request(server, "PUT", f"/{locked}/k?{resource}", body=body)
            assert (reply.status, reply.code) == (400, "MalformedXML"), (resource, body, reply.body)
    reply = wire.request(server, "PUT", f"/{locked}?object-lock", body=b"")
    assert (reply.status, reply.code) == (400, "MissingRequestBodyError")
    reply = wire.request(server, "PUT", f"/{locked}/k?partNumber=1&uploadId=1", {"x-amz-object-lock-legal-hold": "ON"}, b"x")
    assert reply.status == 501


def test_a_form(server, s3, locked):
    lock = {"x-amz-object-lock-mode": "COMPLIANCE", "x-amz-object-lock-retain-until-date": "2100-01-01T00:00:00Z",
            "x-amz-object-lock-legal-hold": "ON"}
    conditions = [{name: value} for name, value in lock.items()]
    made = s3.generate_presigned_post(locked, "k", Fields=lock, Conditions=conditions)
    fields = [*made["fields"].items(), ("file", ("k.txt", b"x"))]
    reply = urllib3.PoolManager().request("POST", f"{server.endpoint}/{locked}", fields=fields)
    assert reply.status == 204, reply.data
    head = s3.head_object(Bucket=locked, Key="k")
    assert (head["ObjectLockMode"], head["ObjectLockRetainUntilDate"]) == ("COMPLIANCE", SOON)
    assert head["ObjectLockLegalHoldStatus"] == "ON"
