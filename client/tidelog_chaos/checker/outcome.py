"""Maps a client's error to an outcome: ``fail`` if the operation certainly had no effect, else ``info``.

A ``fail`` whose value is read later is an anomaly (G1a), so every doubtful error is ``info``: timeouts, broken
connections, a leader that moved, unknown errors. ``fail`` are refusals before the append and, for a transaction, an
abort before any attempt to commit.
"""

from __future__ import annotations

from typing import Final, Literal

from tidelog_foundation.errors import ErrorCode

_REFUSALS: Final = frozenset(
    {
        # A fenced or forgotten producer wrote nothing with this request, and will not with another.
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.FENCED_INSTANCE_ID,
        ErrorCode.TRANSACTION_COORDINATOR_FENCED,
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        ErrorCode.INVALID_TXN_STATE,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        ErrorCode.NOT_CONTROLLER,
        # Faults of the batch that a broker finds before it appends.
        ErrorCode.MESSAGE_TOO_LARGE,
        ErrorCode.RECORD_LIST_TOO_LARGE,
        ErrorCode.INVALID_RECORD,
        ErrorCode.INVALID_TIMESTAMP,
        ErrorCode.INVALID_REQUIRED_ACKS,
        ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
        # Requests that never left the client.
        ErrorCode._QUEUE_FULL,
        ErrorCode._INVALID_ARG,
        ErrorCode._PURGE_QUEUE,
        ErrorCode._KEY_SERIALIZATION,
        ErrorCode._VALUE_SERIALIZATION,
    }
)


def outcome_of(code: ErrorCode, commit_attempted: bool = True) -> Literal["ok", "info", "fail"]:
    """Return the outcome of an operation that ended with an error; without an error it is ``ok``.

    ``commit_attempted`` is False for a transaction that was aborted before any attempt to commit it.
    """
    if code is ErrorCode.NONE:
        return "ok"
    return "fail" if code in _REFUSALS or not commit_attempted else "info"
