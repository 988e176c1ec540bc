"""obstore: Rust's object_store crate, which LanceDB, delta-rs and Polars use too."""

import os
from concurrent.futures import ThreadPoolExecutor

import obstore
from obstore.exceptions import AlreadyExistsError, PreconditionError
from obstore.store import S3Store

import bare
import suite


class Obstore:
    # Its paths have no empty parts, and none of one or two dots.
    impossible_keys = ("folder/", "a/../b", "./dot", "../up", "double//slash")

    def __init__(self):
        self.store = S3Store(os.environ["MARTLET_BUCKET"], endpoint=os.environ["MARTLET_ENDPOINT"],
                             region=os.environ["AWS_REGION"], virtual_hosted_style_request=False,
                             client_options={"allow_http": True})

    def make_bucket(self):
        bare.make_bucket()

    def put(self, key, data):
        obstore.put(self.store, key, data)

    def get(self, key):
        return bytes(obstore.get(self.store, key).bytes())

    def put_parts(self, key, data):
        obstore.put(self.store, key, data, use_multipart=True, chunk_size=8 * suite.MIB)
        assert obstore.head(self.store, key)["e_tag"].endswith('-4"')

    def get_range(self, key, first, last):
        return bytes(obstore.get_range(self.store, key, start=first, end=last + 1))

    def put_many(self, objects):
        with ThreadPoolExecutor(16) as pool:
            list(pool.map(lambda item: self.put(*item), objects.items()))

    def keys(self, prefix):
        return [meta["path"] for page in obstore.list(self.store) for meta in page
                if meta["path"].startswith(prefix)]

    def delete(self, key):
        obstore.delete(self.store, key)

    def delete_many(self, keys):
        obstore.delete(self.store, keys)

    def more(self, rng):
        self.conditions()
        data = rng.randbytes(100_000)
        self.put("more", data)
        starts = list(range(0, 100_000, 10_000))
        pieces = obstore.get_ranges(self.store, "more", starts=starts, lengths=[100] * len(starts))
        suite.same([bytes(piece) for piece in pieces], [data[at:at + 100] for at in starts], "ranges")
        obstore.copy(self.store, "more", "copied")
        obstore.rename(self.store, "copied", "renamed")
        suite.same(self.get("renamed"), data, "what was copied and renamed")
        prefixes = obstore.list_with_delimiter(self.store)["common_prefixes"]
        assert "many" in prefixes, prefixes

    def conditions(self):
        obstore.put(self.store, "once", b"1", mode="create")
        try:
            obstore.put(self.store, "once", b"2", mode="create")
            raise AssertionError("an object was made twice")
        except AlreadyExistsError:
            pass
        seen = obstore.head(self.store, "once")
        obstore.put(self.store, "once", b"3", mode={"e_tag": seen["e_tag"]})
        try:
            obstore.put(self.store, "once", b"4", mode={"e_tag": seen["e_tag"]})
            raise AssertionError("an object was replaced on an old ETag")
        except PreconditionError:
            pass
        suite.same(self.get("once"), b"3", "the object under conditions")

    def remove_bucket(self):
        bare.remove_bucket()


suite.main(Obstore())
