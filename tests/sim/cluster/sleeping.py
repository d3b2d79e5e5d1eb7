"""Runs what waits in the product in simulated time: sessions whose requests sleep, and coroutines that never wait."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from sim.cluster.world import Process

from tidelog_foundation.errors import TidelogError
from tidelog_node.handlers.fetch_sessions import OpenSession
from tidelog_node.replication import FetchSession

T = TypeVar("T")


class _Timer:
    def __init__(self, call: Callable[[], None]) -> None:
        self._call: Callable[[], None] | None = call

    def cancel(self) -> None:
        self._call = None

    def fire(self) -> None:
        if self._call is not None:
            self._call()


class SimulatedSession(OpenSession):
    """A fetch session whose requests wait in simulated time."""

    def __init__(self, process: Process, state: FetchSession) -> None:
        super().__init__(state)
        self._process = process

    def call_soon(self, call: Callable[[], None]) -> None:
        self._process.soon(call)

    def call_later(self, delay_s: float, call: Callable[[], None]) -> _Timer:
        timer = _Timer(call)
        self._process.after(delay_s * 1000, timer.fire)
        return timer


def drive(steps: Coroutine[Any, Any, Any], then: Callable[[Any], None]) -> None:
    """Run a coroutine that waits for nothing; ``then`` hears what it returns, or the TidelogError that it raises.

    It may give way to others, of whom there are none while it runs.
    """
    try:
        while True:
            assert steps.send(None) is None, "it waits"
    except StopIteration as end:
        then(end.value)
    except TidelogError as error:
        then(error)


def returned(steps: Coroutine[Any, Any, T]) -> T:
    """Return what a coroutine returns that waits for nothing but a lock that is free: nothing else holds it here."""
    try:
        steps.send(None)
    except StopIteration as end:
        result: T = end.value
        return result
    raise AssertionError("a step waited")
