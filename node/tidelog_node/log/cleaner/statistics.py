"""Statistics of one cleaning and the log line that reports them."""

from __future__ import annotations

from dataclasses import dataclass

_MEBIBYTE = 1024 * 1024


@dataclass(slots=True)
class CleaningStatistics:
    """Counters of one cleaning: bytes of log files, records, milliseconds.

    ``indexed_bytes`` counts the bytes read to build the offset map, ``bytes_read`` and ``bytes_written`` those of the
    rewrite. ``map_fill`` is the used share of the map's capacity.
    """

    indexed_bytes: int = 0
    bytes_read: int = 0
    bytes_written: int = 0
    records_read: int = 0
    records_written: int = 0
    keyless_records: int = 0
    keys: int = 0
    map_fill: float = 0.0
    index_ms: float = 0.0
    duration_ms: float = 0.0

    def __str__(self) -> str:
        """Return the figures for an operator in one line."""
        seconds = max(self.duration_ms, 1.0) / 1000
        return (
            f"{self.bytes_read / _MEBIBYTE:.1f} MiB read, {self.bytes_written / _MEBIBYTE:.1f} MiB written"
            f" ({_reduction(self.bytes_read, self.bytes_written):.1%} smaller),"
            f" {self.records_read} records to {self.records_written}"
            f" ({_reduction(self.records_read, self.records_written):.1%} fewer)"
            f" in {seconds:.1f} s ({self.bytes_read / _MEBIBYTE / seconds:.1f} MiB/s,"
            f" {self.indexed_bytes / _MEBIBYTE:.1f} MiB indexed in {self.index_ms / 1000:.1f} s),"
            f" {self.keys} keys fill {self.map_fill:.1%} of the buffer"
        )


def _reduction(before: int, after: int) -> float:
    return 1 - after / before if before else 0.0
