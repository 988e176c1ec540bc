"""Threads of a client: what fails to start, errors, interrupts and closing."""

from __future__ import annotations

import threading
import time

import pytest

import martlet
from martlet.workers import Workers


def test_no_thread_works_on_after_a_thread_could_not_start(monkeypatch: pytest.MonkeyPatch) -> None:
    workers, begun, done = Workers(8), [], []
    start, started = threading.Thread.start, []

    def limited(thread: threading.Thread) -> None:
        if len(started) == 2:
            raise RuntimeError("can't start new thread")
        started.append(thread)
        start(thread)

    def task(item: int) -> None:
        begun.append(item)
        time.sleep(0.001)
        done.append(item)

    monkeypatch.setattr(threading.Thread, "start", limited)
    workers.each(iter(range(100)), task)
    count = len(begun)
    assert len(done) == count == 100
    monkeypatch.undo()
    workers.close()
    assert len(begun) == count


def test_the_first_error_ends_the_work_of_all_threads() -> None:
    workers, done = Workers(4), []

    def task(item: int) -> None:
        if item == 5:
            raise martlet.MartletError("the fifth")
        time.sleep(0.001)
        done.append(item)

    with pytest.raises(martlet.MartletError, match="the fifth"):
        workers.each(iter(range(1000)), task)
    count = len(done)
    time.sleep(0.05)
    assert len(done) == count < 1000
    workers.close()


def test_an_interrupt_is_raised_once_no_thread_works_on(monkeypatch: pytest.MonkeyPatch) -> None:
    workers, taken, interrupted, done = Workers(2), threading.Event(), threading.Event(), []
    wait = threading.Condition.wait

    def interrupting(condition: threading.Condition, timeout: float | None = None) -> bool:
        if threading.current_thread() is threading.main_thread() and not interrupted.is_set():
            interrupted.set()
            raise KeyboardInterrupt
        return wait(condition, timeout)

    def task(item: int) -> None:
        if threading.current_thread() is threading.main_thread():
            # The helper has the other item before this thread waits for it.
            assert taken.wait(5)
            monkeypatch.setattr(threading.Condition, "wait", interrupting)
            return
        taken.set()
        while not interrupted.is_set():
            time.sleep(0.001)
        time.sleep(0.02)
        done.append(item)

    with pytest.raises(KeyboardInterrupt):
        workers.each(iter(range(2)), task)
    assert len(done) == 1
    monkeypatch.undo()
    workers.close()


def test_closing_waits_for_calls_that_nest() -> None:
    workers, nested = Workers(3), []

    def task() -> None:
        time.sleep(0.1)
        workers.each(iter(range(5)), nested.append)

    workers.submit(task)
    time.sleep(0.02)
    closing = threading.Thread(target=workers.close, daemon=True)
    closing.start()
    time.sleep(0.02)
    with pytest.raises(martlet.MartletError, match="being closed"):
        workers.submit(task)
    closing.join(10)
    assert not closing.is_alive()
    assert sorted(nested) == list(range(5))
    assert workers.submit(lambda: 7).result() == 7
    workers.close()
