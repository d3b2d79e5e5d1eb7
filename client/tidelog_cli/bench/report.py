"""The result of a benchmark: counts, rates, and the distribution of times in an HdrHistogram."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tidelog_cli.output.printing import counted, print_json, print_table

if TYPE_CHECKING:
    from tidelog_cli.options.connection import Session

_PERCENTILES = (50.0, 75.0, 90.0, 95.0, 99.0, 99.9, 99.99)
_LARGEST_US = 3_600_000_000
_FIGURES = 3


class Latencies:
    """Times from a microsecond to an hour, with three significant figures. One thread uses it.

    Raises:
        ModuleNotFoundError: hdrhistogram is not installed.
    """

    def __init__(self) -> None:
        from hdrh.histogram import HdrHistogram

        self._histogram: Any = HdrHistogram(1, _LARGEST_US, _FIGURES)

    def record(self, seconds: float) -> None:
        """Record a time."""
        self._histogram.record_value(min(max(int(seconds * 1e6), 1), _LARGEST_US))

    @property
    def count(self) -> int:
        """The number of measured latencies."""
        return int(self._histogram.get_total_count())

    def percentile_ms(self, percentile: float) -> float:
        """Return the time at a percentile, in ms."""
        return float(self._histogram.get_value_at_percentile(percentile)) / 1_000

    @property
    def document(self) -> dict[str, float]:
        """The distribution in ms, by p50, p99.9 and so on."""
        if not self.count:
            return {}
        return {
            "mean": round(float(self._histogram.get_mean_value()) / 1_000, 3),
            **{f"p{p:g}": self.percentile_ms(p) for p in _PERCENTILES},
            "max": float(self._histogram.get_max_value()) / 1_000,
        }


@dataclass(frozen=True, slots=True)
class Report:
    """The result of a run; ``latencies`` if times were measured, ``failed`` counts unacknowledged records."""

    benchmark: str
    topic: str
    records: int
    size: int
    seconds: float
    latencies: Latencies | None = None
    failed: int = 0

    @property
    def document(self) -> dict[str, Any]:
        """The report as a JSON document; a MB is 1,000,000 bytes."""
        seconds = max(self.seconds, 1e-9)
        return {
            "benchmark": self.benchmark,
            "topic": self.topic,
            "records": self.records,
            "failed": self.failed,
            "bytes": self.size,
            "seconds": round(self.seconds, 6),
            "records_per_second": round(self.records / seconds, 1),
            "mb_per_second": round(self.size / seconds / 1e6, 3),
            "latency_ms": None if self.latencies is None else self.latencies.document,
        }


def print_report(session: Session, report: Report) -> None:
    """Print a report as JSON, or as a line and a table of percentiles."""
    document = report.document
    if session.as_json:
        print_json(document)
        return
    rate = f"{document['records_per_second']:,.1f} records/s, {document['mb_per_second']:,.2f} MB/s"
    session.say(f"{counted(report.records, 'record')} in {report.seconds:.2f} s: {rate}")
    if document["latency_ms"]:
        session.say("")
        print_table(("LATENCY", "MS"), [(name, f"{value:,.3f}") for name, value in document["latency_ms"].items()])
