"""The files byte for byte, as Kafka's own tools read them."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from tidelog_foundation.errors import ErrorCode, TidelogError
from tidelog_foundation.ids import TopicId
from tidelog_node.log import LogConfig, PartitionLog
from tidelog_node.log.directory.offset_checkpoint_file import (
    format_checkpoint,
    parse_checkpoint,
    read_offsets,
    write_offsets,
)
from tidelog_node.log.directory.partition_folder import ensure_topic_id, read_topic_id, write_topic_id
from tidelog_node.log.disk.files import OS_FILES
from tidelog_node.log.segments.indexes import CorruptIndexError, OffsetIndex, TimeIndex

DIRECTORY = Path("/data/topic-0")
TOPIC_ID = TopicId(bytes(range(16)))


def test_offset_index_is_big_endian_pairs_of_relative_offset_and_position():
    index = OffsetIndex(1000, 1024)
    assert index.maybe_append(1005, 4200)
    assert index.maybe_append(1258, 70_000)
    data = bytes.fromhex("00000005 00001068 00000102 00011170")
    assert index.to_bytes() == data
    again = OffsetIndex(1000, 1024)
    again.load(data, segment_size=70_001)
    assert again.entries() == [(1005, 4200), (1258, 70_000)]
    assert [again.lookup(offset) for offset in (1004, 1005, 1257, 1258, 9999)] == [
        (1000, 0),
        (1005, 4200),
        (1005, 4200),
        (1258, 70_000),
        (1258, 70_000),
    ]


def test_time_index_is_timestamp_and_relative_offset():
    index = TimeIndex(1000, 1024)
    index.maybe_append(1_700_000_000_000, 1005)
    index.maybe_append(1_700_000_000_000, 1009)
    index.maybe_append(1_700_000_000_001, 1258)
    data = bytes.fromhex("0000018bcfe56800 00000005 0000018bcfe56801 00000102")
    assert index.to_bytes() == data
    again = TimeIndex(1000, 1024)
    again.load(data, next_offset=1259)
    assert again.entries() == [(1_700_000_000_000, 1005), (1_700_000_000_001, 1258)]
    assert again.before(1_700_000_000_000) == (-1, 1000)
    assert again.before(1_700_000_000_001) == (1_700_000_000_000, 1005)


@pytest.mark.parametrize(
    "data",
    [b"\0" * 7, b"\0" * 16, struct.pack(">ii", -1, 5), struct.pack(">ii", 1, 100), struct.pack(">4i", 1, 9, 2, 3)],
)
def test_offset_index_refuses_what_no_segment_has(data):
    with pytest.raises(CorruptIndexError):
        OffsetIndex(0, 1024).load(data, segment_size=100)


@pytest.mark.parametrize(
    "data",
    [b"\0" * 11, b"\0" * 24, struct.pack(">qi", -1, 5), struct.pack(">qi", 1, 10), struct.pack(">qiqi", 2, 1, 1, 2)],
)
def test_time_index_refuses_what_no_segment_has(data):
    with pytest.raises(CorruptIndexError):
        TimeIndex(0, 1024).load(data, next_offset=10)


def test_segment_files_hold_batches_and_sparse_entries(disk, batch_of):
    log = PartitionLog.open(DIRECTORY, LogConfig(index_interval_bytes=100), files=disk)
    log.truncate_fully_and_start_at(368_769)
    for timestamp in (50, 70, 60, 90):
        log.append_as_leader(batch_of(b"v" * 10, b"w" * 10, timestamp_ms=timestamp), 7, now_ms=0)
    size = log.size_in_bytes // 4
    log.close()
    stem = "00000000000000368769"
    assert [path.name for path in disk.paths()] == [
        f"{stem}.index",
        f"{stem}.log",
        f"{stem}.timeindex",
        "00000000000000368777.snapshot",
        "leader-epoch-checkpoint",
    ]
    assert size == 61 + 2 * 17
    assert disk.read_bytes(DIRECTORY / f"{stem}.index") == struct.pack(">ii", 5, 2 * size)
    assert disk.read_bytes(DIRECTORY / f"{stem}.timeindex") == struct.pack(">qiqi", 71, 3, 91, 7)
    assert disk.read_bytes(DIRECTORY / "leader-epoch-checkpoint") == b"0\n1\n7 368769\n"


def test_offset_checkpoint_is_version_count_and_lines(disk):
    path = Path("/data/recovery-point-offset-checkpoint")
    disk.mkdir(path.parent)
    write_offsets(disk, path, {("orders", 1): 42, ("flights.raw", 0): 7})
    assert disk.read_bytes(path) == b"0\n2\nflights.raw 0 7\norders 1 42\n"
    assert read_offsets(disk, path) == {("orders", 1): 42, ("flights.raw", 0): 7}


@pytest.mark.parametrize(
    "data",
    [b"", b"0\n", b"1\n0\n", b"0\n1\n", b"0\nx\n", b"0\n1\na 0\n", b"0\n1\na b 1\n", b"0\n1\na 0 -5\n", b"\xff\n0\n"],
)
def test_damaged_offset_checkpoint_reads_as_empty(disk, data):
    path = Path("/data/replication-offset-checkpoint")
    disk.write_bytes(path, data)
    assert read_offsets(disk, path) == {}
    assert read_offsets(disk, path.with_name("missing")) == {}


def test_empty_checkpoint_has_a_count_of_zero():
    assert format_checkpoint([]) == b"0\n0\n"
    assert parse_checkpoint(b"0\n0\n", fields=2) == []


def test_partition_metadata_is_version_and_topic_id(disk):
    disk.mkdir(DIRECTORY)
    write_topic_id(disk, DIRECTORY, TOPIC_ID)
    path = DIRECTORY / "partition.metadata"
    assert disk.read_bytes(path) == b"version: 0\ntopic_id: AAECAwQFBgcICQoLDA0ODw"
    assert read_topic_id(disk, DIRECTORY) == TOPIC_ID


@pytest.mark.parametrize(
    "data", [None, b"", b"version: 1\ntopic_id: AAECAwQFBgcICQoLDA0ODw", b"version: 0\ntopic_id: A?"]
)
def test_partition_metadata_is_written_anew_when_missing_or_damaged(disk, data):
    disk.mkdir(DIRECTORY)
    if data is not None:
        disk.write_bytes(DIRECTORY / "partition.metadata", data)
    assert read_topic_id(disk, DIRECTORY) is None
    ensure_topic_id(disk, DIRECTORY, TOPIC_ID)
    assert read_topic_id(disk, DIRECTORY) == TOPIC_ID


def test_partition_metadata_of_another_topic_is_refused(disk):
    disk.mkdir(DIRECTORY)
    write_topic_id(disk, DIRECTORY, TOPIC_ID)
    with pytest.raises(TidelogError, match="holds topic id AAECAwQFBgcICQoLDA0ODw") as caught:
        ensure_topic_id(disk, DIRECTORY, TopicId(bytes(16)))
    assert caught.value.code is ErrorCode.INCONSISTENT_TOPIC_ID


def test_index_of_a_sealed_segment_is_mapped_and_not_kept_in_memory(disk, config, batch_of):
    log = PartitionLog.open(DIRECTORY, config, files=disk)
    for _ in range(12):
        log.append_as_leader(batch_of(b"x" * 100), 0, now_ms=0)
    log.flush()
    disk.trace = []
    sealed = log.sealed_segments()[0]
    entries = sealed.indexes.lookup()[0].entries()
    assert entries
    assert {path.name for operation, path in disk.trace if operation == "map"} == {
        "00000000000000000000.index",
        "00000000000000000000.timeindex",
    }
    disk.trace = []
    assert sealed.indexes.lookup()[0].entries() == entries
    assert sealed.locate(2) is not None
    assert "map" not in {operation for operation, _ in disk.trace}


def test_large_indexes_are_taken_over_without_looking_at_every_entry(tmp_path):
    path = tmp_path / "index"
    path.write_bytes(b"".join(struct.pack(">ii", 10 * row, 4096 * row) for row in range(1, 200_001)))
    index = OffsetIndex(1000)
    index.load(OS_FILES.map(path), segment_size=4096 * 200_001)
    assert index.lookup(1000 + 10 * 77_777 + 9) == (1000 + 10 * 77_777, 4096 * 77_777)
    assert index.before(4096 * 100_000 + 1) == (1000 + 10 * 100_000, 4096 * 100_000)
    assert len(index) == 200_000
    with pytest.raises(AssertionError, match="sealed"):
        index.maybe_append(10**7, 5)
