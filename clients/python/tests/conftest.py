"""Fixtures: the fake cluster, and a client of it."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable, Iterator

import pytest

import martlet
from fake import Cluster

for name in [name for name in os.environ if name.startswith("AWS_")]:
    if name not in ("AWS_CA_BUNDLE",) and "MARTLET_ENDPOINT" not in os.environ:
        del os.environ[name]


@pytest.fixture
def rng() -> random.Random:
    seed = int(os.environ.get("MARTLET_SEED") or time.time_ns() % 1_000_000)
    print(f"seed {seed}")
    return random.Random(seed)


@pytest.fixture(autouse=True)
def _credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    if "MARTLET_ENDPOINT" not in os.environ:
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key-of-tests")
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret-of-tests")
        monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    made = Cluster()
    yield made
    made.close()


@pytest.fixture
def connect(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., martlet.Client]]:
    """Makes clients of the fake cluster, whose limits are short."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key-of-tests")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret-of-tests")
    made: list[martlet.Client] = []

    def make(**options: object) -> martlet.Client:
        usual = {
            "endpoint": cluster.endpoint,
            "threads": 4,
            "fetch_bytes": 256 << 10,
            "idle_timeout_s": 2.0,
            "direct_min_bytes": 0,
            "attempts": 3,
            "part_bytes": 5 << 20,
        }
        made.append(martlet.Client(**{**usual, **options}))
        return made[-1]

    yield make
    for client in made:
        client.close()
