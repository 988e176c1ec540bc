"""TensorStore: its key-value store, and arrays on it that several write at once."""

import os
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import tensorstore as ts

import bare
import suite

STORE = {"driver": "s3", "bucket": bare.BUCKET, "endpoint": os.environ["MARTLET_ENDPOINT"],
         "aws_region": os.environ["AWS_REGION"], "aws_credentials": {"type": "environment"}}


class TensorStore:
    # Its HTTP library resolves these after they were signed.
    impossible_keys = ("a/../b", "./dot", "../up")
    without = {"parts": "it writes every value at once"}

    def __init__(self):
        self.store = ts.KvStore.open(STORE).result()

    def make_bucket(self):
        bare.make_bucket()

    def put(self, key, data):
        self.store.write(key, data).result()

    def get(self, key):
        return self.store.read(key).result().value

    def get_range(self, key, first, last):
        return self.store.read(key, byte_range=slice(first, last + 1)).result().value

    def put_many(self, objects):
        for future in [self.store.write(key, data) for key, data in objects.items()]:
            future.result()

    def keys(self, prefix):
        # A range of keys, whose end is the prefix with its last byte, which is a slash, counted up.
        keys = ts.KvStore.KeyRange(prefix, prefix[:-1] + "0") if prefix else None
        return [key.decode() for key in self.store.list(keys).result()]

    def delete(self, key):
        self.store.write(key, None).result()

    def empty(self):
        self.store.delete_range(ts.KvStore.KeyRange()).result()

    def more(self, rng):
        self.conditions()
        for driver in ("zarr3", "zarr", "n5"):
            self.array(driver, rng)

    def conditions(self):
        none = self.store.read("once").result().stamp.generation
        first = self.store.write("once", b"1", if_equal=none).result()
        again = self.store.write("once", b"x", if_equal=none).result()
        assert again.generation != first.generation, again
        second = self.store.write("once", b"2", if_equal=first.generation).result()
        late = self.store.write("once", b"3", if_equal=first.generation).result()
        assert late.generation != second.generation, late
        suite.same(self.get("once"), b"2", "the object under conditions")
        self.store.write("once", None, if_equal=first.generation).result()
        suite.same(self.get("once"), b"2", "the object after a removal on a condition")

    def array(self, driver, rng):
        spec = {"driver": driver, "kvstore": {**STORE, "path": f"array-{driver}/"}}
        numbers = np.random.default_rng(rng.getrandbits(32)).integers(0, 60_000, (600, 700), dtype=np.uint16)
        made = ts.open(spec, create=True, delete_existing=True, dtype=ts.uint16, shape=numbers.shape,
                       chunk_layout=ts.ChunkLayout(chunk_shape=[64, 64])).result()
        # Bands that cut chunks in two: what two writers change in one chunk must both be there.
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(lambda at: made[at:at + 75].write(numbers[at:at + 75]).result(), range(0, 600, 75)))
        again = ts.open(spec, context=ts.Context()).result()
        assert np.array_equal(again.read().result(), numbers), driver
        assert np.array_equal(again[100:300, 5:6].read().result(), numbers[100:300, 5:6]), driver

    def remove_bucket(self):
        bare.remove_bucket()


suite.main(TensorStore())
