"""One voter under a test's control: the test plays the other voters, the clock and the disk."""

from __future__ import annotations

from typing import TypeVar

from tidelog_quorum.raft.core import (
    AppendRequest,
    AppendResponse,
    Candidate,
    Command,
    Entry,
    EntryKind,
    HardState,
    Leadership,
    Message,
    MessageReceived,
    Persisted,
    Raft,
    RaftConfig,
    Send,
    Tick,
    VoteResponse,
)

CONFIG = RaftConfig(election_timeout_ms=1000, heartbeat_interval_ms=100, max_append_bytes=4, max_inflight_appends=2)
C = TypeVar("C")


class Voter:
    """Voter 1 of 3 whose disk finishes when the test says so; ``sent`` and ``writes`` collect what it commands."""

    def __init__(
        self, terms: list[int] | None = None, term: int = 0, voted_for: int | None = None, voters: int = 3
    ) -> None:
        entries = [data(i + 1, t) for i, t in enumerate(terms or [])]
        # The shortest timeouts: first 100 ms, then 200 ms between campaigns and 1,000 ms behind a leader.
        self.raft = Raft(
            1,
            range(1, voters + 1),
            CONFIG,
            lambda low, _high: low,
            hard_state=HardState(term, voted_for),
            entries=entries,
        )
        self.now_ms = 0
        self.commands: list[Command] = []

    def step(self, event: object) -> None:
        self.commands = self.raft.step(event, self.now_ms)  # type: ignore[arg-type]
        self.raft.check_invariants()

    def receive(self, message: Message) -> None:
        self.step(MessageReceived(message))

    def receive_and_sync(self, message: Message) -> None:
        """Receive, then let the disk finish: the commands of both."""
        self.receive(message)
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

    def answer(self) -> Message:
        [message] = self.messages()
        return message

    def become_candidate(self) -> None:
        while not isinstance(self.raft.role, Candidate):
            self.wait(100)
        self.receive(VoteResponse(2, self.raft.term, pre_vote=True, granted=True))
        self.sync()

    def become_leader(self) -> Leadership:
        self.become_candidate()
        self.receive(VoteResponse(2, self.raft.term, pre_vote=False, granted=True))
        role = self.raft.role
        assert isinstance(role, Leadership)
        return role

    def ack(self, sender: int, index: int, context: int = 0) -> None:
        self.receive(AppendResponse(sender, self.raft.term, True, index, 0, 0, context))


def data(index: int, term: int, payload: bytes = b"x") -> Entry:
    return Entry(index, term, EntryKind.DATA, payload)


def append(
    sender: int, term: int, prev: tuple[int, int] = (0, 0), entries: tuple[Entry, ...] = (), commit: int = 0
) -> AppendRequest:
    return AppendRequest(sender, term, prev[0], prev[1], commit, entries, 0)
