"""The errors that a consumer reports for a partition, and those that it retries."""

from __future__ import annotations

from tidelog.consumer.core.events import Validated
from tidelog.consumer.core.partition import PartitionState
from tidelog_foundation.errors import OUTAGES, ErrorCode, TidelogError, error_for

REPORTED = OUTAGES | {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
"""Errors that are retried but reported once, because the application may be waiting in vain."""
REBALANCING = frozenset(
    (
        ErrorCode.STALE_MEMBER_EPOCH,
        ErrorCode.FENCED_MEMBER_EPOCH,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.REBALANCE_IN_PROGRESS,
    )
)
"""Errors of a request for committed offsets that are retried unless the group revokes the partition."""
_RETRIED = OUTAGES | REBALANCING


def may_pass(error: TidelogError) -> bool:
    """Return True if the same request may succeed later."""
    return error.code.retriable or error.code in _RETRIED


def without_offset(state: PartitionState) -> TidelogError:
    """Return the error of a partition without a starting offset."""
    return error_for(ErrorCode._AUTO_OFFSET_RESET, f"{_name(state)} has no offset to start from")


def truncated(state: PartitionState, event: Validated) -> TidelogError:
    """Return the error of a log that no longer has the records read (KIP-320)."""
    text = f"{_name(state)}: offset {state.fetch_offset} after leader epoch {event.spec.offset_epoch} is not in the log"
    text += f" any more: epoch {event.epoch} ends at {event.end_offset}"
    return error_for(ErrorCode._LOG_TRUNCATION, text)


def without_progress(state: PartitionState, size: int) -> TidelogError:
    """Return the error of an answer whose records do not reach the requested offset."""
    text = f"{_name(state)}: {size} bytes were fetched at offset {state.fetch_offset}, but no record at or after it"
    return error_for(ErrorCode.CORRUPT_MESSAGE, text)


def end_reached(state: PartitionState, offset: int) -> TidelogError:
    """Return the event for the end of a partition, at ``offset``."""
    return error_for(ErrorCode._PARTITION_EOF, f"{_name(state)}: no record after offset {offset - 1} yet")


def _name(state: PartitionState) -> str:
    return f"{state.topic}-{state.partition}"
