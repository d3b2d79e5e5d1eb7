"""The sets of voters and the index from which each is in force (thesis 4.1).

A replica uses the latest set in its log, committed or not. A set that is dropped with its entry gives way to the
previous one, so the history keeps every set that may return: from the one in force at the last snapshot on.
"""

from __future__ import annotations

from bisect import bisect_right

from tidelog_quorum.raft.core.voters import VoterSet


class VoterHistory:
    """Sets by the index of their entry, ascending. The first is the configured one (index 0) or a snapshot's."""

    def __init__(self, index: int, voters: VoterSet) -> None:
        self._indexes = [index]
        self._sets = [voters]

    @property
    def current(self) -> VoterSet:
        """The voters in force."""
        return self._sets[-1]

    @property
    def index(self) -> int:
        """The index of the entry, or the last one of the snapshot, with the current voters."""
        return self._indexes[-1]

    def at(self, index: int) -> VoterSet:
        """Return the voters in force at ``index``, which must not be before the first set's."""
        return self._sets[self._position(index)]

    def since(self, index: int) -> list[VoterSet]:
        """Return the set in force at ``index`` and all later ones."""
        return self._sets[self._position(index) :]

    def add(self, index: int, voters: VoterSet) -> None:
        """Add the set of a new entry; it is in force at once."""
        assert index > self.index, (index, self.index)
        self._indexes.append(index)
        self._sets.append(voters)

    def truncate_from(self, index: int) -> None:
        """Remove the sets whose entries are dropped; the first stays."""
        while self._indexes[-1] >= index and len(self._indexes) > 1:
            self._indexes.pop()
            self._sets.pop()

    def compact_to(self, index: int) -> None:
        """Remove the sets that were no longer in force at ``index``: everything up to there is final."""
        position = self._position(index)
        del self._indexes[:position], self._sets[:position]

    def restart_at(self, index: int, voters: VoterSet) -> None:
        """Restart the history with the voters of a snapshot."""
        self._indexes, self._sets = [index], [voters]

    def check_invariants(self, log_last_index: int) -> None:
        """Assert that the indexes ascend and that no set outlives its entry."""
        assert self._indexes == sorted(set(self._indexes))
        assert len(self._indexes) == len(self._sets)
        assert self.index <= log_last_index

    def _position(self, index: int) -> int:
        position = bisect_right(self._indexes, index) - 1
        assert position >= 0, (index, self._indexes)
        return position
