"""Passes the batches of a log to its producer states, and the aborted transactions to the segments' indexes.

It connects the two both for a batch that was just appended and for batches that are replayed when a log is opened or
truncated.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from tidelog_foundation.errors import CorruptRecordError
from tidelog_foundation.records import RecordBatchHeader
from tidelog_node.log.disk.files import Buffer
from tidelog_node.log.producers.entries import read_marker
from tidelog_node.log.producers.snapshots import ProducerSnapshots
from tidelog_node.log.segments.segment import Segment
from tidelog_node.log.segments.transaction_index import AbortedTransaction

logger = logging.getLogger(__name__)

_NO_TIME = -1


class ProducerReplay:
    """The replay into the :class:`ProducerSnapshots` of one log, on its thread. Methods raise OSError.

    ``names`` is the content of the log's directory until the first :meth:`load`; None if unknown. Replayed batches
    count as appended at the latest time that the log was given: the time of the append is unknown, and a producer whose
    records have old timestamps would otherwise expire at once.
    """

    __slots__ = ("_now_ms", "names", "snapshots")

    def __init__(self, snapshots: ProducerSnapshots, now_ms: int) -> None:
        self.snapshots = snapshots
        self.names: Sequence[str] | None = None
        self._now_ms = now_ms

    def load(self, segments: Sequence[Segment], log_start_offset: int, end_offset: int) -> None:
        """Restore the states of the log below ``end_offset``, from a snapshot and the batches behind it.

        The transaction indexes are complete and stay unchanged.
        """
        names, self.names = self.names, None
        replay_from = self.snapshots.load(log_start_offset, end_offset, self._now_ms, names)
        if replay_from < end_offset:
            self.replay(segments, replay_from, end_offset)

    def replay(self, segments: Sequence[Segment], offset: int, end_offset: int) -> None:
        """Replay the batches that end above ``offset`` and begin below ``end_offset``."""
        for index, segment in enumerate(segments):
            is_before = index + 1 < len(segments) and segments[index + 1].base_offset <= offset
            if segment.base_offset >= end_offset:
                break
            if not is_before:
                self._replay_segment(segment, offset, end_offset)

    def append(self, segment: Segment, header: RecordBatchHeader, batch: Buffer, now_ms: int = _NO_TIME) -> None:
        """Process a batch that is in the log; ``segment`` holds it and gets the transaction that it aborts."""
        self._now_ms = max(self._now_ms, now_ms)
        marker = read_marker(batch) if header.is_control else None
        ended = self.snapshots.state.append(header, marker, self._now_ms)
        if ended is not None:
            if not ended.is_commit:
                segment.transaction_index.append(AbortedTransaction.of(ended))
            self.snapshots.state.complete(ended)

    def _replay_segment(self, segment: Segment, offset: int, end_offset: int) -> None:
        try:
            self._replay_batches(segment, offset, end_offset)
        except CorruptRecordError as cause:
            # The data has changed since it was written. Readers will report it; no other producer's records are dropped
            # for it.
            text = "The producer state of %s is incomplete because a batch is corrupt: %s"
            logger.error(text, segment.path, cause.message)

    def _replay_batches(self, segment: Segment, offset: int, end_offset: int) -> None:
        found = segment.locate(offset)
        for position, header in segment.headers(segment.size if found is None else found[0]):
            if header.base_offset >= end_offset:
                break
            if header.producer_id < 0:
                continue
            marker = read_marker(segment.read_at(position, header.size_in_bytes)) if header.is_control else None
            ended = self.snapshots.state.append(header, marker, self._now_ms)
            if ended is not None:
                self.snapshots.state.complete(ended)
