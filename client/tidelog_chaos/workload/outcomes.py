"""What an error says about a send: that it certainly did not happen, or that nobody knows. Pure.

After Jepsen's tests of Kafka: ``fail`` is for what a producer is told before or instead of an append, everything else
is ``info``, also an error of the last of several attempts, since an earlier one may have been stored.
"""

from __future__ import annotations

from typing import Literal

from tidelog_foundation.errors import ErrorCode

SendOutcome = Literal["fail", "info"]

_NEVER_TAKEN = frozenset(
    {
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        ErrorCode.MESSAGE_TOO_LARGE,
        ErrorCode.RECORD_LIST_TOO_LARGE,
        ErrorCode.INVALID_REQUIRED_ACKS,
        ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
        ErrorCode._QUEUE_FULL,
        ErrorCode._INVALID_ARG,
    }
)
"""Errors that each attempt to send a record would get."""
_CERTAIN = _NEVER_TAKEN | {
    ErrorCode.INVALID_PRODUCER_EPOCH,
    ErrorCode.PRODUCER_FENCED,
    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
    ErrorCode.NOT_CONTROLLER,
    ErrorCode._UNKNOWN_PARTITION,
    ErrorCode._UNKNOWN_TOPIC,
}


def send_outcome(code: ErrorCode) -> SendOutcome:
    """Return how a send ends that was reported with an error."""
    return "fail" if code in _CERTAIN else "info"


def send_outcome_of_last_attempt(code: ErrorCode) -> SendOutcome:
    """Return how a send ends that was reported with the error of its last attempt, where there may have been others.

    A producer such as librdkafka's reports OUT_OF_ORDER_SEQUENCE_NUMBER and the like for records that it calls possibly
    persisted (``rd_kafka_handle_idempotent_Produce_error``), and a topic that metadata has no more for those whose
    first attempt was not answered.
    """
    return "fail" if code in _NEVER_TAKEN else "info"
