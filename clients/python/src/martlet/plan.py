"""Plan of a read: which requests fetch the wanted ranges. Pure functions without I/O.

Wanted ranges are sorted and merged over short gaps into *runs*. A run is cut where pieces end and where a request
would be too long. Requests to storage nodes begin and end at blocks of 64 KiB of their piece, because only whole
blocks can be compared with their checksums.
"""

from __future__ import annotations

import bisect
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from .errors import MartletError
from .pieces import Piece
from .settings import BLOCK_BYTES, MIB

# Requests become no shorter than this towards the end of a read.
TAIL_BYTES = 2 * MIB


@dataclass(frozen=True)
class Span:
    """Wanted range of the object, and the memory that receives it."""

    offset: int
    into: memoryview

    @property
    def end(self) -> int:
        """End of the range."""
        return self.offset + self.into.nbytes


@dataclass(frozen=True)
class Run:
    """Spans in order that one contiguous read covers."""

    spans: tuple[Span, ...]

    @property
    def start(self) -> int:
        """First wanted byte."""
        return self.spans[0].offset

    @property
    def end(self) -> int:
        """End of the last wanted byte."""
        return self.spans[-1].end


@dataclass(frozen=True)
class Part:
    """Bytes of a request in order: received into memory, or dropped."""

    length: int
    into: memoryview | None


@dataclass(frozen=True)
class Fetch:
    """One request. Without a piece it is a GET of the object."""

    #: First byte and end of the request, in the object.
    start: int
    end: int
    spans: tuple[Span, ...]
    piece: Piece | None

    @property
    def wanted(self) -> tuple[int, int]:
        """First and end of the wanted bytes in the object."""
        return max(self.start, self.spans[0].offset), min(self.end, self.spans[-1].end)


def spans_of(offset: int, into: memoryview) -> Span:
    """Builds a span over writable, contiguous memory."""
    if into.readonly or not into.c_contiguous:
        raise MartletError("the buffer must be writable and contiguous")
    return Span(offset, into.cast("B") if into.format != "B" or into.ndim != 1 else into)


def merge(spans: Iterable[Span], gap_bytes: int) -> list[Run]:
    """Merges wanted ranges into runs over gaps of at most `gap_bytes`. Ranges that overlap get runs of their own."""
    runs: list[Run] = []
    open_spans: list[Span] = []
    for span in sorted((one for one in spans if one.into.nbytes), key=lambda one: one.offset):
        if open_spans and not 0 <= span.offset - open_spans[-1].end <= gap_bytes:
            runs.append(Run(tuple(open_spans)))
            open_spans = []
        open_spans.append(span)
    if open_spans:
        runs.append(Run(tuple(open_spans)))
    return runs


def split(run: Run, pieces: Sequence[Piece], fetch_bytes: int) -> Iterator[Fetch]:
    """Cuts a run into requests. Bytes under no piece, or under one without holders, become GETs."""
    for start, end, piece in sections(run.start, run.end, pieces):
        if piece is None:
            yield from _cut(run, start, end, None, fetch_bytes)
        else:
            yield from _cut(run, start, end, piece, fetch_bytes)


def sections(start: int, end: int, pieces: Sequence[Piece]) -> list[tuple[int, int, Piece | None]]:
    """Divides a range into runs under one piece, and runs under none that can be read."""
    found: list[tuple[int, int, Piece | None]] = []
    at = start
    for piece in pieces:
        first, last = max(piece.start, at), min(piece.end, end)
        if last <= first or not piece.holders:
            continue
        if first > at:
            found.append((at, first, None))
        found.append((first, last, piece))
        at = last
    if at < end:
        found.append((at, end, None))
    return found


def _cut(run: Run, start: int, end: int, piece: Piece | None, fetch_bytes: int) -> Iterator[Fetch]:
    origin = piece.start if piece else 0
    at = start
    while at < end:
        # Cuts lie on the grid of the piece, so that two requests share no block.
        cut = origin + ((at - origin) // fetch_bytes + 1) * fetch_bytes
        stop = min(end, cut)
        spans = within(run.spans, at, stop)
        if spans:
            if piece is None:
                yield Fetch(max(at, spans[0].offset), min(stop, spans[-1].end), spans, None)
            else:
                first, last = max(at, spans[0].offset), min(stop, spans[-1].end)
                low = origin + (first - origin) // BLOCK_BYTES * BLOCK_BYTES
                high = origin + -(-(last - origin) // BLOCK_BYTES) * BLOCK_BYTES
                yield Fetch(low, min(high, piece.end), spans, piece)
        at = stop


def within(spans: Sequence[Span], start: int, end: int) -> tuple[Span, ...]:
    """Returns the parts of spans within a range."""
    at = max(0, bisect.bisect_right(spans, start, key=lambda one: one.offset) - 1)
    found = []
    while at < len(spans) and spans[at].offset < end:
        span = spans[at]
        first, last = max(start, span.offset), min(end, span.end)
        if last > first:
            found.append(Span(first, span.into[first - span.offset : last - span.offset]))
        at += 1
    return tuple(found)


def parts(fetch: Fetch) -> list[Part]:
    """Returns what becomes of the bytes of a request, in order."""
    found = []
    at = fetch.start
    for span in fetch.spans:
        if span.offset > at:
            found.append(Part(span.offset - at, None))
        found.append(Part(span.into.nbytes, span.into))
        at = span.end
    if fetch.end > at:
        found.append(Part(fetch.end - at, None))
    return found


def fetch_bytes_of(left: int, threads: int, fetch_bytes: int) -> int:
    """Returns the longest range of the next request, in bytes; `left` are wanted bytes that no request covers yet.

    The last requests of a read are shorter, so that all threads and nodes end at about one time. Halves of
    `fetch_bytes` keep cuts on its grid.
    """
    longest = fetch_bytes
    while longest > max(TAIL_BYTES, left // threads) and longest % (2 * BLOCK_BYTES) == 0:
        longest //= 2
    return longest


def again(fetch: Fetch, pieces: Sequence[Piece], fetch_bytes: int) -> list[Fetch]:
    """Plans the wanted bytes of a failed request anew."""
    return list(split(Run(fetch.spans), pieces, fetch_bytes))
