"""A cluster of Raft state machines in one thread, with a network and disks that misbehave on demand.

For tests: scenarios and random runs drive it, and after every event it asserts the paper's safety properties
(figure 3) and that what counts as committed is on the disks of a majority. It holds no clock and no randomness:
whoever drives it says what happens next.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import assert_never

from tidelog_quorum.raft.core import (
    Command,
    Commit,
    Entry,
    Event,
    HardState,
    LeaderChanged,
    Leadership,
    Message,
    MessageReceived,
    Persist,
    Persisted,
    ProposalAccepted,
    ProposalRejected,
    Proposed,
    Raft,
    RaftConfig,
    RandomMs,
    ReadFailed,
    ReadReady,
    ReadRequested,
    Send,
    Tick,
)


@dataclass(slots=True)
class SimulatedDisk:
    """What a crash leaves, and the writes that it may take away: any suffix of those not yet synced."""

    hard_state: HardState = field(default_factory=HardState)
    entries: list[Entry] = field(default_factory=list)
    pending: list[Persist] = field(default_factory=list)

    def sync(self, count: int | None = None) -> int | None:
        """Make the first ``count`` pending writes (None: all) survive; return the last one's sequence."""
        count = len(self.pending) if count is None else count
        done, self.pending = self.pending[:count], self.pending[count:]
        for write in done:
            self._apply(write)
        return done[-1].sequence if done else None

    def _apply(self, write: Persist) -> None:
        if write.truncate_from is not None:
            del self.entries[write.truncate_from - 1 :]
        for entry in write.entries:
            assert entry.index == len(self.entries) + 1, (entry.index, len(self.entries))
            self.entries.append(entry)
        if write.hard_state is not None:
            self.hard_state = write.hard_state


@dataclass(slots=True)
class SimulatedNode:
    """One voter: ``raft`` is None while its process is down."""

    disk: SimulatedDisk
    raft: Raft | None = None
    now_ms: int = 0
    applied: list[Entry] = field(default_factory=list)
    reads: dict[int, int | None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Letter:
    """A message under way."""

    sender: int
    to: int
    message: Message


class SimulatedCluster:
    """Voters 1 to ``count``, all running. ``trace`` is called with (node, command) before a command is done."""

    def __init__(
        self,
        count: int,
        config: RaftConfig,
        random_ms: RandomMs,
        *,
        disks: Iterable[SimulatedDisk] = (),
        trace: Callable[[int, Command], None] = lambda _node, _command: None,
    ) -> None:
        self.network: list[Letter] = []
        self.cut: set[tuple[int, int]] = set()
        self.nodes = {
            i + 1: SimulatedNode(disk) for i, disk in enumerate(disks or [SimulatedDisk() for _ in range(count)])
        }
        self._config = config
        self._random_ms = random_ms
        self._trace = trace
        self._checker = SafetyChecker(self)
        self._next_read = 0
        self._read_floor: dict[int, int] = {}
        for node in self.nodes:
            self.restart(node)

    @property
    def committed(self) -> list[Entry]:
        """All that any leader ever counted as committed, in order."""
        return self._checker.committed

    def running(self) -> list[tuple[int, Raft]]:
        """Return the voters whose process is up."""
        return [(i, node.raft) for i, node in self.nodes.items() if node.raft is not None]

    def leaders(self) -> list[tuple[int, Raft]]:
        """Return those that believe to lead."""
        return [(i, raft) for i, raft in self.running() if isinstance(raft.role, Leadership)]

    def step(self, node_id: int, event: Event) -> list[Command]:
        """Let a running voter take an event, do what it commands and check the cluster."""
        node = self.nodes[node_id]
        assert node.raft is not None
        commands = node.raft.step(event, node.now_ms)
        node.raft.check_invariants()
        self._checker.check_commit(node.raft)
        for command in commands:
            self._trace(node_id, command)
            self._do(node_id, node, command)
        return commands

    def tick(self, node_id: int, by_ms: int = 0) -> list[Command]:
        """Let time pass for one voter."""
        self.nodes[node_id].now_ms += by_ms
        return self.step(node_id, Tick())

    def fire_timer(self, node_id: int) -> None:
        """Let time pass for one voter until its next deadline."""
        node = self.nodes[node_id]
        if node.raft is not None and node.raft.next_deadline_ms is not None:
            self.tick(node_id, max(0, node.raft.next_deadline_ms - node.now_ms))

    def propose(self, node_id: int, payload: bytes) -> int | None:
        """Propose in the voter's current term and flush; return the index, or None when it does not lead."""
        raft = self.nodes[node_id].raft
        assert raft is not None
        [answer] = self.step(node_id, Proposed(payload, raft.term))
        self.tick(node_id)
        return answer.index if isinstance(answer, ProposalAccepted) else None

    def read(self, node_id: int) -> int:
        """Ask a voter for a linearizable read; its fate appears in ``nodes[node_id].reads`` under the returned id."""
        self._next_read += 1
        self._read_floor[self._next_read] = len(self.committed)
        self.step(node_id, ReadRequested(self._next_read))
        return self._next_read

    def sync(self, node_id: int, count: int | None = None) -> None:
        """Let a voter's disk finish its first ``count`` pending writes (None: all)."""
        sequence = self.nodes[node_id].disk.sync(count)
        if sequence is not None:
            self.step(node_id, Persisted(sequence))

    def deliver(self, letter: Letter) -> None:
        """Hand over a message, unless the way is cut or the receiver is down."""
        if (letter.sender, letter.to) not in self.cut and self.nodes[letter.to].raft is not None:
            self.step(letter.to, MessageReceived(letter.message))

    def crash(self, node_id: int, keep: int = 0) -> None:
        """Kill a voter; of its writes that were not synced the first ``keep`` survive."""
        node = self.nodes[node_id]
        node.disk.sync(keep)
        node.disk.pending.clear()
        node.raft = None
        node.applied.clear()

    def restart(self, node_id: int) -> None:
        """Start a voter from what its disk holds."""
        node = self.nodes[node_id]
        node.raft = Raft(
            node_id,
            self.nodes,
            self._config,
            self._random_ms,
            hard_state=node.disk.hard_state,
            entries=node.disk.entries,
            now_ms=node.now_ms,
        )

    def partition(self, *groups: Iterable[int]) -> None:
        """Cut all ways between the groups."""
        side = {node: i for i, group in enumerate(groups) for node in group}
        self.cut = {(a, b) for a in side for b in side if side[a] != side[b]}

    def stabilize(self, max_rounds: int = 1000) -> None:
        """Finish all writes and deliver all messages, in order, until nothing moves; no time passes."""
        for _ in range(max_rounds):
            letters, self.network = self.network, []
            for letter in letters:
                self.deliver(letter)
            for node_id, node in self.nodes.items():
                if node.raft is not None:
                    self.sync(node_id)
            if not self.network and not any(node.disk.pending for node in self.nodes.values()):
                return
        raise AssertionError(f"still {len(self.network)} messages under way after {max_rounds} rounds")

    def _do(self, node_id: int, node: SimulatedNode, command: Command) -> None:
        match command:
            case Send(to, message):
                self.network.append(Letter(node_id, to, message))
            case Persist():
                self._checker.check_log_matching(node.disk, command)
                node.disk.pending.append(command)
            case Commit(entries):
                self._checker.check_state_machine_safety(node.applied, entries)
                node.applied += entries
            case LeaderChanged():
                self._checker.check_leader(node_id, command)
            case ReadReady(request_id, index):
                assert index >= self._read_floor[request_id], "a read misses what was committed before it was asked for"
                node.reads[request_id] = index
            case ReadFailed(request_id):
                node.reads[request_id] = None
            case ProposalAccepted() | ProposalRejected():
                pass
            case _:
                assert_never(command)


class SafetyChecker:
    """The properties of the paper's figure 3, kept up with every event."""

    def __init__(self, cluster: SimulatedCluster) -> None:
        self.committed: list[Entry] = []
        self._cluster = cluster
        self._leaders: dict[int, int] = {}
        self._history: dict[tuple[int, int], tuple[Entry, int]] = {}

    def check_leader(self, node_id: int, change: LeaderChanged) -> None:
        """Election Safety: one leader per term. Leader Completeness: it has all that was committed before."""
        if change.leader_id is None:
            return
        assert self._leaders.setdefault(change.term, change.leader_id) == change.leader_id, "ElectionSafety"
        raft = self._cluster.nodes[node_id].raft
        if change.leader_id == node_id and raft is not None:
            has = raft.log.slice(1, len(self.committed) + 1)
            assert [e.term for e in has] == [e.term for e in self.committed], "LeaderCompleteness"

    def check_log_matching(self, disk: SimulatedDisk, write: Persist) -> None:
        """Log Matching: an index and a term name one entry, and one entry before it; so whole prefixes are equal."""
        before = self._entry_before(disk, write)
        for entry in write.entries:
            known = self._history.setdefault((entry.index, entry.term), (entry, before))
            assert known == (entry, before), "LogMatching"
            before = entry.term

    def check_commit(self, raft: Raft) -> None:
        """Note what a leader newly counts as committed; it must be on the disks of a majority."""
        if not isinstance(raft.role, Leadership) or not raft.commit_index:
            return
        self.committed += raft.log.slice(len(self.committed) + 1, raft.commit_index + 1)
        assert self.committed[raft.commit_index - 1].term == raft.log.term_at(raft.commit_index), "StateMachineSafety"
        self._check_durable(raft.commit_index)

    def check_state_machine_safety(self, applied: list[Entry], entries: tuple[Entry, ...]) -> None:
        """State Machine Safety: everybody applies the same entry at an index, and without gaps."""
        start, end = len(applied), len(applied) + len(entries)
        assert end <= len(self.committed), "applied before it was committed"
        assert list(entries) == self.committed[start:end], "StateMachineSafety"

    def _check_durable(self, index: int) -> None:
        term = self.committed[index - 1].term
        disks = [node.disk.entries for node in self._cluster.nodes.values()]
        count = sum(len(entries) >= index and entries[index - 1].term == term for entries in disks)
        assert count > len(disks) // 2, f"index {index} is committed but on {count} of {len(disks)} disks"

    def _entry_before(self, disk: SimulatedDisk, write: Persist) -> int:
        if not write.entries or write.entries[0].index == 1:
            return 0
        index = write.entries[0].index - 1
        for pending in reversed(disk.pending):
            for entry in reversed(pending.entries):
                if entry.index == index:
                    return entry.term
            if pending.truncate_from is not None and pending.truncate_from <= index:
                break
        return disk.entries[index - 1].term
