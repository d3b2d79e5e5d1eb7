"""confluent-kafka's names for the clients of this package, with its arguments: AIOProducer and AIOConsumer."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from tidelog.aio.consumer import Consumer
from tidelog.aio.producer import Producer

logger = logging.getLogger(__name__)

_SIZES = "max_workers, executor, batch_size and buffer_timeout have no effect: asyncio's clients use no threads"
_told: set[str] = set()


class AIOProducer(Producer):
    """confluent-kafka's name of :class:`Producer`. It ignores the arguments that size confluent-kafka's thread pool."""

    def __init__(
        self,
        producer_conf: Mapping[str, Any],
        max_workers: int = 4,
        executor: object = None,
        batch_size: int = 1000,
        buffer_timeout: float = 1.0,
    ) -> None:
        """Create a producer from settings. Raise as :class:`Producer`."""
        if (max_workers, executor, batch_size, buffer_timeout) != (4, None, 1000, 1.0):
            _tell_once(_SIZES)
        super().__init__(producer_conf)


class AIOConsumer(Consumer):
    """confluent-kafka's name of :class:`Consumer`. It ignores the arguments that size confluent-kafka's thread pool."""

    def __init__(self, consumer_conf: Mapping[str, Any], max_workers: int = 100, executor: object = None) -> None:
        """Create a consumer from settings. Raise as :class:`Consumer`."""
        if (max_workers, executor) != (100, None):
            _tell_once(_SIZES)
        super().__init__(consumer_conf)


def _tell_once(text: str) -> None:
    if text not in _told:
        _told.add(text)
        logger.warning("%s", text)
