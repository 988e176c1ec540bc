"""Reads into GPU memory. `clients/gpu.sh` runs this module on a machine with a GPU.

`read` copies from pinned memory: four buffers in turns, so that reads and copies overlap. `read_by_cufile` hands
descriptors of the node's direct socket to cuFile by KvikIO. KvikIO decides whether the bytes pass the processor's
memory, and the report names the mode.
"""

from __future__ import annotations

import logging
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import torch

from .direct import Lease
from .errors import MartletError
from .memory import Memory
from .plan import Span
from .reader import Reader
from .settings import MIB

LOG = logging.getLogger("martlet")
# A window is read while others are read and copied: a reader alone ends each window with its slowest request.
WINDOW_BYTES = 32 * MIB
LANES = 4


@dataclass(frozen=True)
class CufileReport:
    """Bytes of a read by their way, and KvikIO's mode.

    `compat_mode` is ON where KvikIO reads files itself, and OFF where KvikIO calls cuFile. cuFile may still pass the
    bytes through the processor's memory: its own compatibility mode shows in its statistics alone.
    """

    cufile_bytes: int
    pinned_bytes: int
    compat_mode: str


def bytes_of(tensor: torch.Tensor) -> torch.Tensor:
    """Returns a tensor's bytes on its GPU, without a copy."""
    if tensor.device.type != "cuda" or not tensor.is_contiguous():
        raise MartletError("the target must be contiguous and on a GPU")
    return tensor.detach().reshape(-1).view(torch.uint8)


def read(reader: Reader, offset: int, tensor: torch.Tensor) -> None:
    """Fills a tensor on a GPU with the bytes of an object from an offset on, by pinned memory.

    Work that the current stream has in hand for the tensor's memory is waited for.
    """
    target = bytes_of(tensor)
    size = target.numel()
    _check_range(reader, offset, size)
    stream = torch.cuda.Stream(target.device)  # type: ignore[no-untyped-call]
    stream.wait_stream(torch.cuda.current_stream(target.device))
    lanes = min(LANES, -(-size // WINDOW_BYTES))
    failed = threading.Event()

    def fill(lane: int) -> None:
        """Reads each `lanes`-th window into one buffer, and has it copied."""
        buffer, copied = Memory(min(WINDOW_BYTES, size), pinned=True), None
        for at in range(lane * WINDOW_BYTES, size, lanes * WINDOW_BYTES):
            if failed.is_set():
                return
            if copied is not None:
                copied.synchronize()
            count = min(WINDOW_BYTES, size - at)
            try:
                reader.read_into([Span(offset + at, buffer.view[:count])])
            except BaseException:
                failed.set()
                raise
            with torch.cuda.stream(stream):
                target[at : at + count].copy_(buffer.tensor()[:count], non_blocking=True)
                copied = stream.record_event()

    try:
        if lanes == 1:
            fill(0)
        elif lanes:
            with ThreadPoolExecutor(lanes, thread_name_prefix="martlet-gpu") as threads:
                for _ in threads.map(fill, range(lanes)):
                    pass
    finally:
        # Also after an error: a copy in flight must not meet the next use of the tensor's memory.
        stream.synchronize()


def read_by_cufile(reader: Reader, offset: int, tensor: torch.Tensor) -> CufileReport:
    """Fills a tensor on a GPU: by cuFile from the files of this machine's node, the rest by pinned memory.

    The client needs `direct_socket`. Bytes that come by cuFile are not compared with their checksums. A piece that
    KvikIO can't read comes by pinned memory.
    """
    try:
        import kvikio.defaults
    except ImportError:
        raise MartletError("cuFile needs KvikIO: install martlet[gpu]") from None
    target = bytes_of(tensor)
    end = offset + target.numel()
    _check_range(reader, offset, target.numel())
    # KvikIO waits for the default stream alone.
    torch.cuda.current_stream(target.device).synchronize()
    by_cufile, at = 0, offset
    for piece in reader.pieces(offset, end):
        first, last = max(at, piece.start), min(end, piece.end)
        if last <= first:
            continue
        if first > at:
            read(reader, at, target[at - offset : first - offset])
        part = target[first - offset : last - offset]
        with reader.lent(piece) as lease:
            came = lease is not None and lease.length == piece.length and _by_kvikio(lease, first - piece.start, part)
        if came:
            by_cufile += last - first
        else:
            read(reader, first, part)
        at = last
    if at < end:
        read(reader, at, target[at - offset :])
    # KvikIO before 25.02 has the second function alone.
    preferred = getattr(kvikio.defaults, "is_compat_mode_preferred", None) or kvikio.defaults.compat_mode
    return CufileReport(by_cufile, target.numel() - by_cufile, "ON" if preferred() else "OFF")


def _check_range(reader: Reader, offset: int, size: int) -> None:
    if offset < 0 or offset + size > reader.info.size:
        raise ValueError(
            f"bytes {offset}-{offset + size} lie outside of {reader.info.address}, which has {reader.info.size} bytes"
        )


def _by_kvikio(lease: Lease, at: int, part: Any) -> bool:
    """Reads a part of a leased extent. Returns false where KvikIO fails, or the lease has ended and the file is cut."""
    import kvikio

    size = part.numel()
    try:
        with kvikio.CuFile(lease.path, "r") as file:
            count = file.read(part, size=size, file_offset=lease.offset + at)
    except (OSError, RuntimeError, ValueError) as error:
        LOG.info("%s can't be read by KvikIO: %s", lease.path, error)
        return False
    if count != size:
        LOG.info("%s: KvikIO read %d of %d bytes", lease.path, count, size)
    return bool(count == size)
