"""The consequences of errors for a transactional producer (KIP-691, KIP-1050).

| errors | consequence for a request | for a batch |
|---|---|---|
| retriable ones, such as NOT_COORDINATOR and CONCURRENT_TRANSACTIONS; no answer | it is repeated | it is sent again |
| PRODUCER_FENCED | fatal, as _FENCED | fatal, as _FENCED |
| INVALID_PRODUCER_EPOCH | fatal, as _FENCED | the transaction must be aborted |
| INVALID_PRODUCER_ID_MAPPING | the transaction must be aborted | fatal |
| TRANSACTION_ABORTABLE, UNKNOWN_PRODUCER_ID | the transaction must be aborted | the transaction must be aborted |
| of topics, groups and their members, such as ILLEGAL_GENERATION | the transaction must be aborted | the same |
| all others | fatal | the transaction must be aborted |

After a failed batch, the coordinator decides: the abort that must follow succeeds, or fails because the producer is
fenced. An abort that fails is fatal. With transaction version 2, the same holds for two requests that fail if the
transaction has timed out: a commit (INVALID_TXN_STATE) and a commit of offsets (PRODUCER_FENCED,
INVALID_PRODUCER_EPOCH). The abort then repeats the coordinator's, and the producer can go on (KIP-588).
"""

from __future__ import annotations

from collections.abc import Collection
from enum import IntEnum

from tidelog.producer.core.transaction_requests import CommitOffsets, EndTransaction, Request
from tidelog.producer.core.transaction_scope import IMPLICIT_VERSION
from tidelog_foundation.errors import OUTAGES, ErrorCode, KafkaError, TidelogError

_FENCED = frozenset((ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH))
_ABORTABLE = frozenset(
    (
        ErrorCode.TRANSACTION_ABORTABLE,
        ErrorCode.UNKNOWN_PRODUCER_ID,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.FENCED_INSTANCE_ID,
        ErrorCode.FENCED_MEMBER_EPOCH,
        ErrorCode.STALE_MEMBER_EPOCH,
        ErrorCode.INVALID_GROUP_ID,
        ErrorCode.GROUP_ID_NOT_FOUND,
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.INVALID_TOPIC_EXCEPTION,
        ErrorCode.OPERATION_NOT_ATTEMPTED,
        ErrorCode.OFFSET_METADATA_TOO_LARGE,
        ErrorCode.INVALID_COMMIT_OFFSET_SIZE,
    )
)
_FATAL_OF_BATCHES = frozenset((ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_ID_MAPPING))


class Consequence(IntEnum):
    """The effect of an error, in order of severity."""

    RETRY = 1
    ABORT = 2
    FATAL = 3


def consequence_of(error: TidelogError) -> Consequence:
    """Return the effect of the error of a request to a coordinator."""
    if error.code.retriable or error.code in OUTAGES:
        return Consequence.RETRY
    return Consequence.ABORT if error.code in _ABORTABLE else Consequence.FATAL


def consequence_for(request: Request, error: TidelogError) -> Consequence:
    """Return the effect of the error of a given request."""
    return Consequence.ABORT if _may_have_timed_out(request, error) else consequence_of(error)


def consequence_of_failed_batch(error: TidelogError) -> Consequence:
    """Return the effect of the error that ended a batch."""
    return Consequence.FATAL if error.code in _FATAL_OF_BATCHES else Consequence.ABORT


def worst_of(errors: Collection[TidelogError]) -> TidelogError:
    """Return the most severe of the errors of partitions.

    A partition that was not attempted because another one failed is ignored.
    """
    attempted = [error for error in errors if error.code is not ErrorCode.OPERATION_NOT_ATTEMPTED]
    return max(attempted or errors, key=consequence_of)


def fatal_of(error: TidelogError) -> TidelogError:
    """Return the fatal error; fencing has one code, as in librdkafka."""
    code = ErrorCode._FENCED if error.code in _FENCED else error.code
    return TidelogError(KafkaError(code, error.message, fatal=True, retriable=False))


def _may_have_timed_out(request: Request, error: TidelogError) -> bool:
    match request:
        case EndTransaction(committed=True, version=version):
            return version >= IMPLICIT_VERSION and error.code is ErrorCode.INVALID_TXN_STATE
        case CommitOffsets(version=version):
            return version >= IMPLICIT_VERSION and error.code in _FENCED
        case _:
            return False
