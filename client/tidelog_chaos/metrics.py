"""The metrics of a run, one line of ``metrics.jsonl`` per second, for the report's timeline.

::

    {"time": 12.0, "sends": {"ok": 201, "info": 0, "fail": 0}, "latency_ms": {"p50": 4.1, "p99": 9.3, "max": 12.0},
     "polls": 8, "records": 190, "leaders": {"chaos-0-0": 1}, "controller": 2, "faults": ["kill node 1"]}

``time`` is the end of the counted second, in seconds since the start of the history. ``latency_ms`` is that of the
sends acknowledged in it, null if there were none; ``records`` counts the polled ones. ``leaders`` has the leading node
of each key that is written to, null without one, and ``controller`` the leader of the quorum, both from the cluster's
last answer, which does not come every second; both are null until the first one. ``faults`` are the active ones.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from tidelog_chaos.background import ENDS_S, BackgroundThread

Outcome = Literal["ok", "info", "fail"]


@dataclass(slots=True)
class Counts:
    """The activity of clients in an interval of time."""

    sends: dict[Outcome, int] = field(default_factory=lambda: {"ok": 0, "info": 0, "fail": 0})
    latencies_ms: list[float] = field(default_factory=list)
    polls: int = 0
    records: int = 0


class Meter:
    """Counts the clients' activity, from any thread, until :meth:`take`."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts = Counts()

    def sent(self, outcome: Outcome, latency_ms: float) -> None:
        """Count a completed send."""
        with self._lock:
            self._counts.sends[outcome] += 1
            if outcome == "ok":
                self._counts.latencies_ms.append(latency_ms)

    def polled(self, records: int) -> None:
        """Count a completed poll."""
        with self._lock:
            self._counts.polls += 1
            self._counts.records += records

    def take(self) -> Counts:
        """Return the counts since the last call."""
        with self._lock:
            counts, self._counts = self._counts, Counts()
            return counts


@dataclass(frozen=True, slots=True)
class ClusterView:
    """The leaders, as the cluster reported them last."""

    leaders: Mapping[str, int | None] | None = None
    controller: int | None = None


def distribution(numbers: Iterable[float]) -> tuple[float, float, float] | None:
    """Return the median, the 99th percentile (nearest rank) and the maximum; None without values."""
    ordered = sorted(numbers)
    if not ordered:
        return None
    return _rank(ordered, 50), _rank(ordered, 99), ordered[-1]


def _rank(ordered: Sequence[float], percent: int) -> float:
    return ordered[max(0, -(-len(ordered) * percent // 100) - 1)]


def latency_summary(latencies_ms: Sequence[float]) -> dict[str, float] | None:
    """Return the :func:`distribution` in milliseconds, by the names that a line of metrics uses."""
    found = distribution(latencies_ms)
    return found and {name: round(value, 3) for name, value in zip(("p50", "p99", "max"), found, strict=True)}


_INTERVAL_S = 1.0


class Recorder(BackgroundThread):
    """Writes a line of metrics every second, in a thread from :meth:`start` to :meth:`stop`.

    The progress display reads its attributes.
    """

    def __init__(
        self,
        path: Path,
        meter: Meter,
        now_s: Callable[[], float],
        view: Callable[[], ClusterView],
        faults: Callable[[], Sequence[str]],
    ) -> None:
        self._file = path.open("w", encoding="utf-8", buffering=1)
        self._meter = meter
        self._now_s = now_s
        self._view = view
        self._faults = faults
        super().__init__("metrics")
        self.sends: dict[Outcome, int] = {"ok": 0, "info": 0, "fail": 0}
        self.records = 0
        self.ok_per_s = 0

    def stop(self, timeout_s: float = ENDS_S) -> None:
        """Write the remaining counts and end."""
        super().stop(timeout_s)
        self._file.close()

    def _run(self) -> None:
        due_s = time.monotonic()
        while not self._stopping.is_set():
            due_s = max(due_s + _INTERVAL_S, time.monotonic())
            self._stopping.wait(due_s - time.monotonic())
            self._write(self._meter.take())

    def _write(self, counts: Counts) -> None:
        for outcome, count in counts.sends.items():
            self.sends[outcome] += count
        self.records += counts.records
        self.ok_per_s = counts.sends["ok"]
        view = self._view()
        line = {
            "time": round(self._now_s(), 3),
            "sends": counts.sends,
            "latency_ms": latency_summary(counts.latencies_ms),
            "polls": counts.polls,
            "records": counts.records,
            "leaders": None if view.leaders is None else dict(view.leaders),
            "controller": view.controller,
            "faults": list(self._faults()),
        }
        self._file.write(json.dumps(line, separators=(",", ":")) + "\n")
