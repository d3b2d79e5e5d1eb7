"""Runs coroutines of the product in simulated time: they may wait for a :class:`Sleep`, and for nothing else."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Generator
from typing import Any

from sim.cluster.world import Process

from tidelog.errors import TidelogError
from tidelog_node.handlers.fetch_sessions import OpenSession
from tidelog_node.replication import FetchSession


class Sleep:
    """What a coroutine awaits: it goes on when somebody wakes it, or when its time is over. True: it was woken."""

    def __init__(self, process: Process, timeout_ms: float) -> None:
        self._process = process
        self._life = process.life
        self._timeout_ms = timeout_ms
        self._is_over = self._is_woken = False
        self._go_on: Callable[[bool], None] | None = None

    def __await__(self) -> Generator[Sleep, bool, bool]:
        return (yield self)

    def begin(self, go_on: Callable[[bool], None]) -> None:
        """Say who sleeps."""
        self._go_on = go_on
        self._process.after(self._timeout_ms, self._end, False)

    def wake(self) -> None:
        """Go on right after what happens now; nobody does whose process has ended."""
        if self._process.life == self._life and not self._is_woken:
            self._is_woken = True
            self._process.soon(self._end, True)

    def _end(self, was_woken: bool) -> None:
        if not self._is_over:
            self._is_over = True
            assert self._go_on is not None
            self._go_on(was_woken)


class SimulatedSession(OpenSession):
    """A fetch session whose requests wait in simulated time."""

    def __init__(self, process: Process, state: FetchSession) -> None:
        super().__init__(state)
        self._process = process
        self._sleeping: Sleep | None = None

    def hurry(self) -> None:
        super().hurry()
        if self._sleeping is not None:
            self._sleeping.wake()

    async def _sleep(self, timeout_s: float) -> None:
        sleep = self._sleeping = Sleep(self._process, timeout_s * 1000)
        try:
            await sleep
        finally:
            if self._sleeping is sleep:
                self._sleeping = None


def drive(steps: Coroutine[Any, bool, Any], then: Callable[[Any], None]) -> None:
    """Run a coroutine to its end, which ``then`` hears of: what it returns, or the TidelogError that it raises."""

    def go_on(was_woken: bool | None) -> None:
        try:
            sleep = steps.send(was_woken)  # type: ignore[arg-type]
        except StopIteration as end:
            then(end.value)
        except TidelogError as error:
            then(error)
        else:
            assert isinstance(sleep, Sleep), sleep
            sleep.begin(go_on)

    go_on(None)


def run_through(steps: Coroutine[Any, Any, None]) -> None:
    """Do what waits for nothing but a lock that is free: nothing else holds it here."""
    try:
        steps.send(None)
    except StopIteration:
        return
    raise AssertionError("a step waited")
