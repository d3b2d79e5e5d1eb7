"""Runs text scripts against pure cores: a command, a line of four dashes, what must come out, an empty line.

``TIDELOG_REWRITE_SCENARIOS=1 pytest tests/scenario`` writes what does come out into the scripts, for review as a diff.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from raft_simulation import Letter, SimulatedCluster, SimulatedDisk

from tidelog_quorum.raft.core import (
    AppendRequest,
    AppendResponse,
    Candidate,
    Command,
    Commit,
    Entry,
    EntryKind,
    Follower,
    HardState,
    LeaderChanged,
    Leadership,
    Message,
    Persist,
    Raft,
    RaftConfig,
    ReadFailed,
    ReadReady,
    Send,
    VoteRequest,
    VoteResponse,
)

ELECTION_TIMEOUT_MS = 1000
LATER_MS = 10
"""How much longer than at least every timer takes: 1,000 ms end the trust in a leader, 1,010 a follower's wait."""


@dataclass
class Step:
    """One command of a script with the comments before it and the output that it must have."""

    comments: list[str]
    command: str
    expected: list[str]

    def render(self) -> str:
        return "\n".join([*self.comments, self.command, "----", *self.expected]) + "\n"


def parse_script(text: str) -> list[Step]:
    steps = []
    for block in text.strip().split("\n\n"):
        lines = block.splitlines()
        comments = [line for line in lines if line.startswith("#")]
        command, *expected = [line for line in lines if not line.startswith("#")] or [""]
        if command:
            assert expected[:1] == ["----"] or not expected, f"no dashes after {command!r}"
        steps.append(Step(comments, command, expected[1:]))
    return steps


def run_script(path: Path, execute: Callable[[str], list[str]]) -> None:
    """Execute a script's commands in order and compare, or rewrite, what comes out."""
    steps = parse_script(path.read_text())
    rewrite = os.environ.get("TIDELOG_REWRITE_SCENARIOS") == "1"
    for number, step in enumerate(steps, 1):
        if not step.command:
            continue
        actual = execute(step.command) or ["ok"]
        if rewrite:
            step.expected = actual
        assert actual == step.expected, f"{path.name}, step {number}: {step.command}"
    if rewrite:
        path.write_text("\n".join(step.render() if step.command else "\n".join([*step.comments, ""]) for step in steps))


class RaftScript:
    """The commands of the Raft scripts; each voter has its own clock.

    ========================================  ========================================================================
    voters 3 [append-bytes=3]                 start a cluster; ``2:terms=1,1,2;term=3`` after it sets a voter's disk
    campaign 1                                let time pass for voter 1 until it asks for votes, but deliver nothing
    elect 1                                   campaign and deliver all until it leads
    elapse 500 [1 2]                          let time pass for all or the given voters
    propose 1 x                               propose x at voter 1
    read 1                                    ask voter 1 for a linearizable read
    sync 1                                    finish the writes of voter 1
    deliver 1->2 [VoteRequest]                deliver the messages under way from 1 to 2, in order
    drop 1->2, drop all                       lose them, or all that is under way
    copy 1->2, again                          keep copies of them, and send the copies later
    stabilize                                 deliver and sync until nothing moves
    partition 1 | 2 3, heal                   cut the ways between the groups, and open them
    crash 1 [keep=1], restart 1               kill a voter; the first unsynced writes may survive
    status                                    show all voters
    ========================================  ========================================================================
    """

    def __init__(self) -> None:
        self.cluster = _new_cluster(0, {}, 1024, self._trace)
        self.output: list[str] = []
        self.copies: list[Letter] = []

    def execute(self, line: str) -> list[str]:
        self.output = []
        name, *arguments = line.split()
        getattr(self, f"do_{name}")(*arguments)
        return self.output

    def do_voters(self, count: str, *options: str) -> None:
        disks = dict(option.split(":") for option in options if ":" in option)
        limits = [int(option.split("=")[1]) for option in options if option.startswith("append-bytes=")]
        self.cluster = _new_cluster(int(count), disks, *(limits or [1024]), self._trace)

    def do_campaign(self, node: str) -> None:
        raft = self._raft(node)
        assert not isinstance(raft.role, Leadership), f"{node} leads"
        deadline_ms = raft.next_deadline_ms
        assert deadline_ms is not None
        self.cluster.tick(int(node), max(0, deadline_ms - self.cluster.nodes[int(node)].now_ms))

    def do_elect(self, node: str) -> None:
        self.do_campaign(node)
        self.cluster.stabilize()
        assert isinstance(self._raft(node).role, Leadership), f"{node} was not elected"

    def do_elapse(self, by_ms: str, *nodes: str) -> None:
        for node_id, _ in self.cluster.running():
            if not nodes or str(node_id) in nodes:
                self.cluster.tick(node_id, int(by_ms))

    def do_propose(self, node: str, payload: str) -> None:
        index = self.cluster.propose(int(node), payload.encode())
        self.output.insert(0, f"{node} accepts at {index}" if index else f"{node} refuses")

    def do_read(self, node: str) -> None:
        self.cluster.read(int(node))

    def do_sync(self, node: str) -> None:
        self.cluster.sync(int(node))

    def do_deliver(self, way: str, kind: str = "") -> None:
        for letter in self._take(way, kind):
            self.cluster.deliver(letter)

    def do_drop(self, way: str, kind: str = "") -> None:
        if way == "all":
            self.cluster.network.clear()
        else:
            self._take(way, kind)

    def do_copy(self, way: str, kind: str = "") -> None:
        letters = self._take(way, kind)
        self.cluster.network += letters
        self.copies += letters

    def do_again(self) -> None:
        self.cluster.network += self.copies
        self.copies = []

    def do_stabilize(self) -> None:
        self.cluster.stabilize()

    def do_partition(self, *words: str) -> None:
        groups = " ".join(words).split("|")
        self.cluster.partition(*([int(node) for node in group.split()] for group in groups))

    def do_heal(self) -> None:
        self.cluster.cut.clear()

    def do_crash(self, node: str, keep: str = "keep=0") -> None:
        self.cluster.crash(int(node), int(keep.removeprefix("keep=")))

    def do_restart(self, node: str) -> None:
        self.cluster.restart(int(node))

    def do_status(self) -> None:
        for node_id, node in self.cluster.nodes.items():
            self.output.append(f"{node_id} down" if node.raft is None else f"{node_id} {_describe(node.raft)}")

    def _raft(self, node: str) -> Raft:
        raft = self.cluster.nodes[int(node)].raft
        assert raft is not None, f"{node} is down"
        return raft

    def _take(self, way: str, kind: str) -> list[Letter]:
        sender, to = (int(node) for node in way.split("->"))
        taken = [
            letter
            for letter in self.cluster.network
            if (letter.sender, letter.to) == (sender, to) and type(letter.message).__name__.startswith(kind)
        ]
        assert taken, f"nothing is under way {way}"
        self.cluster.network = [letter for letter in self.cluster.network if letter not in taken]
        return taken

    def _trace(self, node_id: int, command: Command) -> None:
        text = _show_command(command)
        if text:
            self.output.append(f"{node_id}{text}")


def _new_cluster(
    count: int, disks: dict[str, str], append_bytes: int, trace: Callable[[int, Command], None]
) -> SimulatedCluster:
    return SimulatedCluster(
        count,
        RaftConfig(ELECTION_TIMEOUT_MS, ELECTION_TIMEOUT_MS // 10, append_bytes),
        lambda low, _high: low + LATER_MS,
        disks=[_disk(disks.get(str(i + 1), "")) for i in range(count)],
        trace=trace,
    )


def _disk(text: str) -> SimulatedDisk:
    given = dict(item.split("=") for item in text.split(";") if item)
    terms = [int(term) for term in given.get("terms", "").split(",") if term]
    entries = [Entry(i + 1, term, EntryKind.DATA, b"old") for i, term in enumerate(terms)]
    vote = int(given["vote"]) if "vote" in given else None
    return SimulatedDisk(HardState(int(given.get("term", max(terms, default=0))), vote), entries)


def _show_command(command: Command) -> str:
    match command:
        case Send(to, message):
            return f"->{to} {_show_message(message)}"
        case Persist(_, hard_state, truncate_from, entries):
            parts = [] if hard_state is None else [f"term={hard_state.term} vote={hard_state.voted_for or '-'}"]
            parts += [] if truncate_from is None else [f"drop-from={truncate_from}"]
            return " persists " + " ".join([*parts, *([_show_entries(entries)] if entries else [])])
        case Commit(entries):
            return f" commits {_show_entries(entries)}"
        case LeaderChanged(leader_id, term):
            return f" sees leader={leader_id or '-'} term={term}"
        case ReadReady(_, index):
            return f" reads at {index}"
        case ReadFailed():
            return " fails a read"
        case _:
            return ""


def _show_message(message: Message) -> str:
    match message:
        case VoteRequest():
            kind = "PreVoteRequest" if message.pre_vote else "VoteRequest"
            return f"{kind} term={message.term} last={message.last_term}/{message.last_index}"
        case VoteResponse():
            kind = "PreVoteResponse" if message.pre_vote else "VoteResponse"
            return f"{kind} term={message.term} {'granted' if message.granted else 'refused'}"
        case AppendRequest():
            what = f" {_show_entries(message.entries)}" if message.entries else ""
            prev = f"{message.prev_term}/{message.prev_index}"
            return f"Append term={message.term} prev={prev} commit={message.commit_index}{what}"
        case AppendResponse(success=True):
            return f"Appended term={message.term} match={message.match_index}"
        case AppendResponse():
            hint = f"{message.conflict_term}/{message.match_index}"
            return f"Refused term={message.term} prev={message.rejected_prev_index} hint={hint}"


def _show_entries(entries: tuple[Entry, ...]) -> str:
    names = [f"{e.term}/{e.index}:{e.payload.decode() if e.kind is EntryKind.DATA else '-'}" for e in entries]
    return f"[{' '.join(names)}]"


def _describe(raft: Raft) -> str:
    match raft.role:
        case Leadership():
            role = "leads"
        case Candidate(pre_vote):
            role = "pre-campaigns" if pre_vote else "campaigns"
        case Follower(leader_id):
            role = f"follows {leader_id or '-'}"
    log = _show_entries(raft.log.slice(1, raft.log.last_index + 1))
    vote = raft.hard_state.voted_for or "-"
    return f"{role} term={raft.term} vote={vote} commit={raft.commit_index} durable={raft.durable_index} {log}"


@pytest.fixture
def raft_script() -> RaftScript:
    return RaftScript()


@pytest.fixture(name="run_script")
def _run_script() -> Callable[[Path, Callable[[str], list[str]]], None]:
    return run_script
