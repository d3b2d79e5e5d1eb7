"""Encodes and decodes the messages of the Raft core as ``tidelog.v1`` and refuses inconsistent ones.

A receiver trusts nothing: unknown kinds, gaps, negative numbers and sizes beyond the limits below are INVALID_REQUEST,
so that a defect of another controller, or a stranger's bytes, end a stream and not the core.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import assert_never

from tidelog.v1 import raft_service_pb2 as pb
from tidelog_foundation.errors import ErrorCode, TidelogError, error_for
from tidelog_quorum.raft.core import (
    AppendRequest,
    AppendResponse,
    Entry,
    EntryKind,
    Message,
    VoteRequest,
    VoteResponse,
)
from tidelog_quorum.raft.core.messages import (
    FollowRequest,
    Snapshot,
    SnapshotRequest,
    SnapshotResponse,
    TimeoutNow,
)
from tidelog_quorum.raft.core.voters import VoterSet
from tidelog_quorum.raft.log_format import DIRECTORY_ID_SIZE

MAX_ENTRY_BYTES = 32 * 1024 * 1024
"""The maximum payload of an entry, also for proposals."""
MAX_CHUNK_BYTES = 4 * 1024 * 1024
_MAX_VOTERS = 1_000
_MAX_SNAPSHOT_BYTES = 1 << 40
_KINDS = {int(kind): kind for kind in EntryKind}


def encode_message(message: Message) -> pb.RaftMessage:
    """Return the wire form of a message."""
    frame = pb.RaftMessage(sender_id=message.sender_id, term=message.term)
    match message:
        case AppendRequest():
            frame.append_request.CopyFrom(_encode_append(message))
        case AppendResponse():
            frame.append_response.success = message.success
            frame.append_response.match_index = message.match_index
            frame.append_response.conflict_term = message.conflict_term
            frame.append_response.rejected_prev_index = message.rejected_prev_index
            frame.append_response.read_context = message.read_context
        case VoteRequest():
            frame.vote_request.pre_vote = message.pre_vote
            frame.vote_request.last_index = message.last_index
            frame.vote_request.last_term = message.last_term
            frame.vote_request.transfer = message.transfer
        case VoteResponse():
            frame.vote_response.pre_vote = message.pre_vote
            frame.vote_response.granted = message.granted
        case SnapshotRequest():
            frame.snapshot_request.snapshot.CopyFrom(_encode_snapshot(message.snapshot))
            frame.snapshot_request.position = message.position
            frame.snapshot_request.chunk = message.chunk
        case SnapshotResponse():
            frame.snapshot_response.last_index = message.last_index
            frame.snapshot_response.last_term = message.last_term
            frame.snapshot_response.position = message.position
            frame.snapshot_response.done = message.done
        case TimeoutNow():
            pass
        case FollowRequest():
            frame.follow_request.last_index = message.last_index
            frame.follow_request.last_term = message.last_term
        case _:
            assert_never(message)
    # Mark the sub-message as present; otherwise one with only default values would not be on the wire.
    getattr(frame, _FIELDS[type(message)]).SetInParent()
    return frame


def decode_message(frame: pb.RaftMessage) -> Message:
    """Decode the wire form of a message.

    Raises:
        TidelogError: INVALID_REQUEST, this version does not know the kind, or the values are inconsistent.
    """
    kind = frame.WhichOneof("message")
    decode = _DECODERS.get(kind or "")
    if decode is None:
        raise _invalid(frame, f"is of the kind {kind!r}, unknown to this version")
    if frame.sender_id < 0 or frame.term < 0:
        raise _invalid(frame, "has a negative number")
    return decode(frame)


_FIELDS: dict[type[Message], str] = {
    VoteRequest: "vote_request",
    VoteResponse: "vote_response",
    AppendRequest: "append_request",
    AppendResponse: "append_response",
    SnapshotRequest: "snapshot_request",
    SnapshotResponse: "snapshot_response",
    TimeoutNow: "timeout_now",
    FollowRequest: "follow_request",
}


def _encode_append(message: AppendRequest) -> pb.AppendRequest:
    entries = [pb.RaftEntry(index=e.index, term=e.term, kind=e.kind, payload=e.payload) for e in message.entries]
    return pb.AppendRequest(
        prev_index=message.prev_index,
        prev_term=message.prev_term,
        commit_index=message.commit_index,
        entries=entries,
        read_context=message.read_context,
    )


def _encode_snapshot(snapshot: Snapshot) -> pb.RaftSnapshot:
    return pb.RaftSnapshot(
        last_index=snapshot.last_index,
        last_term=snapshot.last_term,
        voters=snapshot.voters.to_message(),
        size=snapshot.size,
        checksum=snapshot.checksum,
    )


def _decode_vote_request(frame: pb.RaftMessage) -> Message:
    vote = frame.vote_request
    _check_numbers(frame, vote.last_index, vote.last_term)
    return VoteRequest(frame.sender_id, frame.term, vote.pre_vote, vote.last_index, vote.last_term, vote.transfer)


def _decode_vote_response(frame: pb.RaftMessage) -> Message:
    return VoteResponse(frame.sender_id, frame.term, frame.vote_response.pre_vote, frame.vote_response.granted)


def _decode_append_request(frame: pb.RaftMessage) -> Message:
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
    return AppendRequest(
        frame.sender_id,
        frame.term,
        request.prev_index,
        request.prev_term,
        request.commit_index,
        tuple(entries),
        request.read_context,
    )


def _decode_append_response(frame: pb.RaftMessage) -> Message:
    response = frame.append_response
    numbers = response.match_index, response.conflict_term, response.rejected_prev_index, response.read_context
    _check_numbers(frame, *numbers)
    return AppendResponse(frame.sender_id, frame.term, response.success, *numbers)


def _decode_snapshot_request(frame: pb.RaftMessage) -> Message:
    request = frame.snapshot_request
    snapshot = _decode_snapshot(frame, request.snapshot)
    end = request.position + len(request.chunk)
    if request.position < 0 or len(request.chunk) > MAX_CHUNK_BYTES or end > snapshot.size:
        raise _invalid(
            frame, f"has {len(request.chunk)} bytes from position {request.position} on of {snapshot.size} bytes"
        )
    return SnapshotRequest(frame.sender_id, frame.term, snapshot, request.position, request.chunk)


def _decode_snapshot_response(frame: pb.RaftMessage) -> Message:
    response = frame.snapshot_response
    numbers = response.last_index, response.last_term, response.position
    _check_numbers(frame, *numbers)
    return SnapshotResponse(frame.sender_id, frame.term, *numbers, response.done)


def _decode_timeout_now(frame: pb.RaftMessage) -> Message:
    return TimeoutNow(frame.sender_id, frame.term)


def _decode_follow_request(frame: pb.RaftMessage) -> Message:
    request = frame.follow_request
    _check_numbers(frame, request.last_index, request.last_term)
    return FollowRequest(frame.sender_id, frame.term, request.last_index, request.last_term)


_DECODERS: dict[str, Callable[[pb.RaftMessage], Message]] = {
    "vote_request": _decode_vote_request,
    "vote_response": _decode_vote_response,
    "append_request": _decode_append_request,
    "append_response": _decode_append_response,
    "snapshot_request": _decode_snapshot_request,
    "snapshot_response": _decode_snapshot_response,
    "timeout_now": _decode_timeout_now,
    "follow_request": _decode_follow_request,
}


def _decode_entry(frame: pb.RaftMessage, entry: pb.RaftEntry) -> Entry:
    kind = _KINDS.get(entry.kind)
    if kind is None:
        raise _invalid(frame, f"has an entry of kind {entry.kind} at index {entry.index}, unknown to this version")
    payload = entry.payload
    if len(payload) > MAX_ENTRY_BYTES:
        raise _invalid(frame, f"has an entry of {len(payload)} bytes at index {entry.index}, above {MAX_ENTRY_BYTES}")
    if kind is EntryKind.VOTERS:
        _check_voters(frame, _voters_of_payload(frame, payload))
    return Entry(entry.index, entry.term, kind, payload)


def _decode_snapshot(frame: pb.RaftMessage, snapshot: pb.RaftSnapshot) -> Snapshot:
    if snapshot.last_index < 1 or snapshot.last_term < 1 or snapshot.last_term > frame.term:
        raise _invalid(frame, f"has a snapshot up to index {snapshot.last_index} of term {snapshot.last_term}")
    if not 0 <= snapshot.size <= _MAX_SNAPSHOT_BYTES:
        raise _invalid(frame, f"has a snapshot of {snapshot.size} bytes")
    _check_voters(frame, snapshot.voters)
    voters = VoterSet.from_message(snapshot.voters)
    return Snapshot(snapshot.last_index, snapshot.last_term, voters, snapshot.size, snapshot.checksum)


def _voters_of_payload(frame: pb.RaftMessage, payload: bytes) -> pb.VotersRecord:
    try:
        return VoterSet.decode(payload).to_message()
    except TidelogError as error:
        raise _invalid(frame, f"has voters that cannot be read: {error.message}") from error


def _check_voters(frame: pb.RaftMessage, voters: pb.VotersRecord) -> None:
    ids = [voter.voter_id for voter in voters.voters]
    if not 0 < len(ids) <= _MAX_VOTERS or len(set(ids)) < len(ids) or min(ids) < 0:
        raise _invalid(frame, f"has {len(ids)} voters with the ids {ids[:10]}")
    for voter in voters.voters:
        if len(voter.directory_id) not in (0, DIRECTORY_ID_SIZE) or not 0 <= voter.endpoint.port <= 65_535:
            raise _invalid(frame, f"has a voter {voter.voter_id} that is invalid: {voter.endpoint.port=}")


def _check_numbers(frame: pb.RaftMessage, *numbers: int) -> None:
    if min(numbers) < 0:
        raise _invalid(frame, "has a negative number")


def _invalid(frame: pb.RaftMessage, text: str) -> TidelogError:
    return error_for(
        ErrorCode.INVALID_REQUEST, f"a message of controller {frame.sender_id} in term {frame.term} {text}"
    )
