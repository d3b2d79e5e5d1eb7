"""The log of one voter in memory, and the part of it that was not handed to the disk yet.

The log holds the entries after its *start*: the index and term of the entry before the first one (paper 7). Earlier
entries are committed and in a snapshot. All entries are in memory: metadata logs are small.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence

from tidelog_quorum.raft.core.messages import Entry

MAX_BATCH_ENTRIES = 2_000
"""The maximum entries of a batch. A step may fill a follower's window with batches: some 30 ms of work by default."""


class RaftLog:
    """Entries from ``first_index`` to ``last_index``, and the position up to which they were handed to the disk.

    ``start`` is the index and term of the entry before the first: (0, 0) for a log that was never compacted.
    """

    __slots__ = ("_entries", "_truncated_from", "_unwritten_from", "start_index", "start_term")

    def __init__(self, entries: Iterable[Entry] = (), start: tuple[int, int] = (0, 0)) -> None:
        self.start_index, self.start_term = start
        self._entries = list(entries)
        self._unwritten_from = self.last_index + 1
        self._truncated_from: int | None = None

    @property
    def first_index(self) -> int:
        """The index of the first entry; one after the last when there is none."""
        return self.start_index + 1

    @property
    def last_index(self) -> int:
        """The index of the last entry; that of the start when there is none."""
        return self.start_index + len(self._entries)

    @property
    def last_term(self) -> int:
        """The term of the last entry; that of the start when there is none."""
        return self._entries[-1].term if self._entries else self.start_term

    def term_at(self, index: int) -> int:
        """Return the term of the entry at ``index``, which must be in the log or its start."""
        if index == self.start_index:
            return self.start_term
        assert index > self.start_index, (index, self.start_index)
        return self._entries[index - self.start_index - 1].term

    def matches(self, index: int, term: int) -> bool:
        """Return whether the log has an entry of ``term`` at ``index`` (AppendEntries, rule 2 of figure 2)."""
        return self.start_index <= index <= self.last_index and self.term_at(index) == term

    def is_covered_by(self, last_term: int, last_index: int) -> bool:
        """Return whether a log with this end is at least as up to date as this one (paper 5.4.1)."""
        return (last_term, last_index) >= (self.last_term, self.last_index)

    def slice(self, start: int, end: int) -> tuple[Entry, ...]:
        """Return the entries from ``start``, which must not be before the first, up to but excluding ``end``."""
        assert start > self.start_index, (start, self.start_index)
        return tuple(self._entries[start - self.start_index - 1 : end - self.start_index - 1])

    def batch(self, start: int, max_bytes: int) -> tuple[tuple[Entry, ...], int]:
        """Return entries from ``start`` whose payloads fit into ``max_bytes``, but at least one, and their size.

        Never more than ``MAX_BATCH_ENTRIES``: entries without a payload would all fit.
        """
        position = first = start - self.start_index - 1
        entries, size = self._entries, 0
        end = min(len(entries), first + MAX_BATCH_ENTRIES)
        while position < end:
            grown = size + entries[position].size
            if grown > max_bytes and position > first:
                break
            position, size = position + 1, grown
        return tuple(entries[first:position]), size

    def first_of_last(self, end_index: int, max_entries: int, max_bytes: int) -> int:
        """Return the first index of the entries up to ``end_index`` that are within both limits, from the end."""
        index, size = end_index, 0
        while index > max(self.start_index, end_index - max_entries):
            size += self._entries[index - self.start_index - 1].size
            if size > max_bytes:
                break
            index -= 1
        return index + 1

    def append(self, entry: Entry) -> None:
        """Add the next entry."""
        assert entry.index == self.last_index + 1, (entry.index, self.last_index)
        self._entries.append(entry)

    def first_difference(self, entries: Sequence[Entry]) -> int | None:
        """Return the index of the first of ``entries`` that this log does not have, or has with another term.

        Entries at or before the start count as equal: they are committed.
        """
        for entry in entries:
            if entry.index > self.start_index and not self.matches(entry.index, entry.term):
                return entry.index
        return None

    def truncate_from(self, index: int) -> None:
        """Drop the entry at ``index``, which must not be before the first, and all that follow."""
        assert index > self.start_index, (index, self.start_index)
        del self._entries[index - self.start_index - 1 :]
        if index < self._unwritten_from:
            self._unwritten_from = index
            self._truncated_from = index

    def compact_to(self, first_index: int) -> None:
        """Drop the entries before ``first_index``, all of which must have been handed to the disk."""
        assert self.start_index < first_index <= self._unwritten_from, (first_index, self._unwritten_from)
        start_term = self.term_at(first_index - 1)
        del self._entries[: first_index - self.first_index]
        self.start_index, self.start_term = first_index - 1, start_term

    def restart_at(self, index: int, term: int) -> None:
        """Drop everything, because a snapshot that ends with the entry at ``index`` replaces the log."""
        self._entries.clear()
        self.start_index, self.start_term = index, term
        self._unwritten_from = index + 1
        self._truncated_from = None

    def latest_not_after(self, index: int, term: int) -> int:
        """Return the last index up to ``index`` whose term is at most ``term``.

        Terms never decrease along a log, so where two logs differ at ``index``, nothing after the result can match. A
        result before the start means that this log does not know where the two may match.
        """
        end = min(index, self.last_index)
        if end < self.start_index:
            return end
        if term < self.start_term:
            return self.start_index - 1
        count = bisect_right(self._entries, term, hi=end - self.start_index, key=lambda entry: entry.term)
        return self.start_index + count

    @property
    def has_unwritten(self) -> bool:
        """True if :meth:`take_unwritten` would return anything."""
        return self._truncated_from is not None or self._unwritten_from <= self.last_index

    def take_unwritten(self) -> tuple[int | None, tuple[Entry, ...]]:
        """Return the index from which the disk drops entries (or None) and those to add; both count as handed over."""
        taken = self._truncated_from, self.slice(self._unwritten_from, self.last_index + 1)
        self._unwritten_from = self.last_index + 1
        self._truncated_from = None
        return taken

    def check_invariants(self) -> None:
        """Assert that indexes have no gaps and terms never decrease."""
        assert [e.index for e in self._entries] == list(range(self.first_index, self.last_index + 1))
        terms = [self.start_term, *(e.term for e in self._entries)]
        assert terms == sorted(terms)
        assert self.first_index <= self._unwritten_from <= self.last_index + 1
