"""Checkpoint sets: explicit commits, generations, holds and withdrawals."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

from .address import Address
from .errors import MartletError, NotFound, ProtocolError, StoreError
from .store import Store
from .upload import Written

# The server's limit of one document.
COMMIT_BYTES_MAX = 4 << 20


@dataclass(frozen=True)
class Generation:
    """One state of a checkpoint set."""

    number: int
    state: Literal["pending", "pinning", "committed", "removing"]
    objects: int
    bytes: int
    reason: str | None = None


@dataclass(frozen=True)
class Outcome:
    """Result of a commit."""

    state: Literal["committed", "pending", "refused"]
    generation: int | None = None
    reason: str | None = None

    @property
    def committed(self) -> bool:
        """True when the generation is in the view."""
        return self.state == "committed"


def commit(store: Store, folder: Address, objects: Iterable[Written], publish_as: str | None = None) -> Outcome:
    """Commits exactly these objects as a generation of a folder, or of the folder `publish_as`."""
    named = [{"key": it.address.key, "etag": it.etag.strip('"'), "size": it.size} for it in objects]
    document = json.dumps(named).encode()
    if len(document) > COMMIT_BYTES_MAX:
        raise MartletError(
            f"the commit of {folder} names {len(named)} objects in {len(document)} bytes; the limit is "
            f"{COMMIT_BYTES_MAX} bytes, some 35,000 objects: write fewer, larger objects"
        )
    query = {"checkpoint": folder.folder}
    if publish_as is not None:
        query["as"] = f"{publish_as.rstrip('/')}/"
    reply = _json(store, "POST", folder, query, memoryview(document))
    with _expected("POST", folder):
        return Outcome(reply["state"], reply.get("generation"), reply.get("reason"))


def generations(store: Store, folder: Address) -> list[Generation]:
    """Returns the generations of a set, the earliest first."""
    reply = _json(store, "GET", folder, {"checkpoint": folder.folder})
    with _expected("GET", folder):
        found = [
            Generation(int(it["generation"]), it["state"], it["objects"], it["bytes"], it.get("reason"))
            for it in reply["generations"]
        ]
    return sorted(found, key=lambda one: one.number)


def known(store: Store, folder: Address) -> list[Generation] | None:
    """Returns the generations of a set, the earliest first; None where the store has no such set, or no sets at all."""
    try:
        return generations(store, folder)
    except NotFound:
        return None
    except StoreError as error:
        # Other stores answer the query in ways of their own; a lack of permission is no such answer.
        if error.status in (400, 405, 409, 501):
            return None
        raise
    except ProtocolError:
        return None


def committed(found: list[Generation]) -> Generation | None:
    """Returns the newest committed one of the generations of a set, if there is one."""
    return next((one for one in reversed(found) if one.state == "committed"), None)


def newest(store: Store, folder: Address) -> Generation | None:
    """Returns the newest committed generation of a set; None where the store has none, or no such sets."""
    return committed(known(store, folder) or [])


def settled(store: Store, folder: Address, outcome: Outcome, wait_s: float) -> Outcome:
    """Waits while the server's worker completes a pending commit, for at most `wait_s`."""
    deadline = time.monotonic() + wait_s
    while outcome.state == "pending" and outcome.generation is not None and time.monotonic() < deadline:
        time.sleep(min(2.0, max(0.05, wait_s / 20)))
        found = next((it for it in generations(store, folder) if it.number == outcome.generation), None)
        if found is None:
            return Outcome("refused", outcome.generation, "the generation is gone")
        if found.state == "committed":
            return Outcome("committed", found.number)
        outcome = Outcome("pending", found.number, found.reason or outcome.reason)
    return outcome


def hold(store: Store, folder: Address, seconds: int, generation: int | None = None) -> int:
    """Keeps a generation, the newest by default, from removal for a time; returns its number."""
    query = {"checkpoint": folder.folder, "hold": str(seconds)}
    query.update({"generation": str(generation)} if generation is not None else {})
    reply = _json(store, "PUT", folder, query)
    with _expected("PUT", folder):
        return int(reply["generation"])


def withdraw(store: Store, folder: Address, generation: int | None = None, delete_objects: bool = False) -> int:
    """Takes one generation or all out of the view; returns how many."""
    query = {"checkpoint": folder.folder}
    query.update({"generation": str(generation)} if generation is not None else {})
    query.update({"objects": "delete"} if delete_objects else {})
    reply = _json(store, "DELETE", folder, query)
    with _expected("DELETE", folder):
        return int(reply["withdrawn"])


@contextmanager
def _expected(method: str, folder: Address) -> Iterator[None]:
    """Turns a lack of fields into an error of the protocol."""
    try:
        yield
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise ProtocolError(f"{method} ?checkpoint of {folder}: the reply has another form: {error!r}") from error


def _json(
    store: Store, method: str, folder: Address, query: dict[str, str], body: memoryview | None = None
) -> dict[str, Any]:
    if not folder.folder:
        raise MartletError(f"{folder} names no folder: a checkpoint set is martlet://BUCKET/FOLDER/")
    reply = store.request(method, Address(folder.bucket), query, {}, body)
    try:
        found = json.loads(reply.body)
    except ValueError:
        raise ProtocolError(f"{method} ?checkpoint of {folder}: the store has no checkpoint sets") from None
    if not isinstance(found, dict):
        raise ProtocolError(f"{method} ?checkpoint of {folder}: the reply is no object")
    return found
