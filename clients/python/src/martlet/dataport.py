"""Reads from the data port of a storage node."""

from __future__ import annotations

import enum
from urllib.parse import quote, urlsplit

from . import blocks
from .errors import ConnectionLost, Corrupt, MartletError, ProtocolError
from .pieces import Holder, Piece
from .plan import Fetch, parts
from .settings import BLOCK_BYTES
from .store import Store, pause_of
from .transport import place_of


class Remedy(enum.Enum):
    """Reaction to a refusal."""

    OTHER_HOLDER = "other holder"
    LOCATE_AGAIN = "locate again"
    GET = "get"


class Refused(MartletError):
    """Refusal by a storage node."""

    def __init__(self, text: str, remedy: Remedy, pause_s: float = 0.0) -> None:
        super().__init__(text)
        self.remedy = remedy
        self.pause_s = pause_s


def fetch(store: Store, request: Fetch, piece: Piece, holder: Holder, verify: str, scratch: memoryview) -> None:
    """Reads the parts of a request from one holder and compares every block. No error names the token."""
    place = place_of(holder.url)
    first, end = request.start - piece.start, request.end - piece.start
    target = f"{urlsplit(holder.url).path}?t={quote(holder.token, safe='-_.~')}"
    if verify == "client":
        target += "&verify=client"
    headers = {"Host": place.authority, "Range": f"bytes={first}-{end - 1}"}
    connection, head = store.exchange(place, "GET", target, headers)
    where = f"piece {piece.id} at {place}"
    try:
        if head.status != 206:
            raise refusal(head.status, head.headers, where)
        if head.length != end - first:
            raise ProtocolError(f"{where}: the reply has {head.length} bytes instead of {end - first}")
        if not head.headers.get("content-range", "").startswith(f"bytes {first}-{end - 1}/"):
            raise ProtocolError(f"{where}: the reply has another range than bytes {first}-{end - 1}")
        count = -(-end // BLOCK_BYTES) - first // BLOCK_BYTES
        sums = blocks.decode(head.headers.get("x-martlet-block-crc32c", ""), count)
        blocks.Receiver(connection, sums, scratch, where).receive(parts(request))
    except BaseException:
        # Whatever is left of the body must not meet the next request.
        connection.close()
        raise
    store.pool.give(connection)


def refusal(status: int, headers: dict[str, str], where: str) -> Refused:
    """Builds the error of a refusal, with the reaction that its cause needs."""
    cause = headers.get("x-martlet-refused", "")
    text = f"{where}: HTTP {status} {cause}".rstrip()
    if status == 403:
        return Refused(text, Remedy.LOCATE_AGAIN if cause == "expired" else Remedy.GET)
    if status in (404, 500, 502, 503, 504):
        return Refused(text, Remedy.OTHER_HOLDER, pause_of(headers))
    return Refused(text, Remedy.GET)


#: Failures after which another source is tried.
FAILURES = (Refused, Corrupt, ProtocolError, ConnectionLost)
