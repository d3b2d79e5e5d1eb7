"""Simulated time for a cluster of Raft replicas: messages take a while, disks take a while, clocks are wrong.

Everything that happens is an event on one heap. How long a message or a sync takes is a hash of the seed and of how
many there were on that link or disk before, so that equal schedules give equal histories.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from heapq import heappop, heappush
from typing import Any

from raft_properties import PropertyViolatedError
from raft_simulation import Letter, SimulatedCluster
from random_numbers import LowestNumbers, SeededNumbers, mix
from sim.schedule import STALE_LEADER, Schedule

from tidelog_quorum.raft.core.commands import Command
from tidelog_quorum.raft.core.events import Event, Tick
from tidelog_quorum.raft.core.leadership import Leadership
from tidelog_quorum.raft.core.messages import Snapshot, SnapshotResponse, TimeoutNow, VoteRequest, VoteResponse
from tidelog_quorum.raft.core.raft import Raft
from tidelog_quorum.raft.core.replica import RandomSource

FOREVER = 1 << 60
SPINS_ALLOWED = 20
REMEMBERED = (VoteRequest, VoteResponse, TimeoutNow, SnapshotResponse)
"""Messages that are rare, and so all kept to be replayed; of the others every fifth is."""


@dataclass(slots=True)
class Surroundings:
    """The surroundings of one replica: its clock, its pause, its disk's speed; ``life`` counts its starts."""

    offset_ms: int
    speed: int
    random: SeededNumbers
    life: int = 0
    paused_until_us: int = 0
    stalled_until_us: int = 0
    is_syncing: bool = False
    syncs: int = 0
    spins: int = 0
    wake_us: int = FOREVER
    has_failed: bool = False
    wipes: int = 0
    backlog: list[tuple[Callable[..., None], tuple[Any, ...]]] = field(default_factory=list)


@dataclass(slots=True)
class Noise:
    """A network's faults until ``until_us``: percentages of messages, and delays of up to ``late_us``."""

    until_us: int
    replica: int
    loss: int
    slow: int
    double: int
    late_us: int


class TimedCluster(SimulatedCluster):
    """A cluster whose replicas draw their timeouts each from a sequence of its own."""

    def __init__(self, world: World, schedule: Schedule, check_every: int) -> None:
        self._world = world
        super().__init__(
            schedule.voters,
            schedule.config,
            LowestNumbers(),
            known_directories=schedule.known_directories,
            chunk_bytes=schedule.chunk_bytes,
            check_every=check_every,
            knows_all_addresses=True,
        )

    def random_of(self, node_id: int) -> RandomSource:
        return self._world.around_of(node_id).random


class World:
    """A cluster in simulated time; ``now_us`` is the true time."""

    def __init__(self, schedule: Schedule, *, check_every: int = 8) -> None:
        self.schedule = schedule
        self.now_us = 0
        self.around: dict[int, Surroundings] = {}
        self.cuts: dict[tuple[int, int], int] = {}
        self.noises: list[Noise] = []
        self.history: list[Letter] = []
        self.fingerprint = 0
        self.events = 0
        self.on_command: Callable[[int, Command], None] | None = None
        self.doomed: dict[int, tuple[int, int]] = {}
        self._order = 0
        self._heap: list[tuple[int, int, Callable[..., None], tuple[Any, ...]]] = []
        self._sent: dict[tuple[int, int], int] = {}
        self._last_arrival: dict[tuple[int, int], int] = {}
        self.cluster = TimedCluster(self, schedule, check_every)
        self.cluster.post = self._post
        for node_id in self.cluster.nodes:
            self._begin(node_id)
        for _ in range(schedule.observers):
            self.add_observer()

    @property
    def now_ms(self) -> int:
        """The true time in milliseconds."""
        return self.now_us // 1000

    def around_of(self, node_id: int) -> Surroundings:
        """Return what is around a replica, made up when it is new."""
        if node_id not in self.around:
            offset_ms, speed = self.schedule.clocks[node_id % len(self.schedule.clocks)]
            self.around[node_id] = Surroundings(offset_ms, speed, SeededNumbers(self.schedule.seed, node_id))
        return self.around[node_id]

    def at(self, at_us: int, call: Callable[..., None], *arguments: Any) -> None:
        """Have something happen at a time."""
        self._order += 1
        heappush(self._heap, (at_us, self._order, call, arguments))

    def run_until(self, end_us: int) -> None:
        """Let everything happen that is due before a time."""
        heap = self._heap
        while heap and heap[0][0] < end_us:
            self.now_us, _, call, arguments = heappop(heap)
            call(*arguments)
        self.now_us = end_us

    def step(self, node_id: int, event: Event) -> list[Command]:
        """Let a running replica take an event at its own time."""
        self.set_clock(node_id)
        commands = self.cluster.step(node_id, event)
        self.settle(node_id)
        return commands

    def set_clock(self, node_id: int) -> None:
        """Tell a replica its own time."""
        around = self.around[node_id]
        self.cluster.nodes[node_id].now_ms = around.offset_ms + self.now_us * around.speed // 1_000_000

    def settle(self, node_id: int) -> None:
        """After each step: begin the next sync and set the timer."""
        self.events += 1
        node, around = self.cluster.nodes[node_id], self.around[node_id]
        raft = node.raft
        if raft is None:
            return
        self.fingerprint = hash((self.fingerprint, self.now_us, node_id, raft.term, raft.commit_index))
        if node_id in self.doomed:
            self.crash(node_id, *self.doomed.pop(node_id))
            return
        if node.disk.pending and not around.is_syncing:
            around.is_syncing = True
            around.syncs += 1
            delay_us = 300 + mix(self.schedule.seed, node_id, around.syncs, 2) % 2_000
            begin_us = max(self.now_us, around.stalled_until_us)
            self.at(begin_us + delay_us, self._synced, node_id, around.life, len(node.disk.pending))
        self._set_timer(node_id, raft, around)

    def leader(self, *, stale: bool = False) -> int | None:
        """Return who leads in the latest term, or of those who believe to lead the one with the oldest term."""
        leaders = [
            (node.raft.term, node_id)
            for node_id, node in self.cluster.nodes.items()
            if node.raft is not None and type(node.raft.role) is Leadership
        ]
        if not leaders:
            return None
        return min(leaders)[1] if stale else max(leaders)[1]

    def pick(self, target: int) -> int | None:
        """Return the replica that an action means; None when nobody leads."""
        if target < 0:
            return self.leader(stale=target == STALE_LEADER)
        ids = list(self.cluster.nodes)
        return ids[target % len(ids)]

    def is_paused(self, node_id: int) -> bool:
        """Return whether a replica takes no events now."""
        return self.around[node_id].paused_until_us > self.now_us

    def crash(self, node_id: int, keep: int, down_ms: int) -> None:
        """Kill a replica; it starts again after a while unless its disk has failed."""
        node, around = self.cluster.nodes[node_id], self.around[node_id]
        if node.raft is None:
            return
        self.cluster.crash(node_id, keep % (len(node.disk.pending) + 1))
        around.life += 1
        around.backlog.clear()
        around.is_syncing = False
        around.paused_until_us = 0
        around.wake_us = FOREVER
        if not around.has_failed:
            self.at(self.now_us + down_ms * 1000, self.restart, node_id, around.life)

    def restart(self, node_id: int, life: int) -> None:
        """Start a replica that is still down since ``life``."""
        around = self.around[node_id]
        if self.cluster.nodes[node_id].raft is None and around.life == life and not around.has_failed:
            self.set_clock(node_id)
            self.cluster.restart(node_id)
            self._begin(node_id)

    def add_observer(self) -> int:
        """Start a replica with a new id and an empty disk."""
        node_id = max(self.cluster.nodes) + 1
        self.cluster.add(node_id)
        self._begin(node_id)
        return node_id

    def pause(self, node_id: int, until_us: int) -> None:
        """Give a replica no events for a while; then it gets all at once."""
        around = self.around[node_id]
        if until_us > around.paused_until_us:
            around.paused_until_us = until_us
            self.at(until_us, self.resume, node_id)

    def resume(self, node_id: int) -> None:
        """Hand over what has come in during a pause that is over."""
        around = self.around[node_id]
        if self.is_paused(node_id):
            return
        backlog, around.backlog = around.backlog, []
        around.wake_us = FOREVER
        for call, arguments in backlog:
            call(*arguments)
        if self.cluster.nodes[node_id].raft is not None:
            self.settle(node_id)

    def postpone(self, node_id: int, call: Callable[..., None], *arguments: Any) -> None:
        """Have something reach a paused replica after its pause."""
        self.around[node_id].backlog.append((call, arguments))

    def take_snapshot(self, node_id: int, delay_ms: int) -> None:
        """Capture a replica's state now and have it on the disk after a while."""
        captured = self.cluster.capture(node_id)
        if captured is not None:
            life = self.around[node_id].life
            self.at(self.now_us + delay_ms * 1000, self._finish_snapshot, node_id, life, *captured)

    def deliver(self, letter: Letter) -> None:
        """Hand over a message, now or after the receiver's pause."""
        way = (letter.sender, letter.to)
        if self.cuts.get(way, 0) > self.now_us:
            return
        node = self.cluster.nodes.get(letter.to)
        if node is None or node.raft is None:
            return
        around = self.around[letter.to]
        if around.paused_until_us > self.now_us:
            around.backlog.append((self.deliver, (letter,)))
            return
        self.set_clock(letter.to)
        self.cluster.deliver(letter)
        self.settle(letter.to)

    def wipe(self, node_id: int) -> None:
        """Give a replica that is down an empty disk."""
        around = self.around[node_id]
        around.wipes += 1
        self.cluster.wipe(node_id, b"again-%d-%d" % (node_id, around.wipes))

    def _begin(self, node_id: int) -> None:
        around = self.around_of(node_id)
        around.wake_us = FOREVER
        around.spins = 0
        self.step(node_id, Tick())

    def _post(self, letter: Letter) -> None:
        way = (letter.sender, letter.to)
        count = self._sent[way] = self._sent.get(way, 0) + 1
        dice = mix(self.schedule.seed, letter.sender, letter.to, count)
        delay_us = 300 + dice % 2_500
        if (count % 5 == 0 or type(letter.message) in REMEMBERED) and len(self.history) < 300:
            self.history.append(letter)
        late = False
        for noise in self.noises:
            if noise.until_us <= self.now_us or (noise.replica and noise.replica not in way):
                continue
            more = mix(dice, count)
            if more % 100 < noise.loss:
                return
            if (more >> 8) % 100 < noise.slow:
                delay_us += (dice >> 8) % noise.late_us
                late = True
            if (more >> 16) % 100 < noise.double:
                self.at(self.now_us + delay_us + more % noise.late_us, self.deliver, letter)
        at_us = self.now_us + delay_us
        if self.schedule.is_ordered and not late:
            at_us = self._last_arrival[way] = max(at_us, self._last_arrival.get(way, 0) + 1)
        self.at(at_us, self.deliver, letter)

    def _synced(self, node_id: int, life: int, count: int) -> None:
        around = self.around[node_id]
        if around.life != life:
            return
        if around.paused_until_us > self.now_us:
            around.backlog.append((self._synced, (node_id, life, count)))
            return
        if around.stalled_until_us > self.now_us:
            self.at(around.stalled_until_us, self._synced, node_id, life, count)
            return
        around.is_syncing = False
        self.set_clock(node_id)
        self.cluster.sync(node_id, count)
        self.settle(node_id)

    def _finish_snapshot(self, node_id: int, life: int, snapshot: Snapshot, content: bytes) -> None:
        around = self.around[node_id]
        if around.life != life:
            return
        if around.paused_until_us > self.now_us:
            around.backlog.append((self._finish_snapshot, (node_id, life, snapshot, content)))
            return
        self.set_clock(node_id)
        self.cluster.finish_snapshot(node_id, snapshot, content)
        self.settle(node_id)

    def _set_timer(self, node_id: int, raft: Raft, around: Surroundings) -> None:
        deadline_ms = raft.next_deadline_ms
        if deadline_ms is None:
            return
        at_us = -(-(deadline_ms - around.offset_ms) * 1_000_000 // around.speed)
        if at_us < self.now_us:
            at_us = self.now_us
        if at_us < around.wake_us:
            around.wake_us = at_us
            self.at(at_us, self._wake, node_id, at_us)

    def _wake(self, node_id: int, at_us: int) -> None:
        around = self.around[node_id]
        if around.wake_us != at_us:
            return
        around.wake_us = FOREVER
        node = self.cluster.nodes[node_id]
        raft = node.raft
        if raft is None or around.paused_until_us > self.now_us:
            return
        self.set_clock(node_id)
        deadline_ms = raft.next_deadline_ms
        if deadline_ms is None or deadline_ms > node.now_ms:
            self._set_timer(node_id, raft, around)
            return
        commands = self.cluster.step(node_id, Tick())
        after_ms = raft.next_deadline_ms
        around.spins = around.spins + 1 if not commands and after_ms is not None and after_ms <= node.now_ms else 0
        if around.spins > SPINS_ALLOWED:
            raise PropertyViolatedError("IdleTimer", f"{node_id} wants a tick at {after_ms} again and again")
        self.settle(node_id)
