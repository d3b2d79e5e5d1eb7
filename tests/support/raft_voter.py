"""One voter under a test's control: the test acts as the other replicas, the clock and the disk."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

from random_numbers import LowestNumbers

from tidelog_quorum.raft.core.commands import Command, Send
from tidelog_quorum.raft.core.config import RaftConfig
from tidelog_quorum.raft.core.endpoints import ANY_LISTENER, Endpoints
from tidelog_quorum.raft.core.events import (
    AddVoterRequested,
    Event,
    MessageReceived,
    Persisted,
    RemoveVoterRequested,
    Tick,
)
from tidelog_quorum.raft.core.leadership import Leadership
from tidelog_quorum.raft.core.messages import (
    AppendRequest,
    AppendResponse,
    Entry,
    EntryKind,
    FollowRequest,
    HardState,
    Message,
    Snapshot,
    VoteResponse,
)
from tidelog_quorum.raft.core.raft import Raft
from tidelog_quorum.raft.core.replica import Candidate
from tidelog_quorum.raft.core.voters import Voter, VoterSet

CONFIG = RaftConfig(
    election_timeout_ms=1000,
    heartbeat_interval_ms=100,
    max_append_bytes=4,
    max_inflight_appends=2,
    max_trailing_entries=0,
)
C = TypeVar("C")


class TestedVoter:
    """Voter 1 of 3 whose disk completes writes on the test's command. ``commands`` are those of the last step.

    ``terms`` are the terms of the entries on its disk, which follow the ``snapshot`` if there is one. Directory ids are
    unknown, unless ``voters`` has some.
    """

    __test__ = False

    def __init__(
        self,
        terms: Iterable[int] = (),
        term: int = 0,
        voted_for: int | None = None,
        voters: int | VoterSet = 3,
        *,
        node_id: int = 1,
        directory_id: bytes = b"",
        endpoints: Endpoints | None = None,
        listener: str = ANY_LISTENER,
        snapshot: Snapshot | None = None,
        entries: tuple[Entry, ...] = (),
        log_start: tuple[int, int] = (0, 0),
        config: RaftConfig = CONFIG,
    ) -> None:
        if snapshot is not None and not entries:
            log_start = (snapshot.last_index, snapshot.last_term)
        # The shortest timeouts: first 100 ms, then 200 ms between campaigns and 1,000 ms after a leader.
        self.raft = Raft(
            node_id,
            voter_set(*range(1, voters + 1)) if isinstance(voters, int) else voters,
            config,
            LowestNumbers(),
            directory_id=directory_id,
            endpoints=endpoints,
            listener=listener,
            hard_state=HardState(term, voted_for),
            snapshot=snapshot,
            entries=entries or [data(log_start[0] + 1 + i, t) for i, t in enumerate(terms)],
            log_start=log_start,
        )
        self.now_ms = 0
        self.step(Tick())
        self.first_commands = self.commands

    def step(self, event: Event) -> None:
        self.commands: list[Command] = self.raft.step(event, self.now_ms)
        self.raft.check_invariants()

    def receive(self, message: Message, directory_id: bytes = b"", endpoints: Endpoints | None = None) -> None:
        self.step(MessageReceived(message, directory_id, endpoints))

    def receive_and_sync(self, message: Message, directory_id: bytes = b"") -> None:
        """Receive a message, then complete the disk writes. ``commands`` has those of both steps."""
        self.receive(message, directory_id)
        before = self.commands
        self.sync()
        self.commands = before + self.commands

    def wait(self, by_ms: int) -> None:
        self.now_ms += by_ms
        self.step(Tick())

    def sync(self) -> None:
        self.step(Persisted(10**9))

    def of(self, kind: type[C]) -> list[C]:
        return [command for command in self.commands if isinstance(command, kind)]

    def messages(self) -> list[Message]:
        return [send.message for send in self.of(Send)]

    def sent(self, kind: type[C]) -> list[tuple[int, C]]:
        """Return the messages of a type with their receivers."""
        return [(send.to, send.message) for send in self.of(Send) if isinstance(send.message, kind)]

    def answer(self) -> Message:
        [message] = self.messages()
        return message

    @property
    def leadership(self) -> Leadership:
        role = self.raft.role
        assert isinstance(role, Leadership), role
        return role

    def become_candidate(self) -> None:
        while not isinstance(self.raft.role, Candidate):
            self.wait(100)
        self.receive(VoteResponse(2, self.raft.term, pre_vote=True, granted=True))
        self.sync()

    def become_leader(self) -> Leadership:
        self.become_candidate()
        self.receive(VoteResponse(2, self.raft.term, pre_vote=False, granted=True))
        return self.leadership

    def lead_with_a_commit(self, *followers: int) -> Leadership:
        """Become the leader and commit all entries, with acknowledgements of the followers (by default 2 and 3)."""
        leader = self.become_leader()
        self.sync()
        for follower in followers or (2, 3):
            self.ack(follower, self.raft.log.last_index)
        assert self.raft.commit_index == self.raft.log.last_index
        return leader

    def ack(self, sender: int, index: int, context: int = 0, directory_id: bytes = b"") -> None:
        self.receive(AppendResponse(sender, self.raft.term, True, index, 0, 0, context), directory_id)


def data(index: int, term: int, payload: bytes = b"x") -> Entry:
    return Entry(index, term, EntryKind.DATA, payload)


def voter(voter_id: int, directory_id: bytes = b"") -> Voter:
    return Voter.at(voter_id, f"host{voter_id}", 9093, directory_id)


def voter_set(*ids: int) -> VoterSet:
    return VoterSet(voter(voter_id) for voter_id in ids)


def voters_entry(index: int, term: int, voters: VoterSet) -> Entry:
    return Entry(index, term, EntryKind.VOTERS, voters=voters)


def snapshot_at(index: int, term: int, voters: VoterSet | None = None, size: int = 6) -> Snapshot:
    return Snapshot(index, term, voters or voter_set(1, 2, 3), size, checksum=index * 1000 + term)


def append(
    sender: int, term: int, prev: tuple[int, int] = (0, 0), entries: tuple[Entry, ...] = (), commit: int = 0
) -> AppendRequest:
    return AppendRequest(sender, term, prev[0], prev[1], commit, entries, 0)


ONE, TWO, THREE, FOUR = (b"directory-%d" % i for i in (1, 2, 3, 4))
KNOWN = VoterSet(voter(i, b"directory-%d" % i) for i in (1, 2, 3))


def leading(voters: int | VoterSet = 3, directory_id: bytes = b"") -> TestedVoter:
    """Return the leader of term 1, which has committed its no-op at index 1."""
    tested = TestedVoter(voters=voters, directory_id=directory_id)
    tested.lead_with_a_commit(2)
    return tested


def observed(by: int = 4, directory_id: bytes = FOUR) -> TestedVoter:
    """Return the leader of term 1 with an observer that has no entries yet."""
    tested = leading()
    tested.receive(FollowRequest(by, 0, 0, 0), directory_id)
    return tested


def add(tested: TestedVoter, new: int = 4, directory_id: bytes = FOUR, request_id: int = 7) -> None:
    tested.step(AddVoterRequested(request_id, voter(new, directory_id), 5000))


def remove(tested: TestedVoter, gone: int, directory_id: bytes = b"", request_id: int = 8) -> None:
    tested.step(RemoveVoterRequested(request_id, gone, directory_id))
