"""What a cleaner is given, what it may use, and what it gives back."""

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
"""How full a map gets at most when memory allows: a search then takes one or two steps."""


@dataclass(frozen=True, slots=True)
class CleanerMemory:
    """One cleaner's share: ``map_bytes`` and ``load_factor`` of the offset map, ``buffer_bytes`` of one read."""

    map_bytes: int
    load_factor: float
    buffer_bytes: int

    @property
    def max_keys(self) -> int:
        """How many keys the offset map holds at most."""
        slots = self.map_bytes // engine.ENTRY_SIZE
        return min(int(slots * self.load_factor), slots - 1)

    def map_bytes_for(self, records: int) -> int:
        """Return the size of a map for so many records, within the share."""
        slots = int(records / min(self.load_factor, _ROOMY_LOAD)) + 2
        return min(self.map_bytes, slots * engine.ENTRY_SIZE)


@dataclass(frozen=True, slots=True)
class SourceSegment:
    """A sealed segment as it was when the cleaning began."""

    segment: Segment
    path: Path
    base_offset: int
    size: int
    modified_ms: int

    @classmethod
    def of(cls, segment: Segment) -> SourceSegment:
        """Take down what a segment is now, on the log's thread."""
        return cls(segment, segment.path, segment.base_offset, segment.size, segment.last_modified_ms)


@dataclass(frozen=True, slots=True)
class LogToClean:
    """What the cleaner knows of a log, taken on the log's thread at one moment.

    ``segments`` are the sealed ones below ``first_uncleanable_offset``, oldest first; ``aborted`` are the aborted
    transactions that touch them; ``producers`` the active ones by id.
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
        """Where each segment's range of offsets ends: at the base of the next one."""
        bases = [segment.base_offset for segment in self.segments[1:]]
        return [*bases, self.first_uncleanable_offset][: len(self.segments)]


@dataclass(frozen=True, slots=True)
class Cleaning:
    """The outcome: the log is clean below ``end_offset``, which is less than was asked when the map was full."""

    end_offset: int
    statistics: CleaningStatistics
