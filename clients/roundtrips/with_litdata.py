"""LitData: a data set optimized into chunks in a bucket, appended to, and streamed by workers.

Its uploads refuse plain HTTP, so that the server speaks TLS to it.
"""

import os

import litdata
import numpy as np
from litdata import StreamingDataLoader, StreamingDataset

import bare
import suite
import tasks
from commands import new_path

STORAGE = {"endpoint_url": os.environ["MARTLET_ENDPOINT"], "aws_access_key_id": os.environ["AWS_ACCESS_KEY_ID"],
           "aws_secret_access_key": os.environ["AWS_SECRET_ACCESS_KEY"]}
WHERE = f"s3://{bare.BUCKET}/optimized"
SAMPLES = 400


def sample(n):
    return {"n": n, "numbers": np.arange(n, n + 3_000, dtype=np.int64), "words": f"words {n}"}


def check(each):
    n = int(each["n"])
    assert np.array_equal(np.asarray(each["numbers"]), np.arange(n, n + 3_000)) and each["words"] == f"words {n}", n
    return n


def optimized(inputs, **how):
    # Workers share one queue by default, and the faster one takes more samples.
    how = {"keep_data_ordered": True, **how}
    litdata.optimize(fn=sample, inputs=inputs, output_dir=WHERE, chunk_bytes="1MB", num_workers=2,
                     storage_options=STORAGE, verbose=False, **how)


def streamed(**how):
    return StreamingDataset(WHERE, storage_options=STORAGE, cache_dir=str(new_path()), **how)


def optimize(_):
    optimized(list(range(SAMPLES)))
    keys = bare.keys("optimized/")
    assert "optimized/index.json" in keys and len(keys) > 8, keys
    found = streamed()
    some = range(0, SAMPLES, 7)
    suite.same([check(found[at]) for at in some], list(some), "some samples")
    suite.same(sorted(map(check, streamed())), list(range(SAMPLES)), "samples")


def append(_):
    optimized(list(range(SAMPLES, SAMPLES + 50)), mode="append")
    suite.same(sorted(map(check, streamed())), list(range(SAMPLES + 50)), "samples after more were added")


def shuffled_by_workers(_):
    loader = StreamingDataLoader(streamed(shuffle=True), batch_size=10, num_workers=2)
    order = [int(n) for batch in loader for n in batch["n"]]
    suite.same(sorted(order), list(range(SAMPLES + 50)), "samples in any order")
    assert order != sorted(order)


def overwrite(_):
    optimized(list(range(30)), mode="overwrite")
    suite.same(sorted(map(check, streamed())), list(range(30)), "samples after all were replaced")


if __name__ == "__main__":
    tasks.main(optimize, append, shuffled_by_workers, overwrite)
