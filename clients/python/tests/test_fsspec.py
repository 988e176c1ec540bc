"""`martlet://` in fsspec, on the fake cluster."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

import martlet
from fake import Cluster

fsspec = pytest.importorskip("fsspec")
pytest.importorskip("s3fs")

from martlet.filesystem import MartletFileSystem  # noqa: E402

Connect = Callable[..., martlet.Client]


@pytest.fixture
def files(cluster: Cluster, connect: Connect) -> MartletFileSystem:
    fsspec.register_implementation("martlet", MartletFileSystem, clobber=True)
    found = fsspec.filesystem("martlet", endpoint_url=cluster.endpoint, martlet={"direct_min_bytes": 0, "threads": 3})
    assert isinstance(found, MartletFileSystem)
    return found


def test_reads_go_to_nodes(cluster: Cluster, files: MartletFileSystem, rng: random.Random) -> None:
    body = rng.randbytes(3_000_000)
    cluster.put("b", "k", body)
    assert files.cat_file("martlet://b/k") == body
    assert files.cat_file("b/k", start=100, end=70_000) == body[100:70_000]
    assert files.cat_file("b/k", start=-10) == body[-10:]
    with files.open("b/k") as file:
        assert file.direct
        file.seek(1_000_000)
        assert file.read(500_000) == body[1_000_000:1_500_000]
    assert cluster.count("/x/") > 3
    with pytest.raises(FileNotFoundError):
        files.cat_file("b/absent")


def test_explicit_keys(cluster: Cluster, connect: Connect, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster.put("b", "k", b"text")
    files = MartletFileSystem(endpoint_url=cluster.endpoint, key="explicit-key", secret="explicit-secret")
    assert files.cat_file("b/k") == b"text"
    assert "explicit-key" in cluster.requests[-1].headers["authorization"]
    assert "explicit-secret" not in repr(files) + repr(files.client())


def test_short_ranges_take_one_request(cluster: Cluster, connect: Connect, rng: random.Random) -> None:
    body = rng.randbytes(100_000)
    cluster.put("b", "k", body)
    files = MartletFileSystem(endpoint_url=cluster.endpoint, skip_instance_cache=True)
    before = len(cluster.requests)
    assert files.cat_ranges(["b/k"] * 5, [10, 20, 30, 40, 50], [100] * 5) == [body[at:100] for at in range(10, 60, 10)]
    assert len(cluster.requests) - before == 5
