"""The controllers: real Raft replicas and the real controller, and a small shell between them.

The shell does what ``QuorumController`` does, in the same order: handle, propose, append; the answer waits until all
that the request could see is committed, or fails when the leadership ends; a new leader announces itself first and
serves when that is committed. The Raft half brings its own properties (:mod:`raft_safety`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from heapq import heappop, heappush
from typing import TYPE_CHECKING, Any

from raft_simulation import Letter, SimulatedCluster, SimulatedNode
from sim.cluster.connections import Connections
from sim.cluster.world import OnAnswer, Process, World, mix

from tidelog_foundation.errors import ErrorCode, TidelogError
from tidelog_foundation.ids import TopicId
from tidelog_quorum.controller import Controller, ControllerConfig, Result
from tidelog_quorum.metadata import (
    FeatureLevelRecord,
    MetadataImage,
    MetadataRecord,
    NoOpRecord,
    decode_batch,
    encode_batch,
)
from tidelog_quorum.metadata.features import METADATA_VERSION, SUPPORTED_FEATURES
from tidelog_quorum.raft.core import Command, Commit, EntryKind, LeaderChanged, Leadership, RaftConfig, RandomMs, Tick
from tidelog_quorum.raft.core.commands import RestoreSnapshot

if TYPE_CHECKING:
    from sim.cluster.checker import Checker

FOREVER = 1 << 60
IDLE_MS = 250
"""How often an idle stream of metadata says that it lives."""
IDLE, LEADERLESS = -1, -2
"""What it says then: whether the controller knows a leader."""


class NotController:
    """The answer of a controller that does not lead; ``leader_id`` is who does, as far as it knows."""

    __slots__ = ("leader_id",)

    def __init__(self, leader_id: int | None) -> None:
        self.leader_id = leader_id


class Quorum(SimulatedCluster):
    """The Raft replicas of all controllers; each steps at the time of its process and over the world's network."""

    def __init__(self, world: World, count: int, config: RaftConfig, check_every: int) -> None:
        self.world = world
        self.controllers: dict[int, ControllerProcess] = {}
        self._draws: dict[int, int] = {}
        super().__init__(count, config, lambda low, _high: low, check_every=check_every, chunk_bytes=60)
        self.post = self._post

    def random_of(self, node_id: int) -> RandomMs:
        def random_ms(low: int, high: int) -> int:
            count = self._draws[node_id] = self._draws.get(node_id, 0) + 1
            return low + mix(self.world.seed, node_id, count, 1) % max(1, high - low)

        return random_ms

    def leader_id(self) -> int | None:
        """Return who leads in the latest term."""
        leaders = [(r.term, i) for i, r in self.running() if type(r.role) is Leadership]
        return max(leaders)[1] if leaders else None

    def _post(self, letter: Letter) -> None:
        self.world.send(letter.sender, letter.to, self._arrive, letter, can_double=True)

    def _arrive(self, letter: Letter) -> None:
        process = self.controllers[letter.to]
        process.enter(process.life, process.take_letter, letter)

    def _do_commit(self, node_id: int, node: SimulatedNode, command: Commit) -> None:
        super()._do_commit(node_id, node, command)
        self.controllers[node_id].on_commit(command)

    def _do_leader_changed(self, node_id: int, node: SimulatedNode, command: LeaderChanged) -> None:
        super()._do_leader_changed(node_id, node, command)
        self.controllers[node_id].on_leader_change(command)

    def _do_restore_snapshot(self, node_id: int, node: SimulatedNode, command: RestoreSnapshot) -> None:
        super()._do_restore_snapshot(node_id, node, command)
        self.controllers[node_id].on_restore(command.snapshot.last_index)


class ControllerProcess(Process):
    """One controller. Its Raft replica has the same number."""

    def __init__(
        self,
        world: World,
        number: int,
        clock: tuple[int, int],
        quorum: Quorum,
        config: ControllerConfig,
        checker: Checker,
        new_topic_id: Callable[[], TopicId],
        uses_elr: bool,
    ) -> None:
        super().__init__(world, number, *clock)
        self.stalled_until_us = 0
        self.controller = Controller(config, new_topic_id)
        self.serves = False
        self._quorum = quorum
        self._config = config
        self._checker = checker
        self._new_topic_id = new_topic_id
        self._uses_elr = uses_elr
        self._announcement: tuple[int, int] | None = None
        self._waiting: list[tuple[int, int, OnAnswer, Any]] = []
        self._followers: list[tuple[int, OnAnswer]] = []
        self._count = 0
        self.connections = Connections(self)
        self._is_syncing = False
        self._syncs = 0
        self._wake_us = FOREVER
        quorum.controllers[number] = self

    @property
    def node(self) -> SimulatedNode:
        """The Raft replica with its disk."""
        return self._quorum.nodes[self.number]

    def start(self) -> None:
        """Begin a life with what the disk holds."""
        self.begin_life()
        self.controller = Controller(self._config, self._new_topic_id)
        self.connections = Connections(self)
        self._forget()
        self._set_clock()
        self._quorum.restart(self.number)
        self._step(Tick())
        self.after(self._tick_ms, self._tick, self.monotonic_ms())

    def stop(self, keep: int) -> None:
        """End a life; of the writes that were not synced the first ``keep`` survive."""
        if self.is_up:
            self.end_life()
            self._quorum.crash(self.number, keep % (len(self.node.disk.pending) + 1))
            self._forget()

    def crashed(self) -> None:
        raise AssertionError("controllers have no such disk")

    def take_letter(self, letter: Letter) -> None:
        """Take a message of another Raft replica."""
        self._set_clock()
        self._quorum.deliver(letter)
        self._settle()

    def submit(self, request: tuple[str, Any], answer: OnAnswer) -> None:
        """Handle a request as the leader; ``request`` is a handler's name and what it takes."""
        raft = self.node.raft
        assert raft is not None
        if not self.serves:
            answer(NotController(raft.leader_id if raft.leader_id != self.number else None))
            return
        name, message = request
        handle = getattr(self.controller, name)
        try:
            result = handle(message, self.monotonic_ms())
            self._write(result)
        except TidelogError as error:
            answer(error)
            return
        if name == "handle_broker_heartbeat":
            self.connections.hold(message.broker_id, message.broker_epoch)
        if name == "handle_broker_refused" and result.records:
            self._checker.count("brokers refused")
        self._answer_when_committed(answer, result.response)

    def follow_metadata(self, from_offset: int, answer: OnAnswer) -> None:
        """Answer with how far the log is committed, as soon as that is ``from_offset`` or beyond; IDLE after a while.

        The entries themselves are the same for everybody, which is checked where they are committed. LEADERLESS says
        that this controller knows no leader, and that its log may stand still.
        """
        if from_offset <= self.controller.committed.offset:
            answer(self.controller.committed.offset)
            return
        self._followers.append((from_offset, answer))
        self.after(IDLE_MS, self._end_idle, from_offset, answer)

    def connection_broke(self, number: int) -> None:
        """The process of a node has ended, and with it the connection."""
        self.enter(self.life, self.connections.broke, number)

    def take_snapshot(self, delay_ms: int) -> None:
        """Capture the state now and have it on the disk after a while."""
        captured = self._quorum.capture(self.number)
        if captured is not None:
            self.after(delay_ms, self._finish_snapshot, *captured)

    def on_commit(self, command: Commit) -> None:
        """Apply committed entries and let the answers go that waited for them."""
        for entry in command.entries:
            payload = entry.payload if entry.kind is EntryKind.DATA else b""
            self._checker.metadata.note_committed(entry.index, entry.term, payload)
            self.controller.replay(entry.index, entry.term, decode_batch(payload))
            if self._announcement == (entry.index, entry.term):
                self._announcement = None
                self.controller.activate(entry.term, self.monotonic_ms())
                self.soon(self._begin_to_serve, entry.term)
        self._release()

    def on_restore(self, index: int) -> None:
        """Take over the image of a snapshot."""
        self.controller.restore(self._checker.metadata.images[index])
        self._release()

    def on_leader_change(self, command: LeaderChanged) -> None:
        """Begin or cease to lead."""
        self._announcement = None
        self.serves = False
        self.controller.resign()
        waiting, self._waiting = self._waiting, []
        leader = command.leader_id
        for _, _, answer, _ in sorted(waiting, key=lambda w: w[:2]):
            answer(NotController(leader if leader != self.number else None))
        if leader == self.number:
            self.soon(self._announce, command.term)

    @property
    def _tick_ms(self) -> int:
        return max(20, self._config.broker_session_timeout_ms // 20)

    def _announce(self, term: int) -> None:
        raft = self.node.raft
        if raft is not None and type(raft.role) is Leadership and raft.term == term:
            index = self._offer(encode_batch([NoOpRecord()]))
            self._announcement = None if index is None else (index, term)

    def _begin_to_serve(self, term: int) -> None:
        raft = self.node.raft
        if not self.controller.is_active or raft is None or raft.term != term or type(raft.role) is not Leadership:
            return
        records: list[MetadataRecord] = list(self.controller.bootstrap().records)
        if records and not self._uses_elr:
            records = [FeatureLevelRecord(METADATA_VERSION, SUPPORTED_FEATURES[METADATA_VERSION].max_level)]
        if not records or self._propose(records):
            self.serves = True

    def _write(self, result: Result[Any]) -> None:
        if result.records and not self._propose(list(result.records)):
            raise TidelogError(ErrorCode.NOT_CONTROLLER, "the leadership has ended")

    def _propose(self, records: list[MetadataRecord]) -> bool:
        raft = self.node.raft
        assert raft is not None
        index = self._offer(encode_batch(records))
        if index is None:
            return False
        self.controller.append(index, raft.term, records)
        return True

    def _offer(self, payload: bytes) -> int | None:
        self._set_clock()
        index = self._quorum.offer(self.number, payload)
        self._settle()
        return index

    def _answer_when_committed(self, answer: OnAnswer, response: Any) -> None:
        offset = self.controller.latest.offset
        if offset <= self.controller.committed.offset:
            answer(response)
            return
        self._count += 1
        heappush(self._waiting, (offset, self._count, answer, response))

    def _release(self) -> None:
        committed = self.controller.committed.offset
        while self._waiting and self._waiting[0][0] <= committed:
            _, _, answer, response = heappop(self._waiting)
            answer(response)
        followers, self._followers = self._followers, []
        for from_offset, answer in followers:
            if from_offset <= committed:
                answer(committed)
            else:
                self._followers.append((from_offset, answer))

    def _end_idle(self, from_offset: int, answer: OnAnswer) -> None:
        if (from_offset, answer) in self._followers:
            self._followers.remove((from_offset, answer))
            raft = self.node.raft
            answer(IDLE if raft is not None and raft.leader_id is not None else LEADERLESS)

    def _tick(self, last_ms: int) -> None:
        now_ms = self.monotonic_ms()
        if now_ms - last_ms > self._tick_ms + self._config.broker_session_timeout_ms // 4:
            self.controller.prolong_sessions(now_ms)
        if self.serves:
            due = self.controller.tick(now_ms)
            try:
                for result in due:
                    if not self.serves:
                        break
                    self._write(result)
            except TidelogError as error:
                if error.code is not ErrorCode.NOT_CONTROLLER:
                    raise
        self.after(self._tick_ms, self._tick, now_ms)

    def _finish_snapshot(self, snapshot: Any, content: bytes) -> None:
        self._set_clock()
        self._quorum.finish_snapshot(self.number, snapshot, content)
        self._settle()

    def _forget(self) -> None:
        self.serves = False
        self._announcement = None
        self._waiting.clear()
        self._followers.clear()
        self._is_syncing = False
        self._wake_us = FOREVER

    def _step(self, event: Any) -> list[Command]:
        self._set_clock()
        commands = self._quorum.step(self.number, event)
        self._settle()
        return commands

    def _set_clock(self) -> None:
        self.node.now_ms = self.monotonic_ms()

    def _settle(self) -> None:
        """After each step: begin the next sync and set the timer."""
        node = self.node
        raft = node.raft
        if raft is None:
            return
        self.world.note(self.number, raft.term, raft.commit_index)
        if node.disk.pending and not self._is_syncing:
            self._is_syncing = True
            self._syncs += 1
            delay_us = 200 + mix(self.world.seed, self.number, self._syncs, 2) % 1_500
            begin_us = max(self.world.now_us, self.stalled_until_us)
            self.world.at(begin_us + delay_us, self.enter, self.life, self._synced, len(node.disk.pending))
        deadline_ms = raft.next_deadline_ms
        if deadline_ms is not None:
            at_us = self.due_us(deadline_ms)
            if at_us < self._wake_us:
                self._wake_us = at_us
                self.world.at(at_us, self.enter, self.life, self._wake, at_us)

    def _synced(self, count: int) -> None:
        self._is_syncing = False
        self._set_clock()
        self._quorum.sync(self.number, count)
        self._settle()

    def _wake(self, at_us: int) -> None:
        if self._wake_us != at_us:
            return
        self._wake_us = FOREVER
        raft = self.node.raft
        assert raft is not None
        self._set_clock()
        deadline_ms = raft.next_deadline_ms
        if deadline_ms is not None and deadline_ms <= self.node.now_ms:
            self._quorum.step(self.number, Tick())
        self._settle()


def start_quorum(
    world: World,
    clocks: Iterable[tuple[int, int]],
    count: int,
    raft: RaftConfig,
    config: ControllerConfig,
    checker: Checker,
    uses_elr: bool,
    check_every: int,
) -> Quorum:
    """Return the controllers 1 to ``count``, started."""
    created = 0

    def new_topic_id() -> TopicId:
        nonlocal created
        created += 1
        return TopicId(b"topic-%010d" % created)

    quorum = Quorum(world, count, raft, check_every)
    for number, clock in zip(range(1, count + 1), clocks, strict=False):
        ControllerProcess(world, number, clock, quorum, config, checker, new_topic_id, uses_elr)
    for process in quorum.controllers.values():
        process.start()
    return quorum


def image_of(quorum: Quorum) -> MetadataImage:
    """Return the newest committed image that a running controller has."""
    images = [p.controller.committed for p in quorum.controllers.values() if p.is_up]
    return max(images, key=lambda image: image.offset, default=MetadataImage())
