"""``produce()`` as the application calls it, and the definition of its compiled twin.

The twin takes the ordinary record by itself: text or bytes, no headers, an open batch with room. It gives all others to
:meth:`ProduceCalls._take`, which is the one way that a record takes here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from tidelog.cluster import Lifetime
from tidelog.producer.core import DeliveryCallback, Intake

HeadersArgument = Mapping[str, str | bytes | None] | Iterable[tuple[str, str | bytes | None]]


class ProduceCalls:
    """The base of :class:`tidelog.Producer`."""

    def _attach(
        self, intake: Intake, lock: Any, lifetime: Lifetime, on_delivery: DeliveryCallback | None, is_plain: bool
    ) -> None:
        """Get ready; ``is_plain`` says that nobody has to see a record before it is taken."""

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
        """Take one record for sending. Text is encoded as UTF-8.

        ``partition`` -1 lets the partitioner decide; ``timestamp`` is in ms since the epoch, 0 for now;
        ``on_delivery(err, msg)`` (alias ``callback``) is called once the record's fate is known.

        Raises:
            BufferError: the queue is full, also after ``max.block.ms``: ``poll()`` and try again.
            KafkaException: MESSAGE_TOO_LARGE; _UNKNOWN_PARTITION; INVALID_TIMESTAMP; _INVALID_ARG for a topic without a
                name; _APPLICATION when the application's partitioner failed; _DESTROY when closed; _FATAL after an
                error whose ``fatal()`` is true: make another producer; _STATE in a child of the process that made the
                producer.
            TypeError: an argument is of the wrong type, as a key that is neither text, bytes nor None.
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
