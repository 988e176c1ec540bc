"""Checkpoints and tensors with torch, on the fake cluster."""

from __future__ import annotations

import logging
import os
import pickle
import random
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import martlet
from fake import Cluster

torch = pytest.importorskip("torch")
dcp = pytest.importorskip("torch.distributed.checkpoint")

from martlet.dcp import StorageReader, StorageWriter  # noqa: E402
from martlet.metadata import loads  # noqa: E402
from martlet.tensors import TensorFile, bytes_of  # noqa: E402
from martlet.torch_files import Files, Shard  # noqa: E402

Connect = Callable[..., martlet.Client]
FAILED = pytest.importorskip("torch.distributed.checkpoint.utils").CheckpointException
FOLDER = "martlet://b/run-7/step-1000"
pytestmark = pytest.mark.filterwarnings("ignore")


def state_of(seed: int) -> dict[str, Any]:
    torch.manual_seed(seed)
    model = torch.nn.Sequential(torch.nn.Linear(700, 900), torch.nn.Linear(900, 300))
    optimizer = torch.optim.Adam(model.parameters())
    model(torch.randn(4, 700)).sum().backward()
    optimizer.step()
    return {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "epoch": 7, "note": "text"}


def zeroed(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return torch.zeros_like(value)
    return {key: zeroed(item) for key, item in value.items()} if isinstance(value, dict) else value


def equal(one: Any, other: Any) -> bool:
    if isinstance(one, torch.Tensor):
        return bool(torch.equal(one, other))
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(equal(one[key], other[key]) for key in one)
    return bool(one == other)


def save(client: martlet.Client, state: Any, folder: str = FOLDER, **how: Any) -> StorageWriter:
    writer = StorageWriter(folder, client=client, **how)
    dcp.save(state, storage_writer=writer, no_dist=True)
    return writer


def load(client: martlet.Client, state: Any, folder: str = FOLDER, **how: Any) -> tuple[Any, StorageReader]:
    found, reader = zeroed(state), StorageReader(folder, client=client, **how)
    dcp.load(found, storage_reader=reader, no_dist=True)
    return found, reader


@pytest.mark.parametrize("how", [{}, {"single_file_per_rank": False, "thread_count": 3}])
def test_save_and_load(cluster: Cluster, connect: Connect, rng: random.Random, how: dict[str, Any]) -> None:
    client, state = connect(), state_of(rng.getrandbits(30))
    writer = save(client, state, **how)
    assert writer.outcome == martlet.Outcome("committed", 1)
    named = {it["key"] for it in cluster.commits[0][1]}
    assert named == {key for bucket, key in cluster.objects if bucket == "b"}
    puts = [one.target for one in cluster.requests if ".metadata" in one.target]
    assert puts == ["/b/run-7/step-1000/.metadata"], "one PUT, no HEAD, no rename"
    found, reader = load(client, state)
    assert equal(found, state)
    assert reader.generation == 1


def test_generations_are_apart(cluster: Cluster, connect: Connect, rng: random.Random) -> None:
    client = connect()
    first, second = state_of(1), state_of(2)
    save(client, first)
    reader = StorageReader(FOLDER, client=client)
    reader.read_metadata()
    assert save(client, second).outcome == martlet.Outcome("committed", 2)
    found = zeroed(first)
    # The reader began with the first generation and stays with it.
    dcp.load(found, storage_reader=StorageReader(FOLDER, client=client, generation=1), no_dist=True)
    assert equal(found, first)
    assert equal(load(client, second)[0], second)


def test_publishing_under_another_name(cluster: Cluster, connect: Connect) -> None:
    client, state = connect(), state_of(3)
    save(client, state, "martlet://b/run-7/tmp", publish_as="run-7/step-9")
    found, reader = load(client, state, "martlet://b/run-7/step-9")
    assert equal(found, state)
    assert reader.generation == 1


@pytest.mark.parametrize("commit", ["auto", "require", "never"])
def test_stores_without_sets(cluster: Cluster, connect: Connect, commit: str, caplog: pytest.LogCaptureFixture) -> None:
    cluster.martlet = cluster.sets = False
    client, state = connect(), state_of(4)
    if commit == "require":
        with pytest.raises(FAILED, match="InvalidRequest"):
            save(client, state, commit=commit)
        return
    with caplog.at_level(logging.INFO, "martlet"):
        writer = save(client, state, commit=commit)
    assert (writer.outcome is None) == (commit == "never")
    assert ("not committed" in caplog.text) == (commit == "auto")
    found, reader = load(client, state)
    assert equal(found, state)
    assert reader.generation is None


def test_a_set_without_a_committed_generation_is_not_read_in_the_plain(cluster: Cluster, connect: Connect) -> None:
    client, state = connect(), state_of(12)
    cluster.pending = 10_000
    outcome = save(client, state).outcome
    assert outcome
    assert outcome.state == "pending"
    assert client.newest(FOLDER) is None
    with pytest.raises(FAILED, match="generation 1 is pending"):
        load(client, state)
    found, reader = load(client, state, generation=None)
    assert equal(found, state)
    assert reader.generation is None


@pytest.mark.parametrize("state", ["pinning", "removing"])
def test_the_error_names_states_and_reasons(connect: Connect, monkeypatch: pytest.MonkeyPatch, state: Any) -> None:
    listed = [martlet.Generation(n, state, 3, 30, "later ones are enough") for n in (1, 4)]
    monkeypatch.setattr("martlet.checkpoints.generations", lambda *_: listed)
    with pytest.raises(martlet.MartletError, match=f"generation 4 is {state}: later ones are enough"):
        StorageReader(FOLDER, client=connect()).read_metadata()


def test_existing_checkpoints_are_kept_if_asked(cluster: Cluster, connect: Connect) -> None:
    client, state = connect(), state_of(5)
    save(client, state, overwrite=False)
    with pytest.raises(FAILED, match="already exists"):
        save(client, state, overwrite=False)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
@pytest.mark.parametrize(("threads", "text"), [(1, "try later"), (3, "weren't stored|try later")])
def test_a_shard_that_fails_commits_nothing(cluster: Cluster, connect: Connect, threads: int, text: str) -> None:
    cluster.fault("503", times=1000, path="_1.distcp" if threads > 1 else ".distcp", method="P")
    with pytest.raises(FAILED, match=text):
        save(connect(), state_of(6), thread_count=threads)
    assert not cluster.commits
    assert not [key for _, key in cluster.objects if "metadata" in key]


def test_a_shard_whose_write_failed_is_not_stored(cluster: Cluster, connect: Connect) -> None:
    cluster.martlet = False
    cluster.fault("early 403", times=1000, path="partNumber=3", method="PUT")
    noted: list[martlet.Written] = []
    shard = Shard(connect(upload_parts=2).open(f"{FOLDER}/x", "wb"), noted.append)
    for _ in range(60):
        with suppress(martlet.MartletError):
            shard.write(bytes(1 << 20))
    with pytest.raises(martlet.AccessDenied):
        shard.close()
    assert not noted
    assert not cluster.objects
    assert not cluster.uploads


def test_a_shard_is_noted_where_its_stream_stays_open(cluster: Cluster, connect: Connect) -> None:
    files, url = Files(connect()), f"{FOLDER}/x"
    with files.create_stream(url, "wb") as stream:
        stream.write(b"bytes")
    assert files.written(url).size == 5


def test_items_beyond_the_bound_of_memory(cluster: Cluster, connect: Connect) -> None:
    client, state = connect(memory_bytes=1 << 20), state_of(7)
    save(client, state)
    assert equal(load(client, state)[0], state)


def test_metadata_runs_no_code(cluster: Cluster, connect: Connect) -> None:
    class Evil:
        def __reduce__(self) -> Any:
            return exec, ("raise SystemExit(3)",)

    for text in (pickle.dumps(Evil()), b"\x80\x04\x8c'torch.distributed.checkpoint.filesystem\x8c\tos.system\x93."):
        with pytest.raises(martlet.MartletError, match="could run code"):
            loads(text, trusted=False)
    with pytest.raises(martlet.MartletError):
        loads(b"nothing", trusted=False)


def safetensors_file(client: martlet.Client, seed: int) -> tuple[str, dict[str, Any]]:
    from safetensors.torch import save as to_bytes

    torch.manual_seed(seed)
    made = {
        "a.weight": torch.randn(300, 257),
        "b": torch.randn(70, 33, 5).to(torch.bfloat16),
        "c": torch.arange(100_000),
        "d": torch.tensor(3.0),
        "e": torch.zeros(0, 4),
    }
    url = "martlet://b/model.safetensors"
    client.write(url, to_bytes(made, metadata={"format": "pt"}))
    return url, made


def test_safetensors(cluster: Cluster, connect: Connect) -> None:
    client = connect()
    url, made = safetensors_file(client, 8)
    with TensorFile(url, client) as file:
        assert sorted(file.keys()) == sorted(made)
        assert file.metadata == {"format": "pt"}
        assert equal({name: file.tensor(name) for name in made}, made)
        assert equal(file.tensors(), made)
        assert torch.equal(file.rows("a.weight", 100, 250), made["a.weight"][100:250])
        assert torch.equal(file.rows("b", 69, 70), made["b"][69:70])
        assert torch.equal(file.columns("a.weight", 10, 20), made["a.weight"][:, 10:20])
        assert torch.equal(file.columns("b", 0, 33), made["b"])
        with pytest.raises(martlet.MartletError, match="no tensor"):
            file.tensor("x")
        with pytest.raises(martlet.MartletError, match="outside"):
            file.rows("a.weight", 0, 301)
        with pytest.raises(martlet.MartletError, match="the target"):
            file.read_into({"c": torch.zeros(5)})


def test_rows_take_their_bytes_alone(cluster: Cluster, connect: Connect) -> None:
    client = connect(gap_bytes=0)
    client.write("martlet://b/model.safetensors", _large(torch.ones(4096, 1024)))
    with TensorFile("martlet://b/model.safetensors", client) as file:
        before = file.reader.stats.direct_bytes
        assert torch.equal(file.rows("w", 10, 20), torch.ones(10, 1024))
        assert file.reader.stats.direct_bytes - before == 10 * 4096


def _large(tensor: Any) -> bytes:
    from safetensors.torch import save as to_bytes

    return bytes(to_bytes({"w": tensor}))


@pytest.mark.parametrize("wrong", ["short", "length", "json", "outside", "size"])
def test_wrong_safetensors(cluster: Cluster, connect: Connect, wrong: str) -> None:
    header = b'{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}'
    header = header.replace(b"[0,8]", {"outside": b"[8,16]", "size": b"[0,7]"}.get(wrong, b"[0,8]"))
    body = len(header).to_bytes(8, "little") + header + bytes(8)
    body = {"short": b"abc", "length": b"\xff" * 40, "json": b"\x02" + bytes(7) + b"{x"}.get(wrong, body)
    client = connect()
    client.write("martlet://b/x", body)
    with pytest.raises(martlet.MartletError, match="safetensors file"):
        TensorFile("martlet://b/x", client)


def test_memory_goes_on_by_dlpack(cluster: Cluster, connect: Connect, rng: random.Random) -> None:
    body = rng.randbytes(100_000)
    cluster.put("b", "k", body)
    memory = connect().read("martlet://b/k")
    tensor = torch.from_dlpack(memory)
    assert bytes(bytes_of(tensor)) == body
    memory.view[0] = body[0] ^ 1
    assert int(tensor[0]) == body[0] ^ 1, "the memory is shared"
    del memory
    assert int(tensor[1]) == body[1]
    if not torch.cuda.is_available():
        with pytest.raises(martlet.MartletError, match="GPU"):
            martlet.Memory(10, pinned=True)


def test_ranks_save_and_load_together(cluster: Cluster, tmp_path: Path) -> None:
    import torch.multiprocessing as processes

    for task in (save_shard, load_shard):
        processes.spawn(ranked, args=(task, str(tmp_path / task.__name__), cluster.endpoint), nprocs=2)
    [(folder, named)] = cluster.commits
    assert folder == "run-7/step-1000/"
    assert sorted(str(it["key"]).rpartition("/")[2] for it in named) == [".metadata", "__0_0.distcp", "__1_0.distcp"]


def ranked(rank: int, task: Callable[..., None], meeting: str, endpoint: str) -> None:
    import torch.distributed as dist

    dist.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=2)
    torch.manual_seed(1)
    mesh = dist.device_mesh.init_device_mesh("cpu", (2,))
    with martlet.Client(endpoint=endpoint, direct_min_bytes=0, threads=2) as client:
        task(client, torch.randn(1024, 512), mesh)
    dist.destroy_process_group()
    # Threads of gloo may still drop tensors while the interpreter ends, which aborts the process.
    os._exit(0)


def save_shard(client: martlet.Client, whole: Any, mesh: Any) -> None:
    from torch.distributed.tensor import Shard, distribute_tensor

    state = {"weights": distribute_tensor(whole, mesh, [Shard(0)]), "epoch": 3}
    writer = StorageWriter(FOLDER, client=client)
    dcp.async_save(state, storage_writer=writer).result()
    assert (writer.outcome is None) == (mesh.get_rank() != 0)


def load_shard(client: martlet.Client, whole: Any, mesh: Any) -> None:
    from torch.distributed.tensor import Replicate, Shard, distribute_tensor

    for placement in (Shard(1), Replicate()):
        state = {"weights": distribute_tensor(torch.zeros_like(whole), mesh, [placement]), "epoch": 0}
        dcp.load(state, storage_reader=StorageReader(FOLDER, client=client))
        assert torch.equal(state["weights"].full_tensor(), whole)
        assert state["epoch"] == 3
    # Ranks that see different generations are refused.
    state = {"weights": distribute_tensor(torch.zeros_like(whole), mesh, [Shard(0)]), "epoch": 0}
    reader = StorageReader(FOLDER, client=client, generation=1 if mesh.get_rank() else None)
    with pytest.raises(FAILED, match="ranks began to load"):
        dcp.load(state, storage_reader=reader)


def test_writers_travel_to_other_processes(cluster: Cluster) -> None:
    client = martlet.Client(endpoint=cluster.endpoint, threads=3)
    writer = pickle.loads(pickle.dumps(StorageWriter(FOLDER, client=client)))
    state = state_of(9)
    dcp.save(state, storage_writer=writer, no_dist=True)
    assert writer.outcome == martlet.Outcome("committed", 1)
    reader = pickle.loads(pickle.dumps(StorageReader(FOLDER, client=client)))
    found = zeroed(state)
    dcp.load(found, storage_reader=reader, no_dist=True)
    assert equal(found, state)


def test_pending_commits_are_waited_for(cluster: Cluster, connect: Connect) -> None:
    cluster.pending = 3
    client, state = connect(), state_of(10)
    assert save(client, state, commit="require", wait_s=2).outcome == martlet.Outcome("committed", 1)
    cluster.pending = 10_000
    with pytest.raises(FAILED, match="pending"):
        save(client, state, commit="require", wait_s=0.3)
    cluster.pending = 10_000
    writer = save(client, state)
    assert writer.outcome is not None
    assert writer.outcome.state == "pending"


def test_generations_are_held_and_need_a_permission(cluster: Cluster, connect: Connect) -> None:
    client, state = connect(), state_of(11)
    save(client, state)
    load(client, state, hold_s=60)
    assert cluster.count("hold=60", "PUT") == 1
    cluster.fault("403", times=100, path="?checkpoint=", method="GET")
    with pytest.raises(FAILED, match="martlet:GetCheckpoint"):
        load(client, state)
    assert equal(load(client, state, generation=1)[0], state)
