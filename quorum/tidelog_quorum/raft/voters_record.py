"""Encodes and decodes sets of voters as ``VotersRecord``: in entries and snapshots, on the wire and on disk."""

from __future__ import annotations

from google.protobuf.message import DecodeError

from tidelog.v1 import common_pb2
from tidelog.v1 import raft_service_pb2 as pb
from tidelog_foundation.errors import ErrorCode, error_for
from tidelog_quorum.raft.core.voters import Voter, VoterSet


def voters_to_message(voters: VoterSet) -> pb.VotersRecord:
    """Return the protobuf form of a set of voters."""
    return pb.VotersRecord(
        voters=[
            pb.VoterRecord(
                voter_id=v.voter_id,
                directory_id=v.directory_id,
                endpoint=common_pb2.Endpoint(host=v.host, port=v.port),
            )
            for v in voters
        ]
    )


def voters_from_message(message: pb.VotersRecord) -> VoterSet:
    """Return the voters of a message."""
    return VoterSet(Voter(v.voter_id, v.endpoint.host, v.endpoint.port, v.directory_id) for v in message.voters)


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
