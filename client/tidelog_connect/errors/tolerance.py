"""The rules of Connect's RetryWithToleranceOperator: waits between attempts, and the fate of a failed record."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tidelog_connect.errors.settings import ErrorSettings

RETRIES_DELAY_MIN_MS = 300
"""The wait before the second attempt."""

TOLERANCE_EXCEEDED = "Tolerance exceeded in error handler"
"""The message of the ConnectException that fails a task."""


@dataclass(frozen=True, slots=True)
class FailedRecord:
    """A failed record: where it was read, and its failure as `records` describes it.

    ``partition`` and ``offset`` are None for records of a source.
    """

    topic: str
    partition: int | None
    offset: int | None
    stage: str
    executing_class: str
    exception: str
    message: str | None


@dataclass(frozen=True, slots=True)
class Verdict:
    """The fate of a failed record, and of the task that has it."""

    fails_task: bool
    to_dead_letters: bool


def verdict_on_failure(settings: ErrorSettings) -> Verdict:
    """Return the fate of a record that cannot be processed.

    A record goes to the dead-letter topic also when it fails the task, as in Connect.
    """
    return Verdict(fails_task=not settings.tolerates_all, to_dead_letters=bool(settings.dead_letter_topic))


def retry_delay_ms(
    settings: ErrorSettings, attempt: int, started_ms: int, now_ms: int, random_below: Callable[[int], int]
) -> int | None:
    """Return the wait before the next attempt, or None if there is none.

    ``attempt`` counts from 1 the attempts that have failed, and ``started_ms`` is the start of the first one.
    ``random_below(n)`` returns a number from 0 to n - 1: it chooses the wait once the exponential one exceeds
    ``errors.retry.delay.max.ms``. The last attempt begins at the deadline.
    """
    if settings.retry_timeout_ms >= 0 and now_ms >= started_ms + settings.retry_timeout_ms:
        return None
    # The wait doubles with each attempt. Beyond 40 of them, it exceeds every limit.
    delay = RETRIES_DELAY_MIN_MS << min(attempt - 1, 40)
    if delay > settings.max_delay_ms:
        delay = random_below(max(1, settings.max_delay_ms))
    if settings.retry_timeout_ms < 0:
        return delay
    return max(0, min(delay, started_ms + settings.retry_timeout_ms - now_ms))
