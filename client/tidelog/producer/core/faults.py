"""The errors that the producer itself detects, with their texts."""

from __future__ import annotations

from tidelog.producer.core.batch import Batch
from tidelog.producer.core.limits import AccumulatorLimits
from tidelog_foundation.errors import ErrorCode, KafkaError, TidelogError, error_for


def fatal_error(code: ErrorCode, message: str) -> TidelogError:
    """Return an error after which the producer cannot be used."""
    return TidelogError(KafkaError(code, message, fatal=True))


def abortable_error(error: TidelogError) -> TidelogError:
    """Return the same error for a transaction that must be aborted."""
    return type(error)(KafkaError(error.code, error.message, retriable=False, txn_requires_abort=True))


def possibly_stored(error: TidelogError) -> TidelogError:
    """Return the same error with a note that the batch may be stored."""
    text = f"{error.message}; the batch may be stored"
    known = error.error
    return type(error)(KafkaError(error.code, text, known.fatal(), known.retriable(), known.txn_requires_abort()))


def check_topic(topic: str) -> None:
    """Reject an invalid topic name.

    Raises:
        TypeError: the name is not text.
        TidelogError: _INVALID_ARG.
    """
    if not isinstance(topic, str):
        raise TypeError(f"topic must be text, not {type(topic).__name__}")
    try:
        topic.encode()
    except UnicodeEncodeError as error:
        raise error_for(ErrorCode._INVALID_ARG, f"topic {topic!r} is not valid: {error}") from error
    if not topic:
        raise error_for(ErrorCode._INVALID_ARG, 'topic "" is not valid: it is empty')


def no_partition(topic: str, partition: int, count: int) -> TidelogError:
    """Return the error for a partition that the topic does not have."""
    return error_for(ErrorCode._UNKNOWN_PARTITION, f'topic "{topic}" has no partition {partition}, it has {count}')


def timed_out(
    name: str, count: int, limits: AccumulatorLimits, batch: Batch | None, connection_error: TidelogError | None
) -> TidelogError:
    """Return the timeout error of ``count`` records; ``batch`` is the batch that has them, if any.

    ``connection_error`` is the reason if no request with the batch has failed.
    """
    last_error = (batch.last_error if batch is not None else None) or connection_error
    reason = f"; the last error was {last_error}" if last_error is not None else ""
    text = f"{name}: {count} records were not acknowledged within {limits.message_timeout_ms:g} ms{reason}"
    return error_for(ErrorCode._MSG_TIMED_OUT, text)


def silent_node(batch: Batch, leader: int) -> TidelogError:
    """Return the error of an attempt that is abandoned because another node leads now."""
    text = f"node {batch.sent_to} did not answer, and node {leader} leads the partition now"
    return error_for(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{batch.topic}-{batch.partition}: {text}")
