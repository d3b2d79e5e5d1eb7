"""A simulated node's calls to whichever controller leads, as ``ControllerClient`` has them."""

from __future__ import annotations

from typing import Any

from sim.cluster.terms import NotController
from sim.cluster.world import OnAnswer, Process

from tidelog_foundation.errors import ErrorCode, error_for

_ATTEMPT_MS = 250
_PAUSE_MS = 20


class ControllerCalls:
    """Follows the hint of a controller that does not lead, and tries the next one when one is silent."""

    def __init__(self, caller: Process, controllers: list[int], first: int) -> None:
        self._caller = caller
        self._controllers = controllers
        self._next = first

    def ask(
        self,
        handler: str,
        request: Any,
        then: OnAnswer,
        timeout_ms: int,
        attempt_ms: int = _ATTEMPT_MS,
        *,
        repeats: bool = True,
    ) -> None:
        """Ask one after the other, or only one; ``then`` gets the leading one's response or error, or a timeout's."""
        if repeats:
            self._attempt(0, self._caller.monotonic_ms() + timeout_ms, attempt_ms, handler, request, then)
        else:
            self._ask_once(timeout_ms, handler, request, then)

    def _attempt(
        self, failures: int, deadline_ms: int, attempt_ms: int, handler: str, request: Any, then: OnAnswer
    ) -> None:
        remaining_ms = deadline_ms - self._caller.monotonic_ms()
        if remaining_ms <= 0:
            then(error_for(ErrorCode.REQUEST_TIMED_OUT, "no controller answered"))
            return
        asked = self._next

        def take(answer: Any) -> None:
            if answer is not None and not isinstance(answer, NotController):
                then(answer)
                return
            self._turn(asked, answer)
            arguments = failures + 1, deadline_ms, attempt_ms, handler, request, then
            if (failures + 1) % len(self._controllers) == 0:
                self._caller.after(min(_PAUSE_MS * (failures + 1), 100), self._attempt, *arguments)
            else:
                self._attempt(*arguments)

        to = self._caller.world.processes[self._controllers[asked]]
        self._caller.call(to, "submit", (handler, request), take, min(attempt_ms, remaining_ms))

    def _ask_once(self, timeout_ms: int, handler: str, request: Any, then: OnAnswer) -> None:
        asked = self._next

        def take(answer: Any) -> None:
            if answer is not None and not isinstance(answer, NotController):
                then(answer)
                return
            self._turn(asked, answer)
            code = ErrorCode.REQUEST_TIMED_OUT if answer is None else ErrorCode.NOT_CONTROLLER
            then(error_for(code, "no controller answered"))

        to = self._caller.world.processes[self._controllers[asked]]
        self._caller.call(to, "submit", (handler, request), take, timeout_ms)

    def _turn(self, asked: int, answer: NotController | None) -> None:
        hint = None if answer is None else answer.leader_id
        self._next = (asked + 1) % len(self._controllers) if hint is None else self._controllers.index(hint)
