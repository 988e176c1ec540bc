"""Plans of reads: every wanted byte is fetched once, by requests that fit their piece's blocks."""

from __future__ import annotations

import random

import pytest

import martlet
from martlet.dataport import Remedy, refusal
from martlet.locate import parse_page
from martlet.pieces import Holder, Piece
from martlet.plan import Span, again, fetch_bytes_of, merge, parts, sections, spans_of, split
from martlet.store import ObjectInfo

BLOCK = 65_536


def random_pieces(rng: random.Random, size: int) -> list[Piece]:
    found, at = [], 0
    while at < size:
        length = min(size - at, rng.choice([1, 5000, BLOCK, 3 * BLOCK, 10 * BLOCK + 77]))
        holders = (Holder("http://h/x/1", "t"),) if rng.random() < 0.8 else ()
        if rng.random() < 0.95:
            found.append(Piece("1", at, length, holders, at, at + length))
        at += length
    return found


def test_every_wanted_byte_is_fetched_once(rng: random.Random) -> None:
    for _ in range(300):
        size = rng.randrange(1, 60 * BLOCK)
        body = rng.randbytes(size)
        wanted = []
        for _ in range(rng.randrange(1, 12)):
            start = rng.randrange(size)
            length = min(size - start, rng.choice([0, 1, 100, BLOCK, 7 * BLOCK]))
            wanted.append((start, bytearray(length)))
        gap = rng.choice([0, 1000, 4 * BLOCK])
        pieces = random_pieces(rng, size)
        for run in merge([spans_of(start, memoryview(into)) for start, into in wanted], gap):
            for before, after in zip(run.spans, run.spans[1:], strict=False):
                assert 0 <= after.offset - before.end <= gap
            for fetch in split(run, pieces, 4 * BLOCK):
                assert 0 < fetch.end - fetch.start <= 4 * BLOCK
                assert sum(part.length for part in parts(fetch)) == fetch.end - fetch.start
                if fetch.piece is not None:
                    assert fetch.piece.holders
                    assert (fetch.start - fetch.piece.start) % BLOCK == 0
                    end = fetch.end - fetch.piece.start
                    assert end % BLOCK == 0 or fetch.end == fetch.piece.end
                    assert fetch.piece.start <= fetch.start < fetch.end <= fetch.piece.end
                at = fetch.start
                for part in parts(fetch):
                    if part.into is not None:
                        part.into[:] = body[at : at + part.length]
                    at += part.length
        for start, into in wanted:
            assert into == body[start : start + len(into)]


def test_the_last_requests_are_shorter() -> None:
    mib, threads = 1 << 20, 8
    assert fetch_bytes_of(256 * mib, threads, 8 * mib) == 8 * mib
    assert fetch_bytes_of(64 * mib - 1, threads, 8 * mib) == 4 * mib
    assert fetch_bytes_of(1, threads, 8 * mib) == 2 * mib
    assert fetch_bytes_of(1, threads, mib) == mib, "short requests stay as they are"
    assert fetch_bytes_of(1, threads, 65 * BLOCK) == 65 * BLOCK, "cuts lie between blocks"
    lengths, left = [], 100 * mib
    while left:
        lengths.append(min(left, fetch_bytes_of(left, threads, 8 * mib)))
        left -= lengths[-1]
    assert lengths == sorted(lengths, reverse=True)
    assert sum(lengths[-threads:]) <= threads * 2 * mib


def test_shorter_requests_keep_the_grid() -> None:
    piece = Piece("1", 0, 3 * BLOCK * 128 + 5, (Holder("http://h/x/1", "t"),), 0, 3 * BLOCK * 128 + 5)
    [run] = merge([spans_of(1000, memoryview(bytearray(piece.length - 1000)))], 0)
    for fetch in split(run, [piece], 128 * BLOCK):
        cut = again(fetch, [piece], 32 * BLOCK)
        assert [one.end for one in cut[:-1]] == [one.start for one in cut[1:]], "no block is fetched twice"
        assert (cut[0].start, cut[-1].end) == (fetch.start, fetch.end)
        assert all(one.start % (32 * BLOCK) == 0 for one in cut[1:])


def test_sections_cover_a_range_in_order(rng: random.Random) -> None:
    for _ in range(300):
        size = rng.randrange(1, 40 * BLOCK)
        start = rng.randrange(size)
        end = rng.randrange(start, size) + 1
        at = start
        for first, last, piece in sections(start, end, random_pieces(rng, size)):
            assert first == at < last
            assert piece is None or piece.start <= first < last <= piece.end
            at = last
        assert at == end


@pytest.mark.parametrize("buffer", [b"read only", memoryview(bytearray(10))[::2]])
def test_wrong_buffers(buffer: object) -> None:
    with pytest.raises(martlet.MartletError, match="writable"):
        spans_of(0, memoryview(buffer))  # type: ignore[arg-type]


def test_buffers_of_other_items() -> None:
    import array

    assert spans_of(0, memoryview(array.array("d", [1.0, 2.0]))).into.nbytes == 16
    assert Span(5, memoryview(bytearray(3))).end == 8


PAGE = """{"size": 10, "etag": "e", "versionId": null, "stamp": "s", "expires_ms": 1000, "direct": true, "reason": null,
"extents": [%s], "next": %s}"""
PIECE = '{"piece": 0, "id": "1", "from": %d, "length": %d, "holders": []}'
EXTENT = '{"id": "1", "offset": %d, "length": %d, "blake3": "0", "code": null, "pieces": [%s]}'


@pytest.mark.parametrize(
    ("extents", "after"),
    [
        (EXTENT % (0, 10, PIECE % (0, 11)), "null"),
        (EXTENT % (0, 10, PIECE % (5, 6)), "null"),
        (EXTENT % (0, 10, PIECE % (0, 0)), "null"),
        (EXTENT % (-1, 10, PIECE % (0, 10)), "null"),
        (f"{EXTENT % (0, 10, PIECE % (0, 10))}, {EXTENT % (5, 5, PIECE % (0, 5))}", "null"),
        (EXTENT % (0, 10, PIECE % (0, 10)), "0"),
        (EXTENT % (0, 10, PIECE % (0, 10)), "10"),
        ("[]", "null"),
        ("{}", "null"),
        ("x", "null"),
    ],
)
def test_wrong_locations_are_refused(extents: str, after: str) -> None:
    info = ObjectInfo(martlet.Address("b", "k"), 10, "e", None, True)
    with pytest.raises(martlet.errors.ProtocolError):
        parse_page((PAGE % (extents, after)).encode(), info, 0, 10)


def test_remedies() -> None:
    remedies = {
        (403, "expired"): Remedy.LOCATE_AGAIN, (403, "range"): Remedy.GET, (403, "network"): Remedy.GET,
        (404, "gone"): Remedy.OTHER_HOLDER, (503, "device"): Remedy.OTHER_HOLDER,
        (503, "overload"): Remedy.OTHER_HOLDER,
        (400, ""): Remedy.GET, (405, ""): Remedy.GET, (416, ""): Remedy.GET,
    }  # fmt: skip
    for (status, cause), remedy in remedies.items():
        assert refusal(status, {"x-martlet-refused": cause}, "a piece").remedy is remedy
    assert refusal(503, {"x-martlet-refused": "overload", "retry-after": "3"}, "a piece").pause_s == 3
