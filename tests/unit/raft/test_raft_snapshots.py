"""Snapshot files: in their place only when they are whole, told by name when they are not."""

from __future__ import annotations

import errno
import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import crc32c
import pytest
from example_counts import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from tidelog_foundation.errors import ErrorCode, TidelogError
from tidelog_quorum.raft.core.messages import Snapshot
from tidelog_quorum.raft.core.voters import Voter, VoterSet
from tidelog_quorum.raft.storage.snapshot_files import (
    SnapshotReader,
    SnapshotReceiver,
    check_snapshot,
    read_snapshot,
    remove_snapshot,
    remove_snapshots,
    snapshot_path,
    write_snapshot,
)

CONTENT = bytes(range(256)) * 40
VOTERS = VoterSet([Voter.at(1, "localhost", 9093)])


def never() -> bool:
    return False


def snapshot_of(content: bytes = CONTENT, last_index: int = 7) -> Snapshot:
    return Snapshot(last_index, 3, VOTERS, len(content), crc32c.crc32c(content))


def write(directory: Path, last_index: int = 7) -> Snapshot:
    written = write_snapshot(directory, last_index, 3, [CONTENT[:100], b"", CONTENT[100:]], never)
    assert written == (len(CONTENT), crc32c.crc32c(CONTENT))
    return snapshot_of(last_index=last_index)


def names(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


@contextmanager
def file_size_limit(size: int) -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_snapshot_has_kafkas_name_and_gives_back_its_bytes(tmp_path: Path) -> None:
    snapshot = write(tmp_path)
    assert names(tmp_path) == ["00000000000000000007-0000000003.checkpoint"]
    check_snapshot(tmp_path, snapshot)
    assert b"".join(read_snapshot(tmp_path, snapshot)) == CONTENT


def test_snapshot_of_nothing_is_an_empty_file(tmp_path: Path) -> None:
    assert write_snapshot(tmp_path, 7, 3, [], never) == (0, 0)
    check_snapshot(tmp_path, snapshot_of(b""))


def test_snapshot_that_is_given_up_leaves_no_file(tmp_path: Path) -> None:
    assert write_snapshot(tmp_path, 7, 3, [CONTENT, CONTENT], lambda: True) is None
    assert names(tmp_path) == []


@settings(max_examples=examples(25), deadline=None)
@given(position=st.integers(0, len(CONTENT) - 1), bit=st.integers(0, 7))
def test_snapshot_with_any_flipped_bit_is_named_as_damaged(
    tmp_path_factory: pytest.TempPathFactory, position: int, bit: int
) -> None:
    directory = tmp_path_factory.mktemp("flip")
    snapshot = write(directory)
    path = snapshot_path(directory, 7, 3)
    path.write_bytes(CONTENT[:position] + bytes([CONTENT[position] ^ 1 << bit]) + CONTENT[position + 1 :])
    with pytest.raises(TidelogError, match=r"snapshot .*0{19}7-0{9}3\.checkpoint is damaged") as refused:
        check_snapshot(directory, snapshot)
    assert refused.value.code is ErrorCode.CORRUPT_MESSAGE


def test_snapshot_that_is_short_or_missing_is_named(tmp_path: Path) -> None:
    snapshot = write(tmp_path)
    os.truncate(snapshot_path(tmp_path, 7, 3), len(CONTENT) - 1)
    with pytest.raises(TidelogError, match=f"{len(CONTENT) - 1} bytes"):
        check_snapshot(tmp_path, snapshot)
    remove_snapshot(tmp_path, 7, 3)
    with pytest.raises(TidelogError, match=r"0{19}7-0{9}3\.checkpoint is missing"):
        check_snapshot(tmp_path, snapshot)


def test_leftovers_are_removed_and_the_named_snapshot_stays(tmp_path: Path) -> None:
    kept = write(tmp_path, 7)
    write(tmp_path, 8)
    SnapshotReceiver(tmp_path).store(snapshot_of(last_index=9), 0, b"part")
    (tmp_path / "00000000000000000010-0000000003.checkpoint.writing").write_bytes(b"part")
    (tmp_path / "CURRENT").write_bytes(b"RocksDB's")
    remove_snapshots(tmp_path, kept)
    assert names(tmp_path) == ["00000000000000000007-0000000003.checkpoint", "CURRENT"]
    remove_snapshots(tmp_path, None)
    assert names(tmp_path) == ["CURRENT"]


def test_snapshot_that_is_received_in_chunks_is_put_in_its_place(tmp_path: Path) -> None:
    receiver, snapshot = SnapshotReceiver(tmp_path), snapshot_of()
    for position in range(0, len(CONTENT), 1000):
        assert not snapshot_path(tmp_path, 7, 3).exists()
        receiver.store(snapshot, position, CONTENT[position : position + 1000])
    assert receiver.complete(snapshot)
    check_snapshot(tmp_path, snapshot)
    assert names(tmp_path) == ["00000000000000000007-0000000003.checkpoint"]


def test_snapshot_that_is_received_anew_from_the_beginning_forgets_what_came_before(tmp_path: Path) -> None:
    receiver, short = SnapshotReceiver(tmp_path), snapshot_of(b"short", 8)
    receiver.store(snapshot_of(), 0, CONTENT)
    receiver.store(short, 0, b"long enough to be cut")
    receiver.store(short, 0, b"short")
    receiver.store(snapshot_of(), 100, b"late")
    assert names(tmp_path) == ["00000000000000000008-0000000003.checkpoint.receiving"]
    assert not receiver.complete(snapshot_of())
    assert receiver.complete(short)
    assert b"".join(read_snapshot(tmp_path, short)) == b"short"


@pytest.mark.parametrize("received", [CONTENT[:-1], CONTENT + b"x", CONTENT[:-1] + b"x", b""])
def test_snapshot_that_was_received_damaged_leaves_no_file(tmp_path: Path, received: bytes) -> None:
    receiver = SnapshotReceiver(tmp_path)
    receiver.store(snapshot_of(), 0, received)
    assert not receiver.complete(snapshot_of())
    assert names(tmp_path) == []


def test_reader_goes_on_with_a_snapshot_that_was_removed_but_begins_none(tmp_path: Path) -> None:
    reader, first, second = SnapshotReader(tmp_path), write(tmp_path, 7), write(tmp_path, 8)
    assert reader.read(first, 0, 100) == CONTENT[:100]
    remove_snapshots(tmp_path, None)
    assert reader.read(first, 100, len(CONTENT)) == CONTENT[100:]
    assert reader.read(first, len(CONTENT), 10) == b""
    assert reader.read(second, 0, 100) is None
    reader.close()


def test_reader_fails_at_the_end_of_a_file_that_was_cut_short(tmp_path: Path) -> None:
    reader, snapshot = SnapshotReader(tmp_path), write(tmp_path)
    os.truncate(snapshot_path(tmp_path, 7, 3), 150)
    assert reader.read(snapshot, 0, 100) == CONTENT[:100]
    assert reader.read(snapshot, 100, 100) == CONTENT[100:150]
    with pytest.raises(TidelogError, match=r"was cut short: it ends before 150 of 10240 bytes") as failed:
        reader.read(snapshot, 150, 100)
    assert failed.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    reader.close()


def test_reader_keeps_few_files_open(tmp_path: Path) -> None:
    reader = SnapshotReader(tmp_path)
    before = len(os.listdir("/proc/self/fd"))
    for last_index in range(1, 20):
        assert reader.read(write(tmp_path, last_index), 0, 10) == CONTENT[:10]
    assert len(os.listdir("/proc/self/fd")) <= before + 2
    reader.close()
    assert len(os.listdir("/proc/self/fd")) == before


def test_snapshot_on_a_full_disk_is_an_error_that_names_path_and_reason(tmp_path: Path) -> None:
    with (
        file_size_limit(5_000),
        pytest.raises(TidelogError, match=r"cannot write .*checkpoint.*the disk is full") as own,
    ):
        write(tmp_path)
    assert own.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    receiver = SnapshotReceiver(tmp_path)
    with file_size_limit(5_000), pytest.raises(TidelogError, match=r"cannot write .*receiving.*the disk is full"):
        receiver.store(snapshot_of(), 0, CONTENT)
    receiver.close()


def test_snapshot_on_a_failing_disk_is_an_error_and_is_never_in_its_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_descriptor: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    receiver = SnapshotReceiver(tmp_path)
    receiver.store(snapshot_of(last_index=8), 0, CONTENT)
    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(TidelogError, match=r"cannot write .*: Input/output error"):
        write(tmp_path)
    with pytest.raises(TidelogError, match=r"cannot write .*: Input/output error") as refused:
        receiver.complete(snapshot_of(last_index=8))
    assert refused.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert not list(tmp_path.glob("*.checkpoint"))
    receiver.close()
