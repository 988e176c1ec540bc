"""Reads from the data port of a real server, which MARTLET_ENDPOINT names; skipped where it has none."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator

import pytest
from test_server import ENDPOINT, MIB, bucket, client, train

import martlet
from martlet.plan import Span

pytestmark = pytest.mark.skipif(not ENDPOINT, reason="MARTLET_ENDPOINT names no server")
_absent: set[str] = set()
__all__ = ["bucket", "client", "train"]


@pytest.fixture
def direct(client: martlet.Client, bucket: str) -> Iterator[martlet.Client]:
    """Client of a server with a data port, which is known to the proxy after some seconds."""
    url = f"martlet://{bucket}/probe"
    client.write(url, bytes(100_000))
    until = time.monotonic() + (0 if _absent else 8)
    reason = ", ".join(_absent)
    while time.monotonic() < until:
        reader = client.reader(url)
        reader.read_into([Span(0, memoryview(bytearray(100_000)))])
        if reader.direct:
            yield client
            return
        reason = reader.reason
        time.sleep(0.5)
    _absent.add(reason)
    pytest.fail(f"no data port: {reason}")


def read(client: martlet.Client, url: str | martlet.Address) -> tuple[bytes, martlet.Reader]:
    reader = client.reader(url)
    memory = bytearray(reader.info.size)
    reader.read_into([Span(0, memoryview(memory))])
    return bytes(memory), reader


@pytest.mark.parametrize("size", [0, 8193, 65_536, MIB - 1, MIB, MIB + 1, 20 * MIB + 3, 130 * MIB + 11])
def test_objects(direct: martlet.Client, bucket: str, rng: random.Random, size: int) -> None:
    body = rng.randbytes(size)
    url = f"martlet://{bucket}/object"
    direct.write(url, body)
    found, reader = read(direct, url)
    assert found == body
    assert (reader.stats.direct_bytes, reader.stats.get_bytes, reader.reason) == (size, 0, "")
    assert (reader.stats.corrupt, reader.stats.other_holder, reader.stats.located_again) == (0, 0, 0)
    spans = []
    for _ in range(40):
        start = rng.randrange(size + 1)
        spans.append((start, bytearray(min(rng.choice([1, 5000, 65_536, 300_000]), size - start))))
    reader = direct.read_into(url, spans)
    for start, part in spans:
        assert part == body[start : start + len(part)]
    assert reader.stats.get_bytes == 0


def test_the_node_verifies_on_request(bucket: str, direct: martlet.Client, rng: random.Random) -> None:
    body = rng.randbytes(3 * MIB)
    direct.write(f"martlet://{bucket}/k", body)
    with martlet.Client(endpoint=ENDPOINT, direct_min_bytes=0, verify="node") as other:
        found, reader = read(other, f"martlet://{bucket}/k")
    assert found == body
    assert reader.stats.direct_bytes == len(body)


def test_parts_and_small_parts(direct: martlet.Client, bucket: str, rng: random.Random) -> None:
    body = rng.randbytes(33 * MIB + 1)
    with martlet.Client(endpoint=ENDPOINT, part_bytes=5 * MIB) as other:
        other.write(f"martlet://{bucket}/parts", body)
    found, reader = read(direct, f"martlet://{bucket}/parts")
    assert found == body
    assert reader.stats.get_bytes == 0


def test_inline_and_encrypted_objects(direct: martlet.Client, bucket: str, rng: random.Random) -> None:
    direct.write(f"martlet://{bucket}/inline", b"x" * 100)
    found, reader = read(direct, f"martlet://{bucket}/inline")
    assert (found, reader.direct, reader.reason) == (b"x" * 100, False, "inline")
    body = rng.randbytes(2 * MIB)
    sealed = martlet.Address(bucket, "encrypted")
    direct.store.request("PUT", sealed, {}, {"x-amz-server-side-encryption": "AES256"}, memoryview(body))
    found, reader = read(direct, sealed)
    assert (found, reader.direct, reader.reason) == (body, False, "encrypted")


def test_views_and_versions(direct: martlet.Client, train: str, rng: random.Random) -> None:
    folder = f"martlet://{train}/explicit-7/step-1"
    bodies = [rng.randbytes(2 * MIB) for _ in range(2)]
    versions = []
    for body in bodies:
        written = direct.write(f"{folder}/x", body)
        versions.append(written.version_id)
        assert direct.commit(folder, [written]).committed
    address = martlet.Address(train, "explicit-7/step-1")
    for number, body in enumerate(bodies, 1):
        for url in (address.generation(number).child("x"), f"{folder}/x?versionId={versions[number - 1]}"):
            found, reader = read(direct, url)
            assert found == body
            assert reader.stats.direct_bytes == len(body), (url, reader.reason)


def test_deleted_and_overwritten_objects(direct: martlet.Client, bucket: str, rng: random.Random) -> None:
    body = rng.randbytes(9 * MIB)
    url = f"martlet://{bucket}/k"
    direct.write(url, body)
    reader = direct.reader(url)
    span = Span(0, memoryview(bytearray(len(body))))
    reader.read_into([span])
    direct.write(url, body[::-1])
    # Tokens are for extents: the old bytes are read, or the read fails.
    for _ in range(3):
        try:
            reader.read_into([span])
        except martlet.ObjectChanged:
            break
        assert span.into == body
    direct.delete(url)
    with pytest.raises(martlet.NotFound):
        direct.reader(url)
