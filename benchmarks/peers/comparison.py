"""From what both clusters did in each round to the lines of the table; no measurement here."""

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
    """What a piece of work took: seconds, and seconds of CPU of all processes of the cluster and of the client."""

    seconds: float
    cluster_cpu_s: float
    client_cpu_s: float


@dataclass(frozen=True, slots=True)
class Found(Generic[T]):
    """What was found in the rounds by the name of the cluster; ours comes first, the other may be missing."""

    rounds: Mapping[str, Sequence[T]]

    def figures(self, of: Callable[[T], float]) -> list[tuple[str, list[float]]]:
        """Return one figure of every round for each cluster, in their order."""
        return [(name, [of(one) for one in found]) for name, found in self.rounds.items()]

    def result(
        self, name: str, unit: str, of: Callable[[T], float], better: Better | None, at_least: float | None = None
    ) -> Result:
        """Return the line of one figure: our median, theirs, and the median over the rounds of the ratio in a round.

        The ratio says how many times better ours is; ``at_least`` is its bar. There is neither with one cluster, or
        for a figure of which nobody can say which is ``better``.
        """
        (_, ours), *others = self.figures(of)
        if not others:
            return Result(name, statistics.median(ours), unit)
        [(peer, theirs)] = others
        return Result(
            name,
            statistics.median(ours),
            unit,
            f"{peer} at {format_value(statistics.median(theirs))}",
            None if better is None else ratio_of(ours, theirs, better),
            None if at_least is None else Bar.on_ratio(at_least=at_least),
        )


def ratio_of(ours: Sequence[float], theirs: Sequence[float], better: Better) -> float:
    """Return how many times better ours is: the median over the rounds of the ratio within a round."""
    pairs = list(zip(ours, theirs, strict=True))
    return statistics.median(our / their if better == "higher" else their / our for our, their in pairs)


def work_results(
    name: str, found: Found[Cost], records: int, record_bytes: int, *, at_least: float | None
) -> list[Result]:
    """Return the lines of records that were produced or consumed: the rate with its bar, and what it cost."""
    gigabytes = records * record_bytes / 1e9

    def client_share(cost: Cost) -> float:
        return 100 * cost.client_cpu_s / cost.seconds

    return [
        found.result(name, "records/s", lambda cost: records / cost.seconds, "higher", at_least),
        found.result(f"{name}: CPU of the cluster", "s/GB", lambda cost: cost.cluster_cpu_s / gigabytes, "lower"),
        found.result(f"{name}: CPU of the client", "s/GB", lambda cost: cost.client_cpu_s / gigabytes, "lower"),
        found.result(f"{name}: CPU of the client", "% of a core", client_share, None),
    ]
