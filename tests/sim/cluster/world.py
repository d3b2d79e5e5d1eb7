"""Simulated time, processes and a network for whole clusters: everything that happens is an event on one heap.

How long a message takes is a hash of the seed and of how many there were on that way before, so that equal schedules
give equal histories. A process has a clock of its own, which may be wrong, may be paused, and forgets everything when
it is stopped; what was meant for an earlier life of it never reaches a later one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import Any

from memory_disk import MachineCrashed
from raft_properties import PropertyViolatedError
from random_numbers import mix

Call = Callable[..., None]
OnAnswer = Callable[[Any], None]
Handler = Callable[[Any, OnAnswer], None]
"""Takes a request and what to give the answer to, now or later."""

MOST_AT_ONCE = 20_000
"""So many events at one time never end."""
_MASK = 0xFFFFFFFF


def rack_of(number: int) -> str:
    """Return where a process is: there are two places."""
    return f"rack-{number % 2}"


@dataclass(slots=True)
class Noise:
    """The network's faults until ``until_us``: percentages of messages, and delays of up to ``late_us``.

    They apply to the messages of ``process``, or to all if it is 0.
    """

    until_us: int
    process: int
    loss: int
    slow: int
    double: int
    late_us: int


class Process:
    """One process of the cluster, up or down. Whatever it does begins with :meth:`enter`."""

    def __init__(self, world: World, number: int, offset_ms: int, speed: int) -> None:
        self.world = world
        self.number = number
        self.is_up = False
        self.life = 0
        self.paused_until_us = 0
        self._offset_ms = offset_ms
        self._speed = speed
        self._backlog: list[tuple[Call, tuple[Any, ...]]] = []
        self._inbound: dict[int, tuple[int, _Exchange]] = {}
        world.processes[number] = self

    def monotonic_ms(self) -> int:
        """The process's own time: its clock is off, and faster or slower than it should be."""
        return self._offset_ms + self.world.now_us * self._speed // 1_000_000

    def wall_ms(self) -> int:
        """The time that users see."""
        return 1_000_000_000 + self.monotonic_ms()

    def due_us(self, at_ms: int) -> int:
        """Return the true time at which the process's own is ``at_ms``; not before now."""
        return max(self.world.now_us, -(-(at_ms - self._offset_ms) * 1_000_000 // self._speed))

    def jump(self, by_ms: int) -> None:
        """Put the clock forward."""
        self._offset_ms += by_ms

    @property
    def is_paused(self) -> bool:
        """Return whether the process takes no events now."""
        return self.paused_until_us > self.world.now_us

    def enter(self, life: int, call: Call, *arguments: Any) -> None:
        """Let something happen in the process: now, after its pause, or never when it is another life."""
        if life != self.life or not self.is_up:
            return
        if self.paused_until_us > self.world.now_us:
            self._backlog.append((call, arguments))
            return
        try:
            call(*arguments)
        except MachineCrashed:
            self.crashed()

    def after(self, delay_ms: float, call: Call, *arguments: Any) -> None:
        """Have something happen in this life of the process after a while of its own time."""
        delay_us = int(delay_ms * 1_000_000) // self._speed
        self.world.at(self.world.now_us + delay_us, self.enter, self.life, call, *arguments)

    def soon(self, call: Call, *arguments: Any) -> None:
        """Have something happen right after what happens now."""
        self.world.at(self.world.now_us, self.enter, self.life, call, *arguments)

    def pause(self, until_us: int) -> None:
        """Give the process no events for a while; then it gets all at once."""
        if until_us > self.paused_until_us:
            self.paused_until_us = until_us
            self.world.at(until_us, self._resume, self.life)

    def crashed(self) -> None:
        """The disk stopped the machine in the middle of an operation."""
        raise NotImplementedError

    def begin_life(self) -> None:
        """Be up."""
        self.is_up = True
        self.life += 1
        self.paused_until_us = 0

    def end_life(self) -> None:
        """Be down: whoever waits for an answer hears that the connection is gone."""
        self.is_up = False
        self.life += 1
        self._backlog.clear()
        inbound, self._inbound = self._inbound, {}
        for _, exchange in inbound.values():
            exchange.reset()

    def call(self, to: Process, handler: str, request: Any, on_answer: OnAnswer, timeout_ms: int) -> None:
        """Ask another process; ``on_answer`` gets its answer once, or None when there is none in time."""
        _Exchange(self, to, handler, request, on_answer, timeout_ms).begin()

    def received(self, exchange: _Exchange) -> None:
        """Handle a request that has arrived."""
        self._inbound[id(exchange)] = (self.life, exchange)
        getattr(self, exchange.handler)(exchange.request, exchange.answer)

    def answered(self, exchange: _Exchange) -> None:
        """Record that a request has its answer."""
        self._inbound.pop(id(exchange), None)

    def _resume(self, life: int) -> None:
        if self.is_paused or life != self.life:
            return
        backlog, self._backlog = self._backlog, []
        for call, arguments in backlog:
            self.enter(life, call, *arguments)


class _Exchange:
    """A request and its answer."""

    __slots__ = (
        "_is_done",
        "_is_handled",
        "_on_answer",
        "_sender",
        "_sender_life",
        "_timeout_ms",
        "_to",
        "handler",
        "request",
    )

    def __init__(
        self, sender: Process, to: Process, handler: str, request: Any, on_answer: OnAnswer, timeout_ms: int
    ) -> None:
        self.handler = handler
        self.request = request
        self._sender = sender
        self._sender_life = sender.life
        self._to = to
        self._on_answer = on_answer
        self._timeout_ms = timeout_ms
        self._is_done = False
        self._is_handled = False

    def begin(self) -> None:
        self._sender.after(self._timeout_ms, self._finish, None)
        self._sender.world.send(self._sender.number, self._to.number, self._arrive)

    def _arrive(self) -> None:
        if not self._to.is_up:
            self.reset()
        elif not self._is_done and not self._is_handled:
            # Who gave up has cancelled the call; a call comes once over a connection.
            self._to.enter(self._to.life, self._handle)

    def _handle(self) -> None:
        if not self._is_handled:
            self._is_handled = True
            self._to.received(self)

    def answer(self, answer: Any) -> None:
        """Send the answer; only the first one counts."""
        self._to.answered(self)
        self._sender.world.send(self._to.number, self._sender.number, self._deliver, answer)

    def reset(self) -> None:
        """The other side is gone: tell the caller unless the network is cut."""
        self._sender.world.send(self._to.number, self._sender.number, self._deliver, None)

    def _deliver(self, answer: Any) -> None:
        self._sender.enter(self._sender_life, self._finish, answer)

    def _finish(self, answer: Any) -> None:
        if not self._is_done:
            self._is_done = True
            self._on_answer(answer)


class World:
    """The heap of events and the network; ``now_us`` is the true time."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.now_us = 0
        self.events = 0
        self.fingerprint = 0
        self.processes: dict[int, Process] = {}
        self.cuts: dict[tuple[int, int], int] = {}
        self.noises: list[Noise] = []
        self.trace: Callable[[str], None] | None = None
        self.stray_percent = 0
        """The share of the requests of transactions that arrive twice."""
        self._order = 0
        self._heap: list[tuple[int, int, Call, tuple[Any, ...]]] = []
        self._sent: dict[tuple[int, int], int] = {}

    @property
    def now_ms(self) -> int:
        """The true time in milliseconds."""
        return self.now_us // 1000

    def at(self, at_us: int, call: Call, *arguments: Any) -> None:
        """Have something happen at a time."""
        self._order += 1
        heappush(self._heap, (at_us, self._order, call, arguments))

    def run_until(self, end_us: int) -> None:
        """Let everything happen that is due before a time."""
        heap, began = self._heap, self.events
        while heap and heap[0][0] < end_us:
            at_us, _, call, arguments = heappop(heap)
            if at_us > self.now_us:
                self.now_us, began = at_us, self.events
            self.events += 1
            call(*arguments)
            if self.events - began > MOST_AT_ONCE:
                raise PropertyViolatedError("Livelock", f"{call} and more at {at_us} us")
        self.now_us = end_us

    def note(self, *numbers: int) -> None:
        """Make numbers a part of the history's fingerprint."""
        self.fingerprint = hash((self.fingerprint, self.now_us, *numbers))

    def send(self, sender: int, to: int, call: Call, *arguments: Any, can_double: bool = False) -> None:
        """Have ``call`` happen at another process after the time that a message takes, or never."""
        way = (sender, to)
        count = self._sent[way] = self._sent.get(way, 0) + 1
        dice = mix(self.seed, sender, to, count)
        delay_us = 200 + dice % 1_500
        if self.noises:
            self.noises = [noise for noise in self.noises if noise.until_us > self.now_us]
        for noise in self.noises:
            if noise.process and noise.process not in way:
                continue
            more = mix(dice, count)
            if more % 100 < noise.loss:
                return
            if (more >> 8) % 100 < noise.slow:
                delay_us += (dice >> 8) % noise.late_us
            if can_double and (more >> 16) % 100 < noise.double:
                self.at(self.now_us + delay_us + more % noise.late_us, self._arrive, way, call, arguments)
        self.at(self.now_us + delay_us, self._arrive, way, call, arguments)

    def stray(self, sender: int, to: int, handler: str, request: Any) -> bool:
        """Let a share of the requests arrive once more, late, over a connection that the sender has given up.

        Return whether this one does.
        """
        if not self.stray_percent:
            return False
        count = self._sent.get((sender, to), 0)
        dice = mix(self.seed, to, sender, count)
        if dice % 100 >= self.stray_percent:
            return False
        at_us = self.now_us + (30, 100, 400)[(dice >> 8) % 3] * 1_000
        self.at(at_us, self._arrive, (sender, to), self._handle_stray, (to, handler, request))
        return True

    def _handle_stray(self, to: int, handler: str, request: Any) -> None:
        process = self.processes[to]
        process.enter(process.life, getattr(process, handler), request, lambda _: None)

    def cut(self, sender: int, to: int, until_us: int) -> None:
        """Let no message from one process reach another for a while."""
        self.cuts[sender, to] = max(self.cuts.get((sender, to), 0), until_us)

    def heal(self) -> None:
        """Have a good network."""
        self.cuts.clear()
        self.noises.clear()

    def _arrive(self, way: tuple[int, int], call: Call, arguments: tuple[Any, ...]) -> None:
        if self.cuts and self.cuts.get(way, 0) > self.now_us:
            return
        call(*arguments)
