"""The wire form of Raft's messages."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.v1 import common_pb2
from tidelog.v1 import raft_service_pb2 as pb
from tidelog_foundation.errors import ErrorCode, TidelogError
from tidelog_foundation.requests.addresses import ControllerEndpoint
from tidelog_quorum.raft.core.endpoints import Endpoints
from tidelog_quorum.raft.core.messages import (
    AppendRequest,
    AppendResponse,
    Entry,
    EntryKind,
    FollowRequest,
    Snapshot,
    SnapshotRequest,
    SnapshotResponse,
    TimeoutNow,
    VoteRequest,
    VoteResponse,
)
from tidelog_quorum.raft.core.voters import Voter, VoterSet
from tidelog_quorum.raft.network.codec import MAX_CHUNK_BYTES, MAX_ENTRY_BYTES, decode_message, encode_message
from tidelog_quorum.raft.voters_record import decode_voters

NODES = st.integers(0, 2**31 - 1)
TERMS = st.integers(0, 2**31 - 1)
INDEXES = st.integers(0, 2**62)
ENDPOINTS = st.lists(
    st.builds(ControllerEndpoint, st.text(min_size=1, max_size=8), st.integers(1, 65_535), st.text(max_size=8)),
    min_size=1,
    max_size=3,
).map(Endpoints)
VOTERS = st.lists(
    st.builds(Voter, NODES, ENDPOINTS, st.sampled_from([b"", bytes(range(16))])),
    min_size=1,
    max_size=4,
    unique_by=lambda voter: voter.voter_id,
).map(VoterSet)


@st.composite
def append_requests(draw: Any) -> AppendRequest:
    prev_index, terms = draw(INDEXES), sorted(draw(st.lists(TERMS, min_size=1, max_size=5)))
    entries = []
    for index, term in enumerate(terms[1:], prev_index + 1):
        kind = draw(st.sampled_from(EntryKind))
        payload = draw(st.binary(max_size=20)) if kind is EntryKind.DATA else b""
        entries.append(Entry(index, term, kind, payload, draw(VOTERS) if kind is EntryKind.VOTERS else None))
    return AppendRequest(draw(NODES), terms[-1], prev_index, terms[0], draw(INDEXES), tuple(entries), draw(INDEXES))


@st.composite
def snapshot_requests(draw: Any) -> SnapshotRequest:
    chunk, position, rest = draw(st.binary(max_size=20)), draw(st.integers(0, 2**38)), draw(st.integers(0, 99))
    last_term = draw(st.integers(1, 2**30))
    snapshot = Snapshot(
        draw(st.integers(1, 2**62)),
        last_term,
        draw(VOTERS),
        position + len(chunk) + rest,
        draw(st.integers(0, 2**32 - 1)),
    )
    return SnapshotRequest(draw(NODES), last_term + draw(st.integers(0, 9)), snapshot, position, chunk)


MESSAGES = st.one_of(
    st.builds(VoteRequest, NODES, TERMS, st.booleans(), INDEXES, TERMS, st.booleans()),
    st.builds(VoteResponse, NODES, TERMS, st.booleans(), st.booleans()),
    append_requests(),
    st.builds(AppendResponse, NODES, TERMS, st.booleans(), INDEXES, TERMS, INDEXES, INDEXES),
    snapshot_requests(),
    st.builds(SnapshotResponse, NODES, TERMS, INDEXES, TERMS, INDEXES, st.booleans()),
    st.builds(TimeoutNow, NODES, TERMS),
    st.builds(FollowRequest, NODES, TERMS, INDEXES, TERMS),
)


@given(MESSAGES)
def test_message_is_the_same_after_the_wire(message: Any) -> None:
    frame = pb.RaftMessage.FromString(encode_message(message).SerializeToString())
    assert decode_message(frame) == message


@given(st.binary(max_size=60))
def test_message_of_any_bytes_is_decoded_or_refused(data: bytes) -> None:
    frame = pb.RaftMessage()
    try:
        frame.ParseFromString(data)
    except Exception:  # noqa: BLE001  # protobuf's own error: the bytes never reach the codec
        return
    try:
        decode_message(frame)
    except TidelogError as error:
        refused = error.code
    else:
        refused = ErrorCode.INVALID_REQUEST
    assert refused is ErrorCode.INVALID_REQUEST


def test_message_of_an_unknown_kind_is_refused() -> None:
    newer = pb.RaftMessage(sender_id=2, term=1).SerializeToString() + b"\xfa\x06\x00"
    with pytest.raises(TidelogError, match="unknown to this version"):
        decode_message(pb.RaftMessage.FromString(newer))


@pytest.mark.parametrize(
    "entries",
    [[(7, 2)], [(6, 2), (8, 2)], [(6, 1)], [(6, 3), (7, 2)], [(6, 4)]],
    ids=["gap at start", "gap", "term below prev", "term falls", "term above sender's"],
)
def test_append_with_impossible_entries_is_refused(entries: list[tuple[int, int]]) -> None:
    request = pb.AppendRequest(prev_index=5, prev_term=2, entries=[pb.RaftEntry(index=i, term=t) for i, t in entries])
    with pytest.raises(TidelogError, match="after index"):
        decode_message(pb.RaftMessage(sender_id=2, term=3, append_request=request))


@pytest.mark.parametrize(
    "message",
    [
        {"sender_id": -1, "timeout_now": pb.TimeoutNow()},
        {"term": -1, "timeout_now": pb.TimeoutNow()},
        {"vote_request": pb.VoteRequest(last_index=-1)},
        {"append_request": pb.AppendRequest(prev_index=-1)},
        {"append_request": pb.AppendRequest(commit_index=-1)},
        {"append_request": pb.AppendRequest(read_context=-1)},
        {"append_response": pb.AppendResponse(match_index=-1)},
        {"snapshot_response": pb.SnapshotResponse(position=-1)},
        {"follow_request": pb.FollowRequest(last_term=-1)},
    ],
)
def test_message_with_a_negative_number_is_refused(message: dict[str, Any]) -> None:
    with pytest.raises(TidelogError, match="negative number"):
        decode_message(pb.RaftMessage(**{"sender_id": 2, "term": 1, **message}))


def test_entry_of_an_unknown_kind_or_an_absurd_size_is_refused() -> None:
    with pytest.raises(TidelogError, match="of kind 3"):
        decode_message(append_of(pb.RaftEntry(index=1, term=1, kind=3)))
    with pytest.raises(TidelogError, match=f"above {MAX_ENTRY_BYTES}"):
        decode_message(append_of(pb.RaftEntry(index=1, term=1, payload=bytes(MAX_ENTRY_BYTES + 1))))


def _named(name: str) -> common_pb2.ControllerEndpoint:
    return common_pb2.ControllerEndpoint(host="a", port=1, name=name)


HERE = _named("")


@pytest.mark.parametrize(
    "voters",
    [
        [],
        [pb.VoterRecord(voter_id=1, endpoints=[HERE]), pb.VoterRecord(voter_id=1, endpoints=[HERE])],
        [pb.VoterRecord(voter_id=-1, endpoints=[HERE])],
        [pb.VoterRecord(voter_id=1, directory_id=b"short", endpoints=[HERE])],
        [pb.VoterRecord(voter_id=1, endpoints=[common_pb2.ControllerEndpoint(host="a", port=65_536)])],
        [pb.VoterRecord(voter_id=1, endpoints=[common_pb2.ControllerEndpoint(host="", port=1)])],
        [pb.VoterRecord(voter_id=1)],
        [pb.VoterRecord(voter_id=1, endpoints=[HERE, HERE])],
        [pb.VoterRecord(voter_id=1, endpoints=[_named(f"L{i}") for i in range(9)])],
        [pb.VoterRecord(voter_id=1, endpoints=[_named("x" * 256)])],
        [pb.VoterRecord(voter_id=i, endpoints=[HERE]) for i in range(1_001)],
    ],
    ids=[
        "none",
        "twice",
        "negative",
        "directory",
        "port",
        "host",
        "no address",
        "one name twice",
        "listeners",
        "name",
        "too many",
    ],
)
def test_voters_that_cannot_be_are_refused_in_entries_and_snapshots(voters: list[pb.VoterRecord]) -> None:
    record = pb.VotersRecord(voters=voters)
    payload = record.SerializeToString()
    with pytest.raises(TidelogError, match="voter"):
        decode_message(append_of(pb.RaftEntry(index=1, term=1, kind=2, payload=payload)))
    snapshot = pb.RaftSnapshot(last_index=1, last_term=1, voters=record)
    with pytest.raises(TidelogError, match="voter"):
        decode_message(chunk_of(snapshot, 0, b""))


def test_voters_of_an_earlier_version_have_one_address_for_every_listener() -> None:
    endpoint = common_pb2.Endpoint(host="a", port=9).SerializeToString()
    voter = b"\x08\x01" + b"\x1a" + bytes([len(endpoint)]) + endpoint
    assert decode_voters(b"\x0a" + bytes([len(voter)]) + voter) == VoterSet([Voter.at(1, "a", 9)])


def test_first_entry_of_a_term_with_a_payload_is_refused() -> None:
    with pytest.raises(TidelogError, match="1 bytes at index 1 that should be empty") as refused:
        decode_message(append_of(pb.RaftEntry(index=1, term=1, kind=1, payload=b"x")))
    assert refused.value.code is ErrorCode.INVALID_REQUEST


def test_entry_whose_voters_cannot_be_read_is_refused() -> None:
    with pytest.raises(TidelogError, match="not a set of voters") as refused:
        decode_message(append_of(pb.RaftEntry(index=1, term=1, kind=2, payload=b"\xff")))
    assert refused.value.code is ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize(
    ("changes", "position", "size"),
    [
        ({"last_index": 0}, 0, 1),
        ({"last_term": 0}, 0, 1),
        ({"last_term": 9}, 0, 1),
        ({"size": -1}, 0, 0),
        ({"size": 2**50}, 0, 1),
        ({}, -1, 1),
        ({}, 100, 1),
        ({"size": 2 * MAX_CHUNK_BYTES}, 0, MAX_CHUNK_BYTES + 1),
    ],
)
def test_chunk_of_an_impossible_snapshot_is_refused(changes: dict[str, int], position: int, size: int) -> None:
    voters = pb.VotersRecord(voters=[pb.VoterRecord(voter_id=1, endpoints=[HERE])])
    snapshot = pb.RaftSnapshot(**{"last_index": 5, "last_term": 2, "size": 100, "voters": voters, **changes})
    with pytest.raises(TidelogError, match="INVALID_REQUEST"):
        decode_message(chunk_of(snapshot, position, bytes(size)))


def append_of(*entries: pb.RaftEntry) -> pb.RaftMessage:
    return pb.RaftMessage(sender_id=2, term=1, append_request=pb.AppendRequest(entries=entries))


def chunk_of(snapshot: pb.RaftSnapshot, position: int, chunk: bytes) -> pb.RaftMessage:
    request = pb.SnapshotRequest(snapshot=snapshot, position=position, chunk=chunk)
    return pb.RaftMessage(sender_id=2, term=3, snapshot_request=request)
