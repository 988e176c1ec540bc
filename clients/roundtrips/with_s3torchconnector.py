"""s3torchconnector: data sets, and checkpoints of torch.distributed.checkpoint."""

import os
import warnings
from concurrent.futures import ThreadPoolExecutor

import torch
import torch.distributed.checkpoint as dcp
from s3torchconnector import S3Checkpoint, S3ClientConfig, S3IterableDataset, S3MapDataset
from s3torchconnector._s3client import S3Client
from s3torchconnector.dcp import S3StorageReader, S3StorageWriter

import bare
import suite

BUCKET = os.environ["MARTLET_BUCKET"]
REGION = os.environ["AWS_REGION"]
HOW = {
    "endpoint": os.environ["MARTLET_ENDPOINT"],
    "s3client_config": S3ClientConfig(force_path_style=True, part_size=8 * suite.MIB),
}

# One process without peers is all that is wanted here.
warnings.filterwarnings("ignore")


class TorchConnector:
    # Its client normalizes these before it signs them.
    impossible_keys = ()

    def __init__(self):
        self.s3 = S3Client(REGION, **HOW)

    def make_bucket(self):
        bare.make_bucket()

    def put(self, key, data):
        with self.s3.put_object(BUCKET, key) as writer:
            writer.write(data)

    def get(self, key):
        return self.s3.get_object(BUCKET, key).read()

    # Everything above one part's size goes in parts.
    put_parts = put

    def get_range(self, key, first, last):
        reader = self.s3.get_object(BUCKET, key)
        reader.seek(first)
        return reader.read(last - first + 1)

    def put_many(self, objects):
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(lambda item: self.put(*item), objects.items()))

    def keys(self, prefix):
        return [info.key for page in self.s3.list_objects(BUCKET, prefix) for info in page.object_info]

    def delete(self, key):
        self.s3.delete_object(BUCKET, key)

    def empty(self):
        for key in self.keys(""):
            self.delete(key)

    def more(self, _):
        self.data_sets()
        self.checkpoint()
        self.distributed_checkpoint()

    def data_sets(self):
        root = f"s3://{BUCKET}/many/"
        body = lambda reader: reader.read()
        mapped = S3MapDataset.from_prefix(root, region=REGION, transform=body, **HOW)
        suite.same((len(mapped), mapped[77]), (suite.MANY, b"77"), "a map-style data set")
        streamed = S3IterableDataset.from_prefix(root, region=REGION, transform=body, **HOW)
        suite.same(sorted(map(int, streamed)), list(range(suite.MANY)), "an iterable data set")

    def checkpoint(self):
        tensor = torch.randn(1000, 1000)
        checkpoint = S3Checkpoint(region=REGION, **HOW)
        with checkpoint.writer(f"s3://{BUCKET}/one.pt") as writer:
            torch.save(tensor, writer)
        with checkpoint.reader(f"s3://{BUCKET}/one.pt") as reader:
            assert torch.equal(torch.load(reader), tensor)

    def distributed_checkpoint(self):
        model = torch.nn.Sequential(torch.nn.Linear(2048, 2048), torch.nn.Linear(2048, 512))
        saved = {name: value.clone() for name, value in model.state_dict().items()}
        where = f"s3://{BUCKET}/epoch-1/"
        # These take no endpoint, but their client knows this name.
        os.environ["AWS_ENDPOINT_URL"] = HOW["endpoint"]
        writer = S3StorageWriter(REGION, where, s3client_config=HOW["s3client_config"])
        dcp.save(model.state_dict(), storage_writer=writer, no_dist=True)
        fresh = {name: torch.zeros_like(value) for name, value in saved.items()}
        reader = S3StorageReader(REGION, where, s3client_config=HOW["s3client_config"])
        dcp.load(fresh, storage_reader=reader, no_dist=True)
        assert all(torch.equal(fresh[name], value) for name, value in saved.items())
        assert "epoch-1/.metadata" in self.keys("epoch-1/"), self.keys("epoch-1/")

    def remove_bucket(self):
        bare.remove_bucket()


suite.main(TorchConnector())
