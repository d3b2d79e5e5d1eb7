"""`with_retries`: repeats calls of a connector that fail with a `RetriableError`, by the rules of KIP-298."""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Callable
from typing import TypeVar

from tidelog_connect.errors import ErrorSettings, retry_delay_ms
from tidelog_foundation.errors import RetriableError

logger = logging.getLogger(__name__)

Found = TypeVar("Found")


def with_retries(
    settings: ErrorSettings, call: Callable[[], Found], stopping: threading.Event, retried: Callable[[], None]
) -> Found:
    """Return the result of a call, which is repeated for ``errors.retry.timeout`` or until ``stopping`` is set.

    ``retried`` counts a repetition.

    Raises:
        RetriableError: the last attempt has failed.
    """
    started_ms = _now_ms()
    attempt = 1
    while True:
        try:
            return call()
        except RetriableError as error:
            delay_ms = retry_delay_ms(settings, attempt, started_ms, _now_ms(), random.randrange)
            if delay_ms is None or stopping.is_set():
                raise
            logger.warning("attempt %d has failed and is repeated in %d ms: %s", attempt, delay_ms, error.message)
            stopping.wait(delay_ms / 1000)
            retried()
            attempt += 1


def _now_ms() -> int:
    return int(time.monotonic() * 1000)
