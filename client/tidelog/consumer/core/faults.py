"""What a consumer's application is told of a partition, and which errors are not the last word."""

from __future__ import annotations

from tidelog.consumer.core.events import Validated
from tidelog.consumer.core.partition import PartitionState
from tidelog_foundation.errors import OUTAGES, ErrorCode, TidelogError, error_for

REPORTED = OUTAGES | {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
"""Retried, but the application is told when they begin: it may be waiting for what never comes."""
REBALANCING = frozenset(
    (
        ErrorCode.STALE_MEMBER_EPOCH,
        ErrorCode.FENCED_MEMBER_EPOCH,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.REBALANCE_IN_PROGRESS,
    )
)
"""Of a question for committed offsets: asked again, unless the group takes the partition away."""
_RETRIED = OUTAGES | REBALANCING


def may_pass(error: TidelogError) -> bool:
    """Return whether the same question may be answered later."""
    return error.code.retriable or error.code in _RETRIED


def without_offset(state: PartitionState) -> TidelogError:
    """Nothing says where to begin."""
    return error_for(ErrorCode._AUTO_OFFSET_RESET, f"{_name(state)} has no offset to start from")


def truncated(state: PartitionState, event: Validated) -> TidelogError:
    """The leader's log does not have what was read (KIP-320)."""
    text = f"{_name(state)}: offset {state.fetch_offset} after leader epoch {event.spec.offset_epoch} is not in the log"
    text += f" any more: epoch {event.epoch} ends at {event.end_offset}"
    return error_for(ErrorCode._LOG_TRUNCATION, text)


def without_progress(state: PartitionState, size: int) -> TidelogError:
    """A node has answered with records, but with none to go on with."""
    text = f"{_name(state)}: {size} bytes were fetched at offset {state.fetch_offset}, but no record from there on"
    return error_for(ErrorCode.CORRUPT_MESSAGE, text)


def end_reached(state: PartitionState, offset: int) -> TidelogError:
    """There is nothing at ``offset`` yet."""
    return error_for(ErrorCode._PARTITION_EOF, f"{_name(state)}: no record after offset {offset - 1} yet")


def _name(state: PartitionState) -> str:
    return f"{state.topic}-{state.partition}"
