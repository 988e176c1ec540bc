"""Examples of the README and of the folder `examples`, run as they stand."""

from __future__ import annotations

import json
import os
import re
import runpy
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import martlet
from fake import Cluster
from martlet import clients

pytest.importorskip("torch")
HOME = Path(__file__).resolve().parents[1]
BLOCKS = re.findall(r"```python\n(.*?)```", (HOME / "README.md").read_text(), re.DOTALL)
RULES = {"rules": [{"pattern": "run-*/step-*/", "profile": "custom", "keep": 3}]}
pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    """The server, or the fake, with the bucket that the examples name."""
    fake = None if "MARTLET_ENDPOINT" in os.environ else Cluster()
    where = fake.endpoint if fake else os.environ["MARTLET_ENDPOINT"]
    if fake is None:
        with martlet.Client(endpoint=where) as client:
            train = martlet.Address("train")
            versions = b"<VersioningConfiguration><Status>Enabled</Status></VersioningConfiguration>"
            client.store.request("PUT", train)
            client.store.request("PUT", train, {"versioning": ""}, {}, memoryview(versions))
            client.store.request("PUT", train, {"checkpoints": ""}, {}, memoryview(json.dumps(RULES).encode()))
        time.sleep(1.5)
    yield where
    if fake:
        fake.close()


@pytest.fixture(autouse=True)
def _environment(endpoint: str, monkeypatch: pytest.MonkeyPatch) -> None:
    fsspec = pytest.importorskip("fsspec")
    monkeypatch.setenv("AWS_ENDPOINT_URL", endpoint)
    monkeypatch.setattr(clients, "_shared", {})
    if "martlet" not in fsspec.available_protocols():
        # Run from the sources, without the entry point of an installed package.
        fsspec.register_implementation("martlet", "martlet.filesystem.MartletFileSystem")


@pytest.mark.parametrize("number", range(len(BLOCKS)))
def test_example(number: int) -> None:
    exec(compile(BLOCKS[number], f"README.md, example {number + 1}", "exec"), {})


def test_examples_are_short() -> None:
    assert len(BLOCKS) >= 6
    for block in BLOCKS:
        calls = [line for line in block.splitlines() if not line.startswith(("import", "from"))]
        assert len(calls) <= 5, block


def test_training_resumes(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    for steps, expected in (("20", "steps 0 to 19"), ("40", "steps 20 to 39")):
        monkeypatch.setattr(sys, "argv", ["training_loop.py", "martlet://train/run-8", steps])
        runpy.run_path(str(HOME / "examples/training_loop.py"), run_name="__main__")
        assert expected in capsys.readouterr().out
