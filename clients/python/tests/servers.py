"""Servers and clusters of this repository's binary, which tests start and break."""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import martlet
from martlet.plan import Span

REPOSITORY = Path(__file__).resolve().parents[3]
MIB = 1 << 20
#: Short, because the names of Unix sockets have at most 107 bytes.
PREFIX = "m"
WAIT_S = 60.0
NO_SERVERS = "it starts servers, as `clients/run.sh martlet` has it do"

needs_servers = pytest.mark.skipif("MARTLET_ENDPOINT" not in os.environ, reason=NO_SERVERS)


def module(folder: str, name: str) -> ModuleType:
    """Imports a module of the repository's own tools."""
    path = str(REPOSITORY / folder)
    if path not in sys.path:
        sys.path.append(path)
    return pytest.importorskip(name)


@contextmanager
def folder() -> Iterator[Path]:
    """Makes a folder with a short path, and removes it."""
    made = Path(tempfile.mkdtemp(prefix=PREFIX))
    try:
        yield made
    finally:
        shutil.rmtree(made, ignore_errors=True)


@contextmanager
def running(server: Any) -> Iterator[Any]:
    """Starts a server or a cluster, and ends it. Its log is shown if the test fails."""
    try:
        yield server.start()
    except BaseException:
        print(server.log())
        raise
    finally:
        server.kill()


@contextmanager
def server(place: Path, settings: dict[str, str] | None = None, *flags: str) -> Iterator[Any]:
    """Runs a server with a data port."""
    harness = module("tests/s3", "harness.server")
    (port,) = harness.free_ports(1)
    with running(harness.Server(place, settings, ["--data-address", f"127.0.0.1:{port}", *flags])) as started:
        started.data_port = port
        yield started


@contextmanager
def cluster(place: Path, *flags: str) -> Iterator[Any]:
    """Runs a cluster of three nodes with data ports and direct sockets."""
    made = module("tests/s3", "harness.cluster").Cluster(place, ["--data-ports", "--direct-sockets", *flags])
    with running(made) as started:
        yield started


def connect(server: Any, **options: object) -> martlet.Client:
    """Makes a client of a server or a cluster."""
    usual = {"endpoint": server.endpoint, "direct_min_bytes": 0, "threads": 4, "fetch_bytes": 4 * MIB}
    # One PUT: an object of parts has an extent for each part.
    usual["part_bytes"] = 256 * MIB
    return martlet.Client(**{**usual, **options})


def until(what: str, condition: Callable[[], object]) -> None:
    """Waits until a condition holds."""
    end = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < end, f"{what}: not within {WAIT_S:g} s"
        time.sleep(0.1)


def put(client: martlet.Client, url: str, body: bytes) -> None:
    """Stores an object, and waits until all its pieces have holders."""
    client.write(url, body)

    def complete() -> bool:
        pieces = client.reader(url).pieces(0, len(body))
        return bool(pieces) and all(piece.holders for piece in pieces)

    until("all pieces have holders", complete)


def read(client: martlet.Client, url: str) -> tuple[bytes, martlet.Stats]:
    """Reads an object into aligned memory by a reader of its own."""
    reader = client.reader(url)
    memory = martlet.Memory(reader.info.size)
    reader.read_into([Span(0, memory.view)])
    return bytes(memory.view), reader.stats


def metric(server: Any, name: str) -> float:
    """Returns the sum of a metric of a server; a metric that there isn't is a fault of the test."""
    value: float | None = server.metric(f"^{name}$")
    assert value is not None, f"there is no metric {name}"
    return value


def node_metric(cluster: Any, node: str, name: str) -> float:
    """Returns the sum of a metric of one process of a cluster."""
    status = json.loads(cluster.tell("status", "--json"))
    place = next(it["admin_address"] for it in status["processes"] if it["name"] == node)
    asked = module("tests/s3", "harness.server").Served()
    asked.admin_port = int(place.rpartition(":")[2])
    return metric(asked, name)


def file_of(place: Path, piece_id: str) -> Path:
    """Returns the file of an extent or a fragment on a device below a folder."""
    (found,) = place.rglob(f"extents/{piece_id[:2]}/{piece_id}")
    return found


def flip(file: Path, at: int) -> None:
    """Changes one bit of a file."""
    with file.open("r+b") as opened:
        opened.seek(at)
        byte = opened.read(1)[0]
        opened.seek(at)
        opened.write(bytes([byte ^ 1]))
        opened.flush()
        os.fsync(opened.fileno())
