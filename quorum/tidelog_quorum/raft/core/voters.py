"""The set of voters, as an entry of the kind ``VOTERS`` and a snapshot carry it (thesis chapter 4, KIP-853)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from google.protobuf.message import DecodeError

from tidelog.v1 import common_pb2
from tidelog.v1 import raft_service_pb2 as pb
from tidelog_foundation.errors import ErrorCode, error_for


@dataclass(frozen=True, slots=True)
class Voter:
    """A voter and its address.

    ``directory_id`` distinguishes its log from a new one with the same id, for example after the loss of its disk: a
    replica that has forgotten its votes is no longer the voter. Empty until the voter announces it.
    """

    voter_id: int
    host: str
    port: int
    directory_id: bytes = b""


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

    def address(self, voter_id: int) -> tuple[str, int] | None:
        """Return a voter's address; None if the id is not a voter's."""
        voter = self._voters.get(voter_id)
        return None if voter is None else (voter.host, voter.port)

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

    def to_message(self) -> pb.VotersRecord:
        """Return the protobuf form."""
        return pb.VotersRecord(
            voters=[
                pb.VoterRecord(
                    voter_id=v.voter_id,
                    directory_id=v.directory_id,
                    endpoint=common_pb2.Endpoint(host=v.host, port=v.port),
                )
                for v in self
            ]
        )

    @classmethod
    def from_message(cls, message: pb.VotersRecord) -> VoterSet:
        """Return the voters of a message."""
        return cls(Voter(v.voter_id, v.endpoint.host, v.endpoint.port, v.directory_id) for v in message.voters)

    def encode(self) -> bytes:
        """Return the payload of an entry of the kind ``VOTERS``."""
        return self.to_message().SerializeToString(deterministic=True)

    @classmethod
    def decode(cls, payload: bytes) -> VoterSet:
        """Return the voters of an entry's payload.

        Raises:
            TidelogError: CORRUPT_MESSAGE, the payload is not a set of voters.
        """
        try:
            return cls.from_message(pb.VotersRecord.FromString(payload))
        except DecodeError as error:
            raise error_for(ErrorCode.CORRUPT_MESSAGE, f"{len(payload)} bytes are not a set of voters") from error

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
