"""One leader epoch of a partition's follower: it copies and truncates its log to match the leader's.

It also follows the leader's high watermark and log start. An answer counts only when it belongs to the present leader
epoch: a delayed answer of an old leader must not add to or cut this log. The high watermark is the leader's, bounded by
the follower's log end; only a truncation lowers it. The leader deletes only committed records, so the follower's log
start advances with the leader's, but never beyond the follower's high watermark.
"""

from __future__ import annotations

from tidelog_foundation.ids import BrokerId, LeaderEpoch
from tidelog_node.replication.commands import AdvanceHighWatermark, AdvanceLogStart, Command, RestartLogAt, TruncateTo
from tidelog_node.replication.events import LogDiverged, LogOutOfRange, RecordsReplicated
from tidelog_node.replication.truncation import truncation_offset


class FollowerState:
    """Follower state of one leader epoch; ``leader_id`` is -1 while there is no leader."""

    def __init__(self, leader_id: BrokerId, leader_epoch: LeaderEpoch, high_watermark: int) -> None:
        self.leader_id = leader_id
        self.leader_epoch = leader_epoch
        self.high_watermark = high_watermark
        self.leader_high_watermark: int | None = None
        """The leader's high watermark in the latest answer of this leader epoch; None before the first."""

    def record_replicated(self, event: RecordsReplicated) -> list[Command]:
        """Process an answered fetch."""
        if event.leader_epoch != self.leader_epoch:
            return []
        commands: list[Command] = []
        self.leader_high_watermark = event.leader_high_watermark
        reached = min(event.leader_high_watermark, event.log_end_offset)
        if reached > self.high_watermark:
            self.high_watermark = reached
            commands.append(AdvanceHighWatermark(reached))
        deleted_below = min(event.leader_log_start_offset, self.high_watermark)
        if deleted_below > event.log_start_offset:
            commands.append(AdvanceLogStart(deleted_below))
        return commands

    def truncate(self, event: LogDiverged) -> list[Command]:
        """Cut the log where it diverges from the leader's. The next fetch shows whether the cut was deep enough."""
        if event.leader_epoch != self.leader_epoch:
            return []
        offset = truncation_offset(event.leader_end, event.own_end, event.log_end_offset)
        self.high_watermark = min(self.high_watermark, offset)
        return [TruncateTo(offset)]

    def restart_log(self, event: LogOutOfRange) -> list[Command]:
        """Restart the log at the leader's first offset if that is above this log's end, or this log is empty.

        Any other OFFSET_OUT_OF_RANGE would mean a log longer than the leader's. The epochs reveal that case first, so
        the log stays as it is.
        """
        is_behind = event.log_end_offset < event.leader_log_start_offset
        is_empty = event.log_start_offset == event.log_end_offset
        if event.leader_epoch != self.leader_epoch or not (is_behind or is_empty):
            return []
        if event.log_end_offset == event.leader_log_start_offset:
            return []
        self.high_watermark = event.leader_log_start_offset
        return [RestartLogAt(event.leader_log_start_offset)]

    def check_invariants(self) -> None:
        """Assert what must hold after every step."""
        assert self.high_watermark >= 0, self.high_watermark
