"""Checks of the files at the top of a log directory, alone and against the content of the partitions."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from tidelog_node.tools.dump import DumpOptions, dump
from tidelog_node.tools.findings import Note, Problem, Row
from tidelog_node.tools.log_files import OFFSET_CHECKPOINTS, FileKind, files_of
from tidelog_node.tools.verification import PartitionReport


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
