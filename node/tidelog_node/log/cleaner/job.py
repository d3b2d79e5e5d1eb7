"""The input, the resources, the statistics and the result of a cleaning."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Mapping
from dataclasses import field
from pathlib import Path

from tidelog_foundation.dataclass import dataclass
from tidelog_node.log.cleaner._engine import engine
from tidelog_node.log.config import LogConfig
from tidelog_node.log.producers.entries import ProducerEntry
from tidelog_node.log.segments.segment import Segment
from tidelog_node.log.segments.transaction_index import AbortedTransaction

_MEBIBYTE = 1024 * 1024
_ROOMY_LOAD = 0.5
"""The maximum fill of the map if memory allows; a search then takes one or two steps."""


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


@dataclass(frozen=True, slots=True)
class CleanerMemory:
    """The memory of one cleaner: ``map_bytes`` and ``load_factor`` of the offset map, ``buffer_bytes`` of one read."""

    map_bytes: int
    load_factor: float
    buffer_bytes: int

    @property
    def max_keys(self) -> int:
        """The maximum number of keys in the offset map."""
        slots = self.map_bytes // engine.ENTRY_SIZE
        return min(int(slots * self.load_factor), slots - 1)

    def map_bytes_for(self, records: int) -> int:
        """Return the size of a map for a number of records, limited to ``map_bytes``."""
        slots = int(records / min(self.load_factor, _ROOMY_LOAD)) + 2
        return min(self.map_bytes, slots * engine.ENTRY_SIZE)


@dataclass(frozen=True, slots=True)
class SourceSegment:
    """A snapshot of a sealed segment at the start of the cleaning."""

    segment: Segment
    path: Path
    base_offset: int
    size: int
    modified_ms: int

    @classmethod
    def of(cls, segment: Segment) -> SourceSegment:
        """Capture a segment's state, on the log's thread."""
        return cls(segment, segment.path, segment.base_offset, segment.size, segment.last_modified_ms)


@dataclass(frozen=True, slots=True)
class LogToClean:
    """A snapshot of a log for the cleaner, taken on the log's thread.

    ``segments`` are the sealed ones below ``first_uncleanable_offset``, oldest first; ``aborted`` are the aborted
    transactions that overlap them; ``producers`` has the active ones by id.
    """

    name: str
    directory: Path
    config: LogConfig
    segments: tuple[SourceSegment, ...]
    first_dirty_offset: int
    first_uncleanable_offset: int
    aborted: tuple[AbortedTransaction, ...] = ()
    producers: Mapping[int, ProducerEntry] = field(default_factory=dict)

    @property
    def ends(self) -> list[int]:
        """The end of each segment's offset range: the base of the next segment."""
        bases = [segment.base_offset for segment in self.segments[1:]]
        return [*bases, self.first_uncleanable_offset][: len(self.segments)]


@dataclass(frozen=True, slots=True)
class Cleaning:
    """The result: the log is clean below ``end_offset``, which is lower than planned if the map became full."""

    end_offset: int
    statistics: CleaningStatistics


class Throttle:
    """A rate limit shared by the cleaners' threads. ``clock`` returns monotonic seconds, ``sleep`` takes seconds.

    Each :meth:`take` waits until the rate allows all earlier ones, so that all threads together keep to this
    rate over time.
    """

    def __init__(self, bytes_per_second: float, clock: Callable[[], float], sleep: Callable[[float], object]) -> None:
        """Set the rate; ``math.inf`` means no limit.

        Raises:
            ValueError: the rate is not positive.
        """
        if not bytes_per_second > 0:
            raise ValueError(f"{bytes_per_second} bytes per second")
        self._bytes_per_second = bytes_per_second
        self._clock = clock
        self._sleep = sleep
        self._free_at = -math.inf
        self._lock = threading.Lock()

    def take(self, size: int) -> None:
        """Wait until ``size`` bytes may be read or written."""
        if math.isinf(self._bytes_per_second):
            return
        with self._lock:
            now = self._clock()
            begin = max(self._free_at, now)
            self._free_at = begin + size / self._bytes_per_second
        if begin > now:
            self._sleep(begin - now)
