"""torch.distributed.checkpoint into checkpoint sets: over s3torchconnector, over s3fs, and with a renamed folder."""

import os
import warnings

import s3fs
import torch.distributed.checkpoint as dcp
from s3torchconnector import S3ClientConfig
from s3torchconnector.dcp import S3StorageReader, S3StorageWriter
from torch.distributed.checkpoint.fsspec_filesystem import FsspecReader, FsspecWriter

import checkpoint_sets
import suite
import torch_states

CONNECTOR = S3ClientConfig(force_path_style=True, part_size=5 * suite.MIB)
warnings.filterwarnings("ignore")


class Dcp:
    rule = {"profile": "dcp"}
    saves_again = True
    state_of = staticmethod(torch_states.state_of)
    equal = staticmethod(torch_states.equal)

    def save(self, where, state):
        dcp.save(state, storage_writer=self.writer(f"s3://{where}"), no_dist=True)

    def load(self, where, like):
        state = torch_states.zeroed(like)
        dcp.load(state, storage_reader=self.reader(f"s3://{where}"), no_dist=True)
        return state


class OverConnector(Dcp):
    name = "s3torchconnector"

    def writer(self, path):
        return S3StorageWriter(os.environ["AWS_REGION"], path, s3client_config=CONNECTOR, overwrite=True)

    def reader(self, path):
        return S3StorageReader(os.environ["AWS_REGION"], path, s3client_config=CONNECTOR)


class OverS3fs(Dcp):
    name = "s3fs"

    def writer(self, path):
        return FsspecWriter(path, overwrite=True, use_listings_cache=False)

    def reader(self, path):
        return FsspecReader(path, use_listings_cache=False)


class Renamed(OverS3fs):
    """Saves into a folder that no rule covers, and renames it: a listing, copies, deletes."""

    name = "renamed"
    saves_again = False

    def save(self, where, state):
        bucket, name, step, _ = where.split("/")
        temporary = f"{bucket}/{name}/saving-{step}/"
        files = s3fs.S3FileSystem(use_listings_cache=False)
        # What a killed saver left, wherever it was.
        for folder in (temporary, where):
            if files.exists(folder):
                files.rm(folder, recursive=True)
        super().save(temporary, state)
        files.copy(temporary, where, recursive=True)
        files.rm(temporary, recursive=True)


if __name__ == "__main__":
    checkpoint_sets.main(OverConnector(), OverS3fs(), Renamed())
