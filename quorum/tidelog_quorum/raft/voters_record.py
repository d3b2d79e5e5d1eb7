"""Encodes and decodes sets of voters as ``VotersRecord``: in entries and snapshots, on the wire and on disk."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from google.protobuf.message import DecodeError

from tidelog.v1 import common_pb2
from tidelog.v1 import raft_service_pb2 as pb
from tidelog_foundation.config.endpoints import MAX_CONTROLLER_LISTENERS
from tidelog_foundation.errors import ErrorCode, error_for
from tidelog_foundation.requests.addresses import ControllerEndpoint
from tidelog_quorum.raft.core.endpoints import Endpoints
from tidelog_quorum.raft.core.voters import Voter, VoterSet

_MAX_NAME_LENGTH = 255
_MAX_PORT = 65_535


def endpoints_to_message(endpoints: Iterable[ControllerEndpoint]) -> list[common_pb2.ControllerEndpoint]:
    """Return the protobuf form of a controller's addresses."""
    return [common_pb2.ControllerEndpoint(host=e.host, port=e.port, name=e.name) for e in endpoints]


def endpoints_from_message(message: Iterable[common_pb2.ControllerEndpoint]) -> Endpoints:
    """Return the addresses of a message."""
    return Endpoints(ControllerEndpoint(e.host, e.port, e.name) for e in message)


def has_valid_endpoints(message: Sequence[common_pb2.ControllerEndpoint]) -> bool:
    """Return whether a message has addresses, within their limits, each under a name of its own."""
    return (
        0 < len(message) <= MAX_CONTROLLER_LISTENERS
        and len({e.name for e in message}) == len(message)
        and all(
            0 < len(e.host) <= _MAX_NAME_LENGTH and len(e.name) <= _MAX_NAME_LENGTH and 0 < e.port <= _MAX_PORT
            for e in message
        )
    )


def voters_to_message(voters: VoterSet) -> pb.VotersRecord:
    """Return the protobuf form of a set of voters."""
    return pb.VotersRecord(
        voters=[
            pb.VoterRecord(
                voter_id=v.voter_id,
                directory_id=v.directory_id,
                endpoints=endpoints_to_message(v.endpoints),
            )
            for v in voters
        ]
    )


def voters_from_message(message: pb.VotersRecord) -> VoterSet:
    """Return the voters of a message."""
    return VoterSet(Voter(v.voter_id, endpoints_from_message(v.endpoints), v.directory_id) for v in message.voters)


def voters_at(voters: VoterSet, listener: str) -> VoterSet:
    """Return the voters with the address of one listener alone, without those that have none."""
    found = ((voter, voter.endpoints.address(listener)) for voter in voters)
    return VoterSet(
        replace(voter, endpoints=Endpoints.at(*address, listener)) for voter, address in found if address is not None
    )


def encode_voters(voters: VoterSet) -> bytes:
    """Return the bytes of a set of voters; equal sets have equal bytes."""
    return voters_to_message(voters).SerializeToString(deterministic=True)


def decode_voters(payload: bytes) -> VoterSet:
    """Return the voters that bytes describe.

    Raises:
        TidelogError: CORRUPT_MESSAGE, the bytes are not a set of voters.
    """
    try:
        return voters_from_message(pb.VotersRecord.FromString(payload))
    except DecodeError as error:
        raise error_for(ErrorCode.CORRUPT_MESSAGE, f"{len(payload)} bytes are not a set of voters") from error
