"""Conversion of topic-partitions between the application and the consumer, with validation."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from tidelog.cluster import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP
from tidelog.cluster.config import MAX_INT32
from tidelog.consumer.core.commits import OffsetAndMetadata
from tidelog.message import OFFSET_BEGINNING, OFFSET_END, OFFSET_INVALID, OFFSET_STORED, Message, TopicPartition
from tidelog_foundation.errors import ErrorCode, TidelogError, error_for

Key = tuple[str, int]
MAX_INT64 = 2**63 - 1


def key_of(partition: TopicPartition) -> Key:
    """Return the topic and partition number.

    Raises:
        TidelogError: _INVALID_ARG: the partition is invalid.
        TypeError: the topic is not a string.
    """
    if not isinstance(partition.topic, str):
        raise TypeError(f"topic must be text, not {type(partition.topic).__name__}")
    if not partition.topic or not 0 <= partition.partition <= MAX_INT32:
        raise invalid(partition, f"partition {partition.partition}")
    return partition.topic, partition.partition


def start_of(partition: TopicPartition) -> tuple[int | None, int | None]:
    """Return the starting offset, or the timestamp to look it up; None and None if neither is given.

    Raises:
        TidelogError: _INVALID_ARG.
    """
    match partition.offset:
        case int() as offset if 0 <= offset <= MAX_INT64:
            return offset, None
        case value if value == OFFSET_BEGINNING:
            return None, EARLIEST_TIMESTAMP
        case value if value == OFFSET_END:
            return None, LATEST_TIMESTAMP
        case value if value in (OFFSET_STORED, OFFSET_INVALID):
            return None, None
    raise invalid(partition, f"offset {partition.offset}")


def starts_of(partitions: Iterable[TopicPartition]) -> list[tuple[Key, int | None, int | None]]:
    """Return each partition with its start.

    Raises:
        TidelogError: _INVALID_ARG, also for a duplicate partition.
    """
    starts = [(key_of(p), *start_of(p)) for p in partitions]
    seen: set[Key] = set()
    for key, _, _ in starts:
        if key in seen:
            raise error_for(ErrorCode._INVALID_ARG, f"{key[0]}-{key[1]} is given twice")
        seen.add(key)
    return starts


def offsets_of(partitions: Iterable[TopicPartition]) -> dict[Key, OffsetAndMetadata]:
    """Return the offsets to commit or store, for partitions that have one.

    Raises:
        TidelogError: _INVALID_ARG.
    """
    found: dict[Key, OffsetAndMetadata] = {}
    for partition in partitions:
        key = key_of(partition)
        if not isinstance(partition.offset, int) or partition.offset > MAX_INT64:
            raise invalid(partition, f"offset {partition.offset}")
        if partition.offset >= 0:
            epoch = -1 if partition.leader_epoch is None else partition.leader_epoch
            found[key] = OffsetAndMetadata(partition.offset, epoch, partition.metadata or "")
    return found


def offset_after(message: Message, what: str) -> dict[Key, OffsetAndMetadata]:
    """Return the offset after a message; ``what`` names the action in errors ("commit").

    Raises:
        TidelogError: _INVALID_ARG: the message is an event.
        TypeError: the argument is not a message.
    """
    if not isinstance(message, Message):
        raise TypeError(f"expected a Message, not {type(message).__name__}")
    topic, partition, offset = message.topic(), message.partition(), message.offset()
    error = message.error()
    if error is not None:
        raise error_for(ErrorCode._INVALID_ARG, f"cannot {what} the offset of a message with an error: {error.str()}")
    if topic is None or partition is None or offset is None:
        raise error_for(ErrorCode._INVALID_ARG, f"cannot {what} the offset of a message without one: {message!r}")
    epoch = message.leader_epoch()
    return {(topic, partition): OffsetAndMetadata(offset + 1, -1 if epoch is None else epoch)}


def answer(key: Key, what: OffsetAndMetadata | TidelogError | None) -> TopicPartition:
    """Return a partition with its offset, its error, or ``OFFSET_INVALID``."""
    partition = TopicPartition(*key)
    if isinstance(what, TidelogError):
        partition.error = what.error
    elif what is not None:
        partition.offset = what.offset
        partition.metadata = what.metadata or None
        partition.leader_epoch = what.leader_epoch if what.leader_epoch >= 0 else None
    return partition


def outcome(
    offsets: Mapping[Key, OffsetAndMetadata], errors: Mapping[Key, TidelogError | None]
) -> tuple[list[TopicPartition], TidelogError | None]:
    """Return a commit's outcome: each partition with its error, and an error if all partitions failed."""
    partitions = []
    for key, what in offsets.items():
        partition = answer(key, what)
        error = errors[key]
        partition.error = None if error is None else error.error
        partitions.append(partition)
    failures = [error for error in errors.values() if error is not None]
    return partitions, failures[-1] if failures and len(failures) == len(errors) else None


def invalid(partition: TopicPartition, what: str) -> TidelogError:
    """Return the error for an invalid argument."""
    return error_for(ErrorCode._INVALID_ARG, f'{what} of topic "{partition.topic}" is not valid')
