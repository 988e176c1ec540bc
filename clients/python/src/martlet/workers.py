"""Threads of a client. A call shares its work with them and takes part itself, so calls may nest."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Generic, TypeVar

from . import forks
from .errors import MartletError

T = TypeVar("T")


class Workers:
    """Pool of threads that starts when it is first needed, and anew in a forked child."""

    def __init__(self, threads: int) -> None:
        self.threads = threads
        self._lock = threading.Lock()
        self._pool: ThreadPoolExecutor | None = None
        self._closing = False
        forks.register(self)

    def after_fork(self) -> None:
        """Forgets the parent's threads, which don't exist here."""
        self._lock = threading.Lock()
        self._pool = None
        self._closing = False

    def submit(self, task: Callable[[], T]) -> Future[T]:
        """Runs one task in the pool; an error while the pool is being closed."""
        with self._lock:
            if self._closing:
                raise MartletError("the client is being closed")
            if self._pool is None:
                self._pool = ThreadPoolExecutor(self.threads, thread_name_prefix="martlet")
            return self._pool.submit(task)

    def each(self, items: Iterator[T], task: Callable[[T], None]) -> None:
        """Calls the task for each item, in several threads; returns once no thread works on one any more.

        The first error ends the work and is raised. Where no thread can start, the caller's does the work.
        """
        shared = _Shared(items)
        one, two = shared.next(), shared.next()
        shared.raise_error()
        if one is None:
            return
        if two is None:
            shared.finish()
            task(one)
            return
        shared.put_back([one, two])
        helpers: list[Future[None]] = []
        try:
            with contextlib.suppress(RuntimeError, MartletError):
                # A helper whose thread can't start may stay queued, and begin later: it counts itself.
                for _ in range(self.threads - 1):
                    helpers.append(self.submit(lambda: shared.work(task)))
            shared.work(task)
        except BaseException as error:
            shared.fail(error)
        finally:
            shared.finish()
            for helper in helpers:
                helper.cancel()
            shared.wait()
        shared.raise_error()

    def close(self) -> None:
        """Ends the threads. Calls under way go on in the threads of their callers."""
        with self._lock:
            pool, self._pool, self._closing = self._pool, None, True
        try:
            if pool is not None:
                pool.shutdown(wait=True, cancel_futures=True)
        finally:
            with self._lock:
                self._closing = False


class _Shared(Generic[T]):
    """Iterator that several threads take from."""

    def __init__(self, items: Iterator[T]) -> None:
        self._items = items
        self._first: list[T] = []
        self._lock = threading.Lock()
        self._idle = threading.Condition(self._lock)
        self._working = 0
        self._done = False
        self.error: BaseException | None = None

    def raise_error(self) -> None:
        if self.error is not None:
            raise self.error

    def put_back(self, items: list[T]) -> None:
        self._first = items

    def next(self) -> T | None:
        with self._lock:
            if self._done:
                return None
            if self._first:
                return self._first.pop(0)
            try:
                return next(self._items, None)
            except BaseException as error:
                self._done = True
                self.error = self.error or error
                return None

    def fail(self, error: BaseException) -> None:
        with self._lock:
            self._done = True
            self.error = self.error or error

    def finish(self) -> None:
        with self._lock:
            self._done = True

    def work(self, task: Callable[[T], None]) -> None:
        """Calls the task for items until none is left, or the work has ended."""
        with self._lock:
            if self._done:
                return
            self._working += 1
        try:
            while (item := self.next()) is not None:
                task(item)
        except BaseException as error:
            self.fail(error)
        finally:
            with self._lock:
                self._working -= 1
                self._idle.notify_all()

    def wait(self) -> None:
        """Returns once no thread works on an item, even after an interrupt, which is kept as the error."""
        while True:
            try:
                with self._lock:
                    while self._working:
                        self._idle.wait()
                    return
            except BaseException as error:
                self.fail(error)
