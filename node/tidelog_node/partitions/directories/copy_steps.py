"""Steps that bring a copy of a log nearer to its original while both are in use (KIP-113).

Leader epochs alone show the common prefix of the two, as between a follower and its leader (KIP-101). Between two steps
the original may be truncated, restarted or compacted, or lose deleted records.
"""

from __future__ import annotations

from typing import TypeAlias

from tidelog_foundation.dataclass import dataclass
from tidelog_foundation.records import parse_header
from tidelog_node.log import PartitionLog

MAX_RECORDS_AT_ONCE = 1_000
_MAX_BYTES_AT_ONCE = 512 * 1024


@dataclass(frozen=True, slots=True)
class StartAt:
    """Restart of a copy that has no record in common with its original."""

    offset: int


@dataclass(frozen=True, slots=True)
class TruncateTo:
    """Truncation of the copy, because the original has other records from this offset."""

    offset: int


@dataclass(frozen=True, slots=True)
class Append:
    """Append of the original's next records."""

    records: bytes


CopyStep: TypeAlias = StartAt | TruncateTo | Append


def apply_step(copy: PartitionLog, step: CopyStep, now_ms: int) -> None:
    """Apply a step to the copy; raise KAFKA_STORAGE_ERROR."""
    match step:
        case StartAt():
            copy.truncate_fully_and_start_at(step.offset)
        case TruncateTo():
            copy.truncate_to(step.offset)
        case Append():
            copy.append_as_follower(step.records, now_ms)


def next_step(original: PartitionLog, copy: PartitionLog, max_bytes: int) -> CopyStep | None:
    """Return the copy's next step towards the original, None when the two are equal; raise KAFKA_STORAGE_ERROR."""
    if copy.size_in_bytes == 0:
        start = _first_base_offset(original)
        if copy.log_end_offset != start:
            return StartAt(start)
    elif copy.log_end_offset < original.log_start_offset:
        return StartAt(_first_base_offset(original))
    else:
        divergence = _divergence(original, copy)
        if divergence is not None:
            return divergence
    if copy.log_end_offset >= original.log_end_offset:
        return None
    return Append(original.read(copy.log_end_offset, max_bytes, original.log_end_offset))


def _first_base_offset(log: PartitionLog) -> int:
    """Return the base offset of the first batch, since a log may start inside it."""
    start, end = log.log_start_offset, log.log_end_offset
    records = log.read(start, 1, end) if start < end else b""
    return min(start, parse_header(records).base_offset) if records else start


def _divergence(original: PartitionLog, copy: PartitionLog) -> CopyStep | None:
    """Return the step to the common prefix; None when the copy is a prefix of the original (KIP-101)."""
    epoch, end_offset = original.end_offset_for_epoch(copy.latest_epoch)
    if epoch == copy.latest_epoch and end_offset >= copy.log_end_offset:
        return None
    own_epoch, own_end = copy.end_offset_for_epoch(epoch) if epoch >= 0 else (-1, -1)
    if own_epoch < 0:
        return StartAt(_first_base_offset(original))
    return TruncateTo(min(end_offset, own_end))


def catch_up(original: PartitionLog, copy: PartitionLog, max_bytes: int, now_ms: int) -> bool:
    """Copy the remaining records, and return False when they are too many for one step of the event loop."""
    copied = 0
    while (step := next_step(original, copy, max_bytes)) is not None:
        if not isinstance(step, Append) or copied > _MAX_BYTES_AT_ONCE:
            return False
        apply_step(copy, step, now_ms)
        copied += len(step.records)
    return True
