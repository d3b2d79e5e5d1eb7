"""The input, the resources and the result of a cleaning."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tidelog_node.log.cleaner._engine import engine
from tidelog_node.log.cleaner.statistics import CleaningStatistics
from tidelog_node.log.config import LogConfig
from tidelog_node.log.producers import ProducerEntry
from tidelog_node.log.segments.segment import Segment
from tidelog_node.log.segments.transaction_index import AbortedTransaction

_ROOMY_LOAD = 0.5
"""The maximum fill of the map if memory allows; a search then takes one or two steps."""


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
