"""Buffers of parts: sizes, the bound of idle ones, forked children."""

from __future__ import annotations

import mmap
import os

import pytest

from martlet.buffers import Buffers

PAGE = mmap.PAGESIZE

pytestmark = pytest.mark.skipif(not hasattr(mmap, "MADV_FREE"), reason="buffers are kept where MADV_FREE is known")


def test_a_buffer_is_taken_again() -> None:
    buffers = Buffers(2)
    one = buffers.take(4 * PAGE)
    one[:] = b"x" * len(one)
    buffers.give(one)
    assert buffers.take(4 * PAGE) is one
    assert buffers.take(4 * PAGE) is not one


def test_another_size_is_never_returned() -> None:
    buffers = Buffers(2)
    one = buffers.take(4 * PAGE)
    buffers.give(one)
    assert len(buffers.take(8 * PAGE)) == 8 * PAGE
    assert buffers.take(4 * PAGE) is not one


def test_idle_buffers_are_bounded() -> None:
    buffers = Buffers(2)
    taken = [buffers.take(PAGE) for _ in range(5)]
    for one in taken:
        buffers.give(one)
    again = [buffers.take(PAGE) for _ in range(5)]
    assert sum(any(one is other for other in taken) for one in again) == 2
    buffers.give(again[0])
    buffers.clear()
    assert buffers.take(PAGE) is not again[0]


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_child_has_none_of_its_parent() -> None:
    buffers = Buffers(2)
    one = buffers.take(PAGE)
    buffers.give(one)
    child = os.fork()
    if child == 0:
        os._exit(buffers.take(PAGE) is one)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert buffers.take(PAGE) is one
