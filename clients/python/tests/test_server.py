"""Reads, writes and checkpoints on a real server, which MARTLET_ENDPOINT names."""

from __future__ import annotations

import itertools
import json
import os
import random
import time
from collections.abc import Iterator
from typing import Any

import pytest

import martlet
from martlet.plan import Span
from martlet.upload import Multipart

ENDPOINT = os.environ.get("MARTLET_ENDPOINT", "")
MIB = 1 << 20
RULES = {
    "rules": [
        {"pattern": "dcp-*/*/", "profile": "dcp", "keep": 3},
        {"pattern": "explicit-*/*/", "profile": "custom"},
    ]
}
_numbers = itertools.count()
pytestmark = pytest.mark.skipif(not ENDPOINT, reason="MARTLET_ENDPOINT names no server")


@pytest.fixture
def client() -> Iterator[martlet.Client]:
    with martlet.Client(endpoint=ENDPOINT, direct_min_bytes=0) as made:
        yield made


@pytest.fixture
def bucket(client: martlet.Client) -> str:
    """Bucket of its own. It stays, because versions of generations can't be deleted for minutes."""
    name = f"python-{os.getpid()}-{time.time_ns() % 1_000_000}-{next(_numbers)}"
    client.store.request("PUT", martlet.Address(name))
    return name


@pytest.fixture
def train(client: martlet.Client, bucket: str) -> str:
    """The bucket, with versions and rules that the proxy knows."""
    versions = b"<VersioningConfiguration><Status>Enabled</Status></VersioningConfiguration>"
    client.store.request("PUT", martlet.Address(bucket), {"versioning": ""}, {}, memoryview(versions))
    rules = json.dumps(RULES).encode()
    client.store.request("PUT", martlet.Address(bucket), {"checkpoints": ""}, {}, memoryview(rules))
    time.sleep(1.5)
    return bucket


@pytest.mark.parametrize("size", [0, 1, 4096, 8192, 100_000, MIB, MIB + 1, 20 * MIB + 3, 70 * MIB + 11])
def test_round_trips(client: martlet.Client, bucket: str, rng: random.Random, size: int) -> None:
    body = rng.randbytes(size)
    url = f"martlet://{bucket}/difficult name +%/ü/{size}"
    written = client.write(url, body)
    reader = client.reader(url)
    assert (reader.info.size, reader.info.etag) == (size, written.etag)
    memory = bytearray(size)
    reader.read_into([Span(0, memoryview(memory))])
    assert memory == body
    print(f"{size} bytes: direct {reader.stats.direct_bytes}, get {reader.stats.get_bytes}, {reader.reason}")
    spans = [(start, bytearray(min(70_000, size - start))) for start in (rng.randrange(size + 1) for _ in range(20))]
    client.read_into(url, spans)
    for start, part in spans:
        assert part == body[start : start + len(part)]
    with client.open(url) as file:
        assert file.read() == body


def test_files(client: martlet.Client, bucket: str, rng: random.Random) -> None:
    body = rng.randbytes(40 * MIB + 9)
    with client.open(f"martlet://{bucket}/file", "wb") as file:
        for at in range(0, len(body), 999_999):
            file.write(body[at : at + 999_999])
    assert bytes(client.read(f"martlet://{bucket}/file").view) == body
    assert [it.size for it in client.listing(f"martlet://{bucket}/")] == [len(body)]


def test_a_completion_of_another_size_is_refused(client: martlet.Client, bucket: str) -> None:
    address = martlet.Address(bucket, "parts")
    upload = Multipart(client.store, address)
    upload.send(1, memoryview(bytes(5 * MIB)))
    with pytest.raises(martlet.StoreError, match="x-amz-mp-object-size"):
        upload.complete(5 * MIB + 1)
    assert not client.exists(address)
    assert upload.complete(5 * MIB).size == 5 * MIB
    assert client.info(address).size == 5 * MIB


def test_versions(client: martlet.Client, train: str) -> None:
    url = f"martlet://{train}/k"
    first, second = client.write(url, b"first"), client.write(url, b"second")
    assert first.version_id != second.version_id
    assert bytes(client.read(f"{url}?versionId={first.version_id}").view) == b"first"
    assert bytes(client.read(url).view) == b"second"


def test_an_overwrite_in_mid_read(client: martlet.Client, bucket: str, rng: random.Random) -> None:
    url, body = f"martlet://{bucket}/k", rng.randbytes(30 * MIB)
    client.write(url, body)
    reader = client.reader(url)
    client.write(url, body[::-1])
    memory = bytearray(len(body))
    with pytest.raises(martlet.ObjectChanged):
        reader.read_into([Span(0, memoryview(memory))])


def test_wrong_credentials(client: martlet.Client, bucket: str) -> None:
    other = martlet.Client(endpoint=ENDPOINT)
    other.store.signer.use("nobody", "a-secret-that-is-wrong")
    with pytest.raises(martlet.AccessDenied) as caught:
        other.info(f"martlet://{bucket}/k")
    assert "a-secret-that-is-wrong" not in str(caught.value)
    with pytest.raises(PermissionError):
        other.write(f"martlet://{bucket}/k", b"x")


def test_sets(client: martlet.Client, train: str) -> None:
    folder = f"martlet://{train}/explicit-1/step-1"
    written = [client.write(f"{folder}/{name}", name.encode()) for name in ("x", "y")]
    assert client.newest(folder) is None
    assert client.commit(folder, written) == martlet.Outcome("committed", 1)
    client.write(f"{folder}/x", b"another")
    with pytest.raises(martlet.Conflict, match="explicit-1/step-1/x"):
        client.commit(folder, written)
    assert client.commit(folder).generation == 2
    assert [it.number for it in client.generations(folder)] == [1, 2]
    address = martlet.Address(train, "explicit-1/step-1")
    assert bytes(client.read(address.generation(1).child("x")).view) == b"x"
    assert bytes(client.read(address.committed().child("x")).view) == b"another"
    assert client.hold(folder, 60) == 2
    assert client.withdraw(folder, 1) == 1


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("series", ["dcp-1", "explicit-2"])
def test_checkpoints(client: martlet.Client, train: str, series: str) -> None:
    torch = pytest.importorskip("torch")
    import torch.distributed.checkpoint as dcp

    from martlet.dcp import StorageReader, StorageWriter

    folder = f"martlet://{train}/{series}/step-1"
    saved: dict[int, dict[str, Any]] = {}
    for generation in (1, 2):
        torch.manual_seed(generation)
        saved[generation] = {"w": torch.randn(1000, 700), "b": torch.randn(5), "step": generation}
        writer = StorageWriter(folder, client=client, commit="require")
        dcp.save(saved[generation], storage_writer=writer, no_dist=True)
        assert writer.outcome == martlet.Outcome("committed", generation), writer.outcome
    for asked, expected in (("newest", 2), (1, 1), (2, 2)):
        found = {"w": torch.zeros(1000, 700), "b": torch.zeros(5), "step": 0}
        reader = StorageReader(folder, client=client, generation=asked)  # type: ignore[arg-type]
        dcp.load(found, storage_reader=reader, no_dist=True)
        assert reader.generation == expected
        assert torch.equal(found["w"], saved[expected]["w"])
        assert found["step"] == expected


@pytest.mark.filterwarnings("ignore")
def test_a_shard_of_another_save_is_no_part_of_a_commit(client: martlet.Client, train: str) -> None:
    torch = pytest.importorskip("torch")
    import torch.distributed.checkpoint as dcp
    from torch.distributed.checkpoint.utils import CheckpointException

    from martlet.dcp import StorageReader, StorageWriter

    elsewhere = martlet.Address(train, "plain/")
    other = {"w": torch.full((1000,), 2.0)}
    dcp.save(other, storage_writer=StorageWriter(str(elsewhere), client=client, commit="never"), no_dist=True)
    name = next(it.key for it in client.listing(elsewhere) if it.key.endswith(".distcp")).rsplit("/", 1)[1]
    shard = bytes(client.read(elsewhere.child(name)).view)

    class Late(StorageWriter):
        """A rank of a former attempt replaces a shard, of equal size, before the marker comes."""

        def finish(self, metadata: Any, results: Any) -> None:
            client.write(f"{self.path}/{name}", shard)
            super().finish(metadata, results)

    state = {"w": torch.full((1000,), 1.0)}
    folder = f"martlet://{train}/dcp-3/step-1"
    with pytest.raises(CheckpointException, match="differ"):
        dcp.save(state, storage_writer=Late(folder, client=client, commit="require"), no_dist=True)
    writer = Late(folder, client=client)
    dcp.save(state, storage_writer=writer, no_dist=True)
    assert writer.outcome is not None
    assert writer.outcome.state == "refused"
    assert client.newest(folder) is None
    # The same save without the other rank is committed, and is what is read.
    writer = StorageWriter(folder, client=client, commit="require")
    dcp.save(state, storage_writer=writer, no_dist=True)
    assert writer.outcome is not None
    found = {"w": torch.zeros(1000)}
    reader = StorageReader(folder, client=client, generation=writer.outcome.generation)
    dcp.load(found, storage_reader=reader, no_dist=True)
    assert torch.equal(found["w"], state["w"])


@pytest.mark.filterwarnings("ignore")
def test_publishing_and_plain_folders(client: martlet.Client, train: str, bucket: str) -> None:
    torch = pytest.importorskip("torch")
    import torch.distributed.checkpoint as dcp

    from martlet.dcp import StorageReader, StorageWriter

    state = {"w": torch.randn(100, 7)}
    writer = StorageWriter(f"martlet://{train}/tmp", client=client, publish_as="explicit-3/step-1", commit="require")
    dcp.save(state, storage_writer=writer, no_dist=True)
    found = {"w": torch.zeros(100, 7)}
    dcp.load(found, storage_reader=StorageReader(f"martlet://{train}/explicit-3/step-1", client=client), no_dist=True)
    assert torch.equal(found["w"], state["w"])
    # A folder that no rule covers, and a bucket without versions.
    for plain in (f"martlet://{train}/plain", f"martlet://{bucket}/plain"):
        writer = StorageWriter(plain, client=client)
        dcp.save(state, storage_writer=writer, no_dist=True)
        print(plain, writer.outcome)
        found = {"w": torch.zeros(100, 7)}
        dcp.load(found, storage_reader=StorageReader(plain, client=client), no_dist=True)
        assert torch.equal(found["w"], state["w"])
