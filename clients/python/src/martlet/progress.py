"""Progress of long reads and writes: a callback, or a bar on the terminal."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

#: Receives the number of bytes that came since the last call. Calls don't overlap.
Progress = Callable[[int], None]


def serialized(progress: Progress | None) -> Progress:
    """Returns a callback that several threads may call."""
    if progress is None:
        return lambda _: None
    lock, inner = threading.Lock(), progress

    def locked(count: int) -> None:
        with lock:
            inner(count)

    return locked


@contextmanager
def bar(total: int, label: str) -> Iterator[Progress]:
    """Shows a bar by tqdm, or a line on standard error where tqdm isn't installed."""
    try:
        from tqdm.auto import tqdm
    except ImportError:
        line = _Line(total, label)
        try:
            yield line.advance
        finally:
            line.end()
        return
    with tqdm(total=total, desc=label, unit="B", unit_scale=True, unit_divisor=1024) as shown:

        def advance(count: int) -> None:
            shown.update(count)

        yield advance


class _Line:
    """Line on standard error, at most twice a second."""

    def __init__(self, total: int, label: str) -> None:
        self._total, self._label = total, label
        self._done = 0
        self._shown_at = 0.0

    def advance(self, count: int) -> None:
        self._done += count
        if time.monotonic() - self._shown_at > 0.5:
            self._show()

    def _show(self) -> None:
        self._shown_at = time.monotonic()
        share = 100 * self._done // max(1, self._total)
        sys.stderr.write(f"\r{self._label}: {share:3} % of {self._total / (1 << 20):.0f} MiB")
        sys.stderr.flush()

    def end(self) -> None:
        self._show()
        sys.stderr.write("\n")
