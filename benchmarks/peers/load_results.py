"""The lines of the table that describe an answer of the load client: percentiles of times, and the cost."""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.peers.comparison import Found
from benchmarks.peers.load_client import Answer
from benchmarks.result import Result

_MICRO, _MILLI = 1e6, 1e3
_PERCENTILES = {"p50": "p50_s", "p99": "p99_s", "p99.9": "p999_s", "max": "max_s"}


def rate(found: Found[Answer], name: str, count: str, unit: str, at_least: float | None = None) -> Result:
    """Return the line of a rate. ``count`` is the figure that is divided by the time."""
    return found.result(name, unit, lambda answer: answer[count] / answer["seconds"], "higher", at_least)


def latencies(
    found: Found[Answer], name: str, of: str, percentiles: Sequence[str], bars: Sequence[float | None] = ()
) -> list[Result]:
    """Return a line for each percentile of the times ``of``, such as p50, p99, p99.9 and max."""

    def line(percentile: str, at_least: float | None) -> Result:
        key = _PERCENTILES[percentile]
        return found.result(f"{name}: {percentile}", "ms", lambda answer: answer[of][key] * _MILLI, "lower", at_least)

    limits = [*bars, *[None] * (len(percentiles) - len(bars))]
    return [line(percentile, limit) for percentile, limit in zip(percentiles, limits, strict=True)]


def cost(found: Found[Answer], name: str, count: str, unit: str) -> list[Result]:
    """Return the lines of the cluster's CPU per piece of work and of its resident memory."""
    return [
        found.result(
            f"{name}: CPU of the cluster",
            f"µs/{unit}",
            lambda answer: answer["cpu_s"] / answer[count] * _MICRO,
            "lower",
        ),
        found.result(f"{name}: resident memory", "MB", lambda answer: answer["resident_mb"], "lower"),
    ]
