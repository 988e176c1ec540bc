"""torch.distributed.checkpoint through fsspec: what several ranks save at once, each loads in another shape."""

import os
import warnings

import fsspec
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
import torch.multiprocessing as multiprocessing
from torch.distributed.checkpoint.fsspec_filesystem import FsspecReader, FsspecWriter
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Replicate, Shard, distribute_tensor

import bare
import suite
import tasks
from commands import new_path

RANKS = 2
STORAGE = {"endpoint_url": os.environ["MARTLET_ENDPOINT"], "use_listings_cache": False}

warnings.filterwarnings("ignore")


def state_of(seed):
    """A model, its optimizer after a step, and what is no tensor."""
    torch.manual_seed(seed)
    model = torch.nn.Sequential(torch.nn.Linear(1024, 2048), torch.nn.Linear(2048, 1024))
    optimizer = torch.optim.Adam(model.parameters())
    model(torch.randn(4, 1024)).sum().backward()
    optimizer.step()
    return {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "epoch": 7, "note": "by hand"}


def zeroed(value):
    if isinstance(value, torch.Tensor):
        return torch.zeros_like(value)
    return {key: zeroed(item) for key, item in value.items()} if isinstance(value, dict) else value


def equal(one, other):
    if isinstance(one, torch.Tensor):
        return torch.equal(one, other)
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(equal(one[key], other[key]) for key in one)
    return one == other


def where(name):
    return f"s3://{bare.BUCKET}/{name}"


def save_and_load(rng):
    state = state_of(rng.getrandbits(30))
    dcp.save(state, storage_writer=FsspecWriter(where("one"), **STORAGE), no_dist=True)
    assert "one/.metadata" in bare.keys("one/")
    loaded = zeroed(state)
    dcp.load(loaded, storage_reader=FsspecReader(where("one"), **STORAGE), no_dist=True)
    assert equal(loaded, state)
    # The same place again: what was there is replaced.
    newer = state_of(rng.getrandbits(30))
    dcp.save(newer, storage_writer=FsspecWriter(where("one"), **STORAGE), no_dist=True)
    dcp.load(loaded, storage_reader=FsspecReader(where("one"), **STORAGE), no_dist=True)
    assert equal(loaded["model"], newer["model"])


def a_file_for_each_tensor(rng):
    state = state_of(rng.getrandbits(30))
    writer = FsspecWriter(where("many"), single_file_per_rank=False, thread_count=4, **STORAGE)
    dcp.save(state, storage_writer=writer, no_dist=True)
    assert len(bare.keys("many/")) > 10, bare.keys("many/")
    loaded = zeroed(state)
    dcp.load(loaded, storage_reader=FsspecReader(where("many"), **STORAGE), no_dist=True)
    assert equal(loaded, state)


def in_parts(rng):
    torch.manual_seed(rng.getrandbits(30))
    state = {"large": torch.randn(40 * suite.MIB // 4 * 3)}
    dcp.save(state, storage_writer=FsspecWriter(where("large"), **STORAGE), no_dist=True)
    [data] = [key for key in bare.keys("large/") if key.endswith(".distcp")]
    assert bare.parts(data) >= 2, bare.parts(data)
    loaded = zeroed(state)
    dcp.load(loaded, storage_reader=FsspecReader(where("large"), **STORAGE), no_dist=True)
    assert equal(loaded, state)


def sharded_by_several(rng):
    seed = rng.getrandbits(30)
    for task in (save_shards, load_otherwise):
        # Through a file: no port is needed by which they find each other.
        multiprocessing.spawn(ranked, args=(task, str(new_path()), seed), nprocs=RANKS)
    suite.same(len([key for key in bare.keys("sharded/") if key.endswith(".distcp")]), RANKS, "files, one for each rank")


def ranked(rank, task, meeting, seed):
    warnings.filterwarnings("ignore")
    dist.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=RANKS)
    torch.manual_seed(seed)
    task(torch.randn(1024, 512), init_device_mesh("cpu", (RANKS,)))
    dist.destroy_process_group()


def save_shards(whole, mesh):
    state = {"weights": distribute_tensor(whole, mesh, [Shard(0)]), "epoch": 3}
    future = dcp.async_save(state, storage_writer=FsspecWriter(where("sharded"), **STORAGE))
    future.result()


def load_otherwise(whole, mesh):
    for placement in (Shard(1), Replicate()):
        state = {"weights": distribute_tensor(torch.zeros_like(whole), mesh, [placement]), "epoch": 0}
        dcp.load(state, storage_reader=FsspecReader(where("sharded"), **STORAGE))
        assert torch.equal(state["weights"].full_tensor(), whole) and state["epoch"] == 3


def plain_checkpoints(rng):
    """torch.save and torch.load over an open file."""
    state = state_of(rng.getrandbits(30))
    with fsspec.open(where("plain.pt"), "wb", **STORAGE) as file:
        torch.save(state, file)
    with fsspec.open(where("plain.pt"), "rb", **STORAGE) as file:
        assert equal(torch.load(file, weights_only=True), state)


if __name__ == "__main__":
    tasks.main(save_and_load, a_file_for_each_tensor, in_parts, sharded_by_several, plain_checkpoints)
