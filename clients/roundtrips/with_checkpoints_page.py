"""The examples of docs/CHECKPOINTS.md, run as they stand there, in their order.

Orbax has an environment of its own, whose interpreter runs its example.
"""

import os
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import bare  # noqa: E402, F401
import environments  # noqa: E402
import msc_profile  # noqa: E402, F401
from harness import server as harness  # noqa: E402

import page  # noqa: E402
import suite  # noqa: E402

PAGE, ORBAX = "CHECKPOINTS.md", "Orbax"
# Megatron-core's three calls of CUDA go to the CPU, as in its round trip.
ON_CPU = """
import torch
if not torch.cuda.is_available():
    torch.cuda.synchronize = lambda *_: None
    torch.cuda.current_device = lambda: "cpu"
"""


def main():
    blocks = page.blocks(PAGE)
    unknown = {block.kind for block in blocks} - {"python", "console"}
    assert not unknown, f"{PAGE} has blocks that nothing runs: {unknown}"
    with tempfile.TemporaryDirectory() as folder:
        environment = {"PATH": f"{tools(folder)}:{os.environ['PATH']}", "MSC_CONFIG": os.environ["MSC_CONFIG"],
                       "AWS_ENDPOINT_URL": os.environ["MARTLET_ENDPOINT"],
                       "RUNAI_STREAMER_S3_USE_VIRTUAL_ADDRESSING": "0"}
        steps = [(f"{block.heading}, line {block.line}", lambda _, block=block: run(block, folder, environment))
                 for block in blocks]
        done = suite.run(steps)
    programs = sum(block.kind == "python" for block in blocks)
    assert programs >= 8, f"only {programs} programs were found"
    print(f"{len(done)} blocks of {PAGE}, {programs} of them programs")
    sys.exit(0)


def run(block, folder, environment):
    if block.kind == "console":
        page.run_console(block, folder, environment)
        return
    if block.heading == "Megatron-core":
        block.text = ON_CPU + block.text
    interpreter = environments.prepare("checkpoints-orbax")[0] if block.heading == ORBAX else sys.executable
    page.run_program(block, folder, environment, interpreter)


def tools(folder):
    """A folder with the commands that the page uses."""
    aws = Path(environments.prepare("awscli")[0]).parent / "aws"
    commands = Path(folder) / "bin"
    commands.mkdir()
    for name, path in (("aws", aws), ("martlet", harness.binary())):
        (commands / name).symlink_to(path)
    return commands


if __name__ == "__main__":
    main()
