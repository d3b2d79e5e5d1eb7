"""The shell of a simulated node's calls to whichever controller leads: messages and timers of the simulated world."""

from __future__ import annotations

from typing import Any, assert_never

from sim.cluster.terms import NotController
from sim.cluster.world import OnAnswer, Process

from tidelog_foundation.errors import ErrorCode, TidelogError, error_for
from tidelog_node.broker.controller_call import (
    Attempt,
    CallTimings,
    Command,
    ControllerCall,
    ControllerChoice,
    GiveUp,
    Pause,
)

_ATTEMPT_MS = 250
_PAUSE_MS = 20
_MAX_PAUSE_MS = 100


class ControllerCalls:
    """The calls of one node. ``then`` gets the leading controller's response or error, or that of a call that ended."""

    def __init__(self, caller: Process, controllers: list[int], first: int) -> None:
        self._caller = caller
        self._choice = ControllerChoice(controllers, first)

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
        """Ask one after the other, or only one for as long as the call may take."""
        timings = CallTimings(timeout_ms, attempt_ms if repeats else timeout_ms, _PAUSE_MS, _MAX_PAUSE_MS)
        call = ControllerCall(self._choice, timings, self._caller.monotonic_ms(), repeats=repeats)
        self._attempt(call, (handler, request), then)

    def _attempt(self, call: ControllerCall[int], asked: tuple[str, Any], then: OnAnswer) -> None:
        self._perform(call.attempt(self._caller.monotonic_ms()), call, asked, then)

    def _perform(
        self, command: Command[int], call: ControllerCall[int], asked: tuple[str, Any], then: OnAnswer
    ) -> None:
        def take(answer: Any) -> None:
            if answer is not None and not isinstance(answer, NotController):
                then(answer)
                return
            hint = None if answer is None else answer.leader_id
            self._perform(call.fail(_error_of(answer), hint, self._caller.monotonic_ms()), call, asked, then)

        match command:
            case Attempt(address, timeout_ms):
                self._caller.call(self._caller.world.processes[address], "submit", asked, take, int(timeout_ms))
            case Pause(delay_ms):
                self._caller.after(int(delay_ms), self._attempt, call, asked, then)
            case GiveUp(error):
                then(error)
            case _:
                assert_never(command)


def _error_of(answer: NotController | None) -> TidelogError:
    code = ErrorCode.REQUEST_TIMED_OUT if answer is None else ErrorCode.NOT_CONTROLLER
    return error_for(code, "no controller answered")
