"""The safety properties of Raft, checked after every event of a simulated cluster at a cost proportional to the change.

They are the paper's figure 3 (election safety, log matching, leader completeness, state-machine safety) and their
foundations: promises are on disk before they are sent, committed entries are on the disks of a majority of the voters
in force, voters change one at a time (thesis 4.1), and reads miss nothing committed before their request. Unlike a
replica, the checker sees all replicas at once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from raft_disk import ReplicaState, SimulatedDisk, digest_after
from raft_properties import PropertyViolatedError, require

from tidelog_quorum.raft.core.commands import Persist
from tidelog_quorum.raft.core.leadership import Leadership
from tidelog_quorum.raft.core.messages import (
    AppendResponse,
    Entry,
    EntryKind,
    Message,
    Snapshot,
    SnapshotResponse,
    VoteResponse,
)
from tidelog_quorum.raft.core.raft import Raft
from tidelog_quorum.raft.core.voters import Voter, VoterSet


class CheckedNode(Protocol):
    """The parts of a replica that the checker reads, and the checker's notes on it."""

    disk: SimulatedDisk
    raft: Raft | None
    state: ReplicaState
    seen_commit: int
    seen_applied: int
    held_index: int
    led_term: int


class SafetyChecker:
    """Tracks all entries that any leader ever committed, and raises :class:`PropertyViolatedError`."""

    def __init__(self, nodes: Mapping[int, CheckedNode], voters: VoterSet) -> None:
        self.committed: list[Entry] = []
        self.acknowledged: dict[int, Entry] = {}
        self.leader_of_term: dict[int, int] = {}
        self._nodes = nodes
        self._digests = [0]
        self.voter_sets: list[tuple[int, VoterSet]] = [(0, voters)]
        self._committed_by_term: dict[int, int] = {}
        self._history: dict[tuple[int, int], tuple[Entry, int]] = {}
        self._replaced: dict[tuple[int, bytes], SimulatedDisk] = {}
        self._votes: dict[tuple[int, bytes, int], int] = {}
        self._sent: dict[type, Callable[[int, CheckedNode, int, Any], None]] = {
            VoteResponse: self._check_vote,
            AppendResponse: self._check_acknowledgement,
            SnapshotResponse: self._check_snapshot_acknowledgement,
        }

    @property
    def latest_voters(self) -> VoterSet:
        """The voters of the last committed change."""
        return self.voter_sets[-1][1]

    @property
    def ever_voters(self) -> set[int]:
        """All past and present voters, by a committed change or by configuration."""
        return {voter_id for _, voters in self.voter_sets for voter_id in voters.ids}

    def all_known_since(self, node_id: int) -> int | None:
        """Return the committed index since which a voter's directory id was never unknown, or None."""
        since = None
        for index, voters in reversed(self.voter_sets):
            voter = voters.get(node_id)
            if voter is not None and not voter.directory_id:
                break
            since = index
        return since or None

    def voters_at(self, index: int) -> VoterSet:
        """Return the voters in force at a committed index."""
        return next(voters for start, voters in reversed(self.voter_sets) if start <= index)

    def check_step(self, node_id: int, node: CheckedNode) -> None:
        """Check after each step, before its commands are executed, that indexes never fall, and note new commits."""
        raft = node.raft
        assert raft is not None
        commit, leads = raft.commit_index, type(raft.role) is Leadership
        if commit != node.seen_commit or raft.applied_index != node.seen_applied:
            if commit < node.seen_commit or raft.applied_index < node.seen_applied:
                raise PropertyViolatedError("IndexWentBack", f"node {node_id}: {node.seen_commit} to {commit}")
            if commit > node.seen_commit:
                self._check_commit(node_id, raft, commit, raft.term if leads else node.led_term, leads)
            node.seen_commit, node.seen_applied = commit, raft.applied_index
        node.led_term = raft.term if leads else 0

    def check_leader(self, node_id: int, leader_id: int | None, term: int) -> None:
        """Check Election Safety and Leader Completeness.

        There is one leader per term, and it has all entries committed before its term.
        """
        if leader_id is None:
            return
        if self.leader_of_term.setdefault(term, leader_id) != leader_id:
            raise PropertyViolatedError("ElectionSafety", f"term {term}: {self.leader_of_term[term]} and {leader_id}")
        if leader_id == node_id:
            self._check_new_leader(node_id, term)

    def check_persist(self, node_id: int, node: CheckedNode, write: Persist) -> None:
        """Check Log Matching: an index and a term identify one entry and its predecessor, so prefixes are equal."""
        raft = node.raft
        assert raft is not None
        if write.truncate_from is not None:
            self.check_voters_in_force(node_id, raft)
        if not write.entries:
            return
        before = raft.log.term_at(write.entries[0].index - 1)
        for entry in write.entries:
            key = (entry.index, entry.term)
            known = self._history.get(key)
            if known is None:
                self._history[key] = (entry, before)
                if entry.kind is EntryKind.VOTERS:
                    self._check_change(raft, entry)
            elif known[1] != before or known[0] != entry:
                raise PropertyViolatedError("LogMatching", f"node {node_id}: {entry} after {before}, was {known}")
            before = entry.term

    def check_voters_in_force(self, node_id: int, raft: Raft) -> None:
        """Check that a replica uses the voters of an entry in its log, of its snapshot, or of its configuration."""
        index, voters = raft.voters.index, raft.voters.current
        if raft.snapshot is not None and index <= raft.snapshot.last_index:
            right = raft.snapshot.voters == voters
        elif index == 0:
            right = voters == self.voter_sets[0][1]
        else:
            [entry] = raft.log.slice(index, index + 1) or [None]
            right = entry is not None and entry.voters == voters
        require(right, "VotersOfLog", f"node {node_id} goes by {voters} at {index}")

    def check_commands_of_commit(self, node_id: int, node: CheckedNode, entries: tuple[Entry, ...]) -> None:
        """Check State Machine Safety: all replicas apply the same entry at an index, without gaps, and from their
        disks.
        """
        state, committed = node.state, self.committed
        for entry in entries:
            index = entry.index
            if index != state.index + 1 or index > len(committed):
                raise PropertyViolatedError("StateMachineSafety", f"node {node_id} applies {entry} at {state.index}")
            if committed[index - 1] != entry:
                raise PropertyViolatedError("StateMachineSafety", f"node {node_id}: {entry}, {committed[index - 1]}")
            state.apply(entry)
        self._check_state(node_id, state)
        if entries and not node.disk.holds(entries[-1].index, entries[-1].term):
            raise PropertyViolatedError("AppliedBeforeDurable", f"node {node_id}: {entries[-1]}")

    def check_restore(self, node_id: int, node: CheckedNode, snapshot: Snapshot) -> None:
        """Check that a snapshot moves the state forward to the common state at its index."""
        require(snapshot.last_index > node.state.index, "SnapshotWentBack", f"node {node_id}: {snapshot}")
        content = node.disk.files.get(snapshot)
        require(content is not None, "SnapshotMissing", f"node {node_id}: {snapshot}")
        assert content is not None
        self.check_snapshot(node_id, snapshot)
        node.state.restore(snapshot, content)
        self._check_state(node_id, node.state)

    def check_snapshot(self, node_id: int, snapshot: Snapshot) -> None:
        """Check that a snapshot covers committed entries and names the voters of its last one."""
        index = snapshot.last_index
        known = index <= len(self.committed) and self.committed[index - 1].term == snapshot.last_term
        require(known, "SnapshotOfUncommitted", f"node {node_id}: {snapshot}")
        voters = self.voters_at(index)
        require(snapshot.voters == voters, "SnapshotVoters", f"node {node_id}: {snapshot.voters}, not {voters}")

    def check_send(self, node_id: int, node: CheckedNode, to: int, message: Message) -> None:
        """Check that a promise is on the sender's disk."""
        check = self._sent.get(type(message))
        if check is not None:
            check(node_id, node, to, message)

    def check_disk(self, node_id: int, node: CheckedNode) -> None:
        """Check after each sync that a disk keeps its committed entries."""
        disk, committed, held = node.disk, self.committed, node.held_index
        if held and not disk.holds(held, committed[held - 1].term):
            raise PropertyViolatedError("CommittedEntryLost", f"node {node_id} had {committed[held - 1]}")
        if disk.snapshot is not None:
            held = max(held, disk.snapshot.last_index)
        end = min(len(committed), disk.last_index)
        while held < end and disk.term_at(held + 1) == committed[held].term:
            held += 1
        node.held_index = held

    def note_replaced_disk(self, node_id: int, disk: SimulatedDisk) -> None:
        """Record the loss of a replica's disk. Its earlier acknowledgements still count."""
        self._replaced[node_id, disk.directory_id] = disk

    def acknowledge(self, entry: Entry) -> None:
        """Record that a client's entry was acknowledged as permanent."""
        self.acknowledged[entry.index] = entry

    def check_nothing_lost(self) -> None:
        """Check, at the end of a healthy phase, that every running replica has every acknowledged entry."""
        for index, entry in self.acknowledged.items():
            kept = index <= len(self.committed) and self.committed[index - 1] == entry
            require(kept, "AcknowledgedEntryLost", f"{entry}")
        for node_id, node in self._nodes.items():
            if node.raft is not None:
                self._check_state(node_id, node.state)

    def _check_state(self, node_id: int, state: ReplicaState) -> None:
        if state.digest != self._digests[state.index]:
            raise PropertyViolatedError("StateMachineSafety", f"node {node_id} has another state at {state.index}")

    def _check_new_leader(self, node_id: int, term: int) -> None:
        node = self._nodes[node_id]
        assert node.raft is not None
        hard_state = node.disk.hard_state
        own = (hard_state.term, hard_state.voted_for) == (term, node_id)
        require(own, "VoteNotDurable", f"{node_id} leads in {term} with {hard_state}")
        self._check_votes(node_id, node.raft, term)
        index = max((end for t, end in self._committed_by_term.items() if t < term), default=0)
        log = node.raft.log
        if index and index > _snapshot_index(node.disk):
            has = index <= log.last_index and log.term_at(index) == self.committed[index - 1].term
            require(has, "LeaderCompleteness", f"{node_id} leads in {term} without {self.committed[index - 1]}")

    def _check_votes(self, node_id: int, raft: Raft, term: int) -> None:
        count = 0
        for voter in raft.voters.current:
            disk = self._disk_of(voter)
            if disk is not None:
                own = voter.voter_id == node_id and raft.voters.current.is_voter(node_id, disk.directory_id)
                count += own or self._votes.get((voter.voter_id, disk.directory_id, term)) == node_id
        if count <= len(raft.voters.current) // 2:
            raise PropertyViolatedError("ElectedByMajority", f"{node_id} leads in {term} with {count} votes")

    def _check_commit(self, node_id: int, raft: Raft, commit: int, term: int, leads: bool) -> None:
        # A leader that resigned in this step may have committed before.
        if not leads and commit <= len(self.committed):
            return
        if not term:
            raise PropertyViolatedError("StateMachineSafety", f"{node_id} counts {commit}, which no leader does")
        start = len(self.committed) + 1
        for entry in raft.log.slice(start, commit + 1):
            self.committed.append(entry)
            self._digests.append(digest_after(self._digests[-1], entry))
            if entry.kind is EntryKind.VOTERS:
                self._commit_change(entry)
        if raft.log.term_at(commit) != term:
            raise PropertyViolatedError("CommitOfOlderTerm", f"leader {node_id} of {term}: {raft.log.term_at(commit)}")
        if self.committed[commit - 1].term != term:
            raise PropertyViolatedError("StateMachineSafety", f"leader {node_id} of {term} commits another at {commit}")
        self._committed_by_term[term] = max(commit, self._committed_by_term.get(term, 0))
        self._check_durable(raft, commit)

    def _check_durable(self, raft: Raft, index: int) -> None:
        term, count = self.committed[index - 1].term, 0
        for voter in raft.voters.current:
            disk = self._disk_of(voter)
            count += disk is not None and disk.holds(index, term)
        if count <= len(raft.voters.current) // 2:
            raise PropertyViolatedError(
                "CommittedOnMajority",
                f"{raft.node_id} commits {index}, on {count} disks of {list(raft.voters.current)}",
            )

    def _disk_of(self, voter: Voter) -> SimulatedDisk | None:
        """Return the disk of a voter's vote, even if it has left the cluster since."""
        node = self._nodes.get(voter.voter_id)
        if node is None or not voter.directory_id or voter.directory_id == node.disk.directory_id:
            return None if node is None else node.disk
        return self._replaced.get((voter.voter_id, voter.directory_id))

    def _check_change(self, raft: Raft, entry: Entry) -> None:
        """Check the first appearance of a voters entry, in the log of a leader that may know less than others."""
        index = entry.index
        committed = entry.term in self._committed_by_term
        require(committed, "ChangeBeforeOwnTerm", f"{raft.node_id}: {entry}")
        start = max(raft.commit_index + 1, raft.log.first_index)
        pending = [e for e in raft.log.slice(start, index) if e.kind is EntryKind.VOTERS]
        require(not pending, "ChangeWhileAnotherIsPending", f"{raft.node_id}: {entry} after {pending}")
        assert entry.voters is not None
        check_single_change(raft.voters.at(index - 1), entry.voters)

    def _commit_change(self, entry: Entry) -> None:
        assert entry.voters is not None
        check_single_change(self.voter_sets[-1][1], entry.voters)
        self.voter_sets.append((entry.index, entry.voters))

    def _check_vote(self, node_id: int, node: CheckedNode, to: int, message: VoteResponse) -> None:
        if not message.granted or message.pre_vote:
            return
        disk = node.disk
        if (disk.hard_state.term, disk.hard_state.voted_for) != (message.term, to):
            raise PropertyViolatedError("VoteNotDurable", f"{node_id} tells {message}, has {disk.hard_state}")
        key = (node_id, disk.directory_id, message.term)
        if self._votes.setdefault(key, to) != to:
            raise PropertyViolatedError("OneVotePerTerm", f"{node_id} for {self._votes[key]} and {message} for {to}")

    def _check_acknowledgement(self, node_id: int, node: CheckedNode, _to: int, message: AppendResponse) -> None:
        raft = node.raft
        if not message.success or not message.match_index or raft is None:
            return
        index = message.match_index
        if index <= _snapshot_index(node.disk):
            return
        # Memory may be compacted before the disk. Entries gone from it were committed.
        if raft.log.start_index <= index <= raft.log.last_index:
            term = raft.log.term_at(index)
        else:
            term = self.committed[index - 1].term if index < raft.log.start_index else -1
        if node.disk.term_at(index) != term:
            raise PropertyViolatedError("AcknowledgedBeforeDurable", f"{node_id}: {message}")

    def _check_snapshot_acknowledgement(
        self, node_id: int, node: CheckedNode, _to: int, message: SnapshotResponse
    ) -> None:
        if message.done and not node.disk.holds(message.last_index, message.last_term):
            raise PropertyViolatedError("AcknowledgedBeforeDurable", f"{node_id}: {message}")


def check_single_change(before: VoterSet, after: VoterSet) -> None:
    """Check that adjacent voter sets differ by at most one voter, so that their majorities intersect (thesis 4.1)."""
    different = len(set(before.ids) ^ set(after.ids))
    require(different <= 1, "SingleServerChange", f"{before.ids} becomes {after.ids}")
    moved = [v for v in after if (old := before.get(v.voter_id)) and old.directory_id not in (b"", v.directory_id)]
    require(not moved, "SingleServerChange", f"another directory under the same id: {moved}")


def _snapshot_index(disk: SimulatedDisk) -> int:
    return disk.snapshot.last_index if disk.snapshot is not None else 0
