"""WebDataset: shards written and read through commands of pipes, and read by presigned URLs."""

import os
import sys
import tarfile
from pathlib import Path

import torch
import webdataset as wds

import bare
import suite
import tasks
from commands import new_path
from harness.sigv4 import Signer

SAMPLES = 600
SHARDS = "shards/made-{000000..000003}.tar"
# What takes the place of `aws s3 cp`: it streams between a key and its own pipe.
COPY = f"{sys.executable} -B {Path(__file__).resolve().parent}/copy_s3fs.py"
PIPE = f"pipe:{COPY} s3://{bare.BUCKET}/{SHARDS} -"
# The bytes of what was sent.
MADE = {}


def sample(rng, at):
    return {"__key__": f"sample-{at:05}", "bin": rng.randbytes(20_000), "cls": at % 10, "json": {"at": at}}


def sent(rng):
    where = f"pipe:{COPY} - s3://{bare.BUCKET}/shards/made-%06d.tar"
    with wds.ShardWriter(where, maxcount=SAMPLES // 4, verbose=0) as out:
        for at in range(SAMPLES):
            made = sample(rng, at)
            MADE[made["__key__"]] = made["bin"]
            out.write(made)
    suite.same(bare.keys("shards/"), [f"shards/made-{at:06}.tar" for at in range(4)], "shards")


def read(urls, **how):
    found = {}
    for each in wds.WebDataset(urls, shardshuffle=False, **how).decode():
        assert each["json"]["at"] % 10 == each["cls"]
        found[each["__key__"]] = each["bin"]
    return found


def read_through_pipes(_):
    assert read(PIPE) == MADE


def read_by_presigned_urls(_):
    signed = [Signer().presign("GET", f"/{bare.BUCKET}/{key}", os.environ["MARTLET_HOST"])
              for key in bare.keys("shards/")]
    assert read([f"pipe:curl -s -f '{os.environ['MARTLET_ENDPOINT']}{target}'" for target in signed]) == MADE


def kept_in_a_cache(_):
    cache = new_path()
    cache.mkdir()
    for _ in range(2):
        assert read(PIPE, cache_dir=str(cache)) == MADE


def several_workers(_):
    shards = wds.WebDataset(PIPE, shardshuffle=4, nodesplitter=wds.split_by_node)
    samples = shards.shuffle(50).decode().to_tuple("__key__", "bin")
    loader = torch.utils.data.DataLoader(samples, batch_size=None, num_workers=2)
    assert dict(loader) == MADE


def an_error_is_told(_):
    try:
        read(f"pipe:{COPY} s3://{bare.BUCKET}/none.tar -")
    except (OSError, tarfile.ReadError):
        return
    raise AssertionError("a shard that is not there was read")


if __name__ == "__main__":
    tasks.main(sent, read_through_pipes, read_by_presigned_urls, kept_in_a_cache, several_workers, an_error_is_told)
