"""A snapshot that a replica is being sent (paper, figure 13, the receiver's side).

Chunks are taken in order of position alone. A transfer that a leader has begun goes on with the next leader, since
equal snapshots have equal bytes. In one term a leader's snapshots only become newer, so a chunk of an older one is
late and ignored; a new leader may have an older one than its predecessor.
"""

from __future__ import annotations

from dataclasses import dataclass

from tidelog_quorum.raft.core.messages import Snapshot, SnapshotRequest


@dataclass(slots=True)
class IncomingSnapshot:
    """``position`` is that of the chunk wanted next.

    Once the whole has come, it is put in the place of the log, by the write of the ``sequence``; nothing else is
    taken meanwhile.
    """

    snapshot: Snapshot
    term: int
    position: int = 0
    is_whole: bool = False
    sequence: int | None = None

    def is_superseded_by(self, request: SnapshotRequest) -> bool:
        """Return whether another snapshot is being sent now."""
        if request.snapshot == self.snapshot:
            return False
        return request.term > self.term or request.snapshot.last_index > self.snapshot.last_index

    def takes(self, request: SnapshotRequest) -> bool:
        """Return whether a request's chunk is the wanted one, and a sound one."""
        end = request.position + len(request.chunk)
        is_last = end == self.snapshot.size
        return request.position == self.position and end <= self.snapshot.size and (bool(request.chunk) or is_last)
