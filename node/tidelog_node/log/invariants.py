"""What holds for every log at any time between two calls: the tests assert it after each step."""

from __future__ import annotations

from tidelog_node.log.epochs import LeaderEpochCache
from tidelog_node.log.local_log import LocalLog


def check_log(local: LocalLog, epochs: LeaderEpochCache, log_start_offset: int) -> None:
    """Assert ascending offsets, indexes that are right, a start inside, and the epochs that the batches have."""
    local.check_invariants()
    epochs.check_invariants()
    first, end = local.segments.first.base_offset, local.log_end_offset
    assert first <= log_start_offset <= end, (first, log_start_offset, end)
    for segment in local.segments:
        for _, header in segment.headers():
            if header.next_offset > log_start_offset:
                epoch = epochs.epoch_at(max(header.base_offset, log_start_offset))
                assert epoch == header.partition_leader_epoch, (header, epochs.entries)
    ahead = [entry for entry in epochs.entries if entry.start_offset >= end]
    assert len(ahead) <= 1, ahead
