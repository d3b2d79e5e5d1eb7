"""The wire form of Raft's messages."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.errors import TidelogError
from tidelog.v1 import raft_service_pb2 as pb
from tidelog_quorum.raft.codec import decode_message, encode_message
from tidelog_quorum.raft.core import AppendRequest, AppendResponse, Entry, EntryKind, VoteRequest, VoteResponse

NODES = st.integers(0, 2**31 - 1)
TERMS = st.integers(0, 2**31 - 1)
INDEXES = st.integers(0, 2**62)


@st.composite
def append_requests(draw: Any) -> AppendRequest:
    prev_index, terms = draw(INDEXES), sorted(draw(st.lists(TERMS, min_size=1, max_size=5)))
    kinds = st.sampled_from(EntryKind)
    entries = tuple(
        Entry(prev_index + 1 + i, term, draw(kinds), draw(st.binary(max_size=20))) for i, term in enumerate(terms[1:])
    )
    return AppendRequest(draw(NODES), terms[-1], prev_index, terms[0], draw(INDEXES), entries, draw(INDEXES))


MESSAGES = st.one_of(
    st.builds(VoteRequest, NODES, TERMS, st.booleans(), INDEXES, TERMS),
    st.builds(VoteResponse, NODES, TERMS, st.booleans(), st.booleans()),
    append_requests(),
    st.builds(AppendResponse, NODES, TERMS, st.booleans(), INDEXES, TERMS, INDEXES, INDEXES),
)


@given(MESSAGES)
def test_message_is_the_same_after_the_wire(message: Any) -> None:
    frame = pb.RaftMessage.FromString(encode_message(message).SerializeToString())
    assert decode_message(frame) == message


def test_message_of_an_unknown_kind_is_refused() -> None:
    with pytest.raises(TidelogError, match="unknown to this version"):
        decode_message(pb.RaftMessage(sender_id=2, term=1, timeout_now=pb.TimeoutNow()))
    with pytest.raises(TidelogError, match="unknown to this version"):
        decode_message(pb.RaftMessage(sender_id=2, term=1))


@pytest.mark.parametrize(
    "entries",
    [[(7, 2)], [(6, 2), (8, 2)], [(6, 1)], [(6, 3), (7, 2)], [(6, 4)]],
    ids=["gap at start", "gap", "term below prev", "term falls", "term above sender's"],
)
def test_append_with_impossible_entries_is_refused(entries: list[tuple[int, int]]) -> None:
    request = pb.AppendRequest(prev_index=5, prev_term=2, entries=[pb.RaftEntry(index=i, term=t) for i, t in entries])
    with pytest.raises(TidelogError, match="after index"):
        decode_message(pb.RaftMessage(sender_id=2, term=3, append_request=request))


def test_entry_of_an_unknown_kind_is_refused() -> None:
    request = pb.AppendRequest(prev_index=0, entries=[pb.RaftEntry(index=1, term=1, kind=2)])
    with pytest.raises(TidelogError, match="of kind 2"):
        decode_message(pb.RaftMessage(sender_id=2, term=1, append_request=request))
