"""Threads of a client. A call shares its work with them and takes part itself, so calls may nest."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Generic, TypeVar

from . import forks

T = TypeVar("T")


class Workers:
    """Pool of threads that starts when it is first needed, and anew in a forked child."""

    def __init__(self, threads: int) -> None:
        self.threads = threads
        self._lock = threading.Lock()
        self._pool: ThreadPoolExecutor | None = None
        forks.register(self)

    def after_fork(self) -> None:
        """Forgets the parent's threads, which don't exist here."""
        self._lock = threading.Lock()
        self._pool = None

    def _started(self) -> ThreadPoolExecutor:
        with self._lock:
            if self._pool is None:
                self._pool = ThreadPoolExecutor(self.threads, thread_name_prefix="martlet")
            return self._pool

    def submit(self, task: Callable[[], T]) -> Future[T]:
        """Runs one task in the pool."""
        return self._started().submit(task)

    def each(self, items: Iterator[T], task: Callable[[T], None]) -> None:
        """Calls the task for each item, in several threads; returns once no thread works on one any more.

        The first error ends the work and is raised.
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

        def loop() -> None:
            while (item := shared.next()) is not None:
                try:
                    task(item)
                except BaseException as error:
                    shared.fail(error)
                    raise

        helpers = [self._started().submit(loop) for _ in range(self.threads - 1)]
        try:
            loop()
        except BaseException as error:
            shared.fail(error)
        finally:
            shared.finish()
            for helper in helpers:
                # A helper that hasn't begun isn't waited for: its threads may be busy with callers of their own.
                if not helper.cancel():
                    helper.exception()
        shared.raise_error()

    def close(self) -> None:
        """Ends the threads."""
        with self._lock:
            if self._pool is not None:
                self._pool.shutdown(wait=True, cancel_futures=True)
            self._pool = None


class _Shared(Generic[T]):
    """Iterator that several threads take from."""

    def __init__(self, items: Iterator[T]) -> None:
        self._items = items
        self._first: list[T] = []
        self._lock = threading.Lock()
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
