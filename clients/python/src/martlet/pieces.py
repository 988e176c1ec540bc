"""Stored pieces of an object, as locate describes them."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Holder:
    """Node that holds a piece, with the grant to read it. The grant is no part of its text form."""

    url: str
    token: str = field(repr=False)
    host_id: str = ""


@dataclass(frozen=True)
class Piece:
    """Run of the object's bytes that lies contiguous in one stored extent or fragment."""

    id: str
    #: First byte of the piece in the object.
    start: int
    length: int
    holders: tuple[Holder, ...]
    #: Bytes of the object for which the tokens were granted.
    granted_first: int
    granted_end: int
    #: End of the tokens, in seconds since 1970.
    expires_s: float = float("inf")

    @property
    def end(self) -> int:
        """End of the piece in the object."""
        return self.start + self.length
