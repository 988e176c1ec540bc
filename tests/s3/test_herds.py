"""Many readers of one checkpoint at once, with fewer turns than requests: no 5xx, and no list that is shorter."""

import json
import threading
import xml.etree.ElementTree as ElementTree

import pytest

from conftest import client_for, running_server
from harness import wire
from harness.sigv4 import UNSIGNED, Signer
from helpers import until

# Reads of a marker hardly wait for anything, so that few are under way at once: only one has its turn.
READERS, TURNS, SHARDS = 200, 1, 40
BUCKET, FOLDER = "herd", "run-1/step-1/"
# A marker that names all shards, as far as the check of DCP reads it.
MARKER = b"\x80\x04" + b"".join(
    b"\x8c" + bytes([len(name)]) + name for name in (f"__{n}_0.distcp".encode() for n in range(SHARDS))) + b"."
KEYS = sorted([f"{FOLDER}.metadata", *(f"{FOLDER}__{n}_0.distcp" for n in range(SHARDS))])


@pytest.fixture(scope="module")
def herd():
    """A server with one turn, and a bucket that holds a complete checkpoint."""
    with running_server(settings={"MARTLET_MAX_REQUESTS": str(TURNS),
                                  "MARTLET_MAX_WAITING_REQUESTS": str(2 * READERS)}) as server:
        s3 = client_for(server)
        s3.create_bucket(Bucket=BUCKET)
        s3.put_bucket_versioning(Bucket=BUCKET, VersioningConfiguration={"Status": "Enabled"})
        rules = {"rules": [{"pattern": "run-*/step-*/", "profile": "dcp"}]}
        assert wire.request(server, "PUT", f"/{BUCKET}?checkpoints", body=json.dumps(rules).encode()).status == 204
        until(lambda: save(s3, b"first").startswith("committed"))
        yield server, s3
        # Of all these requests some came while another one had the turn.
        assert server.metric("^martlet_queue_waits_total$") > 0
        assert server.metric("^martlet_queue_expired_total$") == 0
        assert server.stop() == 0 and server.complaints() == []


def save(s3, shard):
    """Saves all shards and then the marker. Returns the outcome."""
    for number in range(SHARDS):
        s3.put_object(Bucket=BUCKET, Key=f"{FOLDER}__{number}_0.distcp", Body=shard)
    reply = s3.put_object(Bucket=BUCKET, Key=f"{FOLDER}.metadata", Body=MARKER)
    return reply["ResponseMetadata"]["HTTPHeaders"].get("x-martlet-checkpoint", "")


def at_once(server, method, target):
    """Replies to many readers at once, each on a connection of its own."""
    replies, start = [None] * READERS, threading.Barrier(READERS)

    def read(number):
        signed = Signer().headers(method, target, {"host": server.host}, UNSIGNED)
        with wire.Wire(server, timeout=60) as connection:
            start.wait(60)
            connection.send(wire.head(method, target, signed))
            replies[number] = connection.reply(method)

    threads = [threading.Thread(target=read, args=(number,)) for number in range(READERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    missing = sum(reply is None for reply in replies)
    assert not missing, f"{missing} of {READERS} readers got no reply"
    return replies


def listed(reply):
    return [item.text for item in ElementTree.fromstring(reply.body).iter() if item.tag.endswith("}Key")]


@pytest.mark.parametrize("bucket", [BUCKET, f"{BUCKET}--committed"])
@pytest.mark.parametrize("method", ["GET", "HEAD"])
def test_all_who_read_the_marker_get_it(herd, bucket, method):
    server, _ = herd
    replies = at_once(server, method, f"/{bucket}/{FOLDER}.metadata")
    assert {reply.status for reply in replies} == {200}
    if method == "GET":
        assert {reply.body for reply in replies} == {MARKER}


@pytest.mark.parametrize("bucket", [BUCKET, f"{BUCKET}--committed"])
@pytest.mark.parametrize("version", ["list-type=2&", ""])
def test_all_who_list_see_every_key(herd, bucket, version):
    server, _ = herd
    replies = at_once(server, "GET", f"/{bucket}?{version}prefix={FOLDER.replace('/', '%2F')}")
    assert {reply.status for reply in replies} == {200}
    for reply in replies:
        assert listed(reply) == KEYS


def test_lists_of_the_view_are_whole_while_a_saver_is_at_work(herd):
    server, s3 = herd
    saved, outcomes = threading.Event(), []

    def save_again():
        # As DCP does: the marker goes first.
        s3.delete_object(Bucket=BUCKET, Key=f"{FOLDER}.metadata")
        outcomes.append(save(s3, b"second"))
        saved.set()

    saver = threading.Thread(target=save_again)
    saver.start()
    rounds = 0
    while not saved.is_set() or rounds < 2:
        for reply in at_once(server, "GET", f"/{BUCKET}--committed?list-type=2&prefix={FOLDER.replace('/', '%2F')}"):
            assert (reply.status, listed(reply)) == (200, KEYS)
        rounds += 1
        assert rounds < 60, "the saver does not end"
    saver.join(60)
    assert outcomes[0].startswith("committed"), outcomes
