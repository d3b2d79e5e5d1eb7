"""The knowledge of a cluster's checker: the batches of each replica's log and the committed ones of each partition."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from tidelog_foundation.records import RecordBatchHeader


class Batch(NamedTuple):
    """The identity of a batch; ``end`` is exclusive."""

    base: int
    end: int
    epoch: int
    crc: int
    producer_id: int
    producer_epoch: int
    sequence: int


@dataclass(slots=True)
class View:
    """The batches of one replica's log; ``is_current`` is False while its process is down and its disk may differ."""

    batches: list[Batch] = field(default_factory=list)
    start: int = 0
    end: int = 0
    led: tuple[int, int] = (-1, -1)
    """The leader epoch in which it leads and the high watermark that it had."""
    high_watermark: int | None = None
    is_current: bool = True

    def has(self, batch: Batch) -> bool:
        """Return whether the log has a batch, or has deleted what was there."""
        if batch.end <= self.start and self.end >= batch.end:
            return True
        position = position_of(self.batches, batch.base)
        return position < len(self.batches) and self.batches[position][:4] == batch[:4]


@dataclass(slots=True)
class Truth:
    """The committed ``batches`` of a partition in order, up to ``high_watermark``.

    ``sequences`` has the next sequence number of each producer id and epoch. ``is_void`` is True while the guarantee is
    void, ``was_void`` once it has been.
    """

    batches: list[Batch] = field(default_factory=list)
    high_watermark: int = 0
    leaders: dict[int, int] = field(default_factory=dict)
    sequences: dict[int, tuple[int, int]] = field(default_factory=dict)
    stored: dict[tuple[int, int], int] = field(default_factory=dict)
    """At which offset each record of an idempotent producer is: by the producer's number and the record's."""
    last_serials: dict[int, int] = field(default_factory=dict)
    given_up: set[tuple[int, int]] = field(default_factory=set)
    """Those of which their producer was told that they are in no log and never will be."""
    damaged: dict[int, Batch | None] = field(default_factory=dict)
    """The replicas that may have lost acknowledged records, each with its last batch before the loss."""
    history: dict[tuple[int, int], tuple[Batch, Batch | None]] = field(default_factory=dict)
    is_void: bool = False
    was_void: bool = False
    leaders_start: int = 0
    """The highest offset at which a leader's log began: what a follower has below it may be anything, and is hidden."""
    deletes: bool = False


def batch_of(header: RecordBatchHeader) -> Batch:
    """Return what the checker remembers of a batch."""
    return Batch(
        header.base_offset,
        header.next_offset,
        header.partition_leader_epoch,
        header.crc,
        header.producer_id,
        header.producer_epoch,
        header.base_sequence,
    )


def position_of(batches: list[Batch], base: int) -> int:
    """Return where the first batch is that begins at ``base`` or later."""
    low, high = 0, len(batches)
    while low < high:
        middle = (low + high) // 2
        if batches[middle][0] < base:
            low = middle + 1
        else:
            high = middle
    return low
