"""Snapshots that this replica takes or receives (paper 7, figure 13). :mod:`.leadership` decides to send one.

- A snapshot covers only committed entries, so the whole log before its end may go. Some entries stay, for replicas that
  are slightly behind; a leader also keeps those that follow a snapshot which it is sending.
- A snapshot older than the current one, or than one being installed, is ignored: applied state never goes back.
- A replica that has the snapshot's last entry has all entries before it as well: the snapshot proves them committed,
  and nothing needs to be sent. Otherwise the snapshot replaces its whole log: entries after one that differs from a
  committed one are worthless.
- Chunks are stored in order of position; the answer to any other chunk names the next position. After the last one the
  snapshot is installed: checked, synced and recorded on disk in one write with the end of the old log. Memory changes
  only after that, because the check fails if the bytes are damaged; then they are requested again.
- "Done" leaves when a crash could no longer lose the snapshot, or the entries that make it unnecessary.
- From then on the snapshot's voters are in force.
"""

from __future__ import annotations

from tidelog_quorum.raft.core.commands import RestoreSnapshot, StoreChunk
from tidelog_quorum.raft.core.events import SnapshotDamaged
from tidelog_quorum.raft.core.follower import follow_leader
from tidelog_quorum.raft.core.leadership import Leadership
from tidelog_quorum.raft.core.messages import Snapshot, SnapshotRequest, SnapshotResponse
from tidelog_quorum.raft.core.replica import IncomingSnapshot, Replica


def on_snapshot_taken(replica: Replica, snapshot: Snapshot) -> None:
    """Drop the part of the log that a snapshot of this replica's own state covers."""
    present = replica.snapshot
    if replica.is_installing or (present is not None and snapshot.last_index <= present.last_index):
        return
    assert snapshot.last_index <= replica.applied_index, (snapshot, replica.applied_index)
    assert snapshot.last_term == replica.log.term_at(snapshot.last_index), snapshot
    assert snapshot.voters == replica.voters.at(snapshot.last_index), snapshot
    first_index = _wanted_first_index(replica, snapshot)
    replica.snapshot = snapshot
    replica.compaction = (snapshot, first_index)
    replica.log.compact_to(first_index)
    replica.voters.compact_to(snapshot.last_index)


def on_snapshot_request(replica: Replica, request: SnapshotRequest) -> None:
    """Store a chunk of a leader's snapshot, or answer with the position of the next one."""
    if request.term < replica.term:
        _answer(replica, request.sender_id, request.snapshot, position=0)
        return
    follow_leader(replica, request.sender_id)
    incoming = replica.incoming
    if incoming is not None and incoming.is_whole:
        if incoming.snapshot == request.snapshot:
            _answer(replica, request.sender_id, incoming.snapshot, incoming.position)
        return
    if _has_all_of(replica, request.snapshot):
        replica.commit_index = max(replica.commit_index, request.snapshot.last_index)
        _answer(replica, request.sender_id, request.snapshot, request.snapshot.size, done=True)
        return
    if incoming is None or incoming.is_superseded_by(request):
        incoming = replica.incoming = IncomingSnapshot(request.snapshot, request.term)
    if incoming.snapshot == request.snapshot:
        _take_chunk(replica, incoming, request)


def on_snapshot_damaged(replica: Replica, event: SnapshotDamaged) -> None:
    """Request a snapshot again from its beginning."""
    incoming = replica.incoming
    if incoming is None or (incoming.snapshot.last_index, incoming.snapshot.last_term) != (
        event.last_index,
        event.last_term,
    ):
        return
    if incoming.sequence is not None:
        replica.durability.cancel(incoming.sequence)
    replica.incoming = IncomingSnapshot(incoming.snapshot, replica.term)
    if replica.leader_id not in (None, replica.node_id):
        _answer(replica, replica.leader_id, incoming.snapshot, position=0)


def on_persisted(replica: Replica, sequence: int) -> None:
    """Switch to a snapshot once it is on disk."""
    incoming = replica.incoming
    if incoming is None or incoming.sequence is None or incoming.sequence > sequence:
        return
    snapshot = incoming.snapshot
    assert snapshot.last_index > replica.commit_index, (snapshot, replica.commit_index)
    replica.incoming = None
    replica.snapshot = snapshot
    replica.log.restart_at(snapshot.last_index, snapshot.last_term)
    replica.voters.restart_at(snapshot.last_index, snapshot.voters)
    replica.durability.restart_at(snapshot.last_index)
    replica.commit_index = replica.applied_index = snapshot.last_index
    replica.outbox.append(RestoreSnapshot(snapshot))
    if replica.leader_id is not None:
        _answer(replica, replica.leader_id, snapshot, snapshot.size, done=True)


def drop_superseded(replica: Replica) -> None:
    """Drop a partly received snapshot that the log has overtaken."""
    incoming = replica.incoming
    if incoming is not None and not incoming.is_whole and incoming.snapshot.last_index <= replica.commit_index:
        replica.incoming = None


def _wanted_first_index(replica: Replica, snapshot: Snapshot) -> int:
    config = replica.config
    first_index = replica.log.first_of_last(snapshot.last_index, config.max_trailing_entries, config.max_trailing_bytes)
    if isinstance(replica.role, Leadership):
        return min(first_index, max(replica.role.retained_from(replica.now_ms), replica.log.first_index))
    return first_index


def _has_all_of(replica: Replica, snapshot: Snapshot) -> bool:
    return snapshot.last_index <= replica.commit_index or replica.log.matches(snapshot.last_index, snapshot.last_term)


def _take_chunk(replica: Replica, incoming: IncomingSnapshot, request: SnapshotRequest) -> None:
    incoming.term = request.term
    if incoming.accepts(request):
        replica.outbox.append(StoreChunk(incoming.snapshot, request.position, request.chunk))
        incoming.position += len(request.chunk)
        incoming.is_whole = incoming.position == incoming.snapshot.size
    _answer(replica, request.sender_id, incoming.snapshot, incoming.position)


def _answer(replica: Replica, to: int, snapshot: Snapshot, position: int, *, done: bool = False) -> None:
    response = SnapshotResponse(replica.node_id, replica.term, snapshot.last_index, snapshot.last_term, position, done)
    replica.reply(to, response, acknowledges_log=done)
