"""Reads into GPU memory. This module has not been run on a GPU here.

`read` copies from pinned memory: two buffers in turns, so that the network and the copy overlap. `read_by_cufile` hands
descriptors of the node's direct socket to cuFile by KvikIO. KvikIO decides whether the bytes pass the processor's
memory, and the report names the mode.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from .errors import MartletError
from .memory import Memory
from .plan import Span
from .reader import Reader
from .settings import MIB

WINDOW_BYTES = 64 * MIB


@dataclass(frozen=True)
class CufileReport:
    """Bytes of a read by their way, and KvikIO's compatibility mode."""

    cufile_bytes: int
    pinned_bytes: int
    compat_mode: str


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


def read_by_cufile(reader: Reader, offset: int, tensor: torch.Tensor) -> CufileReport:
    """Fills a tensor on a GPU: by cuFile from the files of this machine's node, the rest by pinned memory.

    The client needs `direct_socket`. Bytes that come by cuFile are not compared with their checksums.
    """
    try:
        import kvikio
        import kvikio.defaults
    except ImportError:
        raise MartletError("cuFile needs KvikIO: install martlet[gpu]") from None
    target: Any = bytes_of(tensor)
    end = offset + target.numel()
    by_cufile, at = 0, offset
    for piece in reader.pieces(offset, end):
        first, last = max(at, piece.start), min(end, piece.end)
        if first > at:
            read(reader, at, target[at - offset : first - offset])
        with reader.lent(piece) as lease:
            part = target[first - offset : last - offset]
            if lease is None:
                read(reader, first, part)
            else:
                with kvikio.CuFile(lease.path, "r") as file:
                    count = file.read(part, size=last - first, file_offset=lease.offset + first - piece.start)
                if count != last - first:
                    raise MartletError(f"{lease.path}: cuFile read {count} of {last - first} bytes")
                by_cufile += count
        at = last
    if at < end:
        read(reader, at, target[at - offset :])
    return CufileReport(by_cufile, target.numel() - by_cufile, str(kvikio.defaults.compat_mode()))
