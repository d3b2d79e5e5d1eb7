"""A snapshot that a leader is sending to this replica (paper, figure 13, the receiver's side).

Chunks are accepted in order of position only. The next leader can continue a transfer that another one began, because
equal snapshots have equal bytes. Within a term a leader's snapshots only become newer, so a chunk of an older one is
late and ignored; a new leader may have an older snapshot than its predecessor.
"""

from __future__ import annotations

from dataclasses import dataclass

from tidelog_quorum.raft.core.messages import Snapshot, SnapshotRequest


@dataclass(slots=True)
class IncomingSnapshot:
    """The state of the transfer; ``position`` is that of the next chunk.

    A complete snapshot replaces the log by the write with the ``sequence``; no chunk is accepted meanwhile.
    """

    snapshot: Snapshot
    term: int
    position: int = 0
    is_whole: bool = False
    sequence: int | None = None

    def is_superseded_by(self, request: SnapshotRequest) -> bool:
        """Return whether the leader is now sending another snapshot."""
        if request.snapshot == self.snapshot:
            return False
        return request.term > self.term or request.snapshot.last_index > self.snapshot.last_index

    def takes(self, request: SnapshotRequest) -> bool:
        """Return whether a request's chunk is the next one and valid."""
        end = request.position + len(request.chunk)
        is_last = end == self.snapshot.size
        return request.position == self.position and end <= self.snapshot.size and (bool(request.chunk) or is_last)
