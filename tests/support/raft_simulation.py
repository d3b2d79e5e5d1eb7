"""A cluster of Raft state machines in one thread, with a network and disks that fail on demand.

Scenarios and random runs drive it, and the safety properties are asserted after every event (:mod:`raft_safety`). It
has no clock and no randomness: its driver determines every event.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from raft_disk import ReplicaState, SimulatedDisk, voter
from raft_properties import PropertyViolatedError, require
from raft_safety import SafetyChecker

from tidelog_foundation.requests.addresses import ControllerEndpoint
from tidelog_quorum.raft.core.commands import (
    Command,
    Commit,
    CompactLog,
    InstallSnapshot,
    LeaderChanged,
    Persist,
    ProposalAccepted,
    ProposalRejected,
    ReadFailed,
    ReadReady,
    RequestRefused,
    RestoreSnapshot,
    Send,
    SendSnapshot,
    StoreChunk,
    TransferDone,
    VoterChangeAccepted,
    VotersChanged,
)
from tidelog_quorum.raft.core.config import RaftConfig
from tidelog_quorum.raft.core.endpoints import Endpoints
from tidelog_quorum.raft.core.events import (
    Event,
    MessageReceived,
    Persisted,
    Proposed,
    ReadRequested,
    SnapshotDamaged,
    SnapshotTaken,
    Tick,
)
from tidelog_quorum.raft.core.leadership import Leadership
from tidelog_quorum.raft.core.messages import Entry, FollowRequest, Message, Snapshot, SnapshotRequest
from tidelog_quorum.raft.core.raft import Raft
from tidelog_quorum.raft.core.replica import RandomSource
from tidelog_quorum.raft.core.voters import Voter, VoterSet

__all__ = ["Letter", "PropertyViolatedError", "SimulatedCluster", "SimulatedDisk", "SimulatedNode"]


@dataclass(frozen=True, slots=True)
class Letter:
    """A message in transit. ``directory_id`` and ``endpoints`` are the sender's at the time of sending."""

    sender: int
    to: int
    message: Message
    directory_id: bytes = b""
    endpoints: Endpoints | None = None


@dataclass(slots=True)
class SimulatedNode:
    """One replica. ``raft`` is None while its process is down; the last four fields are the checker's notes.

    ``endpoints`` are its actual addresses; a sender with another address for it does not reach it. ``listener`` names
    the listener at which it calls others. ``heard`` are the addresses and directory ids that others have announced
    since this process began.
    """

    disk: SimulatedDisk
    state: ReplicaState
    endpoints: Endpoints
    listener: str
    raft: Raft | None = None
    now_ms: int = 0
    heard: dict[int, tuple[Endpoints, bytes]] = field(default_factory=dict)
    reads: dict[int, int | None] = field(default_factory=dict)
    proposals: dict[int, tuple[int, bytes]] = field(default_factory=dict)
    answers: dict[int, Command] = field(default_factory=dict)
    seen_commit: int = 0
    seen_applied: int = 0
    held_index: int = 0
    led_term: int = 0


class SimulatedCluster:
    """Voters 1 to ``count``, all running. ``trace`` is called with (node, command) before a command is executed.

    With ``known_directories`` the first voters are configured with their directory ids. If ``post`` is set, it receives
    the messages instead of ``network``. Snapshots travel in chunks of ``chunk_bytes``.
    """

    def __init__(
        self,
        count: int,
        config: RaftConfig,
        random: RandomSource,
        *,
        disks: Iterable[SimulatedDisk] = (),
        trace: Callable[[int, Command], None] = lambda _node, _command: None,
        known_directories: bool = False,
        chunk_bytes: int = 32,
        check_every: int = 1,
        knows_all_addresses: bool = False,
    ) -> None:
        self.network: list[Letter] = []
        self.post: Callable[[Letter], None] = lambda letter: self.network.append(letter)
        self.cut: set[tuple[int, int]] = set()
        self.nodes: dict[int, SimulatedNode] = {}
        self.trace = trace
        self.knows_all_addresses = knows_all_addresses
        self._config = config
        self._random = random
        self._chunk_bytes = chunk_bytes
        self._check_every = check_every
        counted = ("snapshots", "compactions", "installs", "damaged", "transfers", "refusals", "moves", "listeners")
        self.counts = dict.fromkeys(counted, 0)
        self._steps = 0
        self._next_request = 0
        self._read_floor: dict[int, int] = {}
        disks = list(disks) or [SimulatedDisk(directory_id=b"first-%d" % (i + 1)) for i in range(count)]
        ids = {i + 1: disk.directory_id if known_directories else b"" for i, disk in enumerate(disks)}
        self.configured = VoterSet(voter(voter_id, directory_id) for voter_id, directory_id in ids.items())
        self.checker = SafetyChecker(self.nodes, self.configured)
        self._do: dict[type, Callable[[int, SimulatedNode, Any], None]] = {
            Send: self._do_send,
            Persist: self._do_persist,
            Commit: self._do_commit,
            LeaderChanged: self._do_leader_changed,
            ReadReady: self._do_read_ready,
            ReadFailed: self._do_read_failed,
            ProposalAccepted: _do_nothing,
            ProposalRejected: _do_nothing,
            VotersChanged: self._do_voters_changed,
            CompactLog: self._do_compact,
            SendSnapshot: self._do_send_snapshot,
            StoreChunk: self._do_store_chunk,
            InstallSnapshot: self._do_install_snapshot,
            RestoreSnapshot: self._do_restore_snapshot,
            VoterChangeAccepted: self._do_answer,
            TransferDone: self._do_answer,
            RequestRefused: self._do_answer,
        }
        for i, disk in enumerate(disks):
            self.add(i + 1, disk)

    @property
    def committed(self) -> list[Entry]:
        """All entries that any leader ever committed, in order."""
        return self.checker.committed

    def running(self) -> list[tuple[int, Raft]]:
        """Return the replicas with running processes."""
        return [(i, node.raft) for i, node in self.nodes.items() if node.raft is not None]

    def leaders(self) -> list[tuple[int, Raft]]:
        """Return the replicas that believe that they lead."""
        return [(i, raft) for i, raft in self.running() if isinstance(raft.role, Leadership)]

    def add(self, node_id: int, disk: SimulatedDisk | None = None) -> None:
        """Start one more replica. If it is not a configured voter, it observes until it becomes a voter."""
        disk = disk or SimulatedDisk(directory_id=b"first-%d" % node_id)
        self.nodes[node_id] = SimulatedNode(disk, ReplicaState(self.configured), *self._first_listeners(voter(node_id)))
        self.restart(node_id)

    def step(self, node_id: int, event: Event) -> list[Command]:
        """Pass an event to a running replica, execute its commands and check the cluster."""
        node = self.nodes[node_id]
        raft = node.raft
        assert raft is not None
        commands = raft.step(event, node.now_ms)
        self._steps += 1
        if not self._steps % self._check_every:
            raft.check_invariants()
        self.checker.check_step(node_id, node)
        for command in commands:
            self.trace(node_id, command)
            self._do[type(command)](node_id, node, command)
        return commands

    def tick(self, node_id: int, by_ms: int = 0) -> list[Command]:
        """Let time pass for one replica."""
        self.nodes[node_id].now_ms += by_ms
        return self.step(node_id, Tick())

    def fire_timer(self, node_id: int) -> None:
        """Let time pass for one replica until its next deadline."""
        node = self.nodes[node_id]
        if node.raft is not None and node.raft.next_deadline_ms is not None:
            self.tick(node_id, max(0, node.raft.next_deadline_ms - node.now_ms))

    def propose(self, node_id: int, payload: bytes) -> int | None:
        """Propose in the replica's current term and flush. Return the index, or None if it does not lead."""
        index = self.offer(node_id, payload)
        self.tick(node_id)
        return index

    def offer(self, node_id: int, payload: bytes) -> int | None:
        """Propose without the flush."""
        node = self.nodes[node_id]
        assert node.raft is not None
        [answer] = self.step(node_id, Proposed(payload, node.raft.term))
        if not isinstance(answer, ProposalAccepted):
            return None
        node.proposals[answer.index] = (answer.term, payload)
        return answer.index

    def read(self, node_id: int) -> int:
        """Request a linearizable read. Its result appears in ``nodes[node_id].reads`` under the returned id."""
        request_id = self.next_request_id()
        self._read_floor[request_id] = len(self.committed)
        self.step(node_id, ReadRequested(request_id))
        return request_id

    def next_request_id(self) -> int:
        """Return an id for an operator's request. The answer appears in ``nodes[node_id].answers`` under it."""
        self._next_request += 1
        return self._next_request

    def sync(self, node_id: int, count: int | None = None) -> None:
        """Let a replica's disk complete its first ``count`` pending writes (None: all)."""
        node = self.nodes[node_id]
        sequence = node.disk.sync(count)
        self.checker.check_disk(node_id, node)
        for event in self._take_disk_events(node.disk, sequence):
            self.step(node_id, event)

    def snapshot(self, node_id: int) -> Snapshot | None:
        """Take a snapshot of a replica's state and report it at once, or return None if nothing is new."""
        captured = self.capture(node_id)
        if captured is not None:
            self.finish_snapshot(node_id, *captured)
        return captured[0] if captured is not None else None

    def capture(self, node_id: int) -> tuple[Snapshot, bytes] | None:
        """Return a snapshot of a replica's state, or None if its disk has that one already."""
        node = self.nodes[node_id]
        latest = node.disk.snapshot.last_index if node.disk.snapshot is not None else 0
        return node.state.capture() if node.state.index > latest else None

    def finish_snapshot(self, node_id: int, snapshot: Snapshot, content: bytes) -> None:
        """Store a captured snapshot on the disk and report it to the replica."""
        self.counts["snapshots"] += 1
        self.nodes[node_id].disk.keep_file(snapshot, content)
        self.step(node_id, SnapshotTaken(snapshot))

    def deliver(self, letter: Letter) -> None:
        """Deliver a message, unless the link is cut or the receiver is down."""
        if (letter.sender, letter.to) in self.cut:
            return
        node = self.nodes.get(letter.to)
        if node is not None and node.raft is not None:
            if letter.endpoints is not None:
                node.heard[letter.sender] = letter.endpoints, letter.directory_id
            self.step(letter.to, MessageReceived(letter.message, letter.directory_id, letter.endpoints))

    def crash(self, node_id: int, keep: int = 0) -> None:
        """Kill a replica. The first ``keep`` of its unsynced writes survive."""
        node = self.nodes[node_id]
        node.disk.lose_power(keep)
        self.checker.check_disk(node_id, node)
        node.raft = None
        node.proposals.clear()
        node.heard.clear()

    def wipe(self, node_id: int, directory_id: bytes) -> None:
        """Replace the disk of a stopped replica with an empty one, which makes it another replica under the same id."""
        node = self.nodes[node_id]
        assert node.raft is None
        self.checker.note_replaced_disk(node_id, node.disk)
        node.disk = SimulatedDisk(directory_id=directory_id)
        node.held_index = 0

    def move(self, node_id: int) -> None:
        """Change the addresses of a stopped replica."""
        node = self.nodes[node_id]
        assert node.raft is None
        node.endpoints = Endpoints(replace(e, port=e.port + 1) for e in node.endpoints)
        self.counts["moves"] += 1

    def next_listeners(self, node_id: int) -> tuple[Endpoints, str] | None:
        """Return the listeners and the first one with which a replica goes on to a new listener.

        All replicas add a listener, then all call each other there, then all close the old one. Return None while one
        lags behind.
        """
        node = self.nodes[node_id]
        oldest, newest = (f([e.name for e in node.endpoints]) for f in (min, max))
        others = self.nodes.values()
        if oldest == newest:
            is_ready = all(min(e.name for e in other.endpoints) == oldest for other in others)
            port = node.endpoints.address(oldest)
            assert port is not None
            added = ControllerEndpoint(port[0], port[1] + 100, oldest[:-1] + str(int(oldest[-1]) + 1))
            return (Endpoints([*node.endpoints, added]), oldest) if is_ready and not oldest.endswith("9") else None
        if node.listener == oldest:
            is_ready = all(other.endpoints.address(newest) is not None for other in others)
            return (node.endpoints, newest) if is_ready else None
        is_ready = all(other.listener == newest for other in others)
        return (Endpoints(e for e in node.endpoints if e.name == newest), newest) if is_ready else None

    def listen(self, node_id: int, endpoints: Endpoints, listener: str) -> None:
        """Change the listeners of a stopped replica."""
        node = self.nodes[node_id]
        assert node.raft is None
        node.endpoints, node.listener = endpoints, listener
        self.counts["listeners"] += 1

    def restart(self, node_id: int) -> None:
        """Start a replica from the content of its disk."""
        node = self.nodes[node_id]
        disk = node.disk
        raft = node.raft = Raft(
            node_id,
            self.configured,
            self._config,
            self.random_of(node_id),
            directory_id=disk.directory_id,
            endpoints=node.endpoints,
            listener=node.listener,
            hard_state=disk.hard_state,
            snapshot=disk.snapshot,
            entries=disk.entries,
            log_start=disk.log_start,
            now_ms=node.now_ms,
        )
        node.state = ReplicaState(self.configured)
        node.seen_commit, node.seen_applied, node.led_term = raft.commit_index, raft.applied_index, 0

    def _first_listeners(self, made_up: Voter) -> tuple[Endpoints, str]:
        """Return the listeners of a new replica: those that all others have now, and the one that they use."""
        [endpoint] = made_up.endpoints
        known = [[e.name for e in node.endpoints] for node in self.nodes.values()] or [[endpoint.name]]
        names = set().union(*known)
        first = max((node.listener for node in self.nodes.values()), default=endpoint.name)
        addresses = (replace(endpoint, name=name, port=endpoint.port + 100 * int(name[-1])) for name in names)
        return Endpoints(addresses), first

    def random_of(self, _node_id: int) -> RandomSource:
        """Return the source of a replica's random timeouts."""
        return self._random

    def partition(self, *groups: Iterable[int]) -> None:
        """Cut all links between the groups."""
        side = {node: i for i, group in enumerate(groups) for node in group}
        self.cut = {(a, b) for a in side for b in side if side[a] != side[b]}

    def stabilize(self, max_rounds: int = 1000) -> None:
        """Complete all writes and deliver all messages, in order, until nothing changes. No time passes."""
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

    def _take_disk_events(self, disk: SimulatedDisk, sequence: int | None) -> list[Event]:
        """Return the events of a sync, successes and failures, in the order of the writes."""
        damaged, disk.damaged = disk.damaged, []
        self.counts["damaged"] += len(damaged)
        events: list[tuple[int, Event]] = [(at, SnapshotDamaged(s.last_index, s.last_term)) for at, s in damaged]
        if sequence is not None:
            events.append((sequence, Persisted(sequence)))
        return [event for _, event in sorted(events, key=lambda pair: pair[0])]

    def _do_send(self, node_id: int, node: SimulatedNode, command: Send) -> None:
        to, message = command.to, command.message
        self.checker.check_send(node_id, node, to, message)
        if self.knows_all_addresses and type(message) is FollowRequest:
            # The bootstrap servers are the addresses in a controller's file.
            self.post(Letter(node_id, to, message, node.disk.directory_id, node.endpoints))
        else:
            self._post_from(node_id, node, to, message)
        if self.knows_all_addresses and type(message) is FollowRequest:
            voters = node.raft.voters.current if node.raft is not None else self.configured
            for other in self.nodes:
                if other != node_id and other not in voters:
                    self._post_from(node_id, node, other, message)

    def _post_from(self, node_id: int, node: SimulatedNode, to: int, message: Message) -> None:
        known = None if node.raft is None else node.raft.voters.current.get(to)
        receiver = self.nodes.get(to)
        heard, directory_id = node.heard.get(to, (Endpoints(), b""))
        is_heard = node.raft is not None and node.raft.voters.current.is_voter(to, directory_id)
        addresses = [each.endpoints.address(node.listener) for each in (known,) if each is not None]
        addresses += [heard.address(node.listener)] if is_heard else []
        there = None if receiver is None else receiver.endpoints.address(node.listener)
        if known is None or receiver is None or (there is not None and there in addresses):
            self.post(Letter(node_id, to, message, node.disk.directory_id, node.endpoints))

    def _do_persist(self, node_id: int, node: SimulatedNode, command: Persist) -> None:
        self.checker.check_persist(node_id, node, command)
        node.disk.write(command)

    def _do_compact(self, node_id: int, node: SimulatedNode, command: CompactLog) -> None:
        self.counts["compactions"] += 1
        self.checker.check_snapshot(node_id, command.snapshot)
        node.disk.write(command)

    def _do_commit(self, node_id: int, node: SimulatedNode, command: Commit) -> None:
        self.checker.check_commands_of_commit(node_id, node, command.entries)
        if node.proposals:
            for entry in command.entries:
                proposal = node.proposals.pop(entry.index, None)
                if proposal is not None and proposal[0] == entry.term:
                    require(proposal[1] == entry.payload, "AcknowledgedEntryLost", f"{proposal} became {entry}")
                    self.checker.acknowledge(entry)

    def _do_leader_changed(self, node_id: int, _node: SimulatedNode, command: LeaderChanged) -> None:
        self.checker.check_leader(node_id, command.leader_id, command.term)

    def _do_voters_changed(self, node_id: int, node: SimulatedNode, command: VotersChanged) -> None:
        raft = node.raft
        assert raft is not None
        told = (command.voters, command.index) == (raft.voters.current, raft.voters.index)
        require(told, "VotersOfLog", f"node {node_id} tells {command}, goes by {raft.voters.current}")
        self.checker.check_voters_in_force(node_id, raft)

    def _do_read_ready(self, _node_id: int, node: SimulatedNode, command: ReadReady) -> None:
        floor = self._read_floor[command.request_id]
        if command.index < floor or node.state.index < command.index:
            detail = f"a read at {command.index}, state {node.state.index}, misses what was committed before: {floor}"
            raise PropertyViolatedError("LinearizableRead", detail)
        require(command.request_id not in node.reads, "LinearizableRead", f"{command} answered twice")
        node.reads[command.request_id] = command.index

    def _do_read_failed(self, _node_id: int, node: SimulatedNode, command: ReadFailed) -> None:
        node.reads[command.request_id] = None

    def _do_send_snapshot(self, node_id: int, node: SimulatedNode, command: SendSnapshot) -> None:
        content = node.disk.files.get(command.snapshot)
        if content is not None:
            chunk = content[command.position : command.position + self._chunk_bytes]
            message = SnapshotRequest(node_id, command.term, command.snapshot, command.position, chunk)
            self._post_from(node_id, node, command.to, message)

    def _do_store_chunk(self, _node_id: int, node: SimulatedNode, command: StoreChunk) -> None:
        node.disk.store_chunk(command)

    def _do_install_snapshot(self, node_id: int, node: SimulatedNode, command: InstallSnapshot) -> None:
        self.counts["installs"] += 1
        self.checker.check_snapshot(node_id, command.snapshot)
        node.disk.write(command)

    def _do_restore_snapshot(self, node_id: int, node: SimulatedNode, command: RestoreSnapshot) -> None:
        self.checker.check_restore(node_id, node, command.snapshot)

    def _do_answer(
        self, node_id: int, node: SimulatedNode, command: VoterChangeAccepted | TransferDone | RequestRefused
    ) -> None:
        first = node.answers.get(command.request_id)
        require(first is None, "OneAnswer", f"{node_id} says {command} after {first}")
        node.answers[command.request_id] = command
        self.counts["transfers"] += isinstance(command, TransferDone)
        self.counts["refusals"] += isinstance(command, RequestRefused)


def _do_nothing(_node_id: int, _node: SimulatedNode, _command: Command) -> None:
    """Do nothing."""
