"""The consistency checks of ``tidelog log verify``: of a partition's files, and of those at the top of a log directory.

The check of a partition covers the structure and CRC of every batch, and with ``deep`` also each record. Offsets and
leader epochs must increase within and across segments; gaps are legal after compaction. Both indexes are checked
against the batches, aborted transactions against their markers, and producer snapshots, leader epochs and
``partition.metadata`` by themselves and against the log. Small files are read before the batches. If the directory was
changed recently, problems are checked twice, so that a running node is not reported as damaged.
"""

from __future__ import annotations

import bisect
import time
from collections.abc import Callable, Mapping
from dataclasses import field
from pathlib import Path

from tidelog_foundation.dataclass import dataclass
from tidelog_foundation.errors import TidelogError
from tidelog_foundation.records import check_records
from tidelog_node.log.directory.offset_checkpoint_file import parse_checkpoint
from tidelog_node.log.producers.entries import read_marker
from tidelog_node.log.producers.snapshot_format import decode_snapshot
from tidelog_node.log.segments.transaction_index import ENTRY_SIZE, AbortedTransaction, aborted_fault, decode_aborted
from tidelog_node.tools.dump import DumpOptions, dump
from tidelog_node.tools.findings import Note, Problem, Row
from tidelog_node.tools.index_files import OffsetIndexFile, TimeIndexFile
from tidelog_node.tools.log_files import OFFSET_CHECKPOINTS, FileKind, LogFile, files_of
from tidelog_node.tools.segment_scan import ScannedBatch, SegmentScan

MAX_RELATIVE_OFFSET = 2**31 - 1
_RECENT_S = 10.0
_PAUSE_S = 0.25

Advance = Callable[[int], None]
"""Receives the number of bytes of batches read since the last call."""


@dataclass(slots=True)
class PartitionReport:
    """The findings in one partition's directory. Offsets are -1 if there is no segment."""

    directory: Path
    segments: int = 0
    batches: int = 0
    records: int = 0
    size_in_bytes: int = 0
    start_offset: int = -1
    end_offset: int = -1
    problems: list[Problem] = field(default_factory=list)
    notes: list[Note] = field(default_factory=list)


def verify_partition(directory: Path, deep: bool, advance: Advance) -> PartitionReport:
    """Check the files of a partition's directory.

    Raises:
        OSError: A file cannot be read.
    """
    report = _Partition(directory, deep, advance).verify()
    if report.problems and _is_changing(directory):
        time.sleep(_PAUSE_S)
        report = _Partition(directory, deep, lambda size: None).verify()
    return report


class _Partition:
    """One pass over a partition."""

    def __init__(self, directory: Path, deep: bool, advance: Advance) -> None:
        self._report = PartitionReport(directory)
        self._deep = deep
        self._advance = advance
        self._epochs: list[tuple[int, int]] = []
        self._least_epoch = -1

    def verify(self) -> PartitionReport:
        files = files_of(self._report.directory)
        by_kind = {(file.kind, file.base_offset): file for file in files}
        self._check_small(files)
        segments = [file for file in files if file.kind is FileKind.SEGMENT]
        for number, segment in enumerate(segments):
            is_last = number == len(segments) - 1
            try:
                self._check_segment(segment, by_kind, is_last)
            except FileNotFoundError:
                self._report.notes.append(Note(segment.path, "was removed while it was read"))
        self._check_bounds(files)
        return self._report

    def _check_small(self, files: list[LogFile]) -> None:
        for file in files:
            if file.kind in (FileKind.PRODUCER_SNAPSHOT, FileKind.LEADER_EPOCHS, FileKind.PARTITION_METADATA):
                try:
                    faults = [found for found in dump(file, DumpOptions()) if isinstance(found, Problem)]
                except FileNotFoundError:
                    continue
                self._report.problems += faults
                if file.kind is FileKind.LEADER_EPOCHS and not faults:
                    rows = parse_checkpoint(file.path.read_bytes(), fields=2)
                    self._epochs = [(int(offset), int(epoch)) for epoch, offset in rows]

    def _check_segment(self, file: LogFile, by_kind: dict[tuple[FileKind, int], LogFile], is_last: bool) -> None:
        report = self._report
        checks = self._index_checks(file, by_kind)
        aborted = self._aborted_check(file, by_kind)
        if report.segments == 0:
            report.start_offset = file.base_offset
        elif file.base_offset < report.end_offset:
            self._problem(file, f"the segment begins below {report.end_offset}, where the one before ends")
        report.segments += 1
        report.end_offset = max(report.end_offset, file.base_offset)
        with SegmentScan(file.path) as scan:
            for batch in scan.batches():
                self._check_batch(file, batch)
                for check in checks:
                    check.see(batch.position, batch.header)
                if batch.header.is_control and batch.is_valid:
                    aborted.see(batch)
                self._advance(batch.header.size_in_bytes)
            report.size_in_bytes += scan.end
            if scan.fault:
                self._problem(file, scan.fault, scan.end)
            elif scan.preallocated and not is_last:
                self._problem(file, f"{scan.preallocated} bytes of zeros in a segment that is not the last", scan.end)
        for check in checks:
            report.problems += check.finish()
        report.problems += aborted.finish()

    def _check_batch(self, file: LogFile, batch: ScannedBatch) -> None:
        report, header = self._report, batch.header
        report.batches += 1
        report.records += header.record_count
        if not batch.is_valid:
            self._problem(file, f"batch at offset {header.base_offset}: the CRC does not fit", batch.position)
        elif self._deep:
            try:
                check_records(batch.data)
            except TidelogError as error:
                self._problem(file, f"batch at offset {header.base_offset}: {error.message}", batch.position)
        if header.base_offset < report.end_offset:
            text = f"batch at offset {header.base_offset}, expected {report.end_offset} or more"
            self._problem(file, text, batch.position)
        if header.last_offset - file.base_offset > MAX_RELATIVE_OFFSET:
            text = f"the offset {header.last_offset} is too far from the segment's base for its index"
            self._problem(file, text, batch.position)
        self._check_epoch(file, batch)
        report.end_offset = max(report.end_offset, header.next_offset)

    def _check_epoch(self, file: LogFile, batch: ScannedBatch) -> None:
        epoch, offset = batch.header.partition_leader_epoch, batch.header.base_offset
        if epoch == self._least_epoch:
            return
        if epoch < self._least_epoch:
            text = f"batch at offset {offset} has leader epoch {epoch}, one before it has {self._least_epoch}"
            self._problem(file, text, batch.position)
            return
        self._least_epoch = epoch
        index = bisect.bisect_right(self._epochs, (offset, MAX_RELATIVE_OFFSET)) - 1
        known = self._epochs[index][1] if index >= 0 else -1
        # An epoch enters the file before a recovery point above its first batch, so newer epochs may still be missing.
        is_older = bool(self._epochs) and epoch <= self._epochs[-1][1]
        if is_older and known != epoch:
            text = f"batch at offset {offset} has leader epoch {epoch}, {FileKind.LEADER_EPOCHS.value} says {known}"
            self._problem(file, text, batch.position)

    def _index_checks(
        self, segment: LogFile, by_kind: dict[tuple[FileKind, int], LogFile]
    ) -> list[OffsetIndexFile | TimeIndexFile]:
        """Return the segment's indexes that are valid by themselves."""
        checks: list[OffsetIndexFile | TimeIndexFile] = []
        for kind, index_class in ((FileKind.OFFSET_INDEX, OffsetIndexFile), (FileKind.TIME_INDEX, TimeIndexFile)):
            file = by_kind.get((kind, segment.base_offset))
            if file is None:
                continue
            index = index_class(file.path, file.base_offset)
            faults = index.sanity()
            self._report.problems += faults
            if not faults:
                checks.append(index)
        return checks

    def _aborted_check(self, segment: LogFile, by_kind: dict[tuple[FileKind, int], LogFile]) -> _AbortedCheck:
        file = by_kind.get((FileKind.TRANSACTION_INDEX, segment.base_offset))
        if file is None:
            return _AbortedCheck(segment.path, b"")
        data = file.path.read_bytes()
        fault = aborted_fault(data, file.base_offset)
        if fault:
            self._report.problems.append(Problem(file.path, fault))
        return _AbortedCheck(file.path, b"" if fault else data)

    def _check_bounds(self, files: list[LogFile]) -> None:
        """Check the offsets in other files against the end of the log, which is now known."""
        end_offset = self._report.end_offset
        if end_offset < 0:
            return
        for file in files:
            if file.kind is FileKind.PRODUCER_SNAPSHOT:
                self._check_snapshot(file, end_offset)
        for offset, epoch in self._epochs:
            if offset > end_offset:
                path = self._report.directory / FileKind.LEADER_EPOCHS.value
                text = f"epoch {epoch} begins at offset {offset}, the log ends at {end_offset}"
                self._report.problems.append(Problem(path, text))

    def _check_snapshot(self, file: LogFile, end_offset: int) -> None:
        if file.base_offset > end_offset:
            self._problem(file, f"the snapshot is of a log that reaches its offset, this one ends at {end_offset}")
            return
        try:
            entries = decode_snapshot(file.path.read_bytes())
        except (FileNotFoundError, ValueError):
            return
        for entry in entries:
            if max(entry.last_offset, entry.current_txn_first_offset) >= file.base_offset:
                self._problem(file, f"the snapshot has an offset that is not below its own: {entry}")

    def _problem(self, file: LogFile, text: str, position: int | None = None) -> None:
        self._report.problems.append(Problem(file.path, text, position))


class _AbortedCheck:
    """Checks a transaction index against the control batches of its segment."""

    def __init__(self, path: Path, data: bytes) -> None:
        self._path = path
        self._entries = decode_aborted(data)
        self._cursor = 0
        self._problems: list[Problem] = []

    def see(self, batch: ScannedBatch) -> None:
        """Check the entry whose last offset is this control batch, if there is one."""
        offset = batch.header.base_offset
        while self._cursor < len(self._entries) and self._entries[self._cursor].last_offset < offset:
            self._cursor += 1
        if self._cursor < len(self._entries) and self._entries[self._cursor].last_offset == offset:
            self._check(batch, self._entries[self._cursor])
            self._cursor += 1

    def finish(self) -> list[Problem]:
        return self._problems

    def _check(self, batch: ScannedBatch, entry: AbortedTransaction) -> None:
        try:
            marker = read_marker(batch.data)
        except TidelogError:
            marker = None
        is_abort = marker is not None and not marker.is_commit
        if not is_abort or batch.header.producer_id != entry.producer_id:
            text = f"no ABORT marker of producer {entry.producer_id} is at offset {entry.last_offset}"
            self._problems.append(Problem(self._path, text, self._cursor * ENTRY_SIZE))


def _is_changing(directory: Path) -> bool:
    paths = [directory, *directory.glob("*.log")]
    try:
        return any(time.time() - path.stat().st_mtime < _RECENT_S for path in paths)
    except FileNotFoundError:
        return True


class LogDirFiles:
    """The checkpoints and properties of a log directory.

    They are read before its partitions, which may grow meanwhile.
    """

    def __init__(self, log_dir: Path) -> None:
        self.problems: list[Problem] = []
        self._offsets: dict[Path, dict[tuple[str, int], int]] = {}
        for file in files_of(log_dir):
            if file.kind in (*OFFSET_CHECKPOINTS, FileKind.META_PROPERTIES, FileKind.CLEAN_SHUTDOWN):
                found = list(dump(file, DumpOptions()))
                self.problems += [finding for finding in found if isinstance(finding, Problem)]
                if file.kind in OFFSET_CHECKPOINTS:
                    rows = [finding.fields for finding in found if isinstance(finding, Row)]
                    self._offsets[file.path] = {
                        (str(row["topic"]), int(str(row["partition"]))): int(str(row["offset"])) for row in rows
                    }

    def compare(self, reports: Mapping[tuple[str, int], PartitionReport]) -> list[Note]:
        """Return notes on the checkpoint entries that disagree with the partitions.

        They are notes, not problems, since a node that stops during a truncation or deletion leaves such entries and
        starts.
        """
        notes = []
        for path, offsets in self._offsets.items():
            for partition, offset in offsets.items():
                name = f"{partition[0]}-{partition[1]}"
                report = reports.get(partition)
                if report is None:
                    notes.append(Note(path, f"offset {offset} of {name}, which is not in this directory"))
                elif offset > report.end_offset >= 0:
                    notes.append(Note(path, f"offset {offset} of {name}, whose log ends at {report.end_offset}"))
        return notes
