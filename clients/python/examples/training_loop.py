"""Training loop that saves checkpoints as sets, resumes from the newest one, and removes none by hand.

Usage: training_loop.py martlet://train/run-7 [STEPS]

The bucket keeps versions and has a rule such as
{"pattern": "run-*/step-*/", "profile": "custom", "keep": 3}.
Its `keep` removes old steps. A save that crashed never becomes visible.
"""

import re
import sys
from typing import Any

import torch
import torch.distributed.checkpoint as dcp

import martlet
from martlet.dcp import StorageReader, StorageWriter

SAVE_EVERY = 10


def newest_step(client: martlet.Client, run: str) -> int | None:
    """Returns the latest step with a committed generation."""
    bucket, _, key = run.removeprefix("martlet://").partition("/")
    listed = client.listing(martlet.Address(bucket, f"{key.rstrip('/')}/").committed())
    steps = {int(found.group(1)) for it in listed if (found := re.search(r"/step-(\d+)/\.metadata$", it.key))}
    return max(steps, default=None)


def train(run: str, steps: int) -> tuple[int, int]:
    """Trains up to a number of steps; returns the first and the last step of this call."""
    client = martlet.client()
    model = torch.nn.Linear(256, 256)
    optimizer = torch.optim.AdamW(model.parameters())
    first = 0
    if (step := newest_step(client, run)) is not None:
        state: dict[str, Any] = {"model": model.state_dict(), "step": 0}
        dcp.load(state, storage_reader=StorageReader(f"{run}/step-{step}", client=client), no_dist=True)
        model.load_state_dict(state["model"])
        first = int(state["step"]) + 1
    for step in range(first, steps):
        loss = model(torch.randn(32, 256)).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if (step + 1) % SAVE_EVERY == 0:
            writer = StorageWriter(f"{run}/step-{step}", client=client, commit="require")
            dcp.save({"model": model.state_dict(), "step": step}, storage_writer=writer, no_dist=True)
    return first, steps - 1


if __name__ == "__main__":
    begun, ended = train(sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 50)
    print(f"steps {begun} to {ended}")
