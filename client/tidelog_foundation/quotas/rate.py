"""A rate over the samples of recent windows, and the time after which it is within a limit.

The rules are those of Kafka's SampledStat, Rate and QuotaUtils: a sample lasts one window from its first event on.
There are at most ``samples`` of them besides the current one, and those without an event within ``samples`` windows are
forgotten. A rate is never over less than ``samples - 1`` windows, as if there had been earlier ones without events.
"""

from __future__ import annotations

import math

from tidelog_foundation.dataclass import dataclass


@dataclass(frozen=True, slots=True)
class Windows:
    """``quota.window.num`` and ``quota.window.size.seconds``, or those of another kind of quota."""

    samples: int = 11
    window_ms: int = 1_000

    @property
    def span_ms(self) -> int:
        """The time for which an event counts at least."""
        return self.samples * self.window_ms


class _Sample:
    __slots__ = ("last_ms", "start_ms", "total")

    def __init__(self, now_ms: int) -> None:
        self.reset(now_ms)

    def reset(self, now_ms: int) -> None:
        self.total = 0.0
        self.start_ms = self.last_ms = now_ms


class SampledRate:
    """The rate of recorded values per second. All times are of one clock that does not go back."""

    __slots__ = ("_current", "_samples", "_windows")

    def __init__(self, windows: Windows) -> None:
        self._windows = windows
        self._samples: list[_Sample] = []
        self._current = 0

    def record(self, value: float, now_ms: int) -> None:
        """Add a value to the current sample; a negative one takes back what was recorded at the same time."""
        if not self._samples:
            self._samples.append(_Sample(now_ms))
        sample = self._samples[self._current]
        if now_ms - sample.start_ms >= self._windows.window_ms:
            sample = self._advance(now_ms)
        sample.total += value
        sample.last_ms = now_ms

    def rate(self, now_ms: int) -> float:
        """Return the rate per second."""
        window_ms = self.window_ms(now_ms)
        return sum(sample.total for sample in self._samples) * 1_000 / window_ms

    def window_ms(self, now_ms: int) -> int:
        """Return the time over which :meth:`rate` is computed."""
        self._forget(now_ms)
        samples, window_ms = self._windows.samples, self._windows.window_ms
        elapsed_ms = now_ms - min((sample.start_ms for sample in self._samples), default=now_ms)
        missing = max(0, samples - 1 - elapsed_ms // window_ms)
        return max(1, elapsed_ms + missing * window_ms)

    def excess_ms(self, limit: float, now_ms: int) -> int:
        """Return the time after which the rate is within a limit if nothing more is recorded; 0 if it is now.

        A rate of O over a window W falls to the limit T after (O - T) / T * W.
        """
        rate = self.rate(now_ms)
        if rate <= limit:
            return 0
        return math.floor((rate - limit) / limit * self.window_ms(now_ms) + 0.5)

    def _advance(self, now_ms: int) -> _Sample:
        self._current = (self._current + 1) % (self._windows.samples + 1)
        if self._current == len(self._samples):
            self._samples.append(_Sample(now_ms))
        sample = self._samples[self._current]
        sample.reset(now_ms)
        return sample

    def _forget(self, now_ms: int) -> None:
        span_ms = self._windows.span_ms
        for sample in self._samples:
            if now_ms - sample.last_ms >= span_ms:
                sample.reset(now_ms)
