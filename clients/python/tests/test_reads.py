"""Reads from the fake cluster: right bytes or an error, whatever goes wrong."""

from __future__ import annotations

import io
import logging
import os
import random
import time
from collections.abc import Callable

import pytest

import martlet
from fake import Cluster
from martlet import errors

MIB = 1 << 20
Connect = Callable[..., martlet.Client]
URL = "martlet://b/k"


def store(cluster: Cluster, rng: random.Random, size: int = 3 * MIB + 12_345) -> bytes:
    body = rng.randbytes(size)
    cluster.put("b", "k", body)
    return body


def whole(client: martlet.Client) -> tuple[bytes, martlet.Reader]:
    reader = client.reader(URL)
    memory = bytearray(reader.info.size)
    reader.read_into([martlet.plan.Span(0, memoryview(memory))])
    return bytes(memory), reader


@pytest.mark.parametrize(
    ("fragments", "size"), [(1, 0), (1, 1), (1, MIB), (1, 3 * MIB + 5), (4, 3 * MIB + 5), (4, 70_000)]
)
def test_a_whole_object(cluster: Cluster, connect: Connect, rng: random.Random, fragments: int, size: int) -> None:
    cluster.fragments = fragments
    body = store(cluster, rng, size)
    read, reader = whole(connect())
    assert read == body
    assert reader.direct
    assert (reader.stats.direct_bytes, reader.stats.get_bytes) == (size, 0)


@pytest.mark.parametrize("fragments", [1, 4])
def test_random_spans(cluster: Cluster, connect: Connect, rng: random.Random, fragments: int) -> None:
    cluster.fragments = fragments
    body = store(cluster, rng, 5 * MIB + 77)
    for gap in (0, 1000, MIB):
        client = connect(gap_bytes=gap)
        spans = []
        for _ in range(60):
            start = rng.randrange(len(body))
            spans.append((start, bytearray(min(rng.choice([1, 500, 65_536, 400_000]), len(body) - start))))
        reader = client.read_into(URL, spans)
        for start, memory in spans:
            assert memory == body[start : start + len(memory)], (gap, start, len(memory))
        assert reader.stats.get_bytes == 0


def test_pages_of_locate(cluster: Cluster, connect: Connect, rng: random.Random) -> None:
    cluster.page_extents, cluster.extent_bytes = 3, 128 << 10
    body = store(cluster, rng)
    read, reader = whole(connect())
    assert read == body
    assert reader.stats.get_bytes == 0
    assert cluster.count("locate") == -(-len(body) // (3 * 128 << 10))


FAULTS = {
    "flip": "a block differs",
    "cut": "a connection breaks",
    "short": "a reply is too short",
    "gone": "a piece moved",
    "device": "a device is suspect",
    "503": "a node is busy",
    "hang up": "a node hangs up",
    "expired": "a token ended",
    "range": "a token is refused",
    "sums": "a list of checksums is too short",
    "500": "a node fails",
}


@pytest.mark.parametrize("kind", FAULTS)
def test_one_fault(cluster: Cluster, connect: Connect, rng: random.Random, kind: str) -> None:
    body = store(cluster, rng)
    cluster.fault(kind, path="/x/", at=100)
    read, _ = whole(connect())
    assert read == body
    assert cluster.faults[0].times == 0


@pytest.mark.parametrize("kind", FAULTS)
def test_a_fault_of_every_node(cluster: Cluster, connect: Connect, rng: random.Random, kind: str) -> None:
    body = store(cluster, rng)
    cluster.fault(kind, times=10_000, path="/x/", at=100)
    read, reader = whole(connect())
    assert read == body
    assert reader.stats.get_bytes == len(body)


def test_the_order_of_sources(cluster: Cluster, connect: Connect, rng: random.Random) -> None:
    body = store(cluster, rng, 100_000)
    cluster.fault("flip", times=2, path="/x/")
    read, reader = whole(connect())
    assert read == body
    # The node verifies the second time; the third request goes to the other holder.
    reads = [one for one in cluster.requests if one.target.startswith("/x/")]
    assert ["verify=client" in one.target for one in reads] == [True, False, True]
    assert reads[0].port == reads[1].port != reads[2].port
    assert (reader.stats.corrupt, reader.stats.other_holder) == (2, 1)


def test_locate_is_repeated_once_for_all(cluster: Cluster, connect: Connect, rng: random.Random) -> None:
    body = store(cluster, rng)
    client = connect()
    reader = client.reader(URL)
    memory = bytearray(len(body))
    span = martlet.plan.Span(0, memoryview(memory))
    reader.read_into([span])
    before = cluster.count("locate")
    # All pieces moved: every request is refused by both holders.
    requests = reader.stats.requests
    cluster.fault("gone", times=2 * requests, path="/x/")
    reader.read_into([span])
    assert memory == body
    assert reader.stats.located_again >= 1
    assert cluster.count("locate") - before <= 4


@pytest.mark.parametrize("behind_s", [3600, 70, -70, -3600])
def test_a_clock_that_differs(cluster: Cluster, connect: Connect, rng: random.Random, behind_s: float) -> None:
    body = store(cluster, rng)
    cluster.behind_s = behind_s
    read, reader = whole(connect())
    assert read == body
    assert (reader.stats.direct_bytes, reader.stats.located_again) == (len(body), 0)


def test_ended_tokens(cluster: Cluster, connect: Connect, rng: random.Random) -> None:
    body = store(cluster, rng)
    cluster.token_s = 0.0
    read, reader = whole(connect())
    assert read == body
    assert reader.stats.get_bytes == len(body)


@pytest.mark.parametrize("reason", ["inline", "encrypted", "rate-limited"])
def test_objects_that_are_not_direct(cluster: Cluster, connect: Connect, rng: random.Random, reason: str) -> None:
    cluster.reason = reason
    body = store(cluster, rng)
    read, reader = whole(connect())
    assert read == body
    assert (reader.direct, reader.reason) == (False, reason)
    assert cluster.count("/x/") == 0


def test_missing_fragments_are_read_by_get(cluster: Cluster, connect: Connect, rng: random.Random) -> None:
    cluster.fragments = 4
    body = store(cluster, rng)
    cluster.describe(cluster.objects["b", "k"], 0, len(body))
    cluster.missing = set(list(cluster.pieces)[::3])
    read, reader = whole(connect())
    assert read == body
    assert reader.stats.get_bytes > 0 < reader.stats.direct_bytes


@pytest.mark.parametrize("other", ["another store", "no data port"])
def test_other_stores(
    cluster: Cluster, connect: Connect, rng: random.Random, other: str, caplog: pytest.LogCaptureFixture
) -> None:
    cluster.martlet, cluster.locate = other == "no data port", False
    body = store(cluster, rng)
    with caplog.at_level(logging.INFO, "martlet"):
        client = connect()
        for _ in range(2):
            read, reader = whole(client)
            assert read == body
    assert not reader.direct
    lines = [one for one in caplog.records if "GET" in one.message]
    assert len(lines) == (1 if other == "another store" else 2), lines
    assert cluster.count("locate") == (0 if other == "another store" else 2)


@pytest.mark.parametrize("kind", ["503", "cut", "hang up", "500"])
def test_get_is_tried_again(cluster: Cluster, connect: Connect, rng: random.Random, kind: str) -> None:
    body = store(cluster, rng)
    cluster.fault(kind, times=2, path="/b/k", method="GET")
    read, _ = whole(connect(direct="never"))
    assert read == body


def test_get_that_fails_for_good(cluster: Cluster, connect: Connect, rng: random.Random) -> None:
    store(cluster, rng)
    cluster.fault("503", times=1000, path="/b/k", method="GET")
    with pytest.raises(martlet.Unavailable, match="try later"):
        whole(connect(direct="never"))


def test_wrong_lengths_of_get_are_errors(cluster: Cluster, connect: Connect, rng: random.Random) -> None:
    store(cluster, rng)
    cluster.fault("short", times=1000, path="/b/k", method="GET")
    with pytest.raises(errors.ProtocolError):
        whole(connect(direct="never"))


def test_silence_ends_after_the_limit(cluster: Cluster, connect: Connect, rng: random.Random) -> None:
    body = store(cluster, rng, 100_000)
    cluster.fault("silence", path="/x/", at=3)
    read, reader = whole(connect(idle_timeout_s=0.3))
    assert read == body
    assert reader.stats.other_holder == 1


def test_overwritten_objects(cluster: Cluster, connect: Connect, rng: random.Random) -> None:
    body = store(cluster, rng)
    reader = connect().reader(URL)
    cluster.put("b", "k", body[::-1])
    with pytest.raises(martlet.ObjectChanged, match="open it again"):
        reader.read_into([martlet.plan.Span(0, memoryview(bytearray(len(body))))])


@pytest.mark.parametrize("withheld", [[], ["HEAD ETag"], ["HEAD ETag", "GET ETag"]])
def test_an_overwrite_where_conditions_are_ignored(
    cluster: Cluster, connect: Connect, rng: random.Random, withheld: list[str]
) -> None:
    cluster.martlet, cluster.ignores_conditions, cluster.withheld = False, True, frozenset(withheld)
    body = store(cluster, rng, 16 * MIB)
    assert whole(connect(fetch_bytes=MIB))[0] == body
    reader = connect(fetch_bytes=MIB).reader(URL)
    replaced = []

    def replace(_: int) -> None:
        if not replaced:
            replaced.append(cluster.put("b", "k", body[::-1]))

    with pytest.raises(martlet.ObjectChanged, match="open it again"):
        reader.read_into([martlet.plan.Span(0, memoryview(bytearray(len(body))))], replace)
    assert replaced


UNMARKED = frozenset({"HEAD ETag", "GET ETag", "GET Last-Modified"})


@pytest.mark.parametrize("size", [MIB // 2, 3 * MIB])
def test_an_overwrite_of_another_length(cluster: Cluster, connect: Connect, rng: random.Random, size: int) -> None:
    cluster.martlet, cluster.ignores_conditions, cluster.withheld = False, True, UNMARKED
    store(cluster, rng, 2 * MIB)
    reader = connect().reader(URL)
    store(cluster, rng, size)
    with pytest.raises(martlet.ObjectChanged, match="open it again"):
        reader.read_into([martlet.plan.Span(MIB, memoryview(bytearray(1000)))])


def test_stores_without_marks_are_read_by_one_request(cluster: Cluster, connect: Connect, rng: random.Random) -> None:
    cluster.martlet, cluster.withheld = False, UNMARKED
    body = store(cluster, rng, MIB)
    read, reader = whole(connect(fetch_bytes=MIB))
    assert read == body
    # A repeated request replaces all bytes of the first one.
    memory = bytearray(MIB)
    reader.read_into([martlet.plan.Span(0, memoryview(memory))])
    assert memory == body
    with pytest.raises(errors.ProtocolError, match="one request alone"):
        reader.read_into([martlet.plan.Span(5, memoryview(memory)[:1000])])
    with pytest.raises(errors.ProtocolError, match="one request alone"):
        whole(connect(fetch_bytes=MIB // 4))


def test_replies_without_the_etag_of_head_are_errors(cluster: Cluster, connect: Connect, rng: random.Random) -> None:
    cluster.martlet, cluster.withheld = False, frozenset({"GET ETag"})
    store(cluster, rng)
    with pytest.raises(errors.ProtocolError, match="no ETag"):
        whole(connect())


def test_absent_objects(cluster: Cluster, connect: Connect) -> None:
    with pytest.raises(martlet.NotFound, match="martlet://b/k"):
        connect().open(URL)
    with pytest.raises(FileNotFoundError):
        connect().open(URL)


def test_a_file(cluster: Cluster, connect: Connect, rng: random.Random) -> None:
    body = store(cluster, rng)
    with connect().open(URL) as file:
        assert file.size == len(body)
        model = io.BytesIO(body)
        for _ in range(200):
            step = rng.randrange(4)
            if step == 0:
                place = rng.randrange(len(body) + 1000)
                assert file.seek(place) == model.seek(place)
            elif step == 1:
                back = rng.randrange(len(body))
                assert file.seek(-back, io.SEEK_END) == model.seek(-back, io.SEEK_END)
            else:
                count = rng.choice([0, 1, 1000, 300_000, 2 * MIB])
                assert file.read(count) == model.read(count)
            assert file.tell() == model.tell()
        file.seek(0)
        assert file.read() == body
    with pytest.raises(ValueError, match="closed"):
        file.read(1)


def test_forked_children_have_connections_of_their_own(cluster: Cluster, connect: Connect, rng: random.Random) -> None:
    body = store(cluster, rng)
    client = connect()
    assert bytes(client.read(URL).view) == body
    child = os.fork()
    if child == 0:
        os._exit(0 if bytes(client.read(URL).view) == body else 1)
    assert bytes(client.read(URL).view) == body
    assert os.waitpid(child, 0)[1] == 0


def test_progress(cluster: Cluster, connect: Connect, rng: random.Random) -> None:
    body = store(cluster, rng)
    seen: list[int] = []
    connect().read(URL, progress=seen.append)
    assert sum(seen) == len(body)
    assert len(seen) > 3


def test_calls_nest(cluster: Cluster, connect: Connect, rng: random.Random) -> None:
    body = store(cluster, rng)
    client = connect(threads=2)
    read: list[bytes] = []
    client.workers.each(iter(range(6)), lambda _: read.append(bytes(client.read(URL).view)))
    assert read == [body] * 6


def test_secrets_are_in_no_text(
    cluster: Cluster, connect: Connect, rng: random.Random, caplog: pytest.LogCaptureFixture
) -> None:
    store(cluster, rng)
    cluster.fault("flip", times=3, path="/x/")
    with caplog.at_level(logging.DEBUG, "martlet"):
        client = connect()
        _, reader = whole(client)
    tokens = {one.target.partition("t=")[2] for one in cluster.requests if "/x/" in one.target}
    words = [token[:20] for token in tokens] + ["secret-of-tests", "key-of-tests"]
    shown = caplog.text + repr([client, client.store, client.settings, reader.info, reader.stats, client.store.signer])
    shown += repr(reader._locations.cover(0, reader.info.size))
    assert not [word for word in words if word in shown]


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"threads": 0}, "from 1 to 1024"),
        ({"fetch_bytes": 70_000}, "multiple"),
        ({"wrong": 1}, "there is no option"),
        ({"direct": "no"}, "auto"),
        ({"endpoint": "localhost:9000"}, "http://HOST:PORT"),
    ],
)
def test_wrong_options(options: dict[str, object], text: str) -> None:
    with pytest.raises(martlet.MartletError, match=text):
        martlet.Client(**options)


@pytest.mark.parametrize("url", ["http://host/b/k", "/tmp/x", "martlet://", "martlet://bucket"])
def test_wrong_addresses(connect: Connect, url: str) -> None:
    with pytest.raises(martlet.MartletError, match="martlet://"):
        connect().open(url)


def test_a_silent_node_is_asked_last(cluster: Cluster, connect: Connect, rng: random.Random) -> None:
    body = store(cluster, rng)
    silent = f":{cluster.servers[0].server_address[1]}/x/"
    client = connect(idle_timeout_s=0.3, threads=1)
    reader = client.reader(URL)
    memory = bytearray(len(body))
    cluster.fault("silence", times=10_000, path=silent, at=5)
    begun = time.monotonic()
    reader.read_into([martlet.plan.Span(0, memoryview(memory))])
    assert memory == body
    assert reader.stats.other_holder == 1, "one request waits, the others go elsewhere first"
    assert time.monotonic() - begun < 5


def test_ranges_are_spread_over_holders(cluster: Cluster, connect: Connect, rng: random.Random) -> None:
    cluster.copies = 3
    body = store(cluster, rng)
    read, _ = whole(connect(fetch_bytes=64 << 10))
    assert read == body
    ports = [one.port for one in cluster.requests if "/x/" in one.target]
    assert max(ports.count(port) for port in ports) < 0.5 * len(ports)
