"""Opens the segments of a partition and brings them to a consistent state.

Interrupted swaps are completed first. After a clean shutdown only the batches behind the last index entry are checked.
After an unclean one, every batch from the segment of the recovery point on is read once and checked: it must be whole,
have a valid CRC and lie above the previous one. The first invalid batch ends the log: the file is truncated there,
durably, and later segments are removed, newest first, so that a crash meanwhile leaves a log without a hole. A segment
that begins above the end of its predecessor is removed too, unless the predecessor has its index files: they are
written after its batches are on the disk, so the gap is the result of compaction, and not a lost tail. The CRC does not
cover the base offset: if offsets go back behind a gap, the batch behind the gap is the invalid one, and no batch may
reach beyond the next segment's base.

Indexes of checked segments are rebuilt, and so is the producer state. Leader epochs from the checkpoint are kept if
they agree with the batches; otherwise the epochs of the batches replace them. No epoch begins beyond the log's end.
"""

from __future__ import annotations

import bisect
import contextlib
import logging
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import field
from itertools import pairwise
from pathlib import Path

from tidelog_foundation.dataclass import dataclass
from tidelog_foundation.errors import CorruptRecordError
from tidelog_foundation.ids import LeaderEpoch
from tidelog_foundation.records import RecordBatchHeader
from tidelog_node.log.config import LogConfig
from tidelog_node.log.directory.deletion import remove_leftovers
from tidelog_node.log.disk.files import TEMPORARY_SUFFIX, Files
from tidelog_node.log.epochs import EpochEntry, LeaderEpochCache
from tidelog_node.log.producer_replay import ProducerReplay
from tidelog_node.log.segments.file_names import LOG_SUFFIX, parse_segment_name
from tidelog_node.log.segments.segment import Segment
from tidelog_node.log.segments.swap import finish_swaps

logger = logging.getLogger(__name__)

_MAX_OFFSET = 2**63 - 1


@dataclass(slots=True)
class RecoveryReport:
    """The findings and actions of recovery when a log is opened.

    ``is_below_recovery_point`` means that flushed records were cut off: the disk has lost or changed bytes.
    """

    checked_segments: int = 0
    checked_batches: int = 0
    truncated_bytes: int = 0
    removed_segments: list[str] = field(default_factory=list)
    fault: str | None = None
    is_below_recovery_point: bool = False


@dataclass(frozen=True, slots=True)
class RecoveryInput:
    """The inputs of opening a log; the offsets come from the checkpoints of its log directory.

    ``is_new`` means that the directory does not exist yet; the first append creates it.
    """

    files: Files
    directory: Path
    config: LogConfig
    is_clean: bool
    recovery_point: int
    log_start_offset: int
    now_ms: int
    is_new: bool = False


def load_segments(
    known: RecoveryInput, names: Sequence[str], epochs: LeaderEpochCache, producers: ProducerReplay
) -> tuple[list[Segment], RecoveryReport]:
    """Return the segments of a directory, oldest first and at least one, and a report of recovery.

    ``names`` is the content of the directory. Epochs and producers then match the batches. Raises OSError if the disk
    refuses; everything opened by then is closed.
    """
    files, directory, config = known.files, known.directory, known.config
    if known.is_new:
        producers.names = ()
        return [_first_segment(known, epochs, producers)], RecoveryReport()
    names = finish_swaps(files, directory, config, names)
    bases = _tidy(files, directory, names)
    producers.names = [name for name in names if not name.endswith(TEMPORARY_SUFFIX)]
    segments: list[Segment] = []
    try:
        if not bases:
            segments.append(_first_segment(known, epochs, producers))
            files.fsync_directory(directory)
            return segments, RecoveryReport()
        for base in bases:
            segment = Segment.open(files, directory, base, config)
            segment.created_ms = known.now_ms
            segments.append(segment)
        for segment, successor in pairwise(segments):
            segment.next_offset = successor.base_offset
        return segments, _Recovery(known, segments, epochs, producers).run()
    except BaseException:
        for segment in segments:
            segment.close()
        raise


def _first_segment(known: RecoveryInput, epochs: LeaderEpochCache, producers: ProducerReplay) -> Segment:
    start = known.log_start_offset
    segment = Segment.create(known.files, known.directory, start, known.config, is_made_later=known.is_new)
    segment.created_ms = known.now_ms
    epochs.clear()
    producers.load([segment], start, start)
    return segment


class _Recovery:
    """One recovery of the segments of one log; it changes ``segments`` in place."""

    def __init__(
        self, known: RecoveryInput, segments: list[Segment], epochs: LeaderEpochCache, producers: ProducerReplay
    ) -> None:
        self._known = known
        self._segments = segments
        self._epochs = epochs
        self._producers = producers
        self._log_start_offset = max(known.log_start_offset, segments[0].base_offset)
        self._report = RecoveryReport()
        self._runs: list[_EpochRun] = []

    def run(self) -> RecoveryReport:
        if self._known.is_clean:
            fault = self._segments[-1].load_tail()
            if fault is None:
                self._load_producers(self._segments[-1].next_offset)
                self._mend_epochs(len(self._segments), self._segments[-1].next_offset)
                return self._report
            logger.warning("%s was closed cleanly but is checked again: %s", self._known.directory, fault)
        self._check()
        return self._report

    def _load_producers(self, end_offset: int) -> None:
        self._producers.load(self._segments, min(self._log_start_offset, end_offset), end_offset)

    def _check(self) -> None:
        first = self._first_to_check()
        while not self._is_checked(first):
            self._report.checked_segments = self._report.checked_batches = 0
            self._runs = []
        self._mend_epochs(first, self._known.recovery_point)
        self._tell(self._segments[-1].next_offset)

    def _is_checked(self, first: int) -> bool:
        """Check the segments from an index on. Return False, to check again, if a valid batch was cut off too."""
        expected = self._segments[first].base_offset
        self._load_producers(expected)
        may_have_gap = True
        for index, segment in enumerate(self._segments[first:], first):
            if segment.base_offset < expected or (segment.base_offset > expected and not may_have_gap):
                self._remove_from(index, f"{segment.path.name} should begin at offset {expected}")
                break
            may_have_gap = segment.is_whole
            successor = self._segments[index + 1] if index + 1 < len(self._segments) else None
            is_whole = may_have_gap and successor is not None
            bound = successor.base_offset if successor else _MAX_OFFSET
            checked_end = self._check_segment(segment, bound, is_whole)
            if checked_end is None:
                return False
            # The log never flushes again below the recovery point, and only this index may record what was aborted.
            segment.transaction_index.flush()
            expected = segment.next_offset
            if not checked_end:
                self._remove_from(index + 1, self._report.fault or "")
                break
        return True

    def _first_to_check(self) -> int:
        bases = [segment.base_offset for segment in self._segments]
        return max(0, bisect.bisect_right(bases, self._known.recovery_point) - 1)

    def _check_segment(self, segment: Segment, bound: int, is_whole: bool) -> bool | None:
        """Check a segment, all of which must lie below ``bound``, and truncate it behind its last good batch.

        Return False if something was cut off, None if that includes the last good batch. The index files of a segment
        that ``is_whole`` stay; without them the next recovery would take a gap behind the segment for a lost tail.
        """
        self._report.checked_segments += 1
        segment.transaction_index.truncate(segment.base_offset)
        valid, gap, end_offset = 0, 0, segment.base_offset
        try:
            for position, header, data in segment.rebuild(bound, keeps_files=is_whole):
                gap = position if header.base_offset > end_offset else 0
                valid, end_offset = position + len(data), segment.next_offset
                self._report.checked_batches += 1
                self._note_epoch(header.partition_leader_epoch, header.base_offset)
                if header.producer_id >= 0:
                    self._producers.append(segment, header, data)
        except CorruptRecordError as cause:
            if segment.is_allocated_only(valid):
                segment.truncate_bytes(valid)
                return True
            if gap and _goes_back(segment, valid):
                self._cut(segment, gap, f"the batch behind a gap ends at offset {end_offset}, the next is below")
                return None
            self._cut(segment, valid, cause.message)
            return False
        if is_whole:
            segment.indexes.confirm()
        return True

    def _cut(self, segment: Segment, size: int, fault: str) -> None:
        rest = segment.size - size
        self._report.fault = f"{segment.path.name}: {fault} ({rest} bytes from byte {size} on)"
        self._report.truncated_bytes += rest
        segment.truncate_bytes(size)

    def _note_epoch(self, epoch: int, offset: int) -> None:
        run = self._runs[-1] if self._runs else None
        if run is not None and run.epoch >= epoch:
            run.last_offset = offset
        else:
            self._runs.append(_EpochRun(LeaderEpoch(epoch), offset, offset))

    def _remove_from(self, index: int, fault: str) -> None:
        if index >= len(self._segments):
            return
        self._report.fault = self._report.fault or fault
        for segment in reversed(self._segments[index:]):
            self._report.removed_segments.append(segment.path.name)
            self._report.truncated_bytes += segment.size
            self._segments.pop()
            segment.remove()
            self._known.files.fsync_directory(self._known.directory)

    def _mend_epochs(self, first_checked: int, flushed_below: int) -> None:
        """Keep the entries that agree with the checked batches and lie in the log; rebuild all if the file is damaged.

        A file that is wrong below the flushed offset is rewritten at once, because recovery may not read those batches
        again.
        """
        segments = self._segments
        checked = self._runs
        if self._epochs.damaged:
            self._runs = []
            for segment in segments[:first_checked]:
                for header in _readable_headers(segment):
                    self._note_epoch(header.partition_leader_epoch, header.base_offset)
            entries = [EpochEntry(run.epoch, run.first_offset) for run in self._runs]
            _add_epochs(entries, checked)
        else:
            entries = _clip(self._epochs.entries, self._log_start_offset, segments[-1].next_offset)
            if not all(run.agrees_with(self._epochs) for run in checked):
                start = segments[first_checked].base_offset
                entries = _clip(self._epochs.entries, self._log_start_offset, start)
                _add_epochs(entries, checked)
        self._epochs.restore(self._with_first_epochs(entries))
        if not self._epochs.is_saved(flushed_below):
            self._epochs.flush(segments[-1].next_offset)

    def _with_first_epochs(self, entries: list[EpochEntry]) -> list[EpochEntry]:
        """Add the entries that the cache dropped when the log's start advanced, if a crash undid the advance."""
        known_from = entries[0].start_offset if entries else self._segments[-1].next_offset
        self._runs = []
        for segment in self._segments if known_from > self._log_start_offset else ():
            for header in _readable_headers(segment):
                if header.base_offset >= known_from:
                    break
                if header.next_offset > self._log_start_offset:
                    self._note_epoch(header.partition_leader_epoch, max(header.base_offset, self._log_start_offset))
            if segment.next_offset >= known_from:
                break
        found = [EpochEntry(run.epoch, run.first_offset) for run in self._runs]
        return found + [entry for entry in entries if not found or entry.epoch > found[-1].epoch]

    def _tell(self, log_end_offset: int) -> None:
        report = self._report
        report.is_below_recovery_point = log_end_offset < self._known.recovery_point
        if report.fault is None:
            return
        level = logging.ERROR if report.is_below_recovery_point else logging.WARNING
        text = "%s ends at offset %d after recovery from %d: %d bytes were cut, %d segments removed: %s"
        removed = len(report.removed_segments)
        offsets = (log_end_offset, self._known.recovery_point)
        logger.log(level, text, self._known.directory, *offsets, report.truncated_bytes, removed, report.fault)


@dataclass(slots=True)
class _EpochRun:
    """A run of batches of one leader epoch: the base offsets of the first and the last."""

    epoch: LeaderEpoch
    first_offset: int
    last_offset: int

    def agrees_with(self, epochs: LeaderEpochCache) -> bool:
        return epochs.epoch_at(self.first_offset) == self.epoch == epochs.epoch_at(self.last_offset)


def _goes_back(segment: Segment, position: int) -> bool:
    """Return whether the batch at a position begins below the end of the previous one."""
    try:
        _, header = next(segment.headers(position))
    except CorruptRecordError:
        return False
    return header.base_offset < segment.next_offset


def _tidy(files: Files, directory: Path, names: Sequence[str]) -> list[int]:
    """Remove files that belong to no log: half-written replacements and orphaned indexes. Return the base offsets."""
    parsed = [(name, found) for name in names if (found := parse_segment_name(name))]
    bases = {base for _, (base, suffix, _) in parsed if suffix == LOG_SUFFIX}
    for name, (base, _, _) in parsed:
        if base not in bases:
            files.remove(directory / name)
    for name in names:
        if name.endswith(TEMPORARY_SUFFIX):
            files.remove(directory / name)
    remove_leftovers(files, directory, names)
    return sorted(bases)


def _readable_headers(segment: Segment) -> Iterator[RecordBatchHeader]:
    """Yield the headers of an unchecked segment, up to the first corrupt batch."""
    with contextlib.suppress(CorruptRecordError):
        for _, header in segment.headers():
            yield header


def _clip(entries: Iterable[EpochEntry], log_start_offset: int, end_offset: int) -> list[EpochEntry]:
    kept = [entry for entry in entries if entry.start_offset < end_offset]
    covering = [entry for entry in kept if entry.start_offset <= log_start_offset]
    if not covering:
        return kept
    if log_start_offset >= end_offset:
        return []
    return [EpochEntry(covering[-1].epoch, log_start_offset), *kept[len(covering) :]]


def _add_epochs(entries: list[EpochEntry], runs: Iterable[_EpochRun]) -> None:
    for run in runs:
        if run.epoch > (entries[-1].epoch if entries else -1):
            entries.append(EpochEntry(run.epoch, run.first_offset))
