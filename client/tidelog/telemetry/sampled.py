"""Averages, maxima and rates over the last minute, as Kafka's clients compute them, without I/O.

A statistic keeps two samples of 30 s each, the defaults of ``metrics.num.samples`` and ``metrics.sample.window.ms``. A
value that is older than both counts no more.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

WINDOW_MS: Final = 30_000
"""The length of a sample."""
SAMPLES: Final = 2


@dataclass(slots=True)
class _Sample:
    start_ms: float
    count: int = 0
    total: float = 0.0
    greatest: float = float("-inf")


class Sampled:
    """The recent values of one quantity. Times must not decrease."""

    __slots__ = ("_samples",)

    def __init__(self) -> None:
        self._samples: list[_Sample] = []

    def record(self, value: float, now_ms: float) -> None:
        """Add a value."""
        samples = self._samples
        if not samples or now_ms >= samples[-1].start_ms + WINDOW_MS:
            samples.append(_Sample(now_ms))
            del samples[:-SAMPLES]
        latest = samples[-1]
        latest.count += 1
        latest.total += value
        latest.greatest = max(latest.greatest, value)

    def average(self, now_ms: float) -> float | None:
        """Return the mean of the recent values, or None without any."""
        recent = self._recent(now_ms)
        count = sum(sample.count for sample in recent)
        return sum(sample.total for sample in recent) / count if count else None

    def maximum(self, now_ms: float) -> float | None:
        """Return the greatest recent value, or None without any."""
        return max((sample.greatest for sample in self._recent(now_ms)), default=None)

    def per_second(self, now_ms: float) -> float:
        """Return the sum of the recent values per second.

        The divisor is the age of the oldest sample, but at least one whole sample, so that the first value of a client
        is no burst.
        """
        recent = self._recent(now_ms)
        if not recent:
            return 0.0
        age_ms = max(now_ms - recent[0].start_ms, WINDOW_MS)
        return sum(sample.total for sample in recent) / age_ms * 1000

    def _recent(self, now_ms: float) -> list[_Sample]:
        return [sample for sample in self._samples if now_ms < sample.start_ms + SAMPLES * WINDOW_MS]
