"""Whether a quantity of a process grows: the slope of a line through its samples (pure)."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

BOUNDS: Mapping[str, float] = {"memory_mb": 60.0, "descriptors": 60.0, "tasks": 60.0, "disk_mb": 60.0}
"""The growth per hour up to which a quantity counts as flat; a leak per topic of the load is above 500 per hour."""
_LEAST_RISE_SHARE = 1 / 6
"""The part of a bound by which a quantity must rise to count as growing: in a short run, a step has a steep slope."""
_WARM_UP_S = 180.0
_WARM_UP_SHARE = 0.4
_FEWEST_SAMPLES = 8
_SECONDS_PER_HOUR = 3_600


@dataclass(frozen=True, slots=True)
class Sample:
    """The values of a process at a time in seconds since the start, by the names of :data:`BOUNDS`."""

    process: str
    pid: int
    time_s: float
    values: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Trend:
    """A quantity of a process over the samples after its warm-up.

    ``first`` and ``last`` are the ends of the line through the samples, ``growth_per_hour`` is its slope, ``noise`` the
    median distance of samples from it. A slope counts only if the line rises by more than the noise.
    """

    process: str
    quantity: str
    samples: int
    first: float
    last: float
    growth_per_hour: float
    noise: float
    is_flat: bool

    def __str__(self) -> str:
        verdict = "flat" if self.is_flat else "GROWS"
        return (
            f"{self.process:13} {self.quantity:12} {self.first:9.1f} to {self.last:9.1f}, "
            f"{self.growth_per_hour:+8.1f} per hour  {verdict}"
        )


def trends_of(samples: Sequence[Sample], duration_s: float) -> list[Trend]:
    """Return the trend of each quantity of each process, from the samples of its latest start.

    The first minutes after a start do not count: caches fill.
    """
    warm_up_s = min(_WARM_UP_S, duration_s * _WARM_UP_SHARE / 3)
    trends: list[Trend] = []
    for process in dict.fromkeys(sample.process for sample in samples):
        mine = [sample for sample in samples if sample.process == process]
        latest = [sample for sample in mine if sample.pid == mine[-1].pid]
        counted = [sample for sample in latest if sample.time_s >= latest[0].time_s + warm_up_s]
        if len(counted) >= _FEWEST_SAMPLES:
            trends += [_trend(process, quantity, counted) for quantity in BOUNDS]
    return trends


def _trend(process: str, quantity: str, samples: Sequence[Sample]) -> Trend:
    times = [sample.time_s for sample in samples]
    values = [sample.values[quantity] for sample in samples]
    slope, intercept = statistics.linear_regression(times, values)
    line = [intercept + slope * time_s for time_s in times]
    noise = statistics.median(abs(value - expected) for value, expected in zip(values, line, strict=True))
    growth = slope * _SECONDS_PER_HOUR
    rise = line[-1] - line[0]
    is_flat = growth <= BOUNDS[quantity] or rise <= max(2 * noise, BOUNDS[quantity] * _LEAST_RISE_SHARE)
    return Trend(
        process,
        quantity,
        len(samples),
        round(line[0], 1),
        round(line[-1], 1),
        round(growth, 2),
        round(noise, 2),
        is_flat,
    )
