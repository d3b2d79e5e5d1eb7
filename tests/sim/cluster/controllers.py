"""The controllers: the product's Raft replicas below its terms of a controller, on a simulated disk and network.

:mod:`terms` is the shell of the upper half. The Raft half brings its own properties (:mod:`raft_safety`).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from raft_properties import require
from raft_simulation import Letter, SimulatedCluster, SimulatedNode
from random_numbers import LowestNumbers, SeededNumbers, mix
from sim.cluster.connections import Connections
from sim.cluster.feeds import Feed, Stream
from sim.cluster.terms import EarlierController, Terms
from sim.cluster.world import OnAnswer, Process, World
from topic_ids import SequentialTopicIds

from tidelog_quorum.controller.config import ControllerConfig
from tidelog_quorum.controller.feed import LeaderAnnounced, Restored, VotersAnnounced
from tidelog_quorum.controller.result import Result
from tidelog_quorum.controller.state_machine import Controller
from tidelog_quorum.controller.term.events import LeaderChanged as TermLeaderChanged
from tidelog_quorum.controller.term.events import SnapshotRead
from tidelog_quorum.raft.core.commands import Command, Commit, LeaderChanged, RestoreSnapshot
from tidelog_quorum.raft.core.config import RaftConfig
from tidelog_quorum.raft.core.events import Tick
from tidelog_quorum.raft.core.leadership import Leadership
from tidelog_quorum.raft.core.messages import Entry
from tidelog_quorum.raft.core.replica import RandomSource
from tidelog_quorum.raft.protocol import CommittedEntry, LeaderAndEpoch

if TYPE_CHECKING:
    from sim.cluster.checker import Checker

FOREVER = 1 << 60


class Quorum(SimulatedCluster):
    """The Raft replicas of all controllers; each steps at the time of its process and over the world's network."""

    def __init__(self, world: World, count: int, config: RaftConfig, check_every: int) -> None:
        self.world = world
        self.controllers: dict[int, ControllerProcess] = {}
        self._numbers: dict[int, SeededNumbers] = {}
        super().__init__(count, config, LowestNumbers(), check_every=check_every, chunk_bytes=60)
        self.post = self._post

    def random_of(self, node_id: int) -> RandomSource:
        return self._numbers.setdefault(node_id, SeededNumbers(self.world.seed, node_id))

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
        topic_ids: SequentialTopicIds,
        uses_elr: bool,
        check_every: int,
    ) -> None:
        super().__init__(world, number, *clock)
        self.stalled_until_us = 0
        self.check_every = check_every
        self._quorum = quorum
        self._config = config
        self._checker = checker
        self._topic_ids = topic_ids
        self._controller = Controller if uses_elr else EarlierController
        self.checks_often = check_every < 1_000
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
        self._forget()
        controller = self._controller(self._config, self._topic_ids)
        self.terms = Terms(self, controller, self._checker.metadata, self._config.broker_session_timeout_ms)
        self.connections = Connections(self)
        self.feed = Feed(self)
        self.feed.step(VotersAnnounced(self._quorum.configured))
        self._set_clock()
        self._quorum.restart(self.number)
        self._step(Tick())

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
        """See :meth:`Terms.submit`."""
        self.terms.submit(request, answer)

    def note_handled(self, name: str, message: Any, result: Result[Any]) -> None:
        """A request was handled."""
        if name == "handle_broker_heartbeat":
            self.connections.hold(message.broker_id, message.broker_epoch)
        if name == "handle_broker_refused" and result.records:
            self._checker.count("brokers refused")
            text = f"broker {message.broker_id} is fenced by controller {self.number}"
            require(self.connections.is_refused(message.broker_id), "FencedWhenRefused", text)

    def propose(self, payload: bytes, epoch: int) -> int | None:
        """Put an entry in the log of the leader of an epoch; return its index, None when this one is not."""
        raft = self.node.raft
        assert raft is not None
        if type(raft.role) is not Leadership or raft.term != epoch:
            return None
        self._set_clock()
        index = self._quorum.offer(self.number, payload)
        self._settle()
        return index

    def follow_metadata(self, request: tuple[Stream, int | None], answer: OnAnswer) -> None:
        """See :meth:`Feed.follow`."""
        self.feed.follow(*request, answer)

    def connection_broke(self, number: int) -> None:
        """The process of a node has ended, and with it the connection."""
        self.enter(self.life, self.connections.broke, number)

    def take_snapshot(self, delay_ms: int) -> None:
        """Capture the state now and have it on the disk after a while."""
        captured = self._quorum.capture(self.number)
        if captured is not None:
            self.after(delay_ms, self._finish_snapshot, *captured)

    def on_commit(self, command: Commit) -> None:
        """Give committed entries to the controller."""
        entries = [_committed(entry) for entry in command.entries]
        for entry in entries:
            self._checker.metadata.note_committed(entry.index, entry.term, entry.payload)
        self.terms.commit(entries)

    def on_restore(self, index: int) -> None:
        """Take over the image of a snapshot."""
        image = self._checker.metadata.images[index]
        self.terms.step(SnapshotRead(image))
        self.feed.step(Restored(image))

    def on_leader_change(self, command: LeaderChanged) -> None:
        """Begin or cease to lead."""
        leader = LeaderAndEpoch(command.leader_id, command.term, command.leader_id == self.number)
        self.feed.step(LeaderAnnounced(-1 if command.leader_id is None else command.leader_id))
        self.terms.step(TermLeaderChanged(leader))

    def _finish_snapshot(self, snapshot: Any, content: bytes) -> None:
        self._set_clock()
        self._quorum.finish_snapshot(self.number, snapshot, content)
        self._settle()

    def _forget(self) -> None:
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
    topic_ids = SequentialTopicIds()
    quorum = Quorum(world, count, raft, check_every)
    for number, clock in zip(range(1, count + 1), clocks, strict=False):
        ControllerProcess(world, number, clock, quorum, config, checker, topic_ids, uses_elr, check_every)
    for process in quorum.controllers.values():
        process.start()
    return quorum


def _committed(entry: Entry) -> CommittedEntry:
    return CommittedEntry(entry.index, entry.term, entry.payload)
