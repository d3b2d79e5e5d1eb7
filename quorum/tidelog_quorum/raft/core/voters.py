"""The set of voters, part of each snapshot and of entries of the kind ``VOTERS`` (thesis chapter 4, KIP-853)."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping

from tidelog_foundation.dataclass import dataclass
from tidelog_quorum.raft.core.endpoints import ANY_LISTENER, Endpoints


@dataclass(frozen=True, slots=True)
class Voter:
    """A voter and its addresses, one per listener.

    ``directory_id`` distinguishes its log from a new one with the same id, for example after the loss of its disk: a
    replica that has forgotten its votes is no longer the voter. Empty until the voter announces it.
    """

    voter_id: int
    endpoints: Endpoints
    directory_id: bytes = b""

    @classmethod
    def at(cls, voter_id: int, host: str, port: int, directory_id: bytes = b"", listener: str = ANY_LISTENER) -> Voter:
        """Return a voter with one address."""
        return cls(voter_id, Endpoints.at(host, port, listener), directory_id)


class VoterSet:
    """Voters by id, in the order of the ids; immutable."""

    __slots__ = ("_voters",)

    def __init__(self, voters: Iterable[Voter] = ()) -> None:
        self._voters: Mapping[int, Voter] = {v.voter_id: v for v in sorted(voters, key=lambda v: v.voter_id)}

    @property
    def ids(self) -> tuple[int, ...]:
        """The ids in ascending order."""
        return tuple(self._voters)

    def get(self, voter_id: int) -> Voter | None:
        """Return a voter, or None."""
        return self._voters.get(voter_id)

    def address(self, voter_id: int, listener: str = ANY_LISTENER) -> tuple[str, int] | None:
        """Return the address of a voter's listener; None if it has none, or the id is not a voter's."""
        voter = self._voters.get(voter_id)
        return None if voter is None else voter.endpoints.address(listener)

    def is_voter(self, voter_id: int, directory_id: bytes) -> bool:
        """Return whether a replica with this log is a voter; an unknown directory id on either side matches any."""
        voter = self._voters.get(voter_id)
        return voter is not None and (not voter.directory_id or not directory_id or voter.directory_id == directory_id)

    def with_voter(self, voter: Voter) -> VoterSet:
        """Return the set with a voter added or replaced."""
        return VoterSet([*(v for v in self if v.voter_id != voter.voter_id), voter])

    def without(self, voter_id: int) -> VoterSet:
        """Return the set without a voter."""
        return VoterSet(v for v in self if v.voter_id != voter_id)

    def __iter__(self) -> Iterator[Voter]:
        return iter(self._voters.values())

    def __len__(self) -> int:
        return len(self._voters)

    def __contains__(self, voter_id: int) -> bool:
        return voter_id in self._voters

    def __eq__(self, other: object) -> bool:
        return isinstance(other, VoterSet) and self._voters == other._voters

    def __hash__(self) -> int:
        return hash(tuple(self._voters.values()))

    def __repr__(self) -> str:
        return f"VoterSet({list(self)})"


class VoterHistory:
    """The sets of voters by the index of their entry, in ascending order (thesis 4.1).

    The first is the configured one (index 0) or a snapshot's. A replica uses the latest set in its log, committed or
    not. A set that is dropped with its entry gives way to the previous one, so the history keeps every set that may
    return: from the one in force at the last snapshot on.
    """

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
        """Return the voters in force at ``index``, which must not precede the index of the first set."""
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
