"""A record that was read or delivered, or an event; ``_fast_message`` is the compiled twin."""

from __future__ import annotations

from typing import Any

from tidelog_foundation.errors import KafkaError

TIMESTAMP_NOT_AVAILABLE = 0
TIMESTAMP_CREATE_TIME = 1
TIMESTAMP_LOG_APPEND_TIME = 2

Headers = list[tuple[str, bytes | None]]


class Message:
    """A record that was read or delivered, or an event of a partition, whose :meth:`error` is not None."""

    __slots__ = (
        "_error",
        "_headers",
        "_key",
        "_latency_s",
        "_leader_epoch",
        "_offset",
        "_partition",
        "_timestamp",
        "_topic",
        "_value",
    )

    def __init__(
        self,
        topic: str | None = None,
        partition: int | None = None,
        offset: int | None = None,
        key: Any = None,
        value: Any = None,
        headers: Headers | None = None,
        error: KafkaError | None = None,
        timestamp: tuple[int, int] = (TIMESTAMP_NOT_AVAILABLE, -1),
        latency: float | None = None,
        leader_epoch: int | None = None,
    ) -> None:
        self._topic = topic
        self._partition = partition
        self._offset = offset
        self._key = key
        self._value = value
        self._headers = headers
        self._timestamp = timestamp
        self._error = error
        self._latency_s = latency
        self._leader_epoch = leader_epoch

    def topic(self) -> str | None:
        """Return the topic's name."""
        return self._topic

    def partition(self) -> int | None:
        """Return the partition's number."""
        return self._partition

    def offset(self) -> int | None:
        """Return the offset, or None if there is none, as for a message that was not delivered."""
        return self._offset

    def key(self) -> Any:
        """Return the key: bytes or None."""
        return self._key

    def value(self) -> Any:
        """Return the value: bytes or None; the text of an event."""
        return self._value

    def deserialized_key(self) -> Any:
        """Return the key, which is an object in messages of a ``DeserializingConsumer``."""
        return self._key

    def deserialized_value(self) -> Any:
        """Return the value, which is an object in messages of a ``DeserializingConsumer``."""
        return self._value

    def headers(self) -> Headers | None:
        """Return the headers in order, or None if there are none."""
        return self._headers or None

    def timestamp(self) -> tuple[int, int]:
        """Return the timestamp's type (``TIMESTAMP_CREATE_TIME`` ...) and its milliseconds, -1 for none."""
        return self._timestamp

    def error(self) -> KafkaError | None:
        """Return the error, or None for a record."""
        return self._error

    def latency(self) -> float | None:
        """Return the seconds from ``produce()`` to the acknowledgement, or None for a message that was read."""
        return self._latency_s

    def leader_epoch(self) -> int | None:
        """Return the epoch of the leader that accepted the record, or None if it is unknown."""
        return self._leader_epoch

    def set_error(self, error: KafkaError | None) -> None:
        """Replace the error."""
        self._error = error

    def set_headers(self, headers: Headers | None) -> None:
        """Replace the headers."""
        self._headers = headers

    def set_key(self, key: Any) -> None:
        """Replace the key, as deserializers do."""
        self._key = key

    def set_topic(self, topic: str) -> None:
        """Replace the topic."""
        self._topic = topic

    def set_value(self, value: Any) -> None:
        """Replace the value, as deserializers do."""
        self._value = value

    def __len__(self) -> int:
        return len(self._value) if self._value is not None else 0

    def __bool__(self) -> bool:
        return True

    def __repr__(self) -> str:
        return (
            f"Message(topic={self._topic!r}, partition={self._partition}, offset={self._offset}, error={self._error})"
        )
