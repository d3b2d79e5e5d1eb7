"""One term of a partition's follower: it copies its leader's log, cuts what the leader does not have, learns the
high watermark and where the log starts.

An answer counts only when it belongs to the present leader epoch: an old leader's answer, delayed, must not add to
or cut this log. The high watermark is the leader's, bounded by the own log's end; it goes back only with a truncation.
What was deleted on the leader was committed: the log's start follows, never beyond the own high watermark.
"""

from __future__ import annotations

from tidelog_foundation.ids import BrokerId, LeaderEpoch
from tidelog_node.replication.commands import (
    AdvanceHighWatermark,
    AdvanceLogStart,
    Command,
    RestartLogAt,
    TruncateTo,
)
from tidelog_node.replication.events import LogDiverged, LogOutOfRange, RecordsReplicated
from tidelog_node.replication.truncation import truncation_offset


class FollowerState:
    """What a follower knows in one leader epoch; ``leader_id`` is -1 while there is no leader."""

    def __init__(self, leader_id: BrokerId, leader_epoch: LeaderEpoch, high_watermark: int) -> None:
        self.leader_id = leader_id
        self.leader_epoch = leader_epoch
        self.high_watermark = high_watermark

    def record_replicated(self, event: RecordsReplicated) -> list[Command]:
        """Take in an answered fetch."""
        if event.leader_epoch != self.leader_epoch:
            return []
        commands: list[Command] = []
        reached = min(event.leader_high_watermark, event.log_end_offset)
        if reached > self.high_watermark:
            self.high_watermark = reached
            commands.append(AdvanceHighWatermark(reached))
        deleted_below = min(event.leader_log_start_offset, self.high_watermark)
        if deleted_below > event.log_start_offset:
            commands.append(AdvanceLogStart(deleted_below))
        return commands

    def truncate(self, event: LogDiverged) -> list[Command]:
        """Cut the log where it leaves the leader's; the next fetch finds out whether that was far enough."""
        if event.leader_epoch != self.leader_epoch:
            return []
        offset = truncation_offset(event.leader_end, event.own_end, event.log_end_offset)
        self.high_watermark = min(self.high_watermark, offset)
        return [TruncateTo(offset)]

    def restart_log(self, event: LogOutOfRange) -> list[Command]:
        """Begin again at the leader's first offset when that lies behind the own log's end, or the own log is empty.

        Any other reason for OFFSET_OUT_OF_RANGE would be a log that is longer than the leader's, which the epochs
        show first; then nothing is cut.
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
