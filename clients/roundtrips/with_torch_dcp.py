"""torch.distributed.checkpoint through fsspec and through s3torchconnector: what several ranks save at once,
each loads in another shape.
"""

import os
import warnings

import fsspec
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
import torch.multiprocessing as multiprocessing
from s3torchconnector import S3ClientConfig
from s3torchconnector.dcp import S3StorageReader, S3StorageWriter
from torch.distributed.checkpoint.fsspec_filesystem import FsspecReader, FsspecWriter
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Replicate, Shard, distribute_tensor

import bare
import suite
import tasks
from commands import new_path

RANKS = 2
STORAGE = {"endpoint_url": os.environ["MARTLET_ENDPOINT"], "use_listings_cache": False}
# The connector's own takes no endpoint, but its client knows this name.
os.environ["AWS_ENDPOINT_URL"] = os.environ["MARTLET_ENDPOINT"]
CONNECTOR = S3ClientConfig(force_path_style=True, part_size=8 * suite.MIB)

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


class Fsspec:
    name = "fsspec"

    def writer(self, where, **how):
        return FsspecWriter(place(self, where), **how, **STORAGE)

    def reader(self, where):
        return FsspecReader(place(self, where), **STORAGE)


class Connector:
    name = "s3torchconnector"

    def writer(self, where, **how):
        return S3StorageWriter(os.environ["AWS_REGION"], place(self, where), s3client_config=CONNECTOR, **how)

    def reader(self, where):
        return S3StorageReader(os.environ["AWS_REGION"], place(self, where), s3client_config=CONNECTOR)


WAYS = [Fsspec(), Connector()]


def place(way, where):
    return f"s3://{bare.BUCKET}/{way.name}/{where}"


def keys(way, where, ending=""):
    return [key for key in bare.keys(f"{way.name}/{where}/") if key.endswith(ending)]


def in_every_way(step):
    """The task of taking a step in each way."""
    def task(rng):
        for way in WAYS:
            step(way, rng)
    task.__name__ = step.__name__
    return task


def save_and_load(way, rng):
    state = state_of(rng.getrandbits(30))
    dcp.save(state, storage_writer=way.writer("one"), no_dist=True)
    suite.same(len(keys(way, "one", "/.metadata")), 1, "objects of metadata")
    loaded = zeroed(state)
    dcp.load(loaded, storage_reader=way.reader("one"), no_dist=True)
    assert equal(loaded, state)
    # The same place again: what was there is replaced.
    newer = state_of(rng.getrandbits(30))
    dcp.save(newer, storage_writer=way.writer("one", overwrite=True), no_dist=True)
    dcp.load(loaded, storage_reader=way.reader("one"), no_dist=True)
    assert equal(loaded["model"], newer["model"])


def a_file_for_each_tensor(way, rng):
    state = state_of(rng.getrandbits(30))
    dcp.save(state, storage_writer=way.writer("many", single_file_per_rank=False, thread_count=4), no_dist=True)
    assert len(keys(way, "many")) > 10, keys(way, "many")
    loaded = zeroed(state)
    dcp.load(loaded, storage_reader=way.reader("many"), no_dist=True)
    assert equal(loaded, state)


def in_parts(way, rng):
    torch.manual_seed(rng.getrandbits(30))
    state = {"large": torch.randn(30 * suite.MIB)}
    dcp.save(state, storage_writer=way.writer("large"), no_dist=True)
    [data] = keys(way, "large", ".distcp")
    assert bare.parts(data) >= 2, bare.parts(data)
    loaded = zeroed(state)
    dcp.load(loaded, storage_reader=way.reader("large"), no_dist=True)
    assert equal(loaded, state)


def sharded_by_several(way, rng):
    seed = rng.getrandbits(30)
    for task in (save_shards, load_otherwise):
        # Through a file: no port is needed by which they find each other.
        multiprocessing.spawn(ranked, args=(task, way, str(new_path()), seed), nprocs=RANKS)
    suite.same(len(keys(way, "sharded", ".distcp")), RANKS, "files, one for each rank")


def ranked(rank, task, way, meeting, seed):
    warnings.filterwarnings("ignore")
    dist.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=RANKS)
    torch.manual_seed(seed)
    task(way, torch.randn(1024, 512), init_device_mesh("cpu", (RANKS,)))
    dist.destroy_process_group()


def save_shards(way, whole, mesh):
    state = {"weights": distribute_tensor(whole, mesh, [Shard(0)]), "epoch": 3}
    dcp.async_save(state, storage_writer=way.writer("sharded")).result()


def load_otherwise(way, whole, mesh):
    for placement in (Shard(1), Replicate()):
        state = {"weights": distribute_tensor(torch.zeros_like(whole), mesh, [placement]), "epoch": 0}
        dcp.load(state, storage_reader=way.reader("sharded"))
        assert torch.equal(state["weights"].full_tensor(), whole) and state["epoch"] == 3


def plain_checkpoints(rng):
    """torch.save and torch.load over an open file."""
    state, path = state_of(rng.getrandbits(30)), f"s3://{bare.BUCKET}/plain.pt"
    with fsspec.open(path, "wb", **STORAGE) as file:
        torch.save(state, file)
    with fsspec.open(path, "rb", **STORAGE) as file:
        assert equal(torch.load(file, weights_only=True), state)


if __name__ == "__main__":
    tasks.main(*map(in_every_way, (save_and_load, a_file_for_each_tensor, in_parts, sharded_by_several)),
               plain_checkpoints)
