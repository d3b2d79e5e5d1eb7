"""Translates the messages of the Raft core to and from ``tidelog.v1``; what does not hold together is refused."""

from __future__ import annotations

from typing import assert_never

from tidelog.errors import ErrorCode, TidelogError, error_for
from tidelog.v1 import raft_service_pb2 as pb
from tidelog_quorum.raft.core import (
    AppendRequest,
    AppendResponse,
    Entry,
    EntryKind,
    Message,
    VoteRequest,
    VoteResponse,
)


def encode_message(message: Message) -> pb.RaftMessage:
    """Return the wire form of a message."""
    frame = pb.RaftMessage(sender_id=message.sender_id, term=message.term)
    match message:
        case VoteRequest():
            frame.vote_request.pre_vote = message.pre_vote
            frame.vote_request.last_index = message.last_index
            frame.vote_request.last_term = message.last_term
        case VoteResponse():
            frame.vote_response.pre_vote = message.pre_vote
            frame.vote_response.granted = message.granted
        case AppendRequest():
            frame.append_request.CopyFrom(_encode_append(message))
        case AppendResponse():
            frame.append_response.success = message.success
            frame.append_response.match_index = message.match_index
            frame.append_response.conflict_term = message.conflict_term
            frame.append_response.rejected_prev_index = message.rejected_prev_index
            frame.append_response.read_context = message.read_context
        case _:
            assert_never(message)
    # An empty sub-message that only has defaults is not on the wire unless it is marked as present.
    getattr(frame, _FIELDS[type(message)]).SetInParent()
    return frame


def decode_message(frame: pb.RaftMessage) -> Message:
    """Return the message of a wire form.

    Raises:
        TidelogError: INVALID_REQUEST, the kind is unknown to this version or the entries have gaps.
    """
    match frame.WhichOneof("message"):
        case "vote_request":
            vote = frame.vote_request
            return VoteRequest(frame.sender_id, frame.term, vote.pre_vote, vote.last_index, vote.last_term)
        case "vote_response":
            answer = frame.vote_response
            return VoteResponse(frame.sender_id, frame.term, answer.pre_vote, answer.granted)
        case "append_request":
            return _decode_append(frame.sender_id, frame.term, frame.append_request)
        case "append_response":
            response = frame.append_response
            return AppendResponse(
                frame.sender_id,
                frame.term,
                response.success,
                response.match_index,
                response.conflict_term,
                response.rejected_prev_index,
                response.read_context,
            )
        case kind:
            raise _invalid(f"voter {frame.sender_id} sent a Raft message of the kind {kind!r}, unknown to this version")


_FIELDS: dict[type[Message], str] = {
    VoteRequest: "vote_request",
    VoteResponse: "vote_response",
    AppendRequest: "append_request",
    AppendResponse: "append_response",
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


def _decode_append(sender_id: int, term: int, request: pb.AppendRequest) -> AppendRequest:
    entries = tuple(_decode_entry(entry) for entry in request.entries)
    before = (request.prev_index, request.prev_term)
    for entry in entries:
        if entry.index != before[0] + 1 or entry.term < before[1] or entry.term > term:
            raise _invalid(
                f"voter {sender_id} in term {term} sent index {entry.index} of term {entry.term} "
                f"after index {before[0]} of term {before[1]}"
            )
        before = (entry.index, entry.term)
    return AppendRequest(
        sender_id, term, request.prev_index, request.prev_term, request.commit_index, entries, request.read_context
    )


def _decode_entry(entry: pb.RaftEntry) -> Entry:
    try:
        kind = EntryKind(entry.kind)
    except ValueError as error:
        raise _invalid(f"the entry at index {entry.index} is of kind {entry.kind}, unknown to this version") from error
    return Entry(entry.index, entry.term, kind, entry.payload)


def _invalid(text: str) -> TidelogError:
    return error_for(ErrorCode.INVALID_REQUEST, text)
