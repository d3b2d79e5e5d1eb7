"""The values of confluent-kafka's clients as those of Tidelog's: settings, errors, messages and partitions."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import confluent_kafka

from tidelog.message import Message, TopicPartition
from tidelog_foundation.errors import ErrorCode, KafkaError, TidelogError, error_for

_NOWHERE: Final = logging.getLogger(f"{__name__}.librdkafka")
_NOWHERE.addHandler(logging.NullHandler())
_NOWHERE.propagate = False


def silence(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings that keep librdkafka from logging to the standard error, unless ``debug`` asks for that.

    It would log a line for each broken connection, and faults break many; errors are reported as well.
    """
    return {} if "debug" in config else {"log_level": 0, "logger": _NOWHERE}


@contextlib.contextmanager
def translated() -> Iterator[None]:
    """Raise TidelogError for confluent-kafka's exceptions."""
    try:
        yield
    except confluent_kafka.KafkaException as error:
        found = translate_error(error.args[0])
        assert found is not None
        raise _exception(found) from error


def _exception(error: KafkaError) -> TidelogError:
    found = error_for(error.error_code(), error.str())
    return type(found)(error)


def translate_error(error: confluent_kafka.KafkaError | None) -> KafkaError | None:
    """Return Tidelog's form of an error of confluent-kafka; None stays None."""
    if error is None:
        return None
    code, text = error.code(), error.str()
    row = ErrorCode.of(code)
    if row.code != code:
        row = ErrorCode._FAIL if code < 0 else ErrorCode.UNKNOWN_SERVER_ERROR
        text = f"{error.name()}: {text}"
    is_fatal = error.fatal() or row is ErrorCode._FATAL
    return KafkaError(row, text, is_fatal, error.retriable(), error.txn_requires_abort())


def our_message(message: confluent_kafka.Message) -> Message:
    """Return Tidelog's form of a message."""
    return Message(
        message.topic(),
        message.partition(),
        message.offset(),
        message.key(),
        message.value(),
        error=translate_error(message.error()),
    )


def their_partitions(partitions: Sequence[TopicPartition]) -> list[confluent_kafka.TopicPartition]:
    """Return confluent-kafka's form of partitions."""
    return [confluent_kafka.TopicPartition(at.topic, at.partition, at.offset) for at in partitions]


def our_partitions(partitions: Sequence[confluent_kafka.TopicPartition]) -> list[TopicPartition]:
    """Return Tidelog's form of partitions."""
    found = []
    for at in partitions:
        ours = TopicPartition(at.topic, at.partition, at.offset)
        ours.error = translate_error(at.error)
        found.append(ours)
    return found
