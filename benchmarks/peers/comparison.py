"""The conversion of both clusters' measurements to the lines of the table."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, Literal, TypeVar

from benchmarks.result import Bar, Result
from benchmarks.table import format_value

T = TypeVar("T")

Better = Literal["higher", "lower"]


@dataclass(frozen=True, slots=True)
class Cost:
    """The cost of some work: elapsed seconds, and CPU seconds of the cluster's processes and of the client."""

    seconds: float
    cluster_cpu_s: float
    client_cpu_s: float


@dataclass(frozen=True, slots=True)
class Found(Generic[T]):
    """The measurements of all rounds by cluster name. Tidelog comes first; the other may be missing."""

    rounds: Mapping[str, Sequence[T]]

    def figures(self, of: Callable[[T], float]) -> list[tuple[str, list[float]]]:
        """Return one figure of every round for each cluster, in order."""
        return [(name, [of(one) for one in found]) for name, found in self.rounds.items()]

    def result(
        self,
        name: str,
        unit: str,
        of: Callable[[T], float],
        better: Better | None,
        at_least: float | None = None,
        *,
        at_most_value: float | None = None,
    ) -> Result:
        """Return the line of one figure: both medians, and the median of the rounds' ratios.

        The ratio states how many times better Tidelog is; ``at_least`` is its bar. There is neither with one cluster or
        for a figure without a ``better`` direction. ``at_most_value`` is a bar on Tidelog's figure instead.
        """
        (_, ours), *others = self.figures(of)
        limit = None if at_most_value is None else Bar.on_value(at_most=at_most_value)
        if not others:
            return Result(name, statistics.median(ours), unit, bar=limit)
        [(peer, theirs)] = others
        return Result(
            name,
            statistics.median(ours),
            unit,
            f"{peer} at {format_value(statistics.median(theirs))}",
            None if better is None else ratio_of(ours, theirs, better),
            limit if at_least is None else Bar.on_ratio(at_least=at_least),
        )


def ratio_of(ours: Sequence[float], theirs: Sequence[float], better: Better) -> float:
    """Return how many times better Tidelog is: the median of the rounds' ratios."""
    pairs = list(zip(ours, theirs, strict=True))
    return statistics.median(our / their if better == "higher" else their / our for our, their in pairs)


def work_results(
    name: str, found: Found[Cost], records: int, record_bytes: int, *, at_least: float | None
) -> list[Result]:
    """Return the lines of produced or consumed records: the rate with its bar, and the cost."""
    gigabytes = records * record_bytes / 1e9

    def client_share(cost: Cost) -> float:
        return 100 * cost.client_cpu_s / cost.seconds

    return [
        found.result(name, "records/s", lambda cost: records / cost.seconds, "higher", at_least),
        found.result(f"{name}: CPU of the cluster", "s/GB", lambda cost: cost.cluster_cpu_s / gigabytes, "lower"),
        found.result(f"{name}: CPU of the client", "s/GB", lambda cost: cost.client_cpu_s / gigabytes, "lower"),
        found.result(f"{name}: CPU of the client", "% of a core", client_share, None),
    ]
