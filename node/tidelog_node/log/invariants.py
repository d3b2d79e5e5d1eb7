"""The invariants of every log between two calls; the tests assert them after each step."""

from __future__ import annotations

from tidelog_foundation.records import RecordBatchHeader
from tidelog_node.log.epochs import LeaderEpochCache
from tidelog_node.log.local_log import LocalLog
from tidelog_node.log.segments.indexes import NO_TIMESTAMP
from tidelog_node.log.segments.segment import Segment


def check_log(local: LocalLog, epochs: LeaderEpochCache, log_start_offset: int) -> None:
    """Assert ascending offsets, correct indexes, a log start within the log, and epochs that match the batches."""
    local.segments.check_invariants()
    for segment in local.segments:
        check_segment(segment)
    assert local.segments.active.next_offset == local.log_end_offset, local.log_end_offset
    assert 0 <= local.recovery_point <= local.log_end_offset, (local.recovery_point, local.log_end_offset)
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


def check_segment(segment: Segment) -> None:
    """Assert that batches are whole and in order, and that the indexes point to them."""
    positions: dict[int, RecordBatchHeader] = {}
    end = segment.base_offset
    for position, header in segment.headers():
        assert header.base_offset >= end, (segment.path, header, end)
        positions[position] = header
        end = header.next_offset
    assert end <= segment.next_offset, (segment.path, end, segment.next_offset)
    for offset, position in segment.indexes.lookup()[0].entries():
        assert positions[position].last_offset == offset, (segment.path, offset, position)
    last_offsets = {header.last_offset: header for header in positions.values()}
    for timestamp, offset in segment.indexes.lookup()[1].entries():
        assert last_offsets[offset].max_timestamp == timestamp, (segment.path, offset, timestamp)
    newest = max((header.max_timestamp for header in positions.values()), default=NO_TIMESTAMP)
    assert newest == segment.max_timestamp, (segment.path, newest, segment.max_timestamp)
