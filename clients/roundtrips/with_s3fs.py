"""s3fs, the file system that pandas, Dask and Hugging Face's datasets open s3:// with."""

import os
from concurrent.futures import ThreadPoolExecutor

import fsspec

import suite

BUCKET = os.environ["MARTLET_BUCKET"]


class S3fs:
    def __init__(self):
        self.fs = fsspec.filesystem("s3", endpoint_url=os.environ["MARTLET_ENDPOINT"],
                                    default_cache_type="none", use_listings_cache=False)

    # A trailing slash is a folder, which a file system doesn't write.
    impossible_keys = ("folder/",)

    def make_bucket(self):
        self.fs.mkdir(BUCKET)

    def put(self, key, data):
        self.fs.pipe_file(f"{BUCKET}/{key}", data)

    def get(self, key):
        return self.fs.cat_file(f"{BUCKET}/{key}")

    def put_parts(self, key, data):
        with self.fs.open(f"{BUCKET}/{key}", "wb", block_size=8 * suite.MIB) as file:
            for at in range(0, len(data), 1_000_003):
                file.write(data[at:at + 1_000_003])
        assert self.fs.info(f"{BUCKET}/{key}")["ETag"].endswith('-3"')

    def get_range(self, key, first, last):
        with self.fs.open(f"{BUCKET}/{key}", "rb") as file:
            file.seek(first)
            return file.read(last - first + 1)

    def put_many(self, objects):
        self.fs.pipe({f"{BUCKET}/{key}": data for key, data in objects.items()})

    def keys(self, prefix):
        found = self.fs.find(BUCKET, prefix=prefix)
        return [path.removeprefix(BUCKET + "/") for path in found]

    def delete(self, key):
        self.fs.rm_file(f"{BUCKET}/{key}")

    def delete_many(self, keys):
        self.fs.rm([f"{BUCKET}/{key}" for key in keys])

    def more(self, rng):
        for name in ("a", "b"):
            self.put(f"more/{name}.bin", rng.randbytes(10))
        suite.same(self.fs.glob(f"{BUCKET}/more/*.bin"),
                   [f"{BUCKET}/more/a.bin", f"{BUCKET}/more/b.bin"], "a glob")
        self.fs.mv(f"{BUCKET}/more/a.bin", f"{BUCKET}/more/c.bin")
        assert not self.fs.exists(f"{BUCKET}/more/a.bin") and self.fs.exists(f"{BUCKET}/more/c.bin")
        assert self.fs.isdir(f"{BUCKET}/more") and not self.fs.exists(f"{BUCKET}/none")
        with ThreadPoolExecutor(8) as pool:
            sizes = list(pool.map(lambda _: len(self.get("small/100000")), range(32)))
        suite.same(sizes, [100_000] * 32, "sizes read by many threads")

    def remove_bucket(self):
        self.fs.rmdir(BUCKET)


suite.main(S3fs())
