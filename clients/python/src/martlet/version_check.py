"""Version of an object that all GETs of one reader must return.

`If-Match` alone isn't enough: some stores ignore it, or ignore it beside `Range`, and send bytes of a later version.
"""

from __future__ import annotations

import threading

from . import forks
from .errors import OVERWRITTEN, ObjectChanged, ProtocolError
from .store import ObjectInfo
from .transport import Head, whole

# Headers that name a version, the more exact one first.
MARKS = ("ETag", "Last-Modified")


class VersionCheck:
    """Comparison of replies with one version. Threads share it.

    HEAD's ETag names the version; without one the first reply's ETag, or else its Last-Modified. If the first reply
    has neither, only its range is accepted: another range may be of another version.
    """

    def __init__(self, info: ObjectInfo) -> None:
        self._info = info
        self._mark = ("ETag", info.etag) if info.etag else None
        self._only_range: tuple[int, int] | None = None
        self._lock = threading.Lock()
        forks.register(self)

    def after_fork(self) -> None:
        """Replaces the lock, which a thread of the parent may have held."""
        self._lock = threading.Lock()

    def check(self, head: Head, first: int, end: int, what: str) -> None:
        """Raises an error unless a reply announces the bytes `first..end` of the version."""
        self._check_mark(head.headers, (first, end), what)
        size, partial = self._info.size, head.status == 206
        served, _, total = head.headers.get("content-range", "").partition("/")
        found = whole(total)
        if partial and found is not None and found != size:
            raise ObjectChanged(f"{what}: the object has {found} bytes, not {size}. {OVERWRITTEN}")
        if head.length != end - first or (not partial and end - first != size):
            raise ProtocolError(f"{what}: HTTP {head.status} with {head.length} bytes")
        # HTTP allows `*` for a total that the store doesn't know.
        if partial and (served != f"bytes {first}-{end - 1}" or (found is None and total != "*")):
            raise ProtocolError(f"{what}: the reply has another range")

    def _check_mark(self, headers: dict[str, str], wanted: tuple[int, int], what: str) -> None:
        mark = self._mark_of(headers, wanted)
        if mark is None:
            if wanted != self._only_range:
                raise ProtocolError(
                    f"{what}: the store sends neither ETag nor Last-Modified, so these bytes may be of another version "
                    "than those of an earlier request. An object of such a store is read by one request alone"
                )
            return
        name, expected = mark
        found = headers.get(name.lower(), "")
        if not found:
            raise ProtocolError(f"{what}: the reply has no {name}, so it may be of another version")
        if found != expected:
            raise ObjectChanged(f"{what}: the reply's {name} is {found[:80]}, not {expected[:80]}. {OVERWRITTEN}")

    def _mark_of(self, headers: dict[str, str], wanted: tuple[int, int]) -> tuple[str, str] | None:
        """Returns name and value of the header that names the version. The first reply decides if HEAD had no ETag."""
        with self._lock:
            if self._mark is None and self._only_range is None:
                given = ((name, headers.get(name.lower(), "")) for name in MARKS)
                self._mark = next((mark for mark in given if mark[1]), None)
                self._only_range = wanted
            return self._mark
