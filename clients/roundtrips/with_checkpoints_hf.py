"""Sharded safetensors with an index into checkpoint sets, read through s3fs and by Run:ai's streamer.

huggingface_hub splits a model and writes the index. A folder upload sends the files in any order, so that the
index often comes before files that it names: that is right for a folder that is empty before. Into a folder that
holds a model the index goes last.
"""

import json
import os
import tempfile

os.environ.update({"RUNAI_STREAMER_S3_USE_VIRTUAL_ADDRESSING": "0", "RUNAI_STREAMER_CONCURRENCY": "4"})

import s3fs  # noqa: E402
from huggingface_hub import save_torch_state_dict  # noqa: E402
from runai_model_streamer import SafetensorsStreamer, list_safetensors  # noqa: E402
from safetensors.torch import load as of_bytes  # noqa: E402

import checkpoint_sets  # noqa: E402
import suite  # noqa: E402
import torch_states  # noqa: E402

INDEX = "model.safetensors.index.json"


class Indexed:
    name = "s3fs"
    rule = {"profile": "hf"}
    saves_again = False
    state_of = staticmethod(torch_states.state_of)
    equal = staticmethod(torch_states.equal)

    def save(self, where, state):
        with tempfile.TemporaryDirectory() as folder:
            save_torch_state_dict(state, folder, max_shard_size=100_000)
            assert INDEX in os.listdir(folder), os.listdir(folder)
            self.upload(folder, where)

    def upload(self, folder, where):
        if files().exists(where):
            files().rm(where, recursive=True)
        files().put(f"{folder}/", where, recursive=True)

    def load(self, where, like):
        reader = files()
        index = json.loads(reader.cat_file(f"{where}{INDEX}"))
        shards = {name: of_bytes(reader.cat_file(f"{where}{name}")) for name in set(index["weight_map"].values())}
        return {name: shards[file][name] for name, file in index["weight_map"].items()}


class Streamed(Indexed):
    name = "runai-model-streamer"
    saves_again = True

    def upload(self, folder, where):
        for name in sorted(os.listdir(folder), key=lambda name: name == INDEX):
            files().put_file(f"{folder}/{name}", f"{where}{name}")

    def load(self, where, like):
        paths = list_safetensors(f"s3://{where.rstrip('/')}")
        assert paths, f"no files below {where}"
        with SafetensorsStreamer() as streamer:
            streamer.stream_files(paths)
            return {name: tensor.clone() for name, tensor in streamer.get_tensors()}


def files():
    return s3fs.S3FileSystem(use_listings_cache=False)


if __name__ == "__main__":
    checkpoint_sets.main(Indexed(), Streamed())
