"""Reads into GPU memory. This module has not been run on a GPU here.

`read` copies from pinned memory: two buffers in turns, so that the network and the copy overlap. `read_by_cufile` hands
descriptors of the node's direct socket to cuFile by KvikIO. KvikIO decides whether the bytes pass the processor's
memory, and the mode that is returned names which.
"""

from __future__ import annotations

from typing import Any

import torch

from .errors import MartletError
from .memory import Memory
from .plan import Span
from .reader import Reader
from .settings import MIB

WINDOW_BYTES = 64 * MIB


def bytes_of(tensor: torch.Tensor) -> torch.Tensor:
    """Returns a tensor's bytes on its GPU, without a copy."""
    if tensor.device.type != "cuda" or not tensor.is_contiguous():
        raise MartletError("the target must be contiguous and on a GPU")
    return tensor.detach().reshape(-1).view(torch.uint8)


def read(reader: Reader, offset: int, tensor: torch.Tensor) -> None:
    """Fills a tensor on a GPU with the bytes of an object from an offset on, by pinned memory."""
    target = bytes_of(tensor)
    size = target.numel()
    buffers = [Memory(min(WINDOW_BYTES, size), pinned=True) for _ in range(2 if size > WINDOW_BYTES else 1)]
    stream = torch.cuda.Stream(target.device)  # type: ignore[no-untyped-call]
    copied: list[torch.cuda.Event | None] = [None] * len(buffers)
    for number, at in enumerate(range(0, size, WINDOW_BYTES)):
        turn = number % len(buffers)
        if (event := copied[turn]) is not None:
            event.synchronize()
        count = min(WINDOW_BYTES, size - at)
        reader.read_into([Span(offset + at, buffers[turn].view[:count])])
        with torch.cuda.stream(stream):
            target[at : at + count].copy_(buffers[turn].tensor()[:count], non_blocking=True)
            copied[turn] = stream.record_event()
    stream.synchronize()


def read_by_cufile(path: str, file_offset: int, tensor: torch.Tensor) -> str:
    """Fills a tensor on a GPU from a file by cuFile, and returns KvikIO's mode.

    `path` is the `path` of a `Lease`, and the bytes are not compared with their checksums.
    """
    try:
        import kvikio
        import kvikio.defaults
    except ImportError:
        raise MartletError("cuFile needs KvikIO: install martlet[gpu]") from None
    target: Any = bytes_of(tensor)
    with kvikio.CuFile(path, "r") as file:
        count = file.read(target, size=target.numel(), file_offset=file_offset)
    if count != target.numel():
        raise MartletError(f"{path}: cuFile read {count} of {target.numel()} bytes")
    return str(kvikio.defaults.compat_mode())
