"""What an error says about a send: that it certainly did not happen, or that nobody knows. Pure.

After Jepsen's tests of Kafka: ``fail`` is for what a producer is told before or instead of an append, everything else
is ``info``, also an error of the last of several attempts, since an earlier one may have been stored.
"""

from __future__ import annotations

from typing import Literal

from tidelog.errors import ErrorCode

_CERTAIN = frozenset(
    {
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        ErrorCode.NOT_CONTROLLER,
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        ErrorCode.MESSAGE_TOO_LARGE,
        ErrorCode.RECORD_LIST_TOO_LARGE,
        ErrorCode.INVALID_REQUIRED_ACKS,
        ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
        ErrorCode._QUEUE_FULL,
        ErrorCode._UNKNOWN_PARTITION,
        ErrorCode._UNKNOWN_TOPIC,
        ErrorCode._INVALID_ARG,
    }
)


def send_outcome(code: ErrorCode) -> Literal["fail", "info"]:
    """Return how a send ends that was reported with an error."""
    return "fail" if code in _CERTAIN else "info"
