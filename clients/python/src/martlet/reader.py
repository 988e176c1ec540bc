"""Parallel reader of one object version, with its order of sources: holders, located again, then GET."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field

from . import dataport, direct, forks, plan
from .direct import ABSENT, DirectSocket, Lease, Refusal
from .errors import OVERWRITTEN, ConnectionLost, Corrupt, MartletError, ObjectChanged, ProtocolError, Untrusted
from .locate import WINDOW_BYTES, Locations, own_host_id
from .pieces import Holder, Piece
from .plan import Fetch, Run, Span
from .progress import Progress, serialized
from .settings import BLOCK_BYTES
from .store import ObjectInfo, Store
from .transport import SCRATCH_BYTES, Place, place_of
from .version_check import VersionCheck
from .workers import Workers

LOG = logging.getLogger("martlet")
# Runs of a read that wants many short ranges share a locate if they span at most this much.
SPREAD_MAX = 4 * WINDOW_BYTES
# Servers that warnings name, each once.
NAMED_MAX = 1024
# Reads that a holder may serve beyond those of the least busy one before that one is taken.
BUSIER = 1
# A node that was silent or cut a connection is asked last for this long.
SUSPECT_S = 10.0
# A data port whose TLS failed for good is left out for this long; a renewed certificate counts after it.
DISTRUST_S = 60.0
_memory = threading.local()


def scratch() -> memoryview:
    """Returns a block of memory that belongs to this thread."""
    found: memoryview | None = getattr(_memory, "scratch", None)
    if found is None:
        found = _memory.scratch = memoryview(bytearray(max(BLOCK_BYTES, SCRATCH_BYTES)))
    return found


@dataclass
class Stats:
    """Counts of a reader: which way bytes came, and what went wrong on the way."""

    direct_bytes: int = 0
    #: Bytes of `direct_bytes` that came from files on this machine.
    local_bytes: int = 0
    get_bytes: int = 0
    requests: int = 0
    other_holder: int = 0
    located_again: int = 0
    corrupt: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False, compare=False)

    def renew(self) -> None:
        """Replaces the lock in a forked child."""
        self._lock = threading.Lock()

    def add(self, **counts: int) -> None:
        """Adds to some counts."""
        with self._lock:
            for name, count in counts.items():
                setattr(self, name, getattr(self, name) + count)


@dataclass(frozen=True)
class _Planned:
    """Request of a plan, with the state of locations from which it was made."""

    fetch: Fetch
    epoch: int


class Reader:
    """Reader of one object version. Threads may share it."""

    def __init__(self, store: Store, info: ObjectInfo, workers: Workers, local: DirectSocket | None = None) -> None:
        self._local = local
        self.info = info
        self.stats = Stats()
        self._store = store
        self._workers = workers
        self._locations = Locations(store, info)
        self._version = VersionCheck(info)
        self._announced = False
        forks.register(self)

    def after_fork(self) -> None:
        """Replaces the lock of the counts, which a thread of the parent may have held."""
        self.stats.renew()

    @property
    def direct(self) -> bool:
        """True as long as large reads go to storage nodes."""
        return not self.reason

    @property
    def reason(self) -> str:
        """Cause why reads go by plain GET; empty if they don't."""
        if self._store.settings.direct == "never":
            return "direct reads are turned off by direct='never'"
        if not self.info.martlet:
            return "the store is no Martlet server"
        return self._locations.reason

    def read_into(self, spans: Iterable[Span], progress: Progress | None = None) -> None:
        """Fills the memory of all spans. Each must lie within the object."""
        wanted = [plan.spans_of(span.offset, span.into) for span in spans]
        for span in wanted:
            if span.offset < 0 or span.end > self.info.size:
                raise ValueError(
                    f"bytes {span.offset}-{span.end} lie outside of {self.info.address}, "
                    f"which has {self.info.size} bytes"
                )
        runs = plan.merge(wanted, self._store.settings.gap_bytes)
        if not runs:
            return
        total = sum(span.into.nbytes for span in wanted)
        direct = total >= self._store.settings.direct_min_bytes and self._may_locate()
        advance = serialized(progress)
        self._workers.each(self._plan(runs, direct), lambda planned: self._run(planned, advance))
        self._announce()

    def pieces(self, first: int, end: int) -> list[Piece]:
        """Returns the stored pieces under a range; none where the object is read by GET."""
        return self._locations.cover(first, end) if self._may_locate() else []

    @contextmanager
    def lent(self, piece: Piece) -> Iterator[Lease | None]:
        """Borrows a piece of this machine; None where it can't be had. The caller compares its bytes."""
        with ExitStack() as stack:
            yield self._borrow(piece, stack)[0]

    def _borrow(self, piece: Piece, stack: ExitStack) -> tuple[Lease | None, Holder | None]:
        """Borrows a piece from a holder until the stack ends; None where no node of this machine lends it."""
        local = self._local
        if local is None or not local.usable:
            return None, None
        for holder in self._own_holders(piece, local.home):
            try:
                lease = stack.enter_context(local.lease(piece.id, holder.token, place_of(holder.url)))
            except (Refusal, ConnectionLost, ProtocolError) as error:
                LOG.info("%s: %s", self.info.address, error)
                if isinstance(error, Refusal) and error.code == ABSENT:
                    continue
                return None, None
            # A lease from before may have come by the token of another holder: the socket's own is the node.
            own = [it for it in piece.holders if place_of(it.url) == local.home]
            return lease, own[0] if own else holder
        return None, None

    @staticmethod
    def _own_holders(piece: Piece, home: Place | None) -> list[Holder]:
        """Returns the holders on this machine; only that of the socket's node, once this node is known."""
        here = [it for it in piece.holders if it.host_id and it.host_id == own_host_id()]
        return [it for it in here if place_of(it.url) == home] or here

    def _may_locate(self) -> bool:
        return self._store.settings.direct == "auto" and self.info.martlet and bool(self.info.etag)

    def _plan(self, runs: Sequence[Run], direct: bool) -> Iterator[_Planned]:
        """Yields requests just in time: tokens of a plan that was made early would end."""
        first, last = runs[0].start, runs[-1].end
        settings = self._store.settings
        left = sum(span.into.nbytes for run in runs for span in run.spans)
        for run in runs:
            for part in _windows(run):
                pieces: Sequence[Piece] = ()
                if direct:
                    # Neighbouring runs are located together.
                    end = max(part.end, min(last, part.start + WINDOW_BYTES)) if last - first < SPREAD_MAX else part.end
                    pieces = self._locations.cover(part.start, end)
                epoch = self._locations.epoch
                for fetch in plan.split(part, pieces, settings.fetch_bytes):
                    longest = plan.fetch_bytes_of(left, settings.threads, settings.fetch_bytes)
                    left -= sum(span.into.nbytes for span in fetch.spans)
                    shorter = [fetch] if longest == settings.fetch_bytes else plan.again(fetch, pieces, longest)
                    for one in shorter:
                        yield _Planned(one, epoch)

    def _run(self, planned: _Planned, advance: Progress) -> None:
        fetch = planned.fetch
        remedy = self._from_holders(fetch)
        if remedy is dataport.Remedy.LOCATE_AGAIN:
            self.stats.add(located_again=1)
            self._locations.forget(planned.epoch)
            pieces = self._locations.cover(*fetch.wanted)
            for one in plan.again(fetch, pieces, self._store.settings.fetch_bytes):
                if self._from_holders(one) is not None:
                    self._get(one)
        elif remedy is not None:
            self._get(fetch)
        advance(sum(span.into.nbytes for span in fetch.spans))

    def _from_holders(self, fetch: Fetch) -> dataport.Remedy | None:
        """Reads from the first holder that can serve a request; returns the remedy if none can."""
        piece = fetch.piece
        if piece is None:
            return dataport.Remedy.GET
        if time.time() > piece.expires_s:
            return dataport.Remedy.LOCATE_AGAIN
        verify = self._store.settings.verify
        read, damaged = self._from_file(fetch, piece)
        if read:
            return None
        sources = [(holder, verify) for holder in self._in_order(fetch, piece) if holder != damaged]
        if damaged is not None and not self._store.pool.is_distrusted(place_of(damaged.url)):
            sources.insert(0, (damaged, "node"))
        # Remedies of all failures: a holder that can't be trusted has none, since locate would name it again.
        remedies = set[dataport.Remedy]()
        while sources:
            holder, how = sources.pop(0)
            self.stats.add(requests=1)
            try:
                with self._store.pool.counted(place_of(holder.url)):
                    dataport.fetch(self._store, fetch, piece, holder, how, scratch())
            except dataport.FAILURES as error:
                LOG.info("%s: %s", self.info.address, error)
                self._remember(holder, error)
                if isinstance(error, dataport.Refused) and error.remedy is dataport.Remedy.LOCATE_AGAIN:
                    return error.remedy
                if isinstance(error, Corrupt) and how == "client":
                    # The node verifies this time, and quarantines what its disk has wrong.
                    sources.insert(0, (holder, "node"))
                    continue
                if isinstance(error, dataport.Refused):
                    remedies.add(error.remedy)
                elif not isinstance(error, Untrusted):
                    remedies.add(dataport.Remedy.OTHER_HOLDER)
                self.stats.add(other_holder=1)
                continue
            self.stats.add(direct_bytes=sum(span.into.nbytes for span in fetch.spans))
            return None
        may_help = remedies and dataport.Remedy.GET not in remedies
        return dataport.Remedy.LOCATE_AGAIN if may_help else dataport.Remedy.GET

    def _remember(self, holder: Holder, error: MartletError) -> None:
        """Keeps what a failure means for later reads: whether its holder comes last, or is left out."""
        place, pool = place_of(holder.url), self._store.pool
        if isinstance(error, dataport.Refused) and error.pause_s:
            pool.suspect(place, error.pause_s)
        elif isinstance(error, Untrusted):
            pool.distrust(place, DISTRUST_S)
            if _untrusted.first(place):
                LOG.warning("%s; its bytes are read at other nodes or by GET", error)
        elif isinstance(error, ConnectionLost):
            pool.suspect(place, SUSPECT_S)
        elif isinstance(error, Corrupt):
            self.stats.add(corrupt=1)

    def _in_order(self, fetch: Fetch, piece: Piece) -> list[Holder]:
        """Returns the holders in the order of locate, begun elsewhere for each range, suspects last, distrusted none.

        All readers of a range begin with one holder: its page cache serves them, and each node serves its share. A
        holder that has more to do for this client than another one is passed over: extents aren't spread evenly.
        """
        pool = self._store.pool
        places = {it: place for it in piece.holders if not pool.is_distrusted(place := place_of(it.url))}
        least = min((pool.busy(place) for place in places.values() if not pool.is_suspect(place)), default=0)
        begin = (fetch.start - piece.start) // self._store.settings.fetch_bytes % len(piece.holders)
        turned = [it for it in (*piece.holders[begin:], *piece.holders[:begin]) if it in places]
        return sorted(turned, key=lambda it: (pool.is_suspect(places[it]), pool.busy(places[it]) > least + BUSIER))

    def _from_file(self, fetch: Fetch, piece: Piece) -> tuple[bool, Holder | None]:
        """Reads from this machine's node by a descriptor. Returns false where that can't be.

        Names the node as well if its file has a wrong block: this node must verify, and quarantine the extent.
        """
        with ExitStack() as stack:
            lease, holder = self._borrow(piece, stack)
            if lease is None:
                return False, None
            try:
                direct.read(lease, fetch, piece, scratch(), self._store.settings.direct_io)
            except (Corrupt, ProtocolError, ConnectionLost) as error:
                self.stats.add(corrupt=int(isinstance(error, Corrupt)))
                LOG.info("%s: %s", self.info.address, error)
                return False, holder if isinstance(error, Corrupt) else None
        count = sum(span.into.nbytes for span in fetch.spans)
        self.stats.add(direct_bytes=count, local_bytes=count)
        return True, None

    def _get(self, fetch: Fetch) -> None:
        """Reads the wanted bytes of a request by GET."""
        start, end = fetch.wanted
        plain = Fetch(start, end, fetch.spans, None)
        info = self.info
        what = f"GET {info.address} bytes {start}-{end - 1}"
        headers = {"Range": f"bytes={start}-{end - 1}"}
        headers.update({"If-Match": info.etag} if info.etag else {})

        def attempt() -> None:
            connection, head = self._store.open("GET", info.address, {}, headers)
            if head.status not in (200, 206):
                refusal = self._store.refuse(connection, head, what)
                # The object had these bytes: a store that ignores If-Match has a shorter one now.
                raise ObjectChanged(f"{refusal}. {OVERWRITTEN}", status=416) if head.status == 416 else refusal
            try:
                self._version.check(head, start, end, what)
                for part in plan.parts(plain):
                    if part.into is None:
                        connection.discard(part.length, scratch())
                    else:
                        connection.read_into(part.into)
            except BaseException:
                connection.close()
                raise
            self._store.pool.give(connection)

        self.stats.add(requests=1)
        self._store.retrying(what, attempt)
        self.stats.add(get_bytes=sum(span.into.nbytes for span in fetch.spans))

    def _announce(self) -> None:
        """Logs once why an object is read by GET, and once for each store that is no Martlet server."""
        if self._announced or not self.reason:
            return
        self._announced = True
        if self.info.martlet:
            LOG.info("%s is read by GET: %s", self.info.address, self.reason)
        elif _announced_stores.first(self._store.endpoint):
            LOG.warning("%s: %s; objects are read by parallel GETs", self._store.endpoint, self.reason)


class _Named:
    """Servers that a warning has named: each once, at most `NAMED_MAX`. Threads share it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._names: set[Place | str] = set()
        forks.register(self)

    def after_fork(self) -> None:
        """Replaces the lock, which a thread of the parent may have held."""
        self._lock = threading.Lock()

    def first(self, name: Place | str) -> bool:
        """Returns true the first time that a server is named."""
        with self._lock:
            if name in self._names or len(self._names) >= NAMED_MAX:
                return False
            self._names.add(name)
            return True


_announced_stores = _Named()
# Reads go another way around these data ports, and so look well.
_untrusted = _Named()


def _windows(run: Run) -> Iterator[Run]:
    """Cuts a run at multiples of a window."""
    at = run.start
    while at < run.end:
        stop = min(run.end, (at // WINDOW_BYTES + 1) * WINDOW_BYTES)
        spans = plan.within(run.spans, at, stop)
        if spans:
            yield Run(spans)
        at = stop
