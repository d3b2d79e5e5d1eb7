"""The invariants of a replica between any two steps."""

from __future__ import annotations

from tidelog_quorum.raft.core.leadership import Leadership
from tidelog_quorum.raft.core.messages import EntryKind, HardState
from tidelog_quorum.raft.core.replica import Replica


def check_invariants(replica: Replica) -> None:
    """Assert all invariants; reads the whole log."""
    log = replica.log
    assert log.start_index <= replica.applied_index <= replica.commit_index <= log.last_index
    assert replica.applied_index <= replica.durability.last_index
    assert not replica.replies
    assert not replica.outbox
    assert replica.compaction is None
    log.check_invariants()
    replica.durability.check_invariants(log.last_index)
    replica.voters.check_invariants(log.last_index)
    _check_voters(replica)
    _check_snapshots(replica)
    if isinstance(replica.role, Leadership):
        _check_leadership(replica, replica.role)


def _check_voters(replica: Replica) -> None:
    """Assert that the latest set in the log is in force, else the snapshot's."""
    log, snapshot, voters = replica.log, replica.snapshot, replica.voters
    first = log.first_index if snapshot is None else snapshot.last_index + 1
    entries = [e for e in log.slice(first, log.last_index + 1) if e.kind is EntryKind.VOTERS]
    if entries:
        assert (voters.index, voters.current.encode()) == (entries[-1].index, entries[-1].payload)
    elif snapshot is not None:
        assert voters.index <= snapshot.last_index
        assert voters.current == snapshot.voters


def _check_snapshots(replica: Replica) -> None:
    log, snapshot, incoming = replica.log, replica.snapshot, replica.incoming
    if snapshot is None:
        assert log.start_index == 0
    else:
        assert log.start_index <= snapshot.last_index <= replica.applied_index
        assert log.matches(snapshot.last_index, snapshot.last_term)
    if incoming is not None:
        assert incoming.snapshot.last_index > replica.commit_index
        assert incoming.position <= incoming.snapshot.size
        assert incoming.is_whole == (incoming.sequence is not None)


def _check_leadership(replica: Replica, leader: Leadership) -> None:
    assert replica.durability.hard_state == HardState(replica.term, replica.node_id)
    assert replica.log.last_term == replica.term
    assert not replica.is_installing
    leader.check_invariants()
