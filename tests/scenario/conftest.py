"""Runs text scripts against pure cores: a command, a line of four dashes, what must come out, an empty line.

``TIDELOG_REWRITE_SCENARIOS=1 pytest tests/scenario`` writes what does come out into the scripts, for review as a diff.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import assert_never

import pytest
from raft_simulation import Letter, SimulatedCluster, SimulatedDisk, voter
from random_numbers import LowestNumbers

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
from tidelog_quorum.raft.core.events import AddVoterRequested, RemoveVoterRequested, TransferRequested
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
    SnapshotRequest,
    SnapshotResponse,
    TimeoutNow,
    VoteRequest,
    VoteResponse,
)
from tidelog_quorum.raft.core.raft import Raft
from tidelog_quorum.raft.core.replica import Candidate, Follower
from tidelog_quorum.raft.core.voters import VoterSet

ELECTION_TIMEOUT_MS = 1000
LATER_MS = 10
"""The excess of every timer over its minimum: trust in a leader ends after 1,000 ms, a follower's wait after 1,010."""


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
    """The commands of the Raft scripts; each replica has its own clock.

    ========================================  ========================================================================
    voters 3 [append-bytes=3]                 start a cluster; ``2:terms=1,1,2;term=3`` after it sets a voter's disk,
                                              ``trailing=2`` the entries kept before a snapshot, ``known`` gives the
                                              voters directory ids that all know
    observer 4                                start a replica without a vote
    campaign 1                                let time pass for voter 1 until it asks for votes, but deliver nothing
    elect 1                                   campaign and deliver all until it leads
    elapse 500 [1 2]                          let time pass for all or the given replicas
    propose 1 x y                             propose x and y at voter 1, together
    read 1                                    ask voter 1 for a linearizable read
    snapshot 1                                take a snapshot at replica 1; chunks have 32 bytes
    damage 3, lose-file 1                     flip a bit of the next chunk for 3; remove old snapshots' files
    add-voter 1 4, remove-voter 1 3           ask voter 1 for a change of the voters
    transfer 1 [2]                            ask voter 1 to hand over to voter 2, or to anybody
    sync 1 [2]                                finish the writes of replica 1, or the first two
    deliver 1->2 [VoteRequest]                deliver the messages under way from 1 to 2, in order
    drop 1->2, drop all                       lose them, or all that is under way
    copy 1->2, again                          keep copies of them, and send the copies later
    stabilize                                 deliver and sync until nothing moves
    partition 1 | 2 3, heal                   cut the ways between the groups, and open them
    crash 1 [keep=1], restart 1               kill a replica; the first unsynced writes may survive
    wipe 3                                    give a replica that is down an empty disk with another directory id
    status                                    show all replicas
    ========================================  ========================================================================
    """

    def __init__(self) -> None:
        self.cluster = _new_cluster(0, {}, RaftConfig(), self._trace, known=False)
        self.output: list[str] = []
        self.copies: list[Letter] = []
        self.seen_voters: dict[int, VoterSet] = {}

    def execute(self, line: str) -> list[str]:
        self.output = []
        name, *arguments = line.split()
        getattr(self, f"do_{name.replace('-', '_')}")(*arguments)
        return self.output

    def do_voters(self, count: str, *options: str) -> None:
        disks = dict(option.split(":") for option in options if ":" in option)
        limits = dict(option.split("=") for option in options if "=" in option and ":" not in option)
        config = RaftConfig(
            ELECTION_TIMEOUT_MS,
            ELECTION_TIMEOUT_MS // 10,
            int(limits.get("append-bytes", 1024)),
            max_trailing_entries=int(limits.get("trailing", 0)),
        )
        self.seen_voters.clear()
        self.cluster = _new_cluster(int(count), disks, config, self._trace, known="known" in options)

    def do_observer(self, node: str) -> None:
        known = any(each.directory_id for each in self.cluster.configured)
        self.cluster.add(int(node), SimulatedDisk(directory_id=b"first-%d" % int(node) if known else b""))

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

    def do_propose(self, node: str, *payloads: str) -> None:
        for payload in payloads:
            index = self.cluster.offer(int(node), payload.encode())
            self.output.append(f"{node} accepts at {index}" if index else f"{node} refuses")
        self.cluster.tick(int(node))

    def do_snapshot(self, node: str) -> None:
        assert self.cluster.snapshot(int(node)), f"{node} has applied nothing new"

    def do_damage(self, node: str) -> None:
        self.cluster.nodes[int(node)].disk.damage_next_chunk()

    def do_lose_file(self, node: str) -> None:
        disk = self.cluster.nodes[int(node)].disk
        disk.files = {snapshot: content for snapshot, content in disk.files.items() if snapshot == disk.snapshot}

    def do_add_voter(self, node: str, new: str) -> None:
        directory_id = self.cluster.nodes[int(new)].disk.directory_id
        request_id = self.cluster.next_request_id()
        timeout_ms = 10 * ELECTION_TIMEOUT_MS
        self.cluster.step(int(node), AddVoterRequested(request_id, voter(int(new), directory_id), timeout_ms))

    def do_remove_voter(self, node: str, gone: str) -> None:
        self.cluster.step(int(node), RemoveVoterRequested(self.cluster.next_request_id(), int(gone), b""))

    def do_transfer(self, node: str, to: str = "") -> None:
        request = TransferRequested(self.cluster.next_request_id(), int(to) if to else None, 10 * ELECTION_TIMEOUT_MS)
        self.cluster.step(int(node), request)

    def do_read(self, node: str) -> None:
        self.cluster.read(int(node))

    def do_sync(self, node: str, count: str = "") -> None:
        self.cluster.sync(int(node), int(count) if count else None)

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

    def do_wipe(self, node: str) -> None:
        self.cluster.wipe(int(node), b"again-%d" % int(node))

    def do_status(self) -> None:
        for node_id, node in self.cluster.nodes.items():
            raft = node.raft
            text = "down" if raft is None else _describe(raft, self.cluster.configured)
            self.output.append(f"{node_id} {text}")

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
        if isinstance(command, VotersChanged):
            seen = self.seen_voters.get(node_id, self.cluster.configured)
            self.seen_voters[node_id] = command.voters
            if command.voters == seen:
                return
        text = _show_command(command)
        if text:
            self.output.append(f"{node_id}{text}")


def _new_cluster(
    count: int, disks: dict[str, str], config: RaftConfig, trace: Callable[[int, Command], None], *, known: bool
) -> SimulatedCluster:
    return SimulatedCluster(
        count,
        config,
        LowestNumbers(LATER_MS),
        disks=[_disk(disks.get(str(i + 1), ""), b"first-%d" % (i + 1) if known else b"") for i in range(count)],
        trace=trace,
        known_directories=known,
    )


def _disk(text: str, directory_id: bytes) -> SimulatedDisk:
    given = dict(item.split("=") for item in text.split(";") if item)
    terms = [int(term) for term in given.get("terms", "").split(",") if term]
    entries = [Entry(i + 1, term, EntryKind.DATA, b"old") for i, term in enumerate(terms)]
    vote = int(given["vote"]) if "vote" in given else None
    term = int(given.get("term", max(terms, default=0)))
    return SimulatedDisk(HardState(term, vote), entries, directory_id=directory_id)


def _show_command(command: Command) -> str:
    match command:
        case Send(to, message):
            return f"->{to} {_show_message(message)}"
        case SendSnapshot(to, term, snapshot, position):
            return f"->{to} Snapshot term={term} {_show_snapshot(snapshot)} position={position}"
        case Persist(_, hard_state, truncate_from, entries):
            parts = [] if hard_state is None else [f"term={hard_state.term} vote={hard_state.voted_for or '-'}"]
            parts += [] if truncate_from is None else [f"drop-from={truncate_from}"]
            return " persists " + " ".join([*parts, *([_show_entries(entries)] if entries else [])])
        case CompactLog(_, snapshot, first_index):
            return f" keeps {_show_snapshot(snapshot)} and the log from {first_index}"
        case StoreChunk(snapshot, position, chunk):
            return f" stores {_show_snapshot(snapshot)} position={position} bytes={len(chunk)}"
        case InstallSnapshot(_, snapshot):
            return f" installs {_show_snapshot(snapshot)}"
        case RestoreSnapshot(snapshot):
            return f" restores {_show_snapshot(snapshot)}"
        case Commit(entries):
            return f" commits {_show_entries(entries)}"
        case LeaderChanged(leader_id, term):
            return f" sees leader={leader_id or '-'} term={term}"
        case VotersChanged(voters, index):
            return f" sees voters={_show_voters(voters)} at {index}"
        case VoterChangeAccepted(_, index, term):
            return f" changes the voters at {term}/{index}"
        case TransferDone():
            return " has handed over"
        case RequestRefused(_, code, _):
            return f" refuses with {code.name}"
        case ReadReady(_, index):
            return f" reads at {index}"
        case ReadFailed():
            return " fails a read"
        case ProposalAccepted() | ProposalRejected():
            return ""
        case _:
            assert_never(command)


def _show_message(message: Message) -> str:
    match message:
        case VoteRequest():
            kind = "PreVoteRequest" if message.pre_vote else "VoteRequest"
            transfer = " transfer" if message.transfer else ""
            return f"{kind} term={message.term} last={message.last_term}/{message.last_index}{transfer}"
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
        case SnapshotRequest():
            return f"Snapshot term={message.term} {_show_snapshot(message.snapshot)} position={message.position}"
        case SnapshotResponse():
            how = "done" if message.done else f"wants={message.position}"
            return f"SnapshotResponse term={message.term} snapshot={message.last_term}/{message.last_index} {how}"
        case TimeoutNow():
            return f"TimeoutNow term={message.term}"
        case FollowRequest():
            return f"FollowRequest term={message.term} last={message.last_term}/{message.last_index}"
        case _:
            assert_never(message)


def _show_snapshot(snapshot: Snapshot) -> str:
    return f"snapshot={snapshot.last_term}/{snapshot.last_index}"


def _show_voters(voters: VoterSet) -> str:
    """``3*`` is a voter whose directory is another one than that of its first start."""
    return ",".join(f"{v.voter_id}{'*' if v.directory_id.startswith(b'again') else ''}" for v in voters)


def _show_entries(entries: tuple[Entry, ...]) -> str:
    return f"[{' '.join(f'{e.term}/{e.index}:{_show_payload(e)}' for e in entries)}]"


def _show_payload(entry: Entry) -> str:
    if entry.voters is not None:
        return f"voters={_show_voters(entry.voters)}"
    return "-" if entry.kind is EntryKind.NO_OP else entry.payload.decode()


def _describe(raft: Raft, configured: VoterSet) -> str:
    match raft.role:
        case Leadership():
            role = "leads"
        case Candidate(pre_vote):
            role = "pre-campaigns" if pre_vote else "campaigns"
        case Follower(leader_id):
            role = f"follows {leader_id or '-'}"
    log = _show_entries(raft.log.slice(raft.log.first_index, raft.log.last_index + 1))
    vote = raft.hard_state.voted_for or "-"
    text = f"{role} term={raft.term} vote={vote} commit={raft.commit_index} durable={raft.durability.last_index}"
    text += "" if raft.voters.current == configured else f" voters={_show_voters(raft.voters.current)}"
    text += "" if raft.snapshot is None else f" {_show_snapshot(raft.snapshot)}"
    return f"{text} {log}"


@pytest.fixture
def raft_script() -> RaftScript:
    return RaftScript()


@pytest.fixture(name="run_script")
def _run_script() -> Callable[[Path, Callable[[str], list[str]]], None]:
    return run_script
