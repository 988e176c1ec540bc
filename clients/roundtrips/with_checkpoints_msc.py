"""torch.distributed.checkpoint over multi-storage-client, into checkpoint sets."""

import warnings

import msc_profile
import multistorageclient as msc
import torch.distributed.checkpoint as dcp

import checkpoint_sets
import torch_states

warnings.filterwarnings("ignore")


class MultiStorage:
    name = "msc"
    rule = {"profile": "dcp"}
    saves_again = True
    state_of = staticmethod(torch_states.state_of)
    equal = staticmethod(torch_states.equal)

    def save(self, where, state):
        writer = msc.torch.MultiStorageFileSystemWriter(path_of(where))
        dcp.save(state, storage_writer=writer, no_dist=True)

    def load(self, where, like):
        state = torch_states.zeroed(like)
        reader = msc.torch.MultiStorageFileSystemReader(path_of(where), thread_count=2)
        dcp.load(state, storage_reader=reader, no_dist=True)
        return state


def path_of(where):
    return f"msc://{msc_profile.PROFILE}/{where.rstrip('/')}"


if __name__ == "__main__":
    checkpoint_sets.main(MultiStorage())
