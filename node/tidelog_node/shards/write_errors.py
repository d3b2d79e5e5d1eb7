"""The errors of writes to a coordinator's own partition, as clients of the coordinator get them."""

from __future__ import annotations

from tidelog_foundation.errors import ErrorCode, TidelogError, error_for

_MOVED = frozenset((ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.FENCED_LEADER_EPOCH))
_UNAVAILABLE = frozenset(
    (
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.REQUEST_TIMED_OUT,
    )
)


def coordinator_error(error: TidelogError) -> TidelogError | None:
    """Return the error of the coordinator if its partition cannot be written now; None for any other error.

    Clients retry it. An error of the partition itself would name a partition that they did not ask about.
    """
    if error.code in _MOVED:
        return error_for(ErrorCode.NOT_COORDINATOR, error.message)
    if error.code in _UNAVAILABLE:
        return error_for(ErrorCode.COORDINATOR_NOT_AVAILABLE, error.message)
    return None
