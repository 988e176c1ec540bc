"""Megatron-core's dist_checkpointing over multi-storage-client, into checkpoint sets.

Megatron-core calls CUDA for three things alone when it saves: it waits for copies, and it makes the tensors of a
broadcast and of a load on the device. On a machine without a device these go to the CPU; all else is its own.
"""

import logging
import warnings
from pathlib import Path

import msc_profile
import torch
import torch.distributed as dist
from megatron.core import dist_checkpointing
from megatron.core.dist_checkpointing import ShardedTensor

import checkpoint_sets
import torch_states
from commands import new_path

warnings.filterwarnings("ignore")
logging.disable(logging.WARNING)

if not torch.cuda.is_available():
    torch.cuda.synchronize = lambda *_: None
    torch.cuda.current_device = lambda: "cpu"


class Megatron:
    name = "megatron"
    rule = {"profile": "megatron"}
    saves_again = True
    state_of = staticmethod(torch_states.state_of)
    equal = staticmethod(torch_states.equal)

    def save(self, where, state):
        begin()
        dist_checkpointing.save({**sharded(state), "iteration": 7}, path_of(where))

    def load(self, where, like):
        begin()
        loaded = dist_checkpointing.load(sharded(torch_states.zeroed(like)), path_of(where))
        assert loaded.pop("iteration") == 7
        return loaded


def sharded(state):
    return {name: ShardedTensor.from_rank_offsets(name, tensor, replica_id=0) for name, tensor in state.items()}


def begin():
    """The process group of one rank that Megatron-core needs."""
    if not dist.is_initialized():
        meeting = Path(new_path()).with_suffix(f".{torch.initial_seed()}")
        dist.init_process_group("gloo", init_method=f"file://{meeting}", rank=0, world_size=1)


def path_of(where):
    return f"msc://{msc_profile.PROFILE}/{where.rstrip('/')}"


if __name__ == "__main__":
    checkpoint_sets.main(Megatron())
