"""Throughput and latency over time, counted from the history."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Final, NamedTuple

from tidelog_chaos.checker.transactions import NEVER, TYPES, Transactions
from tidelog_chaos.history import merge_spans
from tidelog_chaos.metrics import distribution

MOST_STEPS: Final = 900
"""The maximum number of steps of a series, whatever the length of the history."""
_NICE_S = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 1_800, 3_600)

Latency = tuple[float, float, float]
"""Median, 99th percentile and maximum, in milliseconds."""


@dataclass(slots=True)
class Step:
    """The operations that completed within one step of a series."""

    ok: int = 0
    info: int = 0
    fail: int = 0
    """The numbers of sent values, by the outcome of their send."""
    read: int = 0
    """The number of values that ``ok`` polls returned."""
    latency: Latency | None = None
    """The latency of acknowledged sends."""


@dataclass(frozen=True, slots=True)
class Series:
    """Steps of equal length from the start of the history."""

    step_s: int
    steps: Sequence[Step] = field(default_factory=list)

    @property
    def end_s(self) -> int:
        """The end of the last step."""
        return self.step_s * len(self.steps)

    @property
    def acknowledged_per_s(self) -> float:
        """The mean rate of acknowledged values from the first to the last step that has one."""
        busy = [place for place, step in enumerate(self.steps) if step.ok]
        if not busy:
            return 0.0
        return sum(step.ok for step in self.steps) / ((busy[-1] - busy[0] + 1) * self.step_s)


def make_series(transactions: Transactions) -> Series:
    """Return the series of a history; sends that never completed are in none of its steps."""
    end_s = max(transactions.times_ns, default=0) / 1e9
    step_s = next((nice for nice in _NICE_S if end_s / nice <= MOST_STEPS), int(end_s / MOST_STEPS) + 1)
    steps = [Step() for _ in range(int(end_s / step_s) + 1)]
    latencies: list[array[float]] = [array("d") for _ in steps]
    for number in range(len(transactions)):
        if transactions.positions[number] == NEVER:
            continue
        place = int(transactions.times_ns[number] / 1e9 / step_s)
        sends, reads = _count(transactions, number)
        kind = TYPES[transactions.types[number]]
        setattr(steps[place], kind, getattr(steps[place], kind) + sends)
        if kind == "ok":
            steps[place].read += reads
            if sends:
                latencies[place].append(_latency_ms(transactions, number))
    for step, of_step in zip(steps, latencies, strict=True):
        step.latency = distribution(of_step)
    return Series(step_s, steps)


def latency_of(transactions: Transactions, faults: Sequence[tuple[int, int]]) -> Mapping[str, Latency | None]:
    """Return the latency of acknowledged sends: of ``all``, of those within faults, and of the others (``calm``)."""
    within, calm = array("d"), array("d")
    spans = merge_spans(faults)
    ends = [end for _, end in spans]
    for number in range(len(transactions)):
        sends, _ = _count(transactions, number)
        if not sends or TYPES[transactions.types[number]] != "ok":
            continue
        place = bisect_left(ends, transactions.invoke_times_ns[number])
        is_within = place < len(spans) and spans[place][0] <= transactions.times_ns[number]
        (within if is_within else calm).append(_latency_ms(transactions, number))
    return {"all": distribution(within + calm), "faults": distribution(within), "calm": distribution(calm)}


def _count(transactions: Transactions, number: int) -> tuple[int, int]:
    entries = transactions.entries(number)
    sends = sum(transactions.micro_operations[entry] < 0 for entry in entries)
    return sends, len(entries) - sends


def _latency_ms(transactions: Transactions, number: int) -> float:
    return (transactions.times_ns[number] - transactions.invoke_times_ns[number]) / 1e6


class Reign(NamedTuple):
    """A time in which a partition or the quorum had the same leader; None is no leader, or an unknown one."""

    start_s: float
    end_s: float
    leader: int | None
    key: str


@dataclass(frozen=True, slots=True)
class Leaders:
    """Reigns without gaps, by row; a row is the n-th of the keys that were written to at a time."""

    rows: list[list[Reign]] = field(default_factory=list)
    controller: list[Reign] = field(default_factory=list)

    @property
    def nodes(self) -> list[int]:
        """All nodes that ever led."""
        return sorted({reign.leader for row in self.rows for reign in row if reign.leader is not None})

    @property
    def moves(self) -> int:
        """The number of leader changes of partitions."""
        return sum(_moves(row) for row in self.rows)

    @property
    def controller_moves(self) -> int:
        """The number of leader changes of the quorum."""
        return _moves(self.controller)


def read_leaders(lines: Iterable[Mapping[str, Any]]) -> Leaders:
    """Return the leaders from the lines of ``metrics.jsonl``; each line covers the time since the previous one."""
    found = Leaders()
    last_s = 0.0
    for line in lines:
        time_s = float(line.get("time", last_s))
        leaders = line.get("leaders")
        if isinstance(leaders, dict):
            for row, key in enumerate(sorted(leaders)):
                if row == len(found.rows):
                    found.rows.append([])
                _extend(found.rows[row], last_s, time_s, leaders[key], key)
        if line.get("controller") is not None or found.controller:
            _extend(found.controller, last_s, time_s, line.get("controller"), "controllers")
        last_s = time_s
    return found


def _extend(row: list[Reign], start_s: float, end_s: float, leader: int | None, key: str) -> None:
    if row and row[-1].leader == leader and row[-1].key == key and row[-1].end_s == start_s:
        row[-1] = row[-1]._replace(end_s=end_s)
    else:
        row.append(Reign(start_s, end_s, leader, key))


def _moves(row: list[Reign]) -> int:
    known = [(reign.key, reign.leader) for reign in row if reign.leader is not None]
    return sum(before[0] == now[0] and before[1] != now[1] for before, now in pairwise(known))
