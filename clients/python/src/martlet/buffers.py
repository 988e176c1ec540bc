"""Buffers of parts that are sent. One that was sent is filled again, in this file or a later one.

Fresh pages cost the processor as much as the copy into them. The kernel may take the pages of idle buffers whenever it
needs memory.
"""

from __future__ import annotations

import mmap
import threading

from . import forks


class Buffers:
    """Private memory, page-aligned; at most `idle_max` buffers stay for later files. Threads share it."""

    def __init__(self, idle_max: int) -> None:
        self._idle_max = idle_max
        self._lock = threading.Lock()
        self._idle: list[mmap.mmap] = []
        forks.register(self)

    def after_fork(self) -> None:
        """Forgets the parent's buffers, of which a child would copy each page."""
        self._lock = threading.Lock()
        self._idle = []

    def take(self, size: int) -> mmap.mmap:
        """Returns a buffer of a size in bytes, with any content. Idle ones of another size are dropped."""
        with self._lock:
            self._idle = [one for one in self._idle if len(one) == size]
            if self._idle:
                return self._idle.pop()
        return mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)

    def give(self, buffer: mmap.mmap) -> None:
        """Keeps a buffer that nobody uses any more. Where the kernel can't take its pages when it must, drops it."""
        if not hasattr(mmap, "MADV_FREE"):
            return
        try:
            buffer.madvise(mmap.MADV_FREE)
        except OSError:
            return
        with self._lock:
            if len(self._idle) < self._idle_max:
                self._idle.append(buffer)

    def clear(self) -> None:
        """Drops all idle buffers."""
        with self._lock:
            self._idle = []
