"""The ``.index`` and ``.timeindex`` files: their entries, and checks against the batches.

A check receives the segment's batches in order and advances along its entries with them, so it needs no extra memory.
It verifies the same rules as Kafka's dump tool. Each entry of the offset index is a batch's last offset and the
position where that batch begins. Each entry of the time index is the last offset of a batch and the batch's max
timestamp, which no earlier batch exceeds. Zero entries at the end are preallocated space, not entries.
"""

from __future__ import annotations

import struct
from pathlib import Path

from tidelog_foundation.records import RecordBatchHeader
from tidelog_node.tools.findings import Problem


class _IndexFile:
    """The entries of one index: two numbers with ``names``, one of which is an offset. ``problems`` grows."""

    entry_struct: struct.Struct
    names: tuple[str, str]

    def __init__(self, path: Path, base_offset: int) -> None:
        self.path = path
        self.base_offset = base_offset
        self.problems: list[Problem] = []
        self._data = path.read_bytes()
        self._count = self._counted()
        self._cursor = 0

    def __len__(self) -> int:
        return self._count

    def byte(self, index: int) -> int:
        """Return the position of an entry in the file."""
        return index * self.entry_struct.size

    def fields(self, index: int) -> tuple[int, int]:
        """Return an entry's two numbers as the file contains them."""
        first, second = self.entry_struct.unpack_from(self._data, self.byte(index))
        return first, second

    def relative_offset(self, index: int) -> int:
        """Return an entry's offset relative to the base offset."""
        return self.fields(index)[self.names.index("offset")]

    def entry(self, index: int) -> tuple[int, int]:
        """Return an entry with its absolute offset."""
        first, second = self.fields(index)
        if self.names[0] == "offset":
            return self.base_offset + first, second
        return first, self.base_offset + second

    def sanity(self) -> list[Problem]:
        """Return the problems of the file by itself: its length and the order of its entries."""
        found = []
        if len(self._data) % self.entry_struct.size:
            text = f"{len(self._data)} bytes are not a multiple of an entry's {self.entry_struct.size}"
            found.append(Problem(self.path, text))
        previous: tuple[int, int] | None = None
        for index in range(self._count):
            fields = self.fields(index)
            if self.relative_offset(index) < 0:
                found.append(self._problem(index, f"the relative offset {self.relative_offset(index)} is negative"))
                break
            if previous is not None and (fields[0] <= previous[0] or fields[1] <= previous[1]):
                found.append(self._problem(index, f"the entry {fields} does not increase over {previous}"))
                break
            previous = fields
        return found

    def see(self, position: int, header: RecordBatchHeader) -> None:
        """Check the entries that refer to the segment's next batch."""
        raise NotImplementedError

    def finish(self) -> list[Problem]:
        """Return all problems after the last batch. The remaining entries have no batch."""
        while self._cursor < self._count:
            self.problems.append(self._problem(self._cursor, f"no batch is where the entry {self._shown()} points"))
            self._cursor += 1
        return self.problems

    def _shown(self) -> str:
        first, second = self.entry(self._cursor)
        return f"({self.names[0]} {first}, {self.names[1]} {second})"

    def _problem(self, index: int, text: str) -> Problem:
        return Problem(self.path, text, self.byte(index))

    def _counted(self) -> int:
        whole = len(self._data) // self.entry_struct.size
        rest = self._data[: whole * self.entry_struct.size].rstrip(b"\0")
        used = -(-len(rest) // self.entry_struct.size)
        # A single zero entry is valid: the first batch is one record with the base offset, at byte 0.
        return used if used or whole != 1 else 1


class OffsetIndexFile(_IndexFile):
    """Entries (last offset of a batch, its position)."""

    entry_struct = struct.Struct(">ii")
    names = ("offset", "position")

    def see(self, position: int, header: RecordBatchHeader) -> None:
        """See the base class."""
        while self._cursor < self._count:
            offset, indexed = self.entry(self._cursor)
            if indexed > position:
                return
            if indexed < position:
                self.problems.append(self._problem(self._cursor, f"no batch begins at byte {indexed} of the segment"))
            elif offset != header.last_offset:
                text = f"offset {offset} at byte {indexed} of the segment, where a batch ends at {header.last_offset}"
                self.problems.append(self._problem(self._cursor, text))
            self._cursor += 1


class TimeIndexFile(_IndexFile):
    """Entries (max timestamp, last offset of the batch that has it)."""

    entry_struct = struct.Struct(">qi")
    names = ("timestamp", "offset")

    def __init__(self, path: Path, base_offset: int) -> None:
        super().__init__(path, base_offset)
        self._greatest = -1

    def see(self, position: int, header: RecordBatchHeader) -> None:
        """See the base class."""
        self._greatest = max(self._greatest, header.max_timestamp)
        while self._cursor < self._count:
            timestamp, offset = self.entry(self._cursor)
            if offset > header.last_offset:
                return
            if offset < header.last_offset:
                self.problems.append(self._problem(self._cursor, f"no batch ends at offset {offset}"))
            elif timestamp != header.max_timestamp:
                text = f"timestamp {timestamp} at offset {offset}, where the batch has {header.max_timestamp}"
                self.problems.append(self._problem(self._cursor, text))
            elif timestamp < self._greatest:
                text = f"timestamp {timestamp} at offset {offset} is below {self._greatest} of a batch before"
                self.problems.append(self._problem(self._cursor, text))
            self._cursor += 1
