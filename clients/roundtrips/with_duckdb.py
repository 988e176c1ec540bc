"""DuckDB, whose httpfs reads and writes s3:// in SQL."""

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import duckdb
import duckdb_extension_httpfs

import bare
import suite
import tasks

ROOT = f"s3://{bare.BUCKET}"
ROWS = 200_000


def connect():
    """A connection that knows the server. The extension comes with a package, not over the network."""
    folder = Path(duckdb_extension_httpfs.__path__[0])
    [extension] = folder.rglob("httpfs.duckdb_extension")
    found = duckdb.connect()
    found.execute("SET autoinstall_known_extensions = false")
    found.execute(f"LOAD '{extension}'")
    found.execute(f"""CREATE SECRET (TYPE s3, KEY_ID '{os.environ["AWS_ACCESS_KEY_ID"]}',
        SECRET '{os.environ["AWS_SECRET_ACCESS_KEY"]}', REGION '{os.environ["AWS_REGION"]}',
        ENDPOINT '{os.environ["MARTLET_HOST"]}', URL_STYLE 'path', USE_SSL false)""")
    return found


DB = connect()


def one(query):
    return DB.execute(query).fetchone()


def parquet(rng):
    DB.execute(f"CREATE TABLE made AS SELECT n, hash(n + {rng.getrandbits(30)}) AS h, 'word ' || n % 10 AS word "
               f"FROM range({ROWS}) AS t(n)")
    DB.execute(f"COPY made TO '{ROOT}/one.parquet' (FORMAT parquet, ROW_GROUP_SIZE 20000)")
    expected = one("SELECT count(*), bit_xor(h), sum(n) FROM made")
    suite.same(one(f"SELECT count(*), bit_xor(h), sum(n) FROM '{ROOT}/one.parquet'"), expected, "a table")
    # A few row groups and one column are read by ranges.
    suite.same(one(f"SELECT count(*), min(n) FROM '{ROOT}/one.parquet' WHERE n >= {ROWS - 7}"), (7, ROWS - 7), "rows")
    suite.same(one(f"SELECT num_rows FROM parquet_file_metadata('{ROOT}/one.parquet')"), (ROWS,), "rows by the footer")


def csv_and_json(_):
    for name, how in (("one.csv", "FORMAT csv"), ("one.csv.gz", "FORMAT csv, COMPRESSION gzip"),
                      ("one.json", "FORMAT json")):
        DB.execute(f"COPY made TO '{ROOT}/{name}' ({how})")
        suite.same(one(f"SELECT count(*), sum(n) FROM '{ROOT}/{name}'"), one("SELECT count(*), sum(n) FROM made"), name)


def partitions(_):
    DB.execute(f"COPY made TO '{ROOT}/by-word' (FORMAT parquet, PARTITION_BY (word))")
    assert len(bare.keys("by-word/")) >= 10, bare.keys("by-word/")
    found = DB.execute(f"""SELECT word, count(*) FROM read_parquet('{ROOT}/by-word/*/*.parquet', hive_partitioning = true)
                       GROUP BY word ORDER BY word""").fetchall()
    suite.same(found, [(f"word {n}", ROWS // 10) for n in range(10)], "rows of partitions")
    few = one(f"SELECT count(*) FROM read_parquet('{ROOT}/by-word/**', hive_partitioning = true) WHERE word = 'word 3'")
    suite.same(few, (ROWS // 10,), "rows of one partition")
    suite.same(one(f"SELECT count(*) FROM glob('{ROOT}/by-word/*/*')")[0], len(bare.keys("by-word/")), "a glob")


def parts(rng):
    """More than one part, which it sends while it writes."""
    DB.execute("SET s3_uploader_max_filesize = '50GB'")
    DB.execute(f"COPY (SELECT hash(n + {rng.getrandbits(30)}) AS h, hash(-n) AS g FROM range(4000000) AS t(n)) "
               f"TO '{ROOT}/large.parquet' (FORMAT parquet, COMPRESSION uncompressed)")
    assert bare.parts("large.parquet") >= 2, bare.parts("large.parquet")
    suite.same(one(f"SELECT count(*), bit_xor(g) FROM '{ROOT}/large.parquet'"),
               one("SELECT count(*), bit_xor(hash(-n)) FROM range(4000000) AS t(n)"), "a large table")


def several_at_once(_):
    def count(at):
        return DB.cursor().execute(f"SELECT count(*) FROM '{ROOT}/one.parquet' WHERE n % 8 = {at}").fetchone()[0]

    with ThreadPoolExecutor(8) as pool:
        suite.same(sum(pool.map(count, range(8))), ROWS, "rows read by several")


def a_database_in_a_bucket(_):
    path = Path(os.environ["TMPDIR"]) / "made.duckdb"
    DB.execute(f"ATTACH '{path}' AS local; CREATE TABLE local.kept AS FROM made; DETACH local")
    bare.put("made.duckdb", path.read_bytes())
    DB.execute(f"ATTACH '{ROOT}/made.duckdb' AS remote (READ_ONLY)")
    suite.same(one("SELECT count(*) FROM remote.kept"), (ROWS,), "rows of a database")


def errors(_):
    for query in (f"SELECT * FROM '{ROOT}/none.parquet'", "SELECT * FROM 's3://no-such-bucket-here/x.parquet'"):
        try:
            DB.execute(query).fetchall()
        except duckdb.Error:
            continue
        raise AssertionError(f"{query} found something")


tasks.main(parquet, csv_and_json, partitions, parts, several_at_once, a_database_in_a_bucket, errors)
