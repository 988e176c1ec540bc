"""Checks of blocks: any wrong byte is found, and named by its block."""

from __future__ import annotations

import random

import pytest
from crc32c import crc32c

from martlet import blocks
from martlet.errors import Corrupt
from martlet.settings import BLOCK_BYTES


def sums_of(body: bytes) -> list[int]:
    return [crc32c(body[at : at + BLOCK_BYTES]) for at in range(0, len(body), BLOCK_BYTES)]


def test_sums_of_blocks_give_the_sum_of_all() -> None:
    seed = random.randrange(1 << 32)
    print("seed", seed)
    rng = random.Random(seed)
    for count in (0, 1, 2, 7, 16, 33):
        body = rng.choice([rng.randbytes, bytes])(count * BLOCK_BYTES)
        assert blocks.joined(sums_of(body)) == crc32c(body), count


def test_each_wrong_block_is_named() -> None:
    seed = random.randrange(1 << 32)
    print("seed", seed)
    rng = random.Random(seed)
    for size in (1, BLOCK_BYTES, BLOCK_BYTES + 1, 4 * BLOCK_BYTES, 8 * BLOCK_BYTES - 3):
        body = rng.randbytes(size)
        # Sums of blocks before the view's, as in the middle of a reply.
        before = [rng.getrandbits(32) for _ in range(rng.randrange(3))]
        sums = [*before, *sums_of(body)]
        blocks.check(memoryview(body), sums, len(before), "here")
        for _ in range(8):
            wrong, at = bytearray(body), rng.randrange(size)
            wrong[at] ^= 1 << rng.randrange(8)
            with pytest.raises(Corrupt, match=f"block {len(before) + at // BLOCK_BYTES} "):
                blocks.check(memoryview(wrong), sums, len(before), "here")
    # Two blocks that change places differ, though the sum of their sums doesn't.
    body = rng.randbytes(2 * BLOCK_BYTES)
    with pytest.raises(Corrupt, match="block 0 "):
        blocks.check(memoryview(body[BLOCK_BYTES:] + body[:BLOCK_BYTES]), sums_of(body), 0, "here")
