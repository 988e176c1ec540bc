"""MosaicML's streaming: shards uploaded while they are written, and read by workers that fetch what they need."""

import os

# It knows a server other than AWS by this name.
os.environ["S3_ENDPOINT_URL"] = os.environ["MARTLET_ENDPOINT"]

import numpy as np  # noqa: E402
from streaming import JSONWriter, MDSWriter, Stream, StreamingDataLoader, StreamingDataset  # noqa: E402
from streaming.base.util import clean_stale_shared_memory  # noqa: E402

import bare  # noqa: E402
import suite  # noqa: E402
import tasks  # noqa: E402
from commands import new_path  # noqa: E402

SAMPLES = 2_000
COLUMNS = {"n": "int", "bytes": "bytes", "numbers": "ndarray:float32:16", "words": "str"}


def write(name, rng, **how):
    made, out = [], (str(new_path()), f"s3://{bare.BUCKET}/{name}")
    with MDSWriter(out=out, columns=COLUMNS, size_limit=1 << 20, **how) as out:
        for n in range(SAMPLES):
            made.append({"n": n, "bytes": rng.randbytes(2_000), "words": f"words {n}",
                         "numbers": np.full(16, rng.random(), np.float32)})
            out.write(made[-1])
    return made


def same(found, made):
    assert len(found) == len(made)
    for one, other in zip(sorted(found, key=lambda each: each["n"]), made):
        assert one["bytes"] == other["bytes"] and one["words"] == other["words"], other["n"]
        assert np.array_equal(one["numbers"], other["numbers"]), other["n"]


def shards(rng):
    made = write("plain", rng)
    assert "plain/index.json" in bare.keys("plain/") and len(bare.keys("plain/")) > 3, bare.keys("plain/")
    found = StreamingDataset(remote=f"s3://{bare.BUCKET}/plain", local=str(new_path()), batch_size=16)
    same([found[n] for n in range(SAMPLES)], made)


def compressed_and_hashed(rng):
    made = write("compressed", rng, compression="zstd:3", hashes=["sha1", "xxh64"])
    found = StreamingDataset(remote=f"s3://{bare.BUCKET}/compressed", local=str(new_path()), batch_size=16,
                             validate_hash="sha1")
    same([found[n] for n in range(SAMPLES)], made)


def shuffled_by_workers(rng):
    made = write("shuffled", rng)
    data = StreamingDataset(remote=f"s3://{bare.BUCKET}/shuffled", local=str(new_path()), batch_size=20, shuffle=True,
                            shuffle_seed=rng.getrandbits(20))
    order = []
    for batch in StreamingDataLoader(data, batch_size=20, num_workers=2):
        for n, words in zip(batch["n"].tolist(), batch["words"]):
            assert words == f"words {n}"
            order.append(n)
    assert sorted(set(order)) == list(range(len(made))) and order != sorted(order)


def two_streams(_):
    streams = [Stream(remote=f"s3://{bare.BUCKET}/{name}", local=str(new_path())) for name in ("plain", "shuffled")]
    found = StreamingDataset(streams=streams, batch_size=16)
    suite.same(len({found[n]["bytes"] for n in range(len(found))}), 2 * SAMPLES, "samples of two streams")


def json_lines(_):
    with JSONWriter(out=(str(new_path()), f"s3://{bare.BUCKET}/lines"), columns={"n": "int"}) as out:
        for n in range(100):
            out.write({"n": n})
    found = StreamingDataset(remote=f"s3://{bare.BUCKET}/lines", local=str(new_path()), batch_size=16)
    suite.same(sorted(found[n]["n"] for n in range(100)), list(range(100)), "lines")


if __name__ == "__main__":
    clean_stale_shared_memory()
    tasks.main(shards, compressed_and_hashed, shuffled_by_workers, two_streams, json_lines)
