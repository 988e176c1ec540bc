"""delta-rs and Polars: tables that several commit to at once, without losing a commit."""

import json
import os
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import polars as pl
import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, write_deltalake
from deltalake.exceptions import DeltaError

import bare
import suite
import tasks

WRITERS = 8
COMMITS = 6
# Who loses to seven others may lose more than fifteen times, after which it would give up.
PATIENT = CommitProperties(max_commit_retries=500)
TABLE = f"s3://{bare.BUCKET}/table"
RACE = f"s3://{bare.BUCKET}/race"
# No lock table beside it: a commit is a put that must make its object.
DELTA = {"AWS_ENDPOINT_URL": os.environ["MARTLET_ENDPOINT"], "AWS_REGION": os.environ["AWS_REGION"],
         "AWS_ALLOW_HTTP": "true", "AWS_VIRTUAL_HOSTED_STYLE_REQUEST": "false", "conditional_put": "etag"}
POLARS = {"aws_endpoint_url": os.environ["MARTLET_ENDPOINT"], "aws_region": os.environ["AWS_REGION"],
          "aws_allow_http": "true", "aws_virtual_hosted_style_request": "false"}


def table(_):
    first = pa.table({"n": range(1000), "word": [f"word {n % 10}" for n in range(1000)]})
    write_deltalake(TABLE, first, partition_by=["word"], storage_options=DELTA)
    write_deltalake(TABLE, pa.table({"n": [1000], "word": ["word 0"]}), mode="append", storage_options=DELTA)
    found = DeltaTable(TABLE, storage_options=DELTA)
    suite.same(found.version(), 1, "the version")
    rows = found.to_pyarrow_table(columns=["n"]).column("n").to_pylist()
    suite.same(sorted(rows), list(range(1001)), "rows")
    few = found.to_pyarrow_table(filters=[("word", "=", "word 3")])
    suite.same(len(few), 100, "rows of a partition")


def changes(_):
    found = DeltaTable(TABLE, storage_options=DELTA)
    found.delete("n >= 900 AND n < 1000")
    found.update(predicate="n = 1000", updates={"n": "5000"})
    source = pa.table({"n": [0, 7000], "word": ["word 0", "word 1"]})
    (found.merge(source, "target.n = source.n AND target.word = source.word", "source", "target")
     .when_not_matched_insert_all().when_matched_delete().execute())
    expected = [*range(1, 900), 5000, 7000]
    suite.same(sorted(found.to_pyarrow_table().column("n").to_pylist()), expected, "rows after changes")
    found.optimize.compact()
    before = len(bare.keys("table/"))
    found.vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False)
    assert len(bare.keys("table/")) < before
    found.create_checkpoint()
    again = DeltaTable(TABLE, storage_options=DELTA)
    suite.same(sorted(again.to_pyarrow_table().column("n").to_pylist()), expected, "rows after a vacuum")
    old = DeltaTable(TABLE, version=again.version(), storage_options=DELTA)
    suite.same(len(old.to_pyarrow_table()), len(expected), "rows of a version")


def commit_many(writer):
    for number in range(COMMITS):
        rows = pa.table({"writer": [writer], "number": [number]})
        write_deltalake(RACE, rows, mode="append", storage_options=DELTA, commit_properties=PATIENT)


def commits_at_once(_):
    write_deltalake(RACE, pa.table({"writer": [-1], "number": [-1]}), storage_options=DELTA)
    with ProcessPoolExecutor(WRITERS, mp_context=get_context("spawn")) as pool:
        list(pool.map(commit_many, range(WRITERS)))
    found = DeltaTable(RACE, storage_options=DELTA)
    suite.same(found.version(), WRITERS * COMMITS, "the version after commits at once")
    rows = found.to_pyarrow_table().to_pylist()
    committed = sorted((row["writer"], row["number"]) for row in rows)
    wanted = sorted([(-1, -1)] + [(writer, number) for writer in range(WRITERS) for number in range(COMMITS)])
    suite.same(committed, wanted, "what was committed")
    # Each version is one object of the log, with the one file that its commit added.
    logs = [key for key in bare.keys("race/_delta_log/") if key.endswith(".json")]
    suite.same(len(logs), WRITERS * COMMITS + 1, "objects of the log")
    added = [line["add"]["path"] for key in logs for line in lines(key) if "add" in line]
    suite.same(len(set(added)), WRITERS * COMMITS + 1, "files in the log")


def lines(log):
    return [json.loads(line) for line in bare.get(log).splitlines()]


def tables_made_at_once(_):
    """Whoever finds the place taken commits after it, or is told: nobody's words are overwritten."""
    with ProcessPoolExecutor(4, mp_context=get_context("spawn")) as pool:
        made = [name for name in pool.map(make, range(4)) if name]
    logs = bare.keys("race-made/_delta_log/")
    names = [line["metaData"]["name"] for key in logs for line in lines(key) if "metaData" in line]
    suite.same(sorted(names), sorted(made), "tables in the log")
    suite.same(DeltaTable(f"{RACE}-made", storage_options=DELTA).version(), len(made) - 1, "the version")


def make(at):
    name = f"made by {at}"
    try:
        DeltaTable.create(f"{RACE}-made", schema=pa.schema([("n", pa.int64())]), name=name, mode="error",
                          storage_options=DELTA)
    except DeltaError as error:
        # Found before the commit, or by it.
        assert any(words in str(error) for words in ("already exists", "since last commit")), str(error)
        return None
    return name


def polars_on_delta(_):
    frame = pl.DataFrame({"writer": [100], "number": [100]})
    frame.write_delta(RACE, mode="append", storage_options=DELTA)
    lazy = pl.scan_delta(RACE, storage_options=POLARS)
    suite.same(lazy.select(pl.len()).collect().item(), WRITERS * COMMITS + 2, "rows")
    most = lazy.filter(pl.col("writer") == 3).select(pl.col("number").sum()).collect().item()
    suite.same(most, sum(range(COMMITS)), "a sum")


def polars_alone(rng):
    frame = pl.DataFrame({"n": range(300_000), "x": [rng.random() for _ in range(300_000)]})
    where = f"s3://{bare.BUCKET}/polars"
    frame.write_parquet(f"{where}/one.parquet", storage_options=POLARS, row_group_size=20_000)
    frame.lazy().sink_parquet(f"{where}/two.parquet", storage_options=POLARS)
    frame.lazy().sink_csv(f"{where}/three.csv", storage_options=POLARS)
    assert pl.read_parquet(f"{where}/one.parquet", storage_options=POLARS).equals(frame)
    assert pl.scan_csv(f"{where}/three.csv", storage_options=POLARS).collect().equals(frame)
    both = pl.scan_parquet(f"{where}/*.parquet", storage_options=POLARS)
    suite.same(both.filter(pl.col("n") >= 299_990).select(pl.len()).collect().item(), 20, "rows of two files")


if __name__ == "__main__":
    tasks.main(table, changes, commits_at_once, tables_made_at_once, polars_on_delta, polars_alone)
