"""Connections of brokers to the leading controller, and the examination of a broker whose connection broke.

Rules (docs/decisions/0007):

1. A broker keeps one call open per registration. A later call replaces the one before, whose end then has no meaning.
   The end of the leadership ends all calls and has no meaning either.
2. When a broker's call breaks, the controller connects to the broker's listeners at the address from which the call
   came. It skips listeners that advertise another address, where a proxy may answer.
3. Only refusals by all of these listeners, several times in a row, mean that the process is gone. A listener that
   accepts belongs to a live process. Silence may be a network failure, and ends the examination.
4. The controller reports the broker as refused since the start of that round, unless the broker has another call by
   then. A heartbeat that was handled later outweighs the report; then another round follows.
5. A broker has at most one examination at a time, and few brokers are examined at once; the others wait.
"""

from __future__ import annotations

import enum
from collections import deque
from collections.abc import Sequence
from ipaddress import IPv4Address, IPv6Address
from typing import TypeAlias, assert_never

from tidelog_foundation.dataclass import dataclass
from tidelog_foundation.ids import BrokerEpoch, BrokerId
from tidelog_quorum.controller.sessions import BrokerRefused
from tidelog_quorum.controller.state_machine import Controller
from tidelog_quorum.metadata.registrations import BrokerRegistration

_REFUSALS = 3
"""Refusals in a row that count as gone. Several are needed because a listener may be opened again meanwhile."""
_ATTEMPTS = 12
"""The maximum of attempts in a round. An ending process may close its connections some time before its listeners."""
_PAUSE_MS = 30
_ROUNDS = 3
_MAX_AT_ONCE = 32

IpAddress: TypeAlias = IPv4Address | IPv6Address
Broker: TypeAlias = tuple[BrokerId, BrokerEpoch]


class Answer(enum.Enum):
    """Outcome of connecting to a listener."""

    REFUSED = enum.auto()
    """No listener is open."""
    ACCEPTED = enum.auto()
    """A listener is open, or was a moment ago: a closing listener resets the connections that it has not accepted."""
    NONE = enum.auto()
    """No answer. The network may be broken."""


@dataclass(frozen=True, slots=True)
class CallOpened:
    """A broker opened a call, over a connection from ``origin``, None if unknown."""

    call_id: int
    broker: Broker
    origin: IpAddress | None


@dataclass(frozen=True, slots=True)
class CallBroken:
    """The connection of a call broke."""

    call_id: int


@dataclass(frozen=True, slots=True)
class CallEnded:
    """This controller ended a call."""

    call_id: int


@dataclass(frozen=True, slots=True)
class ListenersFound:
    """The ports of a broker's listeners at the address of its call; the answer to ``FindListeners``."""

    broker: Broker
    ports: Sequence[int]


@dataclass(frozen=True, slots=True)
class Connected:
    """The outcome at each of a broker's listeners; the answer to ``Connect``."""

    broker: Broker
    answers: Sequence[Answer]


@dataclass(frozen=True, slots=True)
class PauseEnded:
    """The time of ``Pause`` has passed."""

    broker: Broker


@dataclass(frozen=True, slots=True)
class Reported:
    """The controller handled a ``Report``; ``is_settled`` is its answer, True also if it cannot answer."""

    broker: Broker
    is_settled: bool


@dataclass(frozen=True, slots=True)
class FindListeners:
    """Find the listeners of a broker that are at an address."""

    broker: Broker
    origin: IpAddress
    registration: BrokerRegistration


@dataclass(frozen=True, slots=True)
class Connect:
    """Connect to each port at an address."""

    broker: Broker
    origin: IpAddress
    ports: Sequence[int]


@dataclass(frozen=True, slots=True)
class Pause:
    """Wait between two attempts."""

    broker: Broker
    pause_ms: int


@dataclass(frozen=True, slots=True)
class Report:
    """Report to the controller that all listeners of a broker, at these ports, refuse."""

    refused: BrokerRefused
    origin: IpAddress
    ports: Sequence[int]


Event: TypeAlias = CallOpened | CallBroken | CallEnded | ListenersFound | Connected | PauseEnded | Reported
Command: TypeAlias = FindListeners | Connect | Pause | Report


class _Stage(enum.Enum):
    """The event that an examination waits for."""

    QUEUED = enum.auto()
    FINDING = enum.auto()
    CONNECTING = enum.auto()
    PAUSING = enum.auto()
    REPORTING = enum.auto()


@dataclass(slots=True)
class _Examination:
    broker: Broker
    origin: IpAddress
    stage: _Stage = _Stage.QUEUED
    rounds: int = 0
    since_ms: int = 0
    ports: Sequence[int] = ()
    attempts: int = 0
    refusals: int = 0


class BrokerConnections:
    """The connections of a process, for its whole life. It reads the committed image of ``controller``."""

    def __init__(self, controller: Controller) -> None:
        self._controller = controller
        self._calls: dict[int, tuple[Broker, IpAddress | None]] = {}
        self._open_calls: dict[Broker, int] = {}
        self._examinations: dict[Broker, _Examination] = {}
        self._queue: deque[_Examination] = deque()
        self._commands: list[Command] = []

    def has_call(self, broker_id: BrokerId, broker_epoch: BrokerEpoch) -> bool:
        """Return True if this registration of a broker has an open call."""
        return (broker_id, broker_epoch) in self._open_calls

    def step(self, event: Event, now_ms: int) -> list[Command]:
        """Process an event and return the commands in order."""
        self._commands = []
        match event:
            case CallOpened(call_id, broker, origin):
                self._calls[call_id] = broker, origin
                self._open_calls[broker] = call_id
            case CallEnded(call_id):
                self._end_call(call_id)
            case CallBroken(call_id):
                broker, origin = self._calls[call_id]
                if self._end_call(call_id) and origin is not None and broker not in self._examinations:
                    examination = self._examinations[broker] = _Examination(broker, origin)
                    self._queue.append(examination)
            case ListenersFound(broker, ports):
                self._take_listeners(self._examination(broker, _Stage.FINDING), ports)
            case Connected(broker, answers):
                self._take_answers(self._examination(broker, _Stage.CONNECTING), answers)
            case PauseEnded(broker):
                self._connect(self._examination(broker, _Stage.PAUSING))
            case Reported(broker, is_settled):
                self._take_verdict(self._examination(broker, _Stage.REPORTING), is_settled, now_ms)
            case _:
                assert_never(event)
        while self._queue and self._under_way() < _MAX_AT_ONCE:
            self._begin_round(self._queue.popleft(), now_ms)
        return self._commands

    def check_invariants(self) -> None:
        """Assert what holds between any two events."""
        assert all(self._calls[call_id][0] == broker for broker, call_id in self._open_calls.items())
        assert all(e.stage is _Stage.QUEUED for e in self._queue)
        assert all((e in self._queue) == (e.stage is _Stage.QUEUED) for e in self._examinations.values())
        assert self._under_way() <= _MAX_AT_ONCE
        for examination in self._examinations.values():
            assert examination.rounds <= _ROUNDS
            assert examination.refusals <= min(examination.attempts, _REFUSALS)

    def _end_call(self, call_id: int) -> bool:
        """Remove a call. Return True if it was the broker's latest."""
        broker, _ = self._calls.pop(call_id)
        if self._open_calls.get(broker) != call_id:
            return False
        del self._open_calls[broker]
        return True

    def _under_way(self) -> int:
        return len(self._examinations) - len(self._queue)

    def _examination(self, broker: Broker, stage: _Stage) -> _Examination:
        examination = self._examinations[broker]
        assert examination.stage is stage, examination
        return examination

    def _begin_round(self, examination: _Examination, now_ms: int) -> None:
        broker_id, broker_epoch = examination.broker
        registration = self._controller.committed.brokers.get(broker_id)
        if registration is None or registration.broker_epoch != broker_epoch or registration.fenced:
            self._finish(examination)
            return
        examination.rounds += 1
        examination.attempts = examination.refusals = 0
        examination.since_ms = now_ms
        examination.stage = _Stage.FINDING
        self._commands.append(FindListeners(examination.broker, examination.origin, registration))

    def _take_listeners(self, examination: _Examination, ports: Sequence[int]) -> None:
        if ports:
            examination.ports = ports
            self._connect(examination)
        else:
            self._finish(examination)

    def _connect(self, examination: _Examination) -> None:
        examination.attempts += 1
        examination.stage = _Stage.CONNECTING
        self._commands.append(Connect(examination.broker, examination.origin, examination.ports))

    def _take_answers(self, examination: _Examination, answers: Sequence[Answer]) -> None:
        examination.refusals = 0 if Answer.ACCEPTED in answers else examination.refusals + 1
        if Answer.NONE in answers:
            self._finish(examination)
        elif examination.refusals == _REFUSALS:
            self._report(examination)
        elif examination.attempts == _ATTEMPTS:
            self._finish(examination)
        else:
            examination.stage = _Stage.PAUSING
            self._commands.append(Pause(examination.broker, _PAUSE_MS))

    def _report(self, examination: _Examination) -> None:
        if examination.broker in self._open_calls:
            self._finish(examination)
            return
        examination.stage = _Stage.REPORTING
        refused = BrokerRefused(*examination.broker, examination.since_ms)
        self._commands.append(Report(refused, examination.origin, examination.ports))

    def _take_verdict(self, examination: _Examination, is_settled: bool, now_ms: int) -> None:
        if is_settled or examination.rounds == _ROUNDS:
            self._finish(examination)
        else:
            self._begin_round(examination, now_ms)

    def _finish(self, examination: _Examination) -> None:
        del self._examinations[examination.broker]
