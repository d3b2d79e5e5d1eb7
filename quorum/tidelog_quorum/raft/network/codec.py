"""Encodes and decodes the messages of the Raft core as ``tidelog.v1`` and refuses inconsistent ones.

A receiver trusts nothing: unknown kinds, gaps, negative numbers and sizes beyond the limits below are INVALID_REQUEST,
so that a defect of another controller, or a stranger's bytes, end a stream and not the core.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields

from google.protobuf.message import DecodeError

from tidelog.v1 import raft_service_pb2 as pb
from tidelog_foundation.errors import ErrorCode, TidelogError, error_for
from tidelog_quorum.raft.core import messages
from tidelog_quorum.raft.core.voters import VoterSet
from tidelog_quorum.raft.storage.log_format import DIRECTORY_ID_SIZE
from tidelog_quorum.raft.voters_record import encode_voters, has_valid_endpoints, voters_from_message, voters_to_message

MAX_ENTRY_BYTES = 32 * 1024 * 1024
"""The maximum payload of an entry, also for proposals."""
MAX_CHUNK_BYTES = 4 * 1024 * 1024
_MAX_VOTERS = 1_000
_MAX_SHOWN = 100
_MAX_SNAPSHOT_BYTES = 1 << 40
_KINDS = {int(kind): kind for kind in messages.EntryKind}


def encode_message(message: messages.Message) -> pb.RaftMessage:
    """Return the wire form of a message."""
    frame = pb.RaftMessage(sender_id=message.sender_id, term=message.term)
    field = _FIELDS[type(message)]
    content = getattr(frame, field)
    match message:
        case messages.AppendRequest():
            content.CopyFrom(_encode_append(message))
        case messages.SnapshotRequest():
            content.CopyFrom(_encode_snapshot_request(message))
        case _:
            for name in _PLAIN_FIELDS[field]:
                setattr(content, name, getattr(message, name))
    # Mark the content as present; otherwise one with only default values would not be on the wire.
    content.SetInParent()
    return frame


def decode_message(frame: pb.RaftMessage) -> messages.Message:
    """Decode the wire form of a message.

    Raises:
        TidelogError: INVALID_REQUEST, this version does not know the kind, or the values are inconsistent.
    """
    field = frame.WhichOneof("message") or ""
    kind = _KINDS_OF_MESSAGES.get(field)
    if kind is None:
        raise _invalid(frame, f"is of the kind {field!r}, unknown to this version")
    if frame.sender_id < 0 or frame.term < 0:
        raise _invalid(frame, "has a negative number")
    if kind is messages.AppendRequest:
        return _decode_append_request(frame)
    if kind is messages.SnapshotRequest:
        return _decode_snapshot_request(frame)
    content = getattr(frame, field)
    values = [getattr(content, name) for name in _PLAIN_FIELDS[field]]
    _check_numbers(frame, *values)
    return kind(frame.sender_id, frame.term, *values)


_FIELDS: dict[type[messages.Message], str] = {
    messages.VoteRequest: "vote_request",
    messages.VoteResponse: "vote_response",
    messages.AppendRequest: "append_request",
    messages.AppendResponse: "append_response",
    messages.SnapshotRequest: "snapshot_request",
    messages.SnapshotResponse: "snapshot_response",
    messages.TimeoutNow: "timeout_now",
    messages.FollowRequest: "follow_request",
}
_KINDS_OF_MESSAGES: dict[str, Callable[..., messages.Message]] = {field: kind for kind, field in _FIELDS.items()}
_PLAIN_FIELDS = {field: [f.name for f in fields(kind)[2:]] for kind, field in _FIELDS.items()}
"""The fields of each message, which have the same names on the wire, without the sender and the term."""


def _encode_append(message: messages.AppendRequest) -> pb.AppendRequest:
    entries = [
        pb.RaftEntry(
            index=e.index,
            term=e.term,
            kind=e.kind,
            payload=e.payload if e.voters is None else encode_voters(e.voters),
        )
        for e in message.entries
    ]
    return pb.AppendRequest(
        prev_index=message.prev_index,
        prev_term=message.prev_term,
        commit_index=message.commit_index,
        entries=entries,
        read_context=message.read_context,
    )


def _encode_snapshot_request(message: messages.SnapshotRequest) -> pb.SnapshotRequest:
    snapshot = message.snapshot
    return pb.SnapshotRequest(
        snapshot=pb.RaftSnapshot(
            last_index=snapshot.last_index,
            last_term=snapshot.last_term,
            voters=voters_to_message(snapshot.voters),
            size=snapshot.size,
            checksum=snapshot.checksum,
        ),
        position=message.position,
        chunk=message.chunk,
    )


def _decode_append_request(frame: pb.RaftMessage) -> messages.Message:
    request = frame.append_request
    _check_numbers(frame, request.prev_index, request.prev_term, request.commit_index, request.read_context)
    entries = []
    index, term = request.prev_index, request.prev_term
    for wire in request.entries:
        entry = _decode_entry(frame, wire)
        if entry.index != index + 1 or entry.term < term or entry.term > frame.term:
            raise _invalid(frame, f"has index {entry.index} of term {entry.term} after index {index} of term {term}")
        entries.append(entry)
        index, term = entry.index, entry.term
    return messages.AppendRequest(
        frame.sender_id,
        frame.term,
        request.prev_index,
        request.prev_term,
        request.commit_index,
        tuple(entries),
        request.read_context,
    )


def _decode_snapshot_request(frame: pb.RaftMessage) -> messages.Message:
    request = frame.snapshot_request
    snapshot = _decode_snapshot(frame, request.snapshot)
    end = request.position + len(request.chunk)
    if request.position < 0 or len(request.chunk) > MAX_CHUNK_BYTES or end > snapshot.size:
        raise _invalid(
            frame, f"has {len(request.chunk)} bytes from position {request.position} on of {snapshot.size} bytes"
        )
    return messages.SnapshotRequest(frame.sender_id, frame.term, snapshot, request.position, request.chunk)


def _decode_entry(frame: pb.RaftMessage, entry: pb.RaftEntry) -> messages.Entry:
    kind = _KINDS.get(entry.kind)
    if kind is None:
        raise _invalid(frame, f"has an entry of kind {entry.kind} at index {entry.index}, unknown to this version")
    size = len(entry.payload)
    if size > MAX_ENTRY_BYTES:
        raise _invalid(frame, f"has an entry of {size} bytes at index {entry.index}, above {MAX_ENTRY_BYTES}")
    if kind is messages.EntryKind.VOTERS:
        return messages.Entry(entry.index, entry.term, kind, voters=_voters_of(frame, entry.payload))
    if kind is messages.EntryKind.NO_OP and size:
        raise _invalid(frame, f"has an entry of {size} bytes at index {entry.index} that should be empty")
    return messages.Entry(entry.index, entry.term, kind, entry.payload)


def _decode_snapshot(frame: pb.RaftMessage, snapshot: pb.RaftSnapshot) -> messages.Snapshot:
    if snapshot.last_index < 1 or snapshot.last_term < 1 or snapshot.last_term > frame.term:
        raise _invalid(frame, f"has a snapshot up to index {snapshot.last_index} of term {snapshot.last_term}")
    if not 0 <= snapshot.size <= _MAX_SNAPSHOT_BYTES:
        raise _invalid(frame, f"has a snapshot of {snapshot.size} bytes")
    voters = _checked_voters(frame, snapshot.voters)
    return messages.Snapshot(snapshot.last_index, snapshot.last_term, voters, snapshot.size, snapshot.checksum)


def _voters_of(frame: pb.RaftMessage, payload: bytes) -> VoterSet:
    try:
        message = pb.VotersRecord.FromString(payload)
    except DecodeError as error:
        raise _invalid(frame, f"has {len(payload)} bytes that are not a set of voters") from error
    return _checked_voters(frame, message)


def _checked_voters(frame: pb.RaftMessage, message: pb.VotersRecord) -> VoterSet:
    voters = voters_from_message(message)
    ids = [voter.voter_id for voter in message.voters]
    if not 0 < len(ids) <= _MAX_VOTERS or len(voters) < len(ids) or min(ids) < 0:
        raise _invalid(frame, f"has {len(ids)} voters with the ids {ids[:10]}")
    for voter in message.voters:
        if len(voter.directory_id) not in (0, DIRECTORY_ID_SIZE):
            text = f"has an invalid voter {voter.voter_id}: directory id {voter.directory_id.hex()!r}"
            raise _invalid(frame, text)
        if not has_valid_endpoints(voter.endpoints):
            addresses = [f"{e.name}://{e.host}:{e.port}"[:_MAX_SHOWN] for e in voter.endpoints[:_MAX_SHOWN]]
            raise _invalid(frame, f"has an invalid voter {voter.voter_id}: addresses {addresses}")
    return voters


def _check_numbers(frame: pb.RaftMessage, *numbers: int) -> None:
    if min(numbers, default=0) < 0:
        raise _invalid(frame, "has a negative number")


def _invalid(frame: pb.RaftMessage, text: str) -> TidelogError:
    return error_for(
        ErrorCode.INVALID_REQUEST, f"a message of controller {frame.sender_id} in term {frame.term} {text}"
    )
