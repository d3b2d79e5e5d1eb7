"""``produce()`` as the application calls it, and the definition of its compiled twin.

The twin handles ordinary records: text or bytes, no headers, an open batch with room. It passes all others to
:meth:`ProduceCalls._take`, which handles every record here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from tidelog.cluster import Lifetime
from tidelog.producer.core.batch import DeliveryCallback
from tidelog.producer.core.engine import Intake

HeadersArgument = Mapping[str, str | bytes | None] | Iterable[tuple[str, str | bytes | None]]


class ProduceCalls:
    """The base of :class:`tidelog.Producer`."""

    def _attach(
        self, intake: Intake, lock: Any, lifetime: Lifetime, on_delivery: DeliveryCallback | None, is_plain: bool
    ) -> None:
        """Initialize the calls; ``is_plain`` means that no interceptor sees records."""

    def produce(
        self,
        topic: str,
        value: str | bytes | None = None,
        key: str | bytes | None = None,
        partition: int = -1,
        on_delivery: DeliveryCallback | None = None,
        timestamp: int = 0,
        headers: HeadersArgument | None = None,
        *,
        callback: DeliveryCallback | None = None,
    ) -> None:
        """Queue one record for sending. Text is encoded as UTF-8.

        With ``partition`` -1 the partitioner chooses; ``timestamp`` is in ms since the epoch, 0 for now. The producer
        calls ``on_delivery(err, msg)`` (alias ``callback``) when the record's outcome is known.

        Raises:
            BufferError: the queue is full, also after ``max.block.ms``: ``poll()`` and try again.
            KafkaException: MESSAGE_TOO_LARGE; _UNKNOWN_PARTITION; INVALID_TIMESTAMP; _INVALID_ARG for an empty topic
                name; _APPLICATION if the application's partitioner failed; _DESTROY if closed; _FATAL after an error
                whose ``fatal()`` is true: create another producer; _STATE in a child of the process that created the
                producer.
            TypeError: an argument is of the wrong type, for example a key that is neither text, bytes nor None.
        """
        report = callback if on_delivery is None else on_delivery
        self._take(topic, value, key, partition, report, timestamp, headers)

    def _take(
        self,
        topic: str,
        value: Any,
        key: Any,
        partition: int,
        on_delivery: DeliveryCallback | None,
        timestamp: int,
        headers: HeadersArgument | None,
    ) -> None:
        raise NotImplementedError
