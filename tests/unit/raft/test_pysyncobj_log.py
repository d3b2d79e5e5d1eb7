"""The rule by which frames become a log on pysyncobj, and the formats of its files."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog_foundation.errors import ErrorCode, TidelogError
from tidelog_quorum.raft.protocol import CommittedEntry
from tidelog_quorum.raft.pysyncobj.log import Frame, FrameKind, LogState, check_identity, read_dump, write_dump

FRAMES = st.builds(
    Frame,
    st.sampled_from(FrameKind),
    st.integers(1, 4),
    st.integers(1, 3),
    st.integers(0, 8),
    st.binary(min_size=1, max_size=3),
)


def apply_all(frames: list[Frame], state: LogState) -> tuple[LogState, list[CommittedEntry]]:
    entries = []
    for frame in frames:
        state, entry = state.apply(frame)
        entries += [entry] if entry is not None else []
    return state, entries


@given(st.lists(FRAMES, max_size=60))
def test_log_has_no_gaps_and_terms_that_never_fall_whatever_frames_come(frames: list[Frame]) -> None:
    state, entries = apply_all(frames, LogState())
    assert [e.index for e in entries] == list(range(1, len(entries) + 1))
    assert [e.term for e in entries] == sorted(e.term for e in entries)
    assert (state.last_index, state.term) == ((entries[-1].index, entries[-1].term) if entries else (0, 0))
    first_of_term = {e.term: e for e in reversed(entries)}
    assert all(e.payload == b"" for e in first_of_term.values())


@given(st.lists(FRAMES, max_size=60))
def test_log_takes_no_frame_twice(frames: list[Frame]) -> None:
    state = LogState()
    taken: list[Frame] = []
    for frame in frames:
        state, entry = state.apply(frame)
        taken += [frame] if entry is not None else []
        assert all(state.apply(again) == (state, None) for again in taken)


def test_log_drops_what_was_proposed_behind_something_lost_or_by_an_older_leader() -> None:
    frames = [
        Frame(FrameKind.CLAIM, 1, 1),
        Frame(FrameKind.DATA, 1, 1, 2, b"a"),
        Frame(FrameKind.DATA, 1, 1, 4, b"behind 3, which was lost"),
        Frame(FrameKind.CLAIM, 3, 2),
        Frame(FrameKind.DATA, 1, 1, 4, b"late"),
        Frame(FrameKind.CLAIM, 2, 3),
        Frame(FrameKind.DATA, 3, 3, 4, b"of one who does not lead the term"),
        Frame(FrameKind.DATA, 3, 2, 4, b"b"),
    ]
    state, entries = apply_all(frames, LogState())
    assert [(e.index, e.term, e.payload) for e in entries] == [(1, 1, b""), (2, 1, b"a"), (3, 3, b""), (4, 3, b"b")]
    assert state == LogState(4, 3, 2)


@given(FRAMES)
def test_frame_survives_its_encoding(frame: Frame) -> None:
    assert Frame.decode(frame.encode()) == frame


@pytest.mark.parametrize("data", [b"", b"\x00" * 5, b"\x09" + bytes(30)])
def test_frame_refuses_other_bytes(data: bytes) -> None:
    with pytest.raises(ValueError, match=r"frame|FrameKind"):
        Frame.decode(data)


ENTRIES = ((b"later", 8, 2), (b"", 7, 1))
STATE = LogState(5, 2, 1)


def test_dump_gives_back_what_was_written(tmp_path: Path) -> None:
    path = tmp_path / "snapshot"
    write_dump(path, STATE, ENTRIES, [b"one", b"", b"two"])
    state, entries, chunks = read_dump(path)
    assert (state, entries, b"".join(chunks)) == (STATE, ENTRIES, b"onetwo")


def test_dump_notices_every_flipped_bit_and_every_lost_byte(tmp_path: Path) -> None:
    path = tmp_path / "snapshot"
    write_dump(path, STATE, ENTRIES, [b"payload"])
    whole = path.read_bytes()
    for position in range(len(whole)):
        path.write_bytes(whole[:position] + bytes([whole[position] ^ 1]) + whole[position + 1 :])
        with pytest.raises(TidelogError, match="is damaged"):
            read_dump(path)
        path.write_bytes(whole[:position])
        with pytest.raises(TidelogError, match="is damaged"):
            read_dump(path)


def test_identity_keeps_the_folder_for_one_voter_of_one_cluster(tmp_path: Path) -> None:
    directory = tmp_path / "new" / "folder"
    for _ in range(2):
        check_identity(directory, "a cluster", 1)
    for cluster, node, code in (
        ("another", 1, ErrorCode.INCONSISTENT_CLUSTER_ID),
        ("a cluster", 2, ErrorCode.INCONSISTENT_VOTER_SET),
    ):
        with pytest.raises(TidelogError) as refused:
            check_identity(directory, cluster, node)
        assert refused.value.code is code
