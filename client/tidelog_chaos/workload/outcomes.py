"""Maps the error of a send to its outcome: it certainly did not happen, or that is unknown. Pure.

As in Jepsen's tests of Kafka, ``fail`` is for errors before or instead of an append. Everything else is ``info``, even
an error of the last of several attempts, because an earlier one may have been stored.
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
    """Return the outcome of a send that was reported with an error."""
    return "fail" if code in _CERTAIN else "info"


def send_outcome_of_last_attempt(code: ErrorCode) -> SendOutcome:
    """Return the outcome of a send that was reported with the error of its last of possibly several attempts.

    A producer such as librdkafka's reports OUT_OF_ORDER_SEQUENCE_NUMBER and the like for records that it calls possibly
    persisted (``rd_kafka_handle_idempotent_Produce_error``), and a topic that is gone from the metadata for those whose
    first attempt was not answered.
    """
    return "fail" if code in _NEVER_TAKEN else "info"
