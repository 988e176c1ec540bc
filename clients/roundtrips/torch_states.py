"""States of a model for checkpoints, on the CPU."""

import torch


def state_of(seed):
    """Tensors of several sizes and kinds."""
    generator = torch.Generator().manual_seed(seed)
    whole = torch.randn(3, 1 << 20, generator=generator)
    layers = {f"layer.{at}.weight": torch.randn(128, 256 + at, generator=generator).to(kind)
              for at, kind in enumerate((torch.float32, torch.bfloat16, torch.float16))}
    return {"embedding": whole, **layers}


def zeroed(state):
    return {name: torch.zeros_like(tensor) for name, tensor in state.items()}


def equal(one, another):
    return one.keys() == another.keys() and all(torch.equal(one[name], another[name]) for name in one)
