"""Uncommitted entries of a leading controller, and the limits of its writes."""

from __future__ import annotations

from collections import deque

from tidelog_foundation.dataclass import dataclass
from tidelog_foundation.errors import ErrorCode, TidelogError, error_for


@dataclass(frozen=True, slots=True)
class WriteLimits:
    """Limits of a controller's writes to the metadata log.

    ``records_per_operation`` and ``entry_bytes`` bound an atomic entry. Kafka's MAX_RECORDS_PER_USER_OP is 10,000 and
    counts partitions too; here each partition may come with a topic of its own, so that one request can create 2,000
    topics of 5 partitions. The bytes stay far below gRPC's limit, together with the entries that share the message.
    """

    records_per_operation: int = 20_000
    entry_bytes: int = 8 * 1024 * 1024
    records_per_slice: int = 1_000
    uncommitted_entries: int = 10_000
    uncommitted_bytes: int = 32 * 1024 * 1024

    def refusal(self, records: int, entry_bytes: int = 0) -> TidelogError | None:
        """Return the error of an atomic entry above a limit; None of one that fits."""
        if records > self.records_per_operation:
            amount = f"{records} metadata records, {self.records_per_operation}"
        elif entry_bytes > self.entry_bytes:
            amount = f"{entry_bytes} bytes of metadata records, {self.entry_bytes}"
        else:
            return None
        text = f"the operation would write {amount} are the limit of one step: ask for less at once"
        return error_for(ErrorCode.POLICY_VIOLATION, text)


class Backlog:
    """Offsets and sizes of uncommitted entries, bounded so that a slow quorum slows its clients down.

    An entry that begins below the bound is written whole, so a backlog may exceed its bound by one entry.
    """

    def __init__(self, limits: WriteLimits) -> None:
        self._limits = limits
        self._entries: deque[tuple[int, int]] = deque()
        self._bytes = 0

    @property
    def is_full(self) -> bool:
        """True if the next entry must wait for a commit."""
        limits = self._limits
        return len(self._entries) >= limits.uncommitted_entries or self._bytes >= limits.uncommitted_bytes

    def add(self, offset: int, size: int) -> None:
        """Add a written entry."""
        self._entries.append((offset, size))
        self._bytes += size

    def release(self, committed: int) -> None:
        """Remove the entries up to a committed offset."""
        while self._entries and self._entries[0][0] <= committed:
            self._bytes -= self._entries.popleft()[1]

    def clear(self) -> None:
        """Remove all entries at the end of the leadership."""
        self._entries.clear()
        self._bytes = 0

    def check_invariants(self, committed: int) -> None:
        """Assert that the offsets ascend above the committed one, and that the bytes add up."""
        for offset, _ in self._entries:
            assert offset > committed, f"entry {offset} is in the backlog, {committed} is committed"
            committed = offset
        assert self._bytes == sum(size for _, size in self._entries), self._bytes
