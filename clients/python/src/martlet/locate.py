"""Locations of an object's bytes: the reply of `?locate`, page by page, and what is remembered of it."""

from __future__ import annotations

import bisect
import email.utils
import functools
import hashlib
import json
import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from . import forks
from .errors import MartletError, ObjectChanged, ProtocolError, StoreError
from .pieces import Holder, Piece
from .store import ObjectInfo, Store
from .transport import place_of

# Pieces that one object remembers; a piece takes some 400 bytes.
PIECES_MAX = 16_384
# Tokens are used up to this long before they end.
MARGIN_S = 5.0
# Range that one locate describes at least, so that a sequential reader doesn't ask for each chunk.
WINDOW_BYTES = 1 << 30
# Extents are at most this long, and begin at multiples of it in objects that were written at once.
EXTENT_BYTES = 64 << 20
# The Date of a reply is cut to a second: clocks that differ by less count as equal.
CLOCK_S = 2.0
# A failed locate isn't repeated for this long; GET serves meanwhile.
PAUSE_S = 30.0


@dataclass(frozen=True)
class Page:
    """Reply of locate."""

    direct: bool
    reason: str
    pieces: tuple[Piece, ...]
    expires_s: float
    next: int | None


def seconds_ahead(date: str | None) -> float:
    """Returns by how many seconds this machine's clock is ahead of a reply's `Date`; 0 if it has none."""
    try:
        ahead = time.time() - email.utils.parsedate_to_datetime(date or "").timestamp()
    except (ValueError, TypeError, OverflowError):
        return 0.0
    return ahead if abs(ahead) > CLOCK_S else 0.0


def parse_page(text: bytes, info: ObjectInfo, first: int, end: int, ahead_s: float = 0.0) -> Page:
    """Parses a reply for the bytes `first..end` and refuses what doesn't fit the object.

    Tokens end by the server's clock; `ahead_s` makes their end one of this machine's clock.
    """
    try:
        document = json.loads(text)
        expires_s = float(document["expires_ms"] or 0) / 1000 + ahead_s
        pieces = tuple(_pieces(document["extents"], first, end, expires_s))
        after = document["next"]
        page = Page(
            bool(document["direct"]),
            str(document.get("reason") or ""),
            pieces,
            expires_s,
            None if after is None else int(after),
        )
    except (ValueError, KeyError, TypeError, ArithmeticError, RecursionError) as error:
        # Not the error's text: it may quote the reply, and so a token.
        raise ProtocolError(f"locate of {info.address}: the reply has another form: {type(error).__name__}") from error
    for before, piece in zip(page.pieces, page.pieces[1:], strict=False):
        if piece.start < before.end:
            raise ProtocolError(f"locate of {info.address}: pieces overlap at byte {piece.start}")
    if page.next is not None and not first < page.next < info.size:
        raise ProtocolError(f"locate of {info.address}: the next page would begin at byte {page.next}")
    return page


def _pieces(extents: Iterable[dict[str, Any]], first: int, end: int, expires_s: float) -> Iterable[Piece]:
    for extent in extents:
        for piece in extent["pieces"]:
            start = int(extent["offset"]) + int(piece["from"])
            length = int(piece["length"])
            if start < 0 or length <= 0 or int(piece["from"]) + length > int(extent["length"]):
                raise ValueError("a piece lies outside of its extent")
            holders = tuple(
                Holder(str(it["url"]), str(it["token"]), str(it.get("host_id") or ""))
                for it in piece["holders"]
                if _has_place(str(it["url"]))
            )
            granted = max(first, start), min(end, start + length)
            yield Piece(str(piece["id"]), start, length, holders, *granted, expires_s)


def _has_place(url: str) -> bool:
    """Returns false for a URL that names no server: its holder is left out."""
    try:
        place_of(url)
    except (MartletError, ValueError):
        return False
    return True


def fetch_page(store: Store, info: ObjectInfo, first: int, end: int) -> Page | None:
    """Requests the locations of the bytes `first..end`. None stands for a store without locate."""
    headers = {"Range": f"bytes={first}-{end - 1}", "If-Match": info.etag}
    address = info.address
    what = f"locate {address}"

    def attempt() -> Page | None:
        connection, head = store.open("GET", address, {"locate": ""}, headers)
        if head.status in (400, 404, 405, 501) and head.headers.get("x-martlet-locate") is None:
            # An absent object is found out by GET, which says so with its own error.
            connection.close()
            return None
        if head.status >= 300:
            raise store.refuse(connection, head, what)
        if head.headers.get("x-martlet-locate") != "1":
            # The object itself, from a store that ignores the query: its body isn't read.
            connection.close()
            return None
        try:
            text = connection.read_all(64 << 20)
        except BaseException:
            connection.close()
            raise
        store.pool.give(connection)
        return parse_page(text, info, first, end, seconds_ahead(head.headers.get("date")))

    return store.retrying(what, attempt)


class Locations:
    """Known pieces of one object version. Threads share it."""

    def __init__(self, store: Store, info: ObjectInfo) -> None:
        self._store = store
        self._info = info
        self._lock = threading.Lock()
        self._starts: list[int] = []
        self._pieces: list[Piece] = []
        self._expires_s = float("inf")
        #: Why reads go by GET; empty while they may go to storage nodes.
        self.reason = ""
        self._off_until = 0.0
        #: Raised whenever what was known is dropped, so that threads drop it once.
        self.epoch = 0
        forks.register(self)

    def after_fork(self) -> None:
        """Replaces the lock, which a thread of the parent may have held."""
        self._lock = threading.Lock()

    def cover(self, first: int, end: int) -> list[Piece]:
        """Returns the pieces under a range in order. Bytes under none of them are read by GET."""
        with self._lock:
            if time.monotonic() < self._off_until:
                return []
            self.reason = ""
            if time.time() > self._expires_s - MARGIN_S:
                self._drop()
            if not self._granted(first, end):
                self._load(first, end)
            return self._under(first, end)

    def forget(self, epoch: int) -> None:
        """Drops what is known, unless another thread has done so since `epoch`."""
        with self._lock:
            if epoch == self.epoch:
                self._drop()

    def _drop(self) -> None:
        self._starts, self._pieces, self._expires_s = [], [], float("inf")
        self.epoch += 1

    def _under(self, first: int, end: int) -> list[Piece]:
        at = max(0, bisect.bisect_right(self._starts, first) - 1)
        found = []
        while at < len(self._pieces) and self._pieces[at].start < end:
            if self._pieces[at].end > first:
                found.append(self._pieces[at])
            at += 1
        return found

    def _granted(self, first: int, end: int) -> bool:
        at = first
        for piece in self._under(first, end):
            if piece.granted_first > at or (piece.granted_end < end and piece.granted_end < piece.end):
                return False
            at = piece.end
        return at >= end

    def _load(self, first: int, end: int) -> None:
        # From the likely begin of an extent on: a direct socket lends whole extents alone.
        at: int | None = first // EXTENT_BYTES * EXTENT_BYTES
        last = min(self._info.size, max(end, first + WINDOW_BYTES))
        while at is not None and at < end:
            try:
                page = fetch_page(self._store, self._info, at, last)
            except ObjectChanged:
                raise
            except (StoreError, ProtocolError) as error:
                # GET decides about permission and absence; it works where locate doesn't.
                self._turn_off(f"locate failed: {error}", PAUSE_S)
                return
            if page is None:
                self._turn_off("the server offers no locate", float("inf"))
                return
            if not page.direct:
                self._turn_off(page.reason or "the object can't be read in place", float("inf"))
                return
            self._add(page)
            at = page.next

    def _turn_off(self, reason: str, for_s: float) -> None:
        self.reason, self._off_until = reason, time.monotonic() + for_s

    def _add(self, page: Page) -> None:
        if len(self._pieces) + len(page.pieces) > PIECES_MAX:
            self._starts, self._pieces = [], []
        known = {piece.start: piece for piece in self._pieces}
        known.update({piece.start: piece for piece in page.pieces})
        self._pieces = [known[start] for start in sorted(known)]
        self._starts = [piece.start for piece in self._pieces]
        self._expires_s = min(self._expires_s, page.expires_s)


@functools.cache
def own_host_id() -> str:
    """Returns the id of this host as nodes compute it, or nothing where it can't be read."""
    try:
        boot_id = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""
    return hashlib.sha256(f"martlet-host-1\n{boot_id}".encode()).hexdigest()[:32]
