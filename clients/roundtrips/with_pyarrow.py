"""pyarrow: its own S3 file system, over the AWS SDK for C++, and a Parquet data set on it."""

import os
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
from pyarrow import fs

import suite

BUCKET = os.environ["MARTLET_BUCKET"]


class PyArrow:
    # A trailing slash is a folder, an empty name no path; and the HTTP library below it resolves
    # names of one or two dots after they were signed.
    impossible_keys = ("folder/", "double//slash", "a/../b", "./dot", "../up")

    def __init__(self):
        self.fs = fs.S3FileSystem(
            access_key=os.environ["AWS_ACCESS_KEY_ID"], secret_key=os.environ["AWS_SECRET_ACCESS_KEY"],
            region=os.environ["AWS_REGION"], endpoint_override=os.environ["MARTLET_HOST"], scheme="http",
            allow_bucket_creation=True, allow_bucket_deletion=True)

    def make_bucket(self):
        self.fs.create_dir(BUCKET)

    def put(self, key, data):
        with self.fs.open_output_stream(f"{BUCKET}/{key}", compression=None) as out:
            out.write(data)

    def get(self, key):
        with self.fs.open_input_stream(f"{BUCKET}/{key}", compression=None) as stream:
            return stream.read()

    def put_parts(self, key, data):
        with self.fs.open_output_stream(f"{BUCKET}/{key}", compression=None) as out:
            for at in range(0, len(data), 8 * suite.MIB):
                out.write(data[at:at + 8 * suite.MIB])

    def get_range(self, key, first, last):
        with self.fs.open_input_file(f"{BUCKET}/{key}") as file:
            return file.read_at(last - first + 1, first)

    def put_many(self, objects):
        with ThreadPoolExecutor(16) as pool:
            list(pool.map(lambda item: self.put(*item), objects.items()))

    def keys(self, prefix):
        listed = self.fs.get_file_info(fs.FileSelector(BUCKET, recursive=True))
        paths = [info.path.removeprefix(BUCKET + "/") for info in listed if info.is_file]
        return [path for path in paths if path.startswith(prefix)]

    def delete(self, key):
        self.fs.delete_file(f"{BUCKET}/{key}")

    def empty(self):
        self.fs.delete_dir_contents(BUCKET)

    def more(self, rng):
        rows = 200_000
        table = pa.table({"n": range(rows), "x": [rng.random() for _ in range(rows)]})
        pq.write_table(table, f"{BUCKET}/more/part-0.parquet", filesystem=self.fs, row_group_size=20_000)
        data = ds.dataset(f"{BUCKET}/more", filesystem=self.fs, format="parquet")
        few = data.to_table(filter=ds.field("n") >= rows - 5)
        suite.same(few.column("n").to_pylist(), list(range(rows - 5, rows)), "filtered rows")
        self.fs.move(f"{BUCKET}/more/part-0.parquet", f"{BUCKET}/more/part-1.parquet")
        suite.same(pq.read_table(f"{BUCKET}/more/part-1.parquet", filesystem=self.fs), table, "a table")

    def remove_bucket(self):
        self.fs.delete_dir(BUCKET)


suite.main(PyArrow())
