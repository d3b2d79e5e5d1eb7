"""Calls that may never end: what came of those that do, and nothing kept of them."""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Iterator

import pytest

from tidelog_chaos.workload.confluent.own_thread import OwnThread


@pytest.fixture
def own() -> Iterator[OwnThread]:
    made = OwnThread("own")
    yield made
    made.end()


class Thing:
    def fail(self) -> None:
        raise ValueError("failed")


def test_own_thread_returns_and_raises_what_a_call_does(own: OwnThread) -> None:
    assert own.run(lambda: 7, 10) == 7
    with pytest.raises(ValueError, match="failed"):
        own.run(Thing().fail, 10)
    assert own.run(threading.current_thread, 10) is not threading.current_thread()


def test_own_thread_makes_a_call_from_a_callback_at_once(own: OwnThread) -> None:
    assert own.run(lambda: own.run(lambda: 7, 10), 10) == 7


def test_own_thread_keeps_nothing_of_a_call_that_ended_or_failed(own: OwnThread) -> None:
    thing = Thing()
    end = weakref.ref(thing)
    gc.disable()
    try:
        with pytest.raises(ValueError, match="failed"):
            own.run(thing.fail, 10)
        own.run(lambda: None, 10)
        owners = [thing]
        del thing
        own.run(owners.clear, 10)
        assert end() is None
    finally:
        gc.enable()


def test_own_thread_gives_up_a_call_that_does_not_end_and_keeps_what_it_needs() -> None:
    own, released = OwnThread("own"), threading.Event()
    thing = Thing()
    end = weakref.ref(thing)
    owners = [thing]
    del thing

    def hang() -> None:
        kept = owners.pop()
        released.wait(10)
        del kept

    with pytest.raises(TimeoutError, match="it has not ended"):
        own.run(hang, 0.05)
    assert end() is not None
    released.set()
    own.end()
