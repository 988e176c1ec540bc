"""Hugging Face's datasets, which read and write s3:// through fsspec."""

import os

import datasets
from datasets import Dataset, DatasetDict, Features, Value, load_dataset, load_from_disk

import bare
import suite
import tasks

ROOT = f"s3://{bare.BUCKET}"
STORAGE = {"key": os.environ["AWS_ACCESS_KEY_ID"], "secret": os.environ["AWS_SECRET_ACCESS_KEY"],
           "client_kwargs": {"endpoint_url": os.environ["MARTLET_ENDPOINT"], "region_name": os.environ["AWS_REGION"]}}
ROWS = 5_000

datasets.disable_progress_bars()


def made(rng):
    rows = [{"n": n, "words": f"words {n}", "bytes": rng.randbytes(2_000)} for n in range(ROWS)]
    return Dataset.from_list(rows, features=Features({"n": Value("int64"), "words": Value("string"),
                                                      "bytes": Value("binary")}))


def save_and_load(rng):
    one = made(rng)
    one.save_to_disk(f"{ROOT}/saved", storage_options=STORAGE, num_shards=4)
    suite.same(len([key for key in bare.keys("saved/") if key.endswith(".arrow")]), 4, "shards")
    found = load_from_disk(f"{ROOT}/saved", storage_options=STORAGE)
    suite.same(found.to_list(), one.to_list(), "what was saved and loaded")
    both = DatasetDict({"train": one, "test": one.select(range(10))})
    both.save_to_disk(f"{ROOT}/both", storage_options=STORAGE)
    again = load_from_disk(f"{ROOT}/both", storage_options=STORAGE)
    suite.same({name: len(split) for name, split in again.items()}, {"train": ROWS, "test": 10}, "splits")


def saved_by_several(rng):
    one = made(rng)
    one.save_to_disk(f"{ROOT}/several", storage_options=STORAGE, num_shards=4, num_proc=2)
    suite.same(load_from_disk(f"{ROOT}/several", storage_options=STORAGE).to_list(), one.to_list(), "what two saved")


def files(rng):
    one = made(rng)
    for at in range(2):
        part = one.shard(2, at, contiguous=True)
        part.to_parquet(f"{ROOT}/files/part-{at}.parquet", storage_options=STORAGE)
        part.remove_columns("bytes").to_json(f"{ROOT}/files/part-{at}.jsonl", storage_options=STORAGE)
        part.remove_columns("bytes").to_csv(f"{ROOT}/files/part-{at}.csv", storage_options=STORAGE)
    parquet = load_dataset("parquet", data_files=f"{ROOT}/files/*.parquet", storage_options=STORAGE, split="train")
    suite.same(parquet.to_list(), one.to_list(), "rows of parquet")
    for kind, ending in (("json", "jsonl"), ("csv", "csv")):
        found = load_dataset(kind, data_files=f"{ROOT}/files/*.{ending}", storage_options=STORAGE, split="train")
        suite.same(found["words"][:], one["words"][:], f"rows of {kind}")


def streaming(_):
    streamed = load_dataset("parquet", data_files={"train": f"{ROOT}/files/*.parquet"}, storage_options=STORAGE,
                            split="train", streaming=True)
    suite.same([row["n"] for row in streamed], list(range(ROWS)), "rows of a stream")
    later = streamed.skip(ROWS - 100).take(3)
    suite.same([row["n"] for row in later], [ROWS - 100, ROWS - 99, ROWS - 98], "rows in the middle of a stream")


if __name__ == "__main__":
    tasks.main(save_and_load, saved_by_several, files, streaming)
