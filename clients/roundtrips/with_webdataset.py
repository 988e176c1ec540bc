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


def sample(rng, at):
    return {"__key__": f"sample-{at:05}", "bin": rng.randbytes(20_000), "cls": at % 10, "json": {"at": at}}


def sent(rng):
    made = {}
    with wds.ShardWriter(f"pipe:{COPY} - s3://{bare.BUCKET}/shards/made-%06d.tar", maxcount=SAMPLES // 4, verbose=0) as out:
        for at in range(SAMPLES):
            made[at] = sample(rng, at)
            out.write(made[at])
    suite.same(bare.keys("shards/"), [f"shards/made-{at:06}.tar" for at in range(4)], "shards")
    MADE.update({made[at]["__key__"]: made[at]["bin"] for at in made})


MADE = {}


def read(urls, **how):
    found = {}
    for each in wds.WebDataset(urls, shardshuffle=False, **how).decode():
        assert each["json"]["at"] % 10 == each["cls"]
        found[each["__key__"]] = each["bin"]
    return found


def read_through_pipes(_):
    assert read(f"pipe:{COPY} s3://{bare.BUCKET}/{SHARDS} -") == MADE


def read_by_presigned_urls(_):
    urls = ["pipe:curl -s -f '" + os.environ["MARTLET_ENDPOINT"]
            + Signer().presign("GET", f"/{bare.BUCKET}/{key}", os.environ["MARTLET_HOST"]) + "'" for key in bare.keys("shards/")]
    assert read(urls) == MADE


def kept_in_a_cache(_):
    cache = new_path()
    cache.mkdir()
    urls = f"pipe:{COPY} s3://{bare.BUCKET}/{SHARDS} -"
    for _ in range(2):
        assert read(urls, cache_dir=str(cache)) == MADE


def several_workers(_):
    pipe = f"pipe:{COPY} s3://{bare.BUCKET}/{SHARDS} -"
    shards = wds.WebDataset(pipe, shardshuffle=4, nodesplitter=wds.split_by_node).shuffle(50).decode().to_tuple("__key__", "bin")
    loader = torch.utils.data.DataLoader(shards, batch_size=None, num_workers=2)
    assert dict(loader) == MADE


def an_error_is_told(_):
    try:
        read(f"pipe:{COPY} s3://{bare.BUCKET}/none.tar -")
    except (OSError, tarfile.ReadError):
        return
    raise AssertionError("a shard that is not there was read")


if __name__ == "__main__":
    tasks.main(sent, read_through_pipes, read_by_presigned_urls, kept_in_a_cache, several_workers, an_error_is_told)
