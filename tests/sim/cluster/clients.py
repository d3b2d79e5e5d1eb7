"""Clients of a simulated cluster: what producers and consumers know of it, and an administrator."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from sim.cluster.serving import Key
from sim.cluster.world import Process, World

from tidelog_foundation.errors import ErrorCode, TidelogError, error_for

if TYPE_CHECKING:
    from sim.cluster.checker import Checker

_BACKOFF_MS = 20


class ClientProcess(Process):
    """A client that knows who leads, until somebody tells otherwise."""

    def __init__(self, world: World, number: int, clock: tuple[int, int], checker: Checker, nodes: list[int]) -> None:
        super().__init__(world, number, *clock)
        self.checker = checker
        self.leaders: dict[Key, tuple[int, int, tuple[int, ...]]] = {}
        self._nodes = nodes
        self._asked = number
        self._is_refreshing = self._is_wanted_again = False
        self.begin_life()

    def crashed(self) -> None:
        raise AssertionError("clients have no disk")

    def refresh(self) -> None:
        """Ask a node who leads, and the next one when it does not answer; once more when that is under way."""
        if self._is_refreshing:
            self._is_wanted_again = True
            return
        self._is_refreshing = True
        self._is_wanted_again = False
        self._asked += 1
        node = self.world.processes[self._nodes[self._asked % len(self._nodes)]]
        self.call(node, "describe", None, self._take_leaders, 150)

    def learned(self) -> None:
        """Hear that a node has told who leads."""

    def leader_of(self, key: Key) -> tuple[int, int] | None:
        """Return who leads a partition in which epoch, as far as this client knows."""
        known = self.leaders.get(key)
        return None if known is None or known[0] < 0 else known[:2]

    def _take_leaders(self, answer: dict[Key, tuple[int, int, tuple[int, ...]]] | None) -> None:
        for key, (leader, epoch, replicas) in (answer or {}).items():
            known = self.leaders.get(key)
            if known is None or epoch >= known[1]:
                self.leaders[key] = leader, epoch, replicas
        self._is_wanted_again |= answer is None
        self.after(_BACKOFF_MS, self._end_refresh)
        if answer is not None:
            self.learned()

    def _end_refresh(self) -> None:
        self._is_refreshing = False
        if self._is_wanted_again:
            self.refresh()


class Administrator(ClientProcess):
    """Asks controllers, and leaders for deletions, once and for all: what fails has failed."""

    def ask(
        self, controllers: list[int], handler: str, request: Any, then: Callable[[Any], None] | None = None
    ) -> None:
        """Ask every controller; one of them leads."""
        for number in controllers:
            answer = then if then is not None else _ignore
            self.call(self.world.processes[number], "submit", (handler, request), answer, 500)

    def delete_records(self, key: Key, offset: int) -> None:
        """Delete the records below an offset."""
        leader = self.leader_of(key)
        self.refresh()
        if leader is not None:
            self.call(self.world.processes[leader[0]], "delete_records", (key, offset), _ignore, 500)


def no_answer(node: int) -> TidelogError:
    """Return the error of a call that nobody answered in time."""
    return error_for(ErrorCode._TRANSPORT, f"node {node} did not answer")


def backoff_ms(attempt: int) -> float:
    """Return the wait after so many failures in a row."""
    return min(20.0 * 2 ** min(attempt - 1, 10), 100.0)


def _ignore(_answer: Any) -> None:
    pass
