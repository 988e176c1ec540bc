"""Reads by descriptors of a fake direct socket: right bytes, or the data port's."""

from __future__ import annotations

import contextlib
import os
import random
import sys
import time
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from fake_socket import LATE_S, DirectNode

import martlet
from fake import Cluster
from martlet import direct
from martlet.locate import own_host_id
from martlet.plan import Span

MIB = 1 << 20
Connect = Callable[..., martlet.Client]
URL = "martlet://b/k"


@pytest.fixture
def node(cluster: Cluster, tmp_path: Path) -> Iterator[DirectNode]:
    cluster.host_id = own_host_id()
    made = DirectNode(tmp_path, cluster.pieces)
    yield made
    made.close()


def descriptors(node: DirectNode) -> int:
    """Number of descriptors of the node's files that the client has open."""
    found = 0
    with node.opened:
        for one in os.listdir("/proc/self/fd"):
            with contextlib.suppress(OSError):
                found += os.readlink(f"/proc/self/fd/{one}").startswith(f"{node.folder}/")
    return found


def read(client: martlet.Client, size: int) -> tuple[bytes, martlet.Stats]:
    memory = martlet.Memory(size)
    reader = client.reader(URL)
    reader.read_into([Span(0, memory.view)])
    return bytes(memory.view), reader.stats


@pytest.mark.parametrize("uncached", [False, True])
@pytest.mark.parametrize("size", [1, 70_000, 3 * MIB + 5])
def test_files_are_read(
    cluster: Cluster, connect: Connect, node: DirectNode, rng: random.Random, uncached: bool, size: int
) -> None:
    body = rng.randbytes(size)
    cluster.put("b", "k", body)
    client = connect(direct_socket=node.path, direct_io=uncached)
    found, stats = read(client, size)
    assert found == body
    assert stats.local_bytes == size
    assert cluster.count("/x/") == 0
    spans = [(start, bytearray(min(90_000, size - start))) for start in (rng.randrange(size) for _ in range(30))]
    client.read_into(URL, spans)
    for start, part in spans:
        assert part == body[start : start + len(part)]
    assert len(node.granted) == len(set(node.granted)), "a lease serves many reads"


@pytest.mark.parametrize("code", range(1, 15))
def test_refusals(cluster: Cluster, connect: Connect, node: DirectNode, rng: random.Random, code: int) -> None:
    body = rng.randbytes(2 * MIB)
    cluster.put("b", "k", body)
    node.refuse = code
    client = connect(direct_socket=node.path)
    found, stats = read(client, len(body))
    assert found == body
    assert (stats.local_bytes, stats.direct_bytes) == (0, len(body))
    assert client.local is not None
    assert client.local.usable == (code not in (2, 10))


@pytest.mark.parametrize("wrong", ["flip", "sums", "descriptors", "hang up", "late"])
def test_wrong_replies(
    cluster: Cluster,
    connect: Connect,
    node: DirectNode,
    rng: random.Random,
    monkeypatch: pytest.MonkeyPatch,
    wrong: str,
) -> None:
    if wrong == "late":
        monkeypatch.setattr(direct, "REPLY_S", LATE_S / 5)
    body = rng.randbytes(2 * MIB)
    cluster.put("b", "k", body)
    node.wrong = wrong
    client = connect(direct_socket=node.path)
    found, stats = read(client, len(body))
    assert found == body
    assert stats.local_bytes < len(body)
    client.close()
    assert descriptors(node) == 0


def test_revoked_and_shortened_files(cluster: Cluster, connect: Connect, node: DirectNode, rng: random.Random) -> None:
    body = rng.randbytes(3 * MIB)
    cluster.put("b", "k", body)
    client = connect(direct_socket=node.path)
    assert read(client, len(body))[0] == body
    assert len(node.granted) == 3
    node.revoke(1)
    assert read(client, len(body))[0] == body
    assert len(node.granted) == 4
    # The lease has ended without a notice: the node took the space back.
    os.truncate(node.file(node.granted[1]), 0)
    found, stats = read(client, len(body))
    assert found == body
    assert 0 < stats.local_bytes < len(body)


def test_leases_are_bounded_and_released(
    cluster: Cluster, connect: Connect, node: DirectNode, rng: random.Random
) -> None:
    cluster.extent_bytes = 128 << 10
    body = rng.randbytes(9 * MIB)
    cluster.put("b", "k", body)
    client = connect(direct_socket=node.path)
    assert read(client, len(body))[0] == body
    assert len(node.granted) >= 72
    until = time.monotonic() + 5
    while len(node.released) < len(node.granted) - 32 and time.monotonic() < until:
        time.sleep(0.01)
    assert len(node.released) >= len(node.granted) - 32
    assert descriptors(node) <= 2 * 32
    client.close()
    assert descriptors(node) == 0


def test_a_node_with_a_wrong_file_is_asked_once(
    cluster: Cluster, connect: Connect, node: DirectNode, rng: random.Random
) -> None:
    """It must verify; if it can't serve, the other holder does, and not the same one without a check of its own."""
    body = rng.randbytes(MIB)
    cluster.put("b", "k", body)
    node.wrong = "flip"
    cluster.fault("gone", times=9, path=f":{cluster.port(0)}/x/")
    found, stats = read(connect(direct_socket=node.path, fetch_bytes=MIB), MIB)
    assert (found, stats.direct_bytes, stats.local_bytes, stats.corrupt) == (body, MIB, 0, 1)
    asked = [(it.port, "verify=client" in it.target) for it in cluster.requests if "/x/" in it.target]
    assert asked == [(cluster.port(0), False), (cluster.port(1), True)]


def test_absent_sockets_and_other_hosts(
    cluster: Cluster, connect: Connect, node: DirectNode, rng: random.Random, tmp_path: Path
) -> None:
    body = rng.randbytes(2 * MIB)
    cluster.put("b", "k", body)
    found, stats = read(connect(direct_socket=str(tmp_path / "none")), len(body))
    assert (found, stats.local_bytes) == (body, 0)
    cluster.host_id = "another"
    found, stats = read(connect(direct_socket=node.path), len(body))
    assert (found, stats.local_bytes) == (body, 0)


def test_forked_children_have_leases_of_their_own(
    cluster: Cluster, connect: Connect, node: DirectNode, rng: random.Random
) -> None:
    body = rng.randbytes(2 * MIB)
    cluster.put("b", "k", body)
    client = connect(direct_socket=node.path)
    assert read(client, len(body))[0] == body
    child = os.fork()
    if child == 0:
        found, stats = read(client, len(body))
        os._exit(0 if found == body and stats.local_bytes == len(body) else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert read(client, len(body))[0] == body
    assert len(node.granted) == 4


def test_cufile_reads_what_is_lent(
    cluster: Cluster, connect: Connect, node: DirectNode, rng: random.Random, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Runs the logic of GPU reads on the processor, with a stand-in for KvikIO."""
    torch = pytest.importorskip("torch")
    from martlet import gpu

    body = rng.randbytes(4 * MIB + 99)
    cluster.put("b", "k", body)

    faults: list[str] = []

    class CuFile:
        def __init__(self, path: str, mode: str) -> None:
            if faults[0] == "refused":
                raise RuntimeError("unsupported file")
            self.file = Path(path).open("rb")

        def __enter__(self) -> CuFile:
            return self

        def __exit__(self, *_: object) -> None:
            self.file.close()

        def read(self, part: Any, size: int, file_offset: int) -> int:
            data = os.pread(self.file.fileno(), size, file_offset)
            part.copy_(torch.frombuffer(bytearray(data), dtype=torch.uint8))
            return len(data) - (faults[0] == "short")

    kvikio = types.ModuleType("kvikio")
    kvikio.CuFile = CuFile  # type: ignore[attr-defined]
    kvikio.defaults = types.ModuleType("kvikio.defaults")  # type: ignore[attr-defined]
    kvikio.defaults.is_compat_mode_preferred = lambda: True
    monkeypatch.setitem(sys.modules, "kvikio", kvikio)
    monkeypatch.setitem(sys.modules, "kvikio.defaults", kvikio.defaults)

    def read_plain(reader: martlet.Reader, offset: int, tensor: Any) -> None:
        reader.read_into([Span(offset, memoryview(tensor.numpy()))])

    monkeypatch.setattr(gpu, "read", read_plain)
    monkeypatch.setattr(gpu, "bytes_of", lambda tensor: tensor.reshape(-1).view(torch.uint8))
    monkeypatch.setattr(torch.cuda, "current_stream", lambda _: types.SimpleNamespace(synchronize=lambda: None))
    for refused, fault, expected in ((0, "", 3 * MIB), (11, "", 0), (0, "refused", 0), (0, "short", 0)):
        node.refuse, faults[:] = refused, [fault]
        with connect(direct_socket=node.path) as client:
            target = torch.zeros(3 * MIB, dtype=torch.uint8)
            report = gpu.read_by_cufile(client.reader(URL), 500_001, target)
        assert bytes(target.numpy()) == body[500_001 : 500_001 + 3 * MIB]
        assert (report.cufile_bytes, report.pinned_bytes) == (expected, 3 * MIB - expected)
        assert report.compat_mode == "ON"
    with pytest.raises(ValueError, match="outside"), connect(direct_socket=node.path) as client:
        gpu.read_by_cufile(client.reader(URL), 2 * MIB, target)
    with pytest.raises(martlet.MartletError, match="on a GPU"):
        monkeypatch.undo()
        gpu.bytes_of(torch.zeros(3))
