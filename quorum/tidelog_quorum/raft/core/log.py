"""The log of one voter as its state machine sees it, and what of it was not yet handed to the disk.

The whole log is held in memory: metadata logs are small, and nothing is compacted before there are snapshots.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence

from tidelog_quorum.raft.core.messages import Entry


class RaftLog:
    """Entries from index 1 to ``last_index``, with the place up to which they were handed to the disk."""

    def __init__(self, entries: Iterable[Entry] = ()) -> None:
        self._entries = list(entries)
        self._unwritten_from = len(self._entries) + 1
        self._truncated_from: int | None = None

    @property
    def last_index(self) -> int:
        """The index of the last entry; 0 when there is none."""
        return len(self._entries)

    @property
    def last_term(self) -> int:
        """The term of the last entry; 0 when there is none."""
        return self._entries[-1].term if self._entries else 0

    def term_at(self, index: int) -> int:
        """Return the term of the entry at ``index``, which must be in the log; 0 before the first."""
        return self._entries[index - 1].term if index > 0 else 0

    def matches(self, index: int, term: int) -> bool:
        """Return whether the log has an entry of ``term`` at ``index`` (AppendEntries, rule 2 of figure 2)."""
        return 0 <= index <= self.last_index and self.term_at(index) == term

    def is_covered_by(self, last_term: int, last_index: int) -> bool:
        """Return whether a log that ends so is at least as up to date as this one (paper 5.4.1)."""
        return (last_term, last_index) >= (self.last_term, self.last_index)

    def slice(self, start: int, end: int) -> tuple[Entry, ...]:
        """Return the entries from ``start`` up to and without ``end``."""
        return tuple(self._entries[start - 1 : end - 1])

    def batch(self, start: int, max_bytes: int) -> tuple[Entry, ...]:
        """Return entries from ``start`` whose payloads fit into ``max_bytes``, but at least one."""
        end, size = start, 0
        while end <= self.last_index:
            size += len(self._entries[end - 1].payload)
            if size > max_bytes and end > start:
                break
            end += 1
        return self.slice(start, end)

    def append(self, entry: Entry) -> None:
        """Add the next entry."""
        assert entry.index == self.last_index + 1, (entry.index, self.last_index)
        self._entries.append(entry)

    def first_difference(self, entries: Sequence[Entry]) -> int | None:
        """Return the index of the first of ``entries`` that this log has not or has with another term."""
        for entry in entries:
            if not self.matches(entry.index, entry.term):
                return entry.index
        return None

    def truncate_from(self, index: int) -> None:
        """Drop the entry at ``index`` and all that follow."""
        del self._entries[index - 1 :]
        if index < self._unwritten_from:
            self._unwritten_from = index
            self._truncated_from = index

    def latest_not_after(self, index: int, term: int) -> int:
        """Return the last index up to ``index`` whose term is at most ``term``; 0 when there is none.

        Terms never fall along a log, so where two logs differ at ``index``, nothing after the result can match.
        """
        end = min(index, self.last_index)
        return bisect_right(self._entries, term, hi=end, key=lambda entry: entry.term)

    @property
    def has_unwritten(self) -> bool:
        """Whether there is something that :meth:`take_unwritten` would return."""
        return self._truncated_from is not None or self._unwritten_from <= self.last_index

    def take_unwritten(self) -> tuple[int | None, tuple[Entry, ...]]:
        """Return from where the disk must drop entries (or None) and what it must add; both count as handed over."""
        taken = self._truncated_from, self.slice(self._unwritten_from, self.last_index + 1)
        self._unwritten_from = self.last_index + 1
        self._truncated_from = None
        return taken

    def check_invariants(self) -> None:
        """Assert that indexes have no gaps and terms never fall."""
        assert [e.index for e in self._entries] == list(range(1, self.last_index + 1))
        terms = [e.term for e in self._entries]
        assert terms == sorted(terms)
        assert 1 <= self._unwritten_from <= self.last_index + 1
