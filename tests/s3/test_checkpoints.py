"""Checkpoint sets through the S3 port: rules, generations, the view of what is complete, explicit commits."""

import itertools
import json
import xml.etree.ElementTree as ElementTree

import pytest

from harness import wire
from harness.admin import admin
from helpers import assert_refused, client_of, get, header, md5, refused, soon, until

RULES = {"rules": [
    {"pattern": "run-*/step-*/", "profile": "custom", "markers": ["done"], "keep": 3},
    {"pattern": "hf/*/", "profile": "hf"},
    {"pattern": "once/*/", "profile": "custom", "markers": ["done"], "recommit": "refuse"},
]}
_numbers = itertools.count()


@pytest.fixture
def train(s3, server):
    """A bucket with rules. It stays: versions that a generation needs can't be deleted for minutes."""
    name = f"train-{next(_numbers)}"
    s3.create_bucket(Bucket=name)
    s3.put_bucket_versioning(Bucket=name, VersioningConfiguration={"Status": "Enabled"})
    assert put_rules(server, name, RULES).status == 204
    # A change applies to writes that begin a second later.
    until(lambda: put(s3, name, "run-0/step-0/done").startswith("committed"))
    return name


def put_rules(server, bucket, rules):
    return wire.request(server, "PUT", f"/{bucket}?checkpoints", body=json.dumps(rules).encode())


def put(s3, bucket, key, body=b"x"):
    """Writes an object, and returns the outcome of the set."""
    return header(s3.put_object(Bucket=bucket, Key=key, Body=body), "x-martlet-checkpoint") or ""


def view(bucket):
    return f"{bucket}--committed"


def keys(s3, bucket, prefix, **how):
    pages = s3.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=prefix, **how)
    return [item["Key"] for page in pages for item in page.get("Contents", [])]


def commit(server, bucket, folder, objects, also=""):
    target = f"/{bucket}?checkpoint={folder.replace('/', '%2F')}{also}"
    return wire.request(server, "POST", target, body=json.dumps(objects).encode())


def named(key, body):
    return {"key": key, "etag": md5(body), "size": len(body)}


def test_rules_are_kept_and_need_versions(s3, server, bucket, train):
    assert_refused(put_rules(server, bucket, RULES), 409, "InvalidBucketState")
    found = wire.request(server, "GET", f"/{train}?checkpoints")
    assert [rule["pattern"] for rule in json.loads(found.body)["rules"]] == ["run-*/step-*/", "hf/*/", "once/*/"]
    for wrong in [{"pattern": "a", "profile": "dcp"}, {"pattern": "a/", "profile": "mine"},
                  {"pattern": "a/", "profile": "dcp", "abandon_after": 1}, {"profile": "dcp"}]:
        reply = put_rules(server, train, {"rules": [wrong]})
        assert reply.status == 400, (wrong, reply.body)
    overlapping = [{"pattern": "a/*/", "profile": "dcp"}, {"pattern": "a/b/", "profile": "dcp"}]
    assert put_rules(server, train, {"rules": overlapping}).status == 400
    again = wire.request(server, "GET", f"/{train}?checkpoints")
    assert again.body == found.body
    with refused("InvalidBucketState", 409):
        s3.put_bucket_versioning(Bucket=train, VersioningConfiguration={"Status": "Suspended"})


def test_the_view_shows_what_is_complete(s3, train):
    put(s3, train, "run-1/step-1/a", b"first a")
    put(s3, train, "run-1/step-1/b", b"first b")
    put(s3, train, "notes.txt", b"of no set")
    assert keys(s3, view(train), "run-1/") == []
    assert put(s3, train, "run-1/step-1/done") == "committed; generation=1"
    shown = ["run-1/step-1/a", "run-1/step-1/b", "run-1/step-1/done"]
    assert keys(s3, view(train), "run-1/") == shown
    assert keys(s3, view(train), "notes") == ["notes.txt"]
    # A second save is under way: the view stays, the bucket is what it is.
    put(s3, train, "run-1/step-1/a", b"second a, longer")
    s3.delete_object(Bucket=train, Key="run-1/step-1/b")
    put(s3, train, "run-1/step-1/c", b"second c")
    assert get(s3, train, "run-1/step-1/a") == b"second a, longer"
    assert get(s3, view(train), "run-1/step-1/a") == b"first a"
    assert get(s3, view(train), "run-1/step-1/b") == b"first b"
    assert keys(s3, view(train), "run-1/") == shown
    assert s3.head_object(Bucket=view(train), Key="run-1/step-1/a")["ContentLength"] == 7
    assert s3.get_object(Bucket=view(train), Key="run-1/step-1/a", Range="bytes=0-4")["Body"].read() == b"first"
    with refused("NoSuchKey", 404):
        get(s3, view(train), "run-1/step-1/c")
    assert put(s3, train, "run-1/step-1/done") == "committed; generation=2"
    assert keys(s3, view(train), "run-1/") == ["run-1/step-1/a", "run-1/step-1/c", "run-1/step-1/done"]
    assert get(s3, view(train), "run-1/step-1/a") == b"second a, longer"
    # The first one can still be read as a whole.
    assert get(s3, view(train), "run-1/step-1@1/a") == b"first a"
    assert keys(s3, view(train), "run-1/step-1@1/") == [key.replace("step-1", "step-1@1") for key in shown]


@pytest.mark.parametrize("page", [1, 2, 3, 1000])
def test_pages_of_the_view(s3, train, page):
    for step in range(1, 4):
        for name in "ab":
            put(s3, train, f"run-2/step-{step}/{name}")
        put(s3, train, f"run-2/step-{step}/done")
    put(s3, train, "run-2/step-3/late")
    put(s3, train, "run-2/readme")
    expected = ["run-2/readme"] + [f"run-2/step-{step}/{name}" for step in range(1, 4) for name in ("a", "b", "done")]
    assert keys(s3, view(train), "run-2/", PaginationConfig={"PageSize": page}) == expected
    pages = s3.get_paginator("list_objects_v2").paginate(
        Bucket=view(train), Prefix="run-2/", Delimiter="/", PaginationConfig={"PageSize": page})
    folders = [it["Prefix"] for one in pages for it in one.get("CommonPrefixes", [])]
    assert folders == ["run-2/step-1/", "run-2/step-2/", "run-2/step-3/"]


def test_a_marker_waits_for_what_it_names(s3, train):
    index = {"metadata": {}, "weight_map": {"w": "model-1.safetensors", "v": "model-2.safetensors"}}
    put(s3, train, "hf/m/model-1.safetensors")
    outcome = put(s3, train, "hf/m/model.safetensors.index.json", json.dumps(index).encode())
    assert outcome.startswith("pending; generation=1; reason=") and "model-2" in outcome
    assert keys(s3, view(train), "hf/") == []
    put(s3, train, "hf/m/model-2.safetensors")
    # The worker looks every ten seconds.
    until(lambda: len(keys(s3, view(train), "hf/m/")) == 3)


def test_a_set_that_refuses_recommits_has_one_generation(s3, train):
    assert put(s3, train, "once/m/done", b"1") == "committed; generation=1"
    assert put(s3, train, "once/m/done", b"22").startswith("refused; reason=")
    assert get(s3, view(train), "once/m/done") == b"1"
    assert get(s3, train, "once/m/done") == b"22"


def test_explicit_commits_name_every_object(s3, server, train):
    for name in "ab":
        put(s3, train, f"run-3/tmp/{name}", name.encode())
    objects = [named("run-3/tmp/a", b"a"), named("run-3/tmp/b", b"c"), named("run-3/tmp/z", b"z")]
    reply = commit(server, train, "run-3/tmp/", objects, "&as=run-3%2Fstep-9%2F")
    assert_refused(reply, 409, "CheckpointConflict")
    assert b"run-3/tmp/b" in reply.body and b"run-3/tmp/z" in reply.body and b"run-3/tmp/a" not in reply.body
    objects = [named("run-3/tmp/a", b"a"), named("run-3/tmp/b", b"b")]
    for _ in range(2):
        reply = commit(server, train, "run-3/tmp/", objects, "&as=run-3%2Fstep-9%2F")
        assert (reply.status, json.loads(reply.body)["state"]) == (200, "committed"), reply.body
        assert json.loads(reply.body)["generation"] == 1, "a repeated commit makes no other generation"
    assert keys(s3, view(train), "run-3/step-9/") == ["run-3/step-9/a", "run-3/step-9/b"]
    for name in "ab":
        s3.delete_object(Bucket=train, Key=f"run-3/tmp/{name}")
    assert get(s3, view(train), "run-3/step-9/b") == b"b"


def test_pinned_versions_stay_and_withdrawn_sets_go(s3, server, train):
    put(s3, train, "run-4/step-1/a", b"kept")
    assert put(s3, train, "run-4/step-1/done") == "committed; generation=1"
    version = s3.head_object(Bucket=train, Key="run-4/step-1/a")["VersionId"]
    with refused("AccessDenied", 403):
        s3.delete_object(Bucket=train, Key="run-4/step-1/a", VersionId=version)
    target = f"/{train}?checkpoint=run-4%2Fstep-1%2F"
    shown = json.loads(wire.request(server, "GET", target).body)
    assert [(it["generation"], it["state"], it["objects"]) for it in shown["generations"]] == [(1, "committed", 2)]
    assert wire.request(server, "DELETE", target).status in (200, 204)
    assert keys(s3, view(train), "run-4/") == []
    assert get(s3, train, "run-4/step-1/a") == b"kept"


def test_the_view_takes_no_writes(s3, train):
    for call, more in [
        (s3.put_object, {"Key": "run-5/step-1/a", "Body": b"x"}), (s3.delete_object, {"Key": "run-0/step-0/done"}),
        (s3.create_multipart_upload, {"Key": "k"}), (s3.delete_bucket, {}),
        (s3.put_object_tagging, {"Key": "run-0/step-0/done", "Tagging": {"TagSet": []}}),
    ]:
        with refused("MethodNotAllowed", 405):
            call(Bucket=view(train), **more)
    with refused("InvalidBucketName", 400):
        s3.create_bucket(Bucket="any--committed")
    with refused("NoSuchBucket", 404):
        get(s3, "nowhere--committed", "k")


def test_every_read_of_the_view_shows_one_generation(s3, server, train):
    put(s3, train, "run-6/step-1/a", b"first")
    put(s3, train, "run-6/step-1/b", b"b")
    assert put(s3, train, "run-6/step-1/done") == "committed; generation=1"
    put(s3, train, "run-6/step-1/a", b"second")
    s3.delete_object(Bucket=train, Key="run-6/step-1/b")
    name = view(train)
    shown = ["run-6/step-1/a", "run-6/step-1/b", "run-6/step-1/done"]
    # ListObjects, and the header in place of the name.
    first = s3.list_objects(Bucket=name, Prefix="run-6/")
    assert [item["Key"] for item in first["Contents"]] == shown
    assert first["Contents"][0]["Size"] == 5 and first["Name"] == name
    for target, method in [(f"/{train}/run-6/step-1/a", "GET"), (f"/{train}/run-6/step-1/a", "HEAD"),
                           (f"/{train}?list-type=2&prefix=run-6%2F", "GET"), (f"/{train}?prefix=run-6%2F", "GET")]:
        by_header = wire.request(server, method, target, {"x-martlet-view": "committed"})
        by_name = wire.request(server, method, target.replace(f"/{train}", f"/{name}", 1))
        assert (by_header.status, by_name.status) == (200, 200), (method, target)
        if method == "HEAD":
            assert by_header.headers["etag"] == by_name.headers["etag"] == f'"{md5(b"first")}"'
            assert by_header.headers["content-length"] == "5"
        elif target.endswith("a"):
            assert by_header.body == by_name.body == b"first"
        else:
            keys_of = lambda reply: [it.text for it in ElementTree.fromstring(reply.body).iter() if it.tag.endswith("Key")]
            assert keys_of(by_header) == keys_of(by_name) == shown
    ranged = s3.get_object(Bucket=name, Key="run-6/step-1@1/a", Range="bytes=-3")
    assert (ranged["Body"].read(), ranged["ContentRange"]) == (b"rst", "bytes 2-4/5")
    with refused("PreconditionFailed", 412):
        s3.get_object(Bucket=name, Key="run-6/step-1/a", IfMatch=md5(b"second"))
    with refused("InvalidRange", 416):
        s3.get_object(Bucket=name, Key="run-6/step-1/a", Range="bytes=9-")
    # A view has no versions, and no other operations but those on its sets.
    version = s3.head_object(Bucket=train, Key="run-6/step-1/a")["VersionId"]
    with refused("InvalidArgument", 400):
        s3.get_object(Bucket=name, Key="run-6/step-1/a", VersionId=version)
    with refused("MethodNotAllowed", 405):
        s3.list_object_versions(Bucket=name)
    held = wire.request(server, "PUT", f"/{name}?checkpoint=run-6%2Fstep-1%2F&hold=60")
    assert (held.status, json.loads(held.body)) == (200, {"generation": 1})
    state = json.loads(wire.request(server, "GET", f"/{name}?checkpoint=run-6%2Fstep-1%2F").body)
    assert state["generations"][0]["held_until_ms"] > 0
    refusal = wire.request(server, "GET", f"/{train}/run-6/step-1/a", {"x-martlet-view": "newest"})
    assert_refused(refusal, 400, "InvalidArgument")


def test_a_key_may_see_the_view_by_default(s3, server, train):
    def shows(client, body):
        assert get(client, train, "run-7/step-1/a") == body

    put(s3, train, "run-7/step-1/a", b"first")
    assert put(s3, train, "run-7/step-1/done") == "committed; generation=1"
    put(s3, train, "run-7/step-1/a", b"second")
    tenant = f"readers-{next(_numbers)}"
    admin(server.admin_port, "tenant", "create", tenant)
    key = admin(server.admin_port, "key", "create", "--tenant", tenant)
    reader = client_of(server.endpoint, key)
    everybody = {"Version": "2012-10-17", "Statement": [{
        "Effect": "Allow", "Principal": {"AWS": f"arn:aws:iam::{tenant}:root"}, "Action": "s3:*",
        "Resource": [f"arn:aws:s3:::{train}", f"arn:aws:s3:::{train}/*"]}]}
    s3.put_bucket_policy(Bucket=train, Policy=json.dumps(everybody))
    soon(lambda: shows(reader, b"second"))
    line = admin(server.admin_port, "key", "view", key["access_key"], "committed")
    assert line["view"] == "committed"
    # A change of a key applies within a second.
    soon(lambda: shows(reader, b"first"))
    assert keys(reader, train, "run-7/") == ["run-7/step-1/a", "run-7/step-1/done"]
    with refused("MethodNotAllowed", 405):
        reader.put_object(Bucket=train, Key="run-7/step-1/b", Body=b"x")
    # Buckets without rules are what they are.
    own = f"own-{next(_numbers)}-of-readers"
    reader.create_bucket(Bucket=own)
    reader.put_object(Bucket=own, Key="k", Body=b"x")
    assert get(reader, own, "k") == b"x"


def test_operators_see_sets_holds_and_what_comes_next(s3, server, train):
    for step in range(1, 5):
        put(s3, train, f"run-8/step-{step}/a", b"x" * step)
        assert put(s3, train, f"run-8/step-{step}/done") == "committed; generation=1"
    index = {"metadata": {}, "weight_map": {"w": "model-1.safetensors"}}
    put(s3, train, "hf/late/model.safetensors.index.json", json.dumps(index).encode())
    wire.request(server, "PUT", f"/{train}?checkpoint=run-8%2Fstep-1%2F&hold=3600")
    sets = {line["set"]: line["generations"] for line in admin(server.admin_port, "checkpoints", "list", train)}
    held = sets["run-8/step-1/"][0]
    assert (held["state"], held["objects"], held["bytes"]) == ("committed", 2, 2)
    assert held["held_until_ms"] > held["noted_ms"] + 3_000_000
    assert sets["hf/late/"][0]["state"] == "pending" and "model-1" in sets["hf/late/"][0]["reason"]
    # Four steps, of which three stay: the first is held for an hour.
    [planned] = admin(server.admin_port, "checkpoints", "retention", train)
    assert (planned["set"], planned["generation"], planned["deletes_objects"]) == ("run-8/step-1/", 1, True)
    assert planned["due_ms"] == held["held_until_ms"]
    assert admin(server.admin_port, "checkpoints", "retention", train, "run-8/step-2/") == [planned]
    until(lambda: (server.metric("^martlet_checkpoint_generations$") or 0) >= 5)
    assert server.metric("^martlet_checkpoint_pinned_bytes$") >= 10
    assert server.metric("^martlet_checkpoint_oldest_pending_seconds$") > 0
