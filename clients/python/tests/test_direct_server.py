"""Descriptors of real direct sockets: of a server, and of a cluster's storage nodes that lose leases and files."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import servers
from servers import MIB, connect, metric, node_metric, read, until

import martlet
from martlet import direct

pytestmark = servers.needs_servers
URL = "martlet://box/large"
SIZE = 70 * MIB + 11
HOLDER = """
import sys, time, martlet
from contextlib import ExitStack
with martlet.Client(endpoint=sys.argv[1], direct_socket=sys.argv[2], direct_min_bytes=0) as client:
    reader = client.reader(sys.argv[3])
    pieces = reader.pieces(0, reader.info.size)
    with ExitStack() as held:
        lent = [held.enter_context(reader.lent(piece)) for piece in pieces]
        if not lent or None in lent:
            sys.exit(f"{lent.count(None)} of {len(pieces)} pieces are not lent")
        print("holds", flush=True)
        time.sleep(600)
"""


@pytest.fixture(autouse=True)
def _short_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    """A socket that failed is tried again at once, not after half a minute."""
    monkeypatch.setattr(direct, "PAUSE_S", 0.0)


@pytest.fixture(scope="module")
def place() -> Iterator[Path]:
    with servers.folder() as made:
        yield made


@pytest.fixture(scope="module")
def server(place: Path) -> Iterator[Any]:
    path = str(place / "direct.sock")
    hurry = {"MARTLET_TEST_RECLAIM_GRACE_MS": "100"}
    with servers.server(place, hurry, "--direct-socket", path) as started:
        started.socket = path
        with connect(started) as client:
            client.store.request("PUT", martlet.Address("box"))
        yield started


@pytest.fixture(scope="module")
def cluster(place: Path) -> Iterator[Any]:
    with servers.cluster(place / "k", "--devices-per-node", "1", "--proxies", "1") as started:
        with connect(started) as client:
            client.store.request("PUT", martlet.Address("box"))
        yield started


def socket_of(cluster: Any, node: str) -> str:
    return str(cluster.folder / "c" / node / "direct.sock")


@pytest.mark.parametrize("uncached", [False, True])
def test_files_of_a_server(server: Any, rng: random.Random, uncached: bool) -> None:
    body = rng.randbytes(SIZE)
    with connect(server, direct_socket=server.socket, direct_io=uncached) as client:
        servers.put(client, URL, body)
        before = metric(server, "martlet_direct_granted_total")
        for _ in range(2):
            found, stats = read(client, URL)
            assert found == body
            assert (stats.local_bytes, stats.get_bytes, stats.corrupt) == (SIZE, 0, 0)
        assert metric(server, "martlet_direct_granted_total") == before + 2, "two extents, each leased once"
        spans = [(start, bytearray(min(90_000, SIZE - start))) for start in (rng.randrange(SIZE) for _ in range(50))]
        client.read_into(URL, spans)
        for start, part in spans:
            assert part == body[start : start + len(part)]
    until("closing the client ends its leases", lambda: metric(server, "martlet_direct_leases") == 0)


def test_objects_that_are_not_lent(server: Any, rng: random.Random) -> None:
    with connect(server, direct_socket=server.socket) as client:
        packed, sealed = rng.randbytes(300_000), rng.randbytes(3 * MIB)
        servers.put(client, "martlet://box/packed", packed)
        found, stats = read(client, "martlet://box/packed")
        assert (found, stats.local_bytes, stats.direct_bytes) == (packed, 0, len(packed))
        address = martlet.Address("box", "sealed")
        client.store.request("PUT", address, {}, {"x-amz-server-side-encryption": "AES256"}, memoryview(sealed))
        reader = client.reader(address)
        memory = bytearray(len(sealed))
        reader.read_into([martlet.plan.Span(0, memoryview(memory))])
        assert (memory, reader.stats.get_bytes, reader.reason) == (sealed, len(sealed), "encrypted")


def test_a_user_that_is_not_named(rng: random.Random) -> None:
    with servers.folder() as place:
        path = str(place / "direct.sock")
        with servers.server(place, None, "--direct-socket", path, "--direct-uid", "54321") as started:
            with connect(started, direct_socket=path) as client:
                client.store.request("PUT", martlet.Address("box"))
                body = rng.randbytes(3 * MIB)
                servers.put(client, URL, body)
                found, stats = read(client, URL)
                assert (found, stats.local_bytes, stats.direct_bytes) == (body, 0, len(body))
            assert metric(started, "martlet_direct_refused_total") > 0


@contextlib.contextmanager
def hold(endpoint: str, path: str, url: str) -> Iterator[subprocess.Popen[str]]:
    """Runs a process that leases all extents of an object, from when it has them."""
    command = [sys.executable, "-c", HOLDER, endpoint, path, url]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, sys.path))}
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True, env=environment) as holder:
        try:
            assert holder.stdout is not None
            assert holder.stderr is not None
            first = holder.stdout.readline()
            assert first == "holds\n", holder.stderr.read()
            yield holder
        finally:
            holder.kill()
            holder.wait()


def test_a_killed_holder_leaves_nothing(server: Any, rng: random.Random) -> None:
    url, body = "martlet://box/held", rng.randbytes(30 * MIB)
    with connect(server) as client:
        servers.put(client, url, body)
        until("no lease is left", lambda: metric(server, "martlet_direct_leases") == 0)
        with hold(server.endpoint, server.socket, url) as holder:
            assert metric(server, "martlet_direct_leased_bytes") == len(body)
            client.delete(url)
            withheld = "martlet_device_withheld_bytes"
            until("the lease keeps the deleted bytes", lambda: metric(server, withheld) >= len(body))
            holder.send_signal(signal.SIGKILL)
            until("the bytes are given back", lambda: metric(server, withheld) == 0)
            # The node counts a lease as ended a moment after it has given its bytes back.
            until("the lease has ended", lambda: metric(server, "martlet_direct_leases") == 0)


def test_a_descriptor_after_its_lease(server: Any, rng: random.Random) -> None:
    url, body = "martlet://box/after", rng.randbytes(20 * MIB)
    with connect(server, direct_socket=server.socket) as client:
        servers.put(client, url, body)
        reader = client.reader(url)
        (piece,) = reader.pieces(0, len(body))
        with reader.lent(piece) as lease:
            assert lease is not None
            assert lease.read_only_mount
            with pytest.raises(OSError, match=r"[Rr]ead-only"):
                os.open(lease.path, os.O_RDWR)
            kept = os.dup(lease.plain)
        try:
            client.delete(url)
            # The client has the lease still, and so has the descriptor its bytes.
            withheld = "martlet_device_withheld_bytes"
            until("the object is reclaimed", lambda: metric(server, withheld) >= len(body))
            assert os.pread(kept, 100, 5 * MIB) == body[5 * MIB : 5 * MIB + 100]
            client.local.close()
            until("the file is cut", lambda: os.pread(kept, 100, 5 * MIB) == b"")
            span = martlet.plan.Span(0, memoryview(bytearray(len(body))))
            with pytest.raises(martlet.NotFound):
                reader.read_into([span])
        finally:
            os.close(kept)


def test_a_server_that_restarts(server: Any, rng: random.Random) -> None:
    url, body = "martlet://box/restart", rng.randbytes(9 * MIB)
    with connect(server, direct_socket=server.socket) as client:
        servers.put(client, url, body)
        reader = client.reader(url)
        for end in (server.kill, server.stop):
            memory = bytearray(len(body))
            reader.read_into([martlet.plan.Span(0, memoryview(memory))])
            assert memory == body
            (piece,) = reader.pieces(0, len(body))
            with reader.lent(piece) as lease:
                assert lease is not None
                kept = os.dup(lease.plain)
            end()
            # Whatever the server does, the bytes of a stored extent don't change under a descriptor.
            assert os.pread(kept, 100, MIB) == body[MIB : MIB + 100]
            os.close(kept)
            server.start()
            # Tokens of the former process are worth nothing; the reader goes on by GET.
            memory = bytearray(len(body))
            reader.read_into([martlet.plan.Span(0, memoryview(memory))])
            assert memory == body
            servers.put(client, url, body)
            reader = client.reader(url)
            until("files are read again", lambda: read(client, url)[1].local_bytes == len(body))


def copies(client: martlet.Client, url: str) -> int:
    """Number of holders of the piece that has the fewest."""
    reader = client.reader(url)
    return min((len(piece.holders) for piece in reader.pieces(0, reader.info.size)), default=0)


def test_files_of_each_node(cluster: Any, rng: random.Random) -> None:
    """All nodes share this machine's host id: a socket lends only what its own node holds."""
    body = rng.randbytes(SIZE)
    with connect(cluster) as client:
        servers.put(client, URL, body)
        until("all copies are located", lambda: copies(client, URL) == 3)
        found, stats = read(client, URL)
        assert (found, stats.local_bytes, stats.direct_bytes, stats.get_bytes) == (body, 0, SIZE, 0)
    for node in ("n1", "n2", "n3"):
        before = node_metric(cluster, node, "martlet_direct_granted_bytes_total")
        with connect(cluster, direct_socket=socket_of(cluster, node)) as client:
            found, stats = read(client, URL)
            assert found == body
            assert (stats.local_bytes, stats.get_bytes) == (SIZE, 0), node
            assert read(client, URL)[1].local_bytes == SIZE
        assert node_metric(cluster, node, "martlet_direct_granted_bytes_total") == before + SIZE


def test_a_holder_killed_at_a_storage_node(cluster: Any, rng: random.Random) -> None:
    url, body = "martlet://box/holder", rng.randbytes(30 * MIB)
    with connect(cluster) as client:
        servers.put(client, url, body)
        until("all copies are located", lambda: copies(client, url) == 3)
    for node in ("n1", "n2"):
        until("no lease is left", lambda node=node: node_metric(cluster, node, "martlet_direct_leases") == 0)
    with hold(cluster.endpoint, socket_of(cluster, "n2"), url) as holder:
        assert node_metric(cluster, "n2", "martlet_direct_leased_bytes") == len(body)
        assert node_metric(cluster, "n1", "martlet_direct_leased_bytes") == 0
        holder.send_signal(signal.SIGKILL)
        until("leases have ended", lambda: node_metric(cluster, "n2", "martlet_direct_leases") == 0)


def test_a_node_that_is_killed_and_comes_back(cluster: Any, rng: random.Random) -> None:
    url, body = "martlet://box/killed", rng.randbytes(20 * MIB)
    with connect(cluster, direct_socket=socket_of(cluster, "n1")) as client:
        servers.put(client, url, body)
        until("files are read", lambda: read(client, url)[1].local_bytes == len(body))
        reader = client.reader(url)
        cluster.tell("kill", "n1")
        memory = bytearray(len(body))
        reader.read_into([martlet.plan.Span(0, memoryview(memory))])
        assert memory == body
        found, stats = read(client, url)
        assert (found, stats.local_bytes, stats.direct_bytes + stats.get_bytes) == (body, 0, len(body))
        cluster.tell("start", "n1")
        until("files are read again", lambda: read(client, url)[1].local_bytes == len(body))


def read_while(client: martlet.Client, url: str, event: Callable[[], object]) -> tuple[bytes, martlet.Stats]:
    """Reads an object; after its first ranges something happens, and the other ranges follow."""
    reader = client.reader(url)
    memory = martlet.Memory(reader.info.size)
    happened: list[int] = []

    def progress(count: int) -> None:
        happened.append(count)
        if len(happened) == 2:
            event()

    reader.read_into([martlet.plan.Span(0, memory.view)], progress)
    assert len(happened) > 2
    return bytes(memory.view), reader.stats


@pytest.mark.parametrize("node", ["", "n2"])
def test_a_node_dies_in_mid_read(cluster: Any, rng: random.Random, node: str) -> None:
    url, body = f"martlet://box/dies{node}", rng.randbytes(100 * MIB)
    options = {"direct_socket": socket_of(cluster, node)} if node else {}
    with connect(cluster, **options) as client:
        servers.put(client, url, body)
        until("all copies are located", lambda: copies(client, url) == 3)
        try:
            found, stats = read_while(client, url, lambda: cluster.tell("kill", "n2"))
        finally:
            cluster.tell("start", "n2")
        assert (found, stats.direct_bytes + stats.get_bytes) == (body, len(body))
        # Descriptors that the client has outlive the node; data ports don't.
        assert stats.local_bytes > 0 if node else stats.other_holder > 0


def test_an_overwrite_and_a_delete_in_mid_read(cluster: Any, rng: random.Random) -> None:
    with connect(cluster) as client, connect(cluster) as other:
        for name, event in {
            "overwrite": lambda url: other.write(url, rng.randbytes(MIB)),
            "delete": lambda url: other.delete(url),
        }.items():
            url, body = f"martlet://box/{name}", rng.randbytes(100 * MIB)
            servers.put(client, url, body)
            with contextlib.suppress(martlet.ObjectChanged, martlet.NotFound):
                assert read_while(client, url, lambda event=event, url=url: event(url))[0] == body, name


def test_a_corrupt_file_is_revoked(cluster: Any, rng: random.Random) -> None:
    url, body = "martlet://box/corrupt", rng.randbytes(20 * MIB)
    revoked = "martlet_direct_revoked_total"
    with connect(cluster, direct_socket=socket_of(cluster, "n3")) as client:
        servers.put(client, url, body)
        until("files are read", lambda: read(client, url)[1].local_bytes == len(body))
        (piece,) = client.reader(url).pieces(0, len(body))
        before = node_metric(cluster, "n3", revoked)
        servers.flip(servers.file_of(cluster.folder / "c/n3", piece.id), 9 * MIB + 7)
        assert client.local is not None
        with client.local.lease(piece.id, piece.holders[0].token) as lease:
            kept = os.dup(lease.plain)
        try:
            # The client finds the block; the node verifies, and moves the extent to quarantine.
            found, stats = read(client, url)
            assert (found, stats.direct_bytes + stats.get_bytes) == (body, len(body))
            assert stats.corrupt >= 1
            assert stats.local_bytes < len(body)
            until("the lease is revoked", lambda: node_metric(cluster, "n3", revoked) == before + 1)
            # The descriptor has the old bytes, the wrong one among them: the client uses it no more.
            assert len(os.pread(kept, MIB, 9 * MIB)) == MIB
            for _ in range(3):
                found, stats = read(client, url)
                assert (found, stats.corrupt) == (body, 0)
            assert lease.over
        finally:
            os.close(kept)
