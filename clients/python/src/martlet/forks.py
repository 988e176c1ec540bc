"""Locks and connections after a fork: a child must not use those of its parent."""

from __future__ import annotations

import os
import weakref
from typing import Protocol


class Forkable(Protocol):
    """State that begins anew in a forked child."""

    def after_fork(self) -> None:
        """Replaces locks, and forgets connections and threads of the parent."""


_alive: weakref.WeakSet[Forkable] = weakref.WeakSet()


def register(state: Forkable) -> None:
    """Has `after_fork` called in each child, for as long as the object lives."""
    _alive.add(state)


def _renew() -> None:
    for state in list(_alive):
        state.after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew)
