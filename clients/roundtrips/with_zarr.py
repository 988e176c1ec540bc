"""Zarr 3: arrays and groups through s3fs and through obstore, in shards, written by several at once."""

import os
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import zarr
from obstore.store import S3Store
from zarr.core.sync import sync
from zarr.storage import FsspecStore, ObjectStore

import bare
import suite
import tasks


def through_s3fs(name):
    return FsspecStore.from_url(f"s3://{bare.BUCKET}/{name}", storage_options={
        "endpoint_url": os.environ["MARTLET_ENDPOINT"], "use_listings_cache": False})


def through_obstore(name):
    return ObjectStore(S3Store(bare.BUCKET, prefix=name, endpoint=os.environ["MARTLET_ENDPOINT"],
                               region=os.environ["AWS_REGION"], virtual_hosted_style_request=False,
                               client_options={"allow_http": True}))


STORES = {"s3fs": through_s3fs, "obstore": through_obstore}


def numbers_of(rng, *shape):
    return np.random.default_rng(rng.getrandbits(32)).integers(0, 1 << 30, shape, dtype=np.int32)


def arrays(rng):
    for name, store in STORES.items():
        numbers = numbers_of(rng, 500, 700)
        # Bands of whole chunks, each written by a thread of its own.
        made = zarr.create_array(store(f"{name}/array"), shape=numbers.shape, chunks=(50, 50), dtype=numbers.dtype)
        with ThreadPoolExecutor(5) as pool:
            list(pool.map(lambda at: made.__setitem__(slice(at, at + 100), numbers[at:at + 100]), range(0, 500, 100)))
        suite.same(len(bare.keys(f"{name}/array/c/")), 140, "chunks")
        again = zarr.open_array(store(f"{name}/array"), mode="r")
        assert np.array_equal(again[:], numbers), name
        assert np.array_equal(again[123:321, 7], numbers[123:321, 7]), name


def shards(rng):
    for name, store in STORES.items():
        numbers = numbers_of(rng, 4_000, 1_000)
        made = zarr.create_array(store(f"{name}/sharded"), shape=numbers.shape, chunks=(100, 100),
                                 shards=(2_000, 1_000), dtype=numbers.dtype, compressors=None)
        made[:] = numbers
        suite.same(len(bare.keys(f"{name}/sharded/c/")), 2, "shards")
        # A few chunks are read out of each shard, by ranges from its end and from its middle.
        again = zarr.open_array(store(f"{name}/sharded"), mode="r")
        assert np.array_equal(again[1_950:2_050, 333:444], numbers[1_950:2_050, 333:444]), name
        assert np.array_equal(again[:], numbers), name


def groups(rng):
    for name, store in STORES.items():
        root = zarr.create_group(store(f"{name}/group"), attributes={"made": "by hand", "n": 3})
        for below in ("a", "b", "b/c"):
            root.create_array(f"{below}/x", data=numbers_of(rng, 10, 10), chunks=(5, 5))
        zarr.consolidate_metadata(store(f"{name}/group"))
        again = zarr.open_group(store(f"{name}/group"), mode="r")
        suite.same(dict(again.attrs), {"made": "by hand", "n": 3}, "attributes")
        suite.same(sorted(again.group_keys()), ["a", "b"], "groups")
        assert np.array_equal(again["b/c/x"][:], root["b/c/x"][:]), name


def one_store_reads_what_the_other_wrote(_):
    ours, theirs = zarr.open_array(through_s3fs("obstore/array")), zarr.open_array(through_obstore("obstore/array"))
    assert np.array_equal(ours[:], theirs[:])
    ours[0, 0], before = 77, theirs[1, 1]
    suite.same((int(theirs[0, 0]), theirs[1, 1]), (77, before), "what was changed")


def removal(_):
    for name, store in STORES.items():
        group = zarr.open_group(store(f"{name}/group"), mode="a", use_consolidated=False)
        del group["b"]
        suite.same(bare.keys(f"{name}/group/b/"), [], "keys of a group that was removed")
        sync(store(f"{name}/array").delete_dir(""))
        suite.same(bare.keys(f"{name}/array/"), [], "keys of an array that was removed")


tasks.main(arrays, shards, groups, one_store_reads_what_the_other_wrote, removal)
