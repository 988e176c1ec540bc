"""Objects under an erasure code of 4+2, read in place from a real cluster: fragments joined, lost ones by GET."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pytest
import servers
from servers import MIB, connect, read, until

import martlet
from martlet.plan import Span

pytestmark = servers.needs_servers
URL = "martlet://coded/object"
DAMAGED = "martlet://coded/damaged"
SIZE = 70 * MIB + 11


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    with servers.folder() as place:
        shape = ("--devices-per-node", "2", "--proxies", "1", "--policy", "ec=4+2")
        with servers.cluster(place, *shape) as started:
            with connect(started) as client:
                policy = {"x-martlet-storage-policy": "ec"}
                client.store.request("PUT", martlet.Address("coded"), {}, policy)
            yield started


def stored(cluster: Any, url: str, seed: int) -> bytes:
    """Stores an object and returns its bytes."""
    made = random.Random(seed).randbytes(SIZE)
    with connect(cluster) as client:
        servers.put(client, url, made)
    return made


@pytest.fixture(scope="module")
def body(cluster: Any) -> bytes:
    return stored(cluster, URL, 21)


@pytest.fixture(scope="module")
def damaged(cluster: Any) -> bytes:
    """An object that loses fragments: with two of an extent lost, no node may fail."""
    return stored(cluster, DAMAGED, 22)


def test_fragments_are_joined(cluster: Any, body: bytes, rng: random.Random) -> None:
    with connect(cluster) as client:
        pieces = client.reader(URL).pieces(0, SIZE)
        assert len(pieces) > 4 * (SIZE // (16 * MIB)), "four data fragments for each extent"
        assert all(len(piece.holders) == 1 for piece in pieces)
        assert len({holder.url.split("/x/")[0] for piece in pieces for holder in piece.holders}) >= 2
        found, stats = read(client, URL)
        assert found == body
        assert (stats.direct_bytes, stats.get_bytes, stats.corrupt) == (SIZE, 0, 0)
        spans = [(start, bytearray(min(700_000, SIZE - start))) for start in (rng.randrange(SIZE) for _ in range(40))]
        reader = client.read_into(URL, spans)
        for start, part in spans:
            assert part == body[start : start + len(part)], start
        assert reader.stats.get_bytes == 0


def test_fragments_of_a_node_come_from_its_files(cluster: Any, body: bytes) -> None:
    with connect(cluster, direct_socket=str(cluster.folder / "c/n1/direct.sock")) as client:
        found, stats = read(client, URL)
    assert found == body
    assert 0 < stats.local_bytes < SIZE
    assert stats.get_bytes == 0


def test_a_fragment_whose_file_is_lost(cluster: Any, damaged: bytes) -> None:
    with connect(cluster) as client:
        reader = client.reader(DAMAGED)
        pieces = reader.pieces(0, SIZE)
        lost = pieces[1]
        servers.file_of(cluster.folder / "c", lost.id).unlink()
        memory = martlet.Memory(SIZE)
        reader.read_into([Span(0, memory.view)])
        assert bytes(memory.view) == damaged
        assert 0 < reader.stats.get_bytes <= lost.length
        assert reader.stats.direct_bytes + reader.stats.get_bytes == SIZE
        # A range of the lost fragment alone.
        part = bytearray(100_000)
        reader.read_into([Span(lost.start + 5, memoryview(part))])
        assert part == damaged[lost.start + 5 : lost.start + 100_005]


def test_a_wrong_block_of_a_fragment(cluster: Any, damaged: bytes) -> None:
    with connect(cluster) as client:
        reader = client.reader(DAMAGED)
        wrong = reader.pieces(0, SIZE)[6]
        servers.flip(servers.file_of(cluster.folder / "c", wrong.id), 100_000)
        memory = martlet.Memory(SIZE)
        reader.read_into([Span(0, memory.view)])
        assert bytes(memory.view) == damaged
        assert reader.stats.corrupt >= 1
        assert reader.stats.get_bytes > 0


def test_a_node_that_is_killed(cluster: Any, body: bytes) -> None:
    with connect(cluster) as client:
        reader = client.reader(URL)
        pieces = reader.pieces(0, SIZE)
        node = servers.file_of(cluster.folder / "c", pieces[0].id).relative_to(cluster.folder / "c").parts[0]
        cluster.tell("kill", node)
        memory = martlet.Memory(SIZE)
        reader.read_into([Span(0, memory.view)])
        assert bytes(memory.view) == body
        assert reader.stats.get_bytes > 0
        assert reader.stats.direct_bytes > 0
        # Located anew, its fragments are listed without holders, and are read by GET at once.
        until("the node is left out", lambda: any(not it.holders for it in client.reader(URL).pieces(0, SIZE)))
        found, stats = read(client, URL)
        assert found == body
        assert stats.other_holder == 0
        assert stats.get_bytes > 0
        cluster.tell("start", node)
        until("its fragments have holders", lambda: all(it.holders for it in client.reader(URL).pieces(0, SIZE)))
        found, stats = read(client, URL)
        assert (found, stats.get_bytes) == (body, 0)
