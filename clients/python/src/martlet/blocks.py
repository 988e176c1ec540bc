"""Bytes of a piece, received and compared with the CRC32C of each block of 64 KiB."""

from __future__ import annotations

import base64
import binascii
import struct
from collections.abc import Sequence
from typing import Protocol

from crc32c import crc32c

from .errors import Corrupt, ProtocolError
from .plan import Part
from .settings import BLOCK_BYTES
from .transport import CHUNK_BYTES

# Without the interpreter's lock, other threads receive and compare meanwhile.
RELEASE_LOCK = 1


def _shifts() -> tuple[tuple[int, ...], ...]:
    """Returns tables of the map from a CRC32C to that of its bytes and a block of zeros, less the block's own.

    The map is linear over bits, so each byte of a sum has a table of 256.
    """
    zeros = bytes(BLOCK_BYTES)
    own = crc32c(zeros)
    of_bits = [crc32c(zeros, 1 << bit) ^ own for bit in range(32)]
    tables = []
    for place in range(0, 32, 8):
        table = [0]
        for bit in of_bits[place : place + 8]:
            table += [value ^ bit for value in table]
        tables.append(tuple(table))
    return tuple(tables)


_LOW, _SECOND, _THIRD, _HIGH = _shifts()


def joined(sums: Sequence[int]) -> int:
    """Returns the CRC32C of consecutive whole blocks from the CRC32C of each."""
    total = 0
    for one in sums:
        total = _LOW[total & 255] ^ _SECOND[total >> 8 & 255] ^ _THIRD[total >> 16 & 255] ^ _HIGH[total >> 24] ^ one
    return total


def decode(header: str, count: int) -> tuple[int, ...]:
    """Decodes the checksums of `count` blocks: big-endian words in base64."""
    try:
        raw = base64.b64decode(header, validate=True)
    except (binascii.Error, ValueError):
        raise ProtocolError("the node's list of checksums is no base64") from None
    if len(raw) != 4 * count:
        raise ProtocolError(f"the node sent {len(raw) // 4} checksums for {count} blocks")
    return struct.unpack(f">{count}I", raw)


def check(view: memoryview, sums: Sequence[int], first: int, where: str) -> None:
    """Compares the blocks of a view with their checksums, the first of which is `sums[first]`.

    Whole blocks are compared by one sum of all their bytes, which their sums give. Only a difference is looked for
    block by block.
    """
    whole = view.nbytes // BLOCK_BYTES
    if whole > 1 and crc32c(view[: whole * BLOCK_BYTES], 0, RELEASE_LOCK) == joined(sums[first : first + whole]):
        view, first = view[whole * BLOCK_BYTES :], first + whole
    for at in range(0, view.nbytes, BLOCK_BYTES):
        if crc32c(view[at : at + BLOCK_BYTES]) != sums[first]:
            raise Corrupt(f"{where}: block {first} of the reply differs from its checksum")
        first += 1


class Source(Protocol):
    """Bytes in order, from a connection or a file."""

    def read_into(self, view: memoryview) -> None:
        """Fills a view with the next bytes."""

    def discard(self, size: int, scratch: memoryview) -> None:
        """Passes over bytes that nobody needs."""


class Receiver:
    """Reception of verified bytes. The scratch memory holds one block, and belongs to the thread."""

    def __init__(self, source: Source, sums: Sequence[int], scratch: memoryview, where: str) -> None:
        self._source = source
        self._sums = sums
        self._scratch = scratch
        self._where = where
        self._block = 0

    def receive(self, parts: Sequence[Part]) -> None:
        """Receives all parts. Whole blocks go straight to their memory, a block of several parts through scratch."""
        left = sum(part.length for part in parts)
        index, used = 0, 0
        while left:
            part = parts[index]
            rest = part.length - used
            whole = rest if rest == left else rest // BLOCK_BYTES * BLOCK_BYTES
            if whole:
                self._straight(part, used, whole)
                used, left = used + whole, left - whole
            else:
                size = min(BLOCK_BYTES, left)
                index, used = self._shared(parts, index, used, size)
                left -= size
            if index < len(parts) and used == parts[index].length:
                index, used = index + 1, 0

    def _straight(self, part: Part, at: int, size: int) -> None:
        end = at + size
        while at < end:
            step = min(CHUNK_BYTES, end - at)
            if part.into is None:
                self._source.discard(step, self._scratch)
            else:
                view = part.into[at : at + step]
                self._source.read_into(view)
                check(view, self._sums, self._block, self._where)
            self._block += -(-step // BLOCK_BYTES)
            at += step

    def _shared(self, parts: Sequence[Part], index: int, used: int, size: int) -> tuple[int, int]:
        """Receives one block and copies its bytes to the parts under it; returns the place after them."""
        block = self._scratch[:size]
        self._source.read_into(block)
        check(block, self._sums, self._block, self._where)
        self._block += 1
        at = 0
        while at < size:
            part = parts[index]
            step = min(size - at, part.length - used)
            if part.into is not None:
                part.into[used : used + step] = block[at : at + step]
            at, used = at + step, used + step
            if used == part.length and at < size:
                index, used = index + 1, 0
        return index, used
