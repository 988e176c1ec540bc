"""Run:ai's model streamer: the weights of a model by concurrent ranges, straight into memory."""

import os

# Its client is that of AWS for C++, which knows these names.
os.environ.update({"AWS_ENDPOINT_URL": os.environ["MARTLET_ENDPOINT"], "RUNAI_STREAMER_S3_USE_VIRTUAL_ADDRESSING": "0",
                   "RUNAI_STREAMER_CONCURRENCY": "8"})

import torch  # noqa: E402
from runai_model_streamer import SafetensorsStreamer, list_safetensors, pull_files  # noqa: E402
from safetensors.torch import load as of_bytes, save as bytes_of  # noqa: E402

import bare  # noqa: E402
import suite  # noqa: E402
import tasks  # noqa: E402
from commands import new_path  # noqa: E402

ROOT = f"s3://{bare.BUCKET}"
MODEL = {}


def model(rng):
    torch.manual_seed(rng.getrandbits(30))
    for file in range(3):
        tensors = {f"layer.{file}.{at}.weight": torch.randn(256 * (at + 1), 512).to(kind)
                   for at, kind in enumerate((torch.float32, torch.bfloat16, torch.float16) * 4)}
        tensors[f"layer.{file}.empty"] = torch.zeros(0)
        bare.put(f"model/model-{file}.safetensors", bytes_of(tensors))
        MODEL[file] = tensors
    bare.put("model/config.json", b'{"made": "by hand"}')
    found = of_bytes(bare.get("model/model-1.safetensors"))
    assert all(torch.equal(found[name], tensor) for name, tensor in MODEL[1].items())


def one_file(_):
    with SafetensorsStreamer() as streamer:
        streamer.stream_file(f"{ROOT}/model/model-0.safetensors")
        found = {name: tensor.clone() for name, tensor in streamer.get_tensors()}
    same(found, MODEL[0])


def same(found, expected):
    suite.same(sorted(found), sorted(expected), "names of tensors")
    assert all(torch.equal(found[name], tensor) for name, tensor in expected.items())


def all_files_at_once(_):
    paths = sorted(list_safetensors(f"{ROOT}/model"))
    suite.same(paths, [f"{ROOT}/model/model-{file}.safetensors" for file in range(3)], "files of the model")
    with SafetensorsStreamer() as streamer:
        streamer.stream_files(paths)
        found = {name: tensor.clone() for name, tensor in streamer.get_tensors()}
    same(found, {name: tensor for tensors in MODEL.values() for name, tensor in tensors.items()})


def files_beside_it(_):
    into = new_path()
    into.mkdir()
    pull_files(f"{ROOT}/model", str(into), allow_pattern=["*.json"])
    suite.same([(path.name, path.read_bytes()) for path in into.iterdir()], [("config.json", b'{"made": "by hand"}')],
               "what was pulled")


def an_error_is_told(_):
    try:
        with SafetensorsStreamer() as streamer:
            streamer.stream_file(f"{ROOT}/model/none.safetensors")
            list(streamer.get_tensors())
    except Exception as error:  # It has no error of its own for this.
        print(repr(error)[:200])
        return
    raise AssertionError("a file that is not there was streamed")


if __name__ == "__main__":
    tasks.main(model, one_file, all_files_at_once, files_beside_it, an_error_is_told)
