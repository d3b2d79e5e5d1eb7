"""The writes of a shard: one batch in its partition's log per write, and the writes that are not committed yet."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from tidelog_foundation.records import RecordBatchBuilder
from tidelog_node.groups.events import GroupRecord


@dataclass(frozen=True, slots=True)
class Uncommitted:
    """A write that is in the log. It is committed when the high watermark reaches ``end_offset``."""

    write_id: int
    end_offset: int
    records: tuple[GroupRecord, ...]
    size: int


class UncommittedWrites:
    """The uncommitted writes of a shard, in the order of the log."""

    def __init__(self) -> None:
        self._writes: deque[Uncommitted] = deque()
        self.bytes = 0

    def add(self, write: Uncommitted) -> None:
        """Note an appended write."""
        self._writes.append(write)
        self.bytes += write.size

    def pop(self, high_watermark: int) -> Uncommitted | None:
        """Return and remove the oldest write if it is committed."""
        if not self._writes or self._writes[0].end_offset > high_watermark:
            return None
        write = self._writes.popleft()
        self.bytes -= write.size
        return write


def encode_batch(records: Sequence[GroupRecord], compression: str, now_ms: int) -> bytes:
    """Return the batch of these records."""
    builder = RecordBatchBuilder(compression)
    for record in records:
        builder.append(record.key, record.value, (), now_ms)
    return builder.build()
