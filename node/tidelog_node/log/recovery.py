"""Opens the segments of a partition and brings them to a state that the log can trust.

After a clean stop only the batches behind the last index entry are looked at. After an unclean one, every batch
from the segment of the recovery point on is checked (whole, CRC, contiguous offsets); the first that fails ends the
log: the file is cut there, durably, and later segments are removed, the newest first, so that a crash in between
leaves a log without a gap. Indexes of checked segments are rebuilt. Leader epochs of checked batches replace what
the checkpoint says of them, and none is left beyond the log's end.
"""

from __future__ import annotations

import bisect
import logging
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from tidelog.ids import LeaderEpoch
from tidelog.records import RecordBatchHeader
from tidelog_node.log.config import LogConfig
from tidelog_node.log.epochs import EpochEntry, LeaderEpochCache
from tidelog_node.log.files import TEMPORARY_SUFFIX, Files
from tidelog_node.log.segment import INDEX_SUFFIX, LOG_SUFFIX, TIME_INDEX_SUFFIX, Segment

logger = logging.getLogger(__name__)

_SEGMENT_FILE = re.compile(r"(\d{20})(\.log|\.index|\.timeindex)")


@dataclass(slots=True)
class RecoveryReport:
    """What opening a log found and did.

    ``is_below_recovery_point`` says that records were cut that had been flushed: the disk has lost or changed bytes.
    """

    checked_segments: int = 0
    checked_batches: int = 0
    truncated_bytes: int = 0
    removed_segments: list[str] = field(default_factory=list)
    fault: str | None = None
    is_below_recovery_point: bool = False


def load_segments(
    files: Files, directory: Path, config: LogConfig, epochs: LeaderEpochCache, *, clean: bool, recovery_point: int
) -> tuple[list[Segment], RecoveryReport]:
    """Return the segments of a directory, oldest first and at least one, and what was done to them.

    Raises OSError when the disk refuses; what was opened by then is closed.
    """
    bases = _tidy(files, directory)
    if not bases:
        segments = [Segment.create(files, directory, 0, config)]
        files.fsync_directory(directory)
        epochs.clear()
        return segments, RecoveryReport()
    segments = []
    try:
        for base_offset in bases:
            segments.append(Segment.open(files, directory, base_offset, config))
        return segments, _Recovery(files, directory, segments, epochs, recovery_point).run(clean)
    except BaseException:
        for segment in segments:
            segment.close()
        raise


class _Recovery:
    """One run over the segments of one log; ``segments`` is changed in place."""

    def __init__(
        self, files: Files, directory: Path, segments: list[Segment], epochs: LeaderEpochCache, recovery_point: int
    ) -> None:
        self._files = files
        self._directory = directory
        self._segments = segments
        self._epochs = epochs
        self._recovery_point = recovery_point
        self._report = RecoveryReport()

    def run(self, clean: bool) -> RecoveryReport:
        for segment, successor in zip(self._segments, self._segments[1:], strict=False):
            segment.next_offset = successor.base_offset
        if clean:
            fault = self._segments[-1].load_tail()
            if fault is None:
                self._mend_epochs(first_checked=len(self._segments), checked=[])
                return self._report
            logger.warning("%s was closed cleanly but is checked again: %s", self._directory, fault)
        self._check()
        return self._report

    def _check(self) -> None:
        first = self._first_to_check()
        expected = self._segments[first].base_offset
        checked: list[RecordBatchHeader] = []
        for index in range(first, len(self._segments)):
            segment = self._segments[index]
            if segment.base_offset != expected:
                self._remove_from(index, f"{segment.path.name} should begin at offset {expected}")
                break
            size = segment.size
            headers, fault = segment.rebuild()
            checked += headers
            self._report.checked_segments += 1
            expected = segment.next_offset
            if fault is not None:
                self._cut(segment, size, fault)
                self._remove_from(index + 1, fault)
                break
        self._report.checked_batches = len(checked)
        self._mend_epochs(first, checked)
        self._tell(expected)

    def _first_to_check(self) -> int:
        bases = [segment.base_offset for segment in self._segments]
        return max(0, bisect.bisect_right(bases, self._recovery_point) - 1)

    def _cut(self, segment: Segment, file_size: int, fault: str) -> None:
        self._report.fault = f"{segment.path.name}: {fault}"
        self._report.truncated_bytes += file_size - segment.size
        segment.truncate_bytes(segment.size)

    def _remove_from(self, index: int, fault: str) -> None:
        if index >= len(self._segments):
            return
        self._report.fault = self._report.fault or fault
        for segment in reversed(self._segments[index:]):
            self._report.removed_segments.append(segment.path.name)
            self._report.truncated_bytes += segment.size
            self._segments.pop()
            segment.remove()
            self._files.fsync_directory(self._directory)

    def _mend_epochs(self, first_checked: int, checked: Iterable[RecordBatchHeader]) -> None:
        """Keep the entries below the checked batches, or read them anew when damaged; add those of the batches."""
        segments = self._segments
        start = segments[first_checked].base_offset if first_checked < len(segments) else segments[-1].next_offset
        if self._epochs.damaged:
            entries: list[EpochEntry] = []
            for segment in segments[:first_checked]:
                _add_epochs(entries, (header for _, header in segment.headers(0)))
        else:
            entries = _clip(self._epochs.entries, segments[0].base_offset, start)
        _add_epochs(entries, checked)
        if self._epochs.damaged or tuple(entries) != self._epochs.entries:
            self._epochs.replace(entries)

    def _tell(self, log_end_offset: int) -> None:
        report = self._report
        report.is_below_recovery_point = log_end_offset < self._recovery_point
        if report.fault is None:
            return
        level = logging.ERROR if report.is_below_recovery_point else logging.WARNING
        text = "%s ends at offset %d after recovery from %d: %d bytes were cut, %d segments removed: %s"
        removed = len(report.removed_segments)
        offsets = (log_end_offset, self._recovery_point)
        logger.log(level, text, self._directory, *offsets, report.truncated_bytes, removed, report.fault)


def _tidy(files: Files, directory: Path) -> list[int]:
    """Remove what no log has: half-written replacements and indexes without a segment. Return the base offsets."""
    names = files.listdir(directory)
    matches = [match for match in map(_SEGMENT_FILE.fullmatch, names) if match]
    bases = {match[1] for match in matches if match[2] == LOG_SUFFIX}
    for match in matches:
        if match[2] in (INDEX_SUFFIX, TIME_INDEX_SUFFIX) and match[1] not in bases:
            files.remove(directory / match[0])
    for name in names:
        if name.endswith(TEMPORARY_SUFFIX):
            files.remove(directory / name)
    return sorted(map(int, bases))


def _clip(entries: Iterable[EpochEntry], log_start_offset: int, end_offset: int) -> list[EpochEntry]:
    kept = [entry for entry in entries if entry.start_offset < end_offset]
    covering = [entry for entry in kept if entry.start_offset <= log_start_offset]
    if not covering:
        return kept
    first = EpochEntry(covering[-1].epoch, max(log_start_offset, covering[-1].start_offset))
    return [first, *kept[len(covering) :]]


def _add_epochs(entries: list[EpochEntry], headers: Iterable[RecordBatchHeader]) -> None:
    for header in headers:
        latest = entries[-1].epoch if entries else -1
        if header.partition_leader_epoch > latest:
            entries.append(EpochEntry(LeaderEpoch(header.partition_leader_epoch), header.base_offset))
