"""Snapshot files: Kafka's bytes, their damage, what a crash leaves, and which of them is loaded."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from crc32c import crc32c
from memory_disk import MemoryFiles, crash_at_every_step, failing

from tidelog_foundation.errors import ErrorCode, TidelogError
from tidelog_foundation.records import RecordBatchHeader
from tidelog_node.log.producers.entries import BatchMetadata, Duplicate, ProducerEntry
from tidelog_node.log.producers.snapshot_format import decode_snapshot, encode_snapshot
from tidelog_node.log.producers.snapshots import ProducerSnapshots, snapshot_offset, snapshot_path

Header = Callable[..., RecordBatchHeader]
DIRECTORY = Path("/data/flights-0")
EXPIRATION_MS = 10_000

ENTRIES = [
    ProducerEntry(1, 0, 9, 1234, 4, 1_700_000_000_000, -1, -1),
    ProducerEntry(2**40, 7, -1, -1, 0, 1_700_000_000_001, 12, 1200),
]
BODY = bytes.fromhex(
    "00000002"  # two entries
    "0000000000000001" "0000" "00000009" "00000000000004d2" "00000004"  # id, epoch, sequence, offset, delta
    "0000018bcfe56800" "ffffffff" "ffffffffffffffff"  # timestamp, coordinator epoch, transaction's first offset
    "0000010000000000" "0007" "ffffffff" "ffffffffffffffff" "00000000"
    "0000018bcfe56801" "0000000c" "00000000000004b0"
)  # fmt: skip
OLDER_BATCHES = (BatchMetadata(2**31 - 1, 1000, 0, 1000), BatchMetadata(4, 1229, 4, -1))
SECTION = bytes.fromhex(
    "54494445" "0002"  # TIDE, the section's version
    "0000000000000001" "7fffffff" "00000000000003e8" "00000000" "00000000000003e8"  # id, sequence, offset, delta, time
    "0000000000000001" "00000004" "00000000000004cd" "00000004" "ffffffffffffffff"
)  # fmt: skip


def with_crc(body: bytes) -> bytes:
    return bytes.fromhex("0001") + crc32c(body).to_bytes(4, "big") + body


SNAPSHOT = with_crc(BODY)
SNAPSHOT_WITH_SECTION = with_crc(BODY + SECTION)


@pytest.fixture
def disk() -> MemoryFiles:
    files = MemoryFiles()
    files.mkdir(DIRECTORY)
    files.fsync_directory(DIRECTORY.parent)
    return files


@pytest.fixture
def snapshots(disk: MemoryFiles) -> ProducerSnapshots:
    return loaded(disk, 0, 0)


def loaded(disk: MemoryFiles, start: int, end: int, *, replay_from: int | None = None) -> ProducerSnapshots:
    snapshots = ProducerSnapshots(disk, DIRECTORY, EXPIRATION_MS)
    found = snapshots.load(start, end, now_ms=0)
    assert replay_from in (None, found)
    snapshots.check_invariants()
    return snapshots


def offsets(disk: MemoryFiles) -> list[int]:
    return sorted(offset for name in disk.listdir(DIRECTORY) if (offset := snapshot_offset(name)) is not None)


def test_snapshot_has_the_bytes_of_kafkas_schema_in_both_directions() -> None:
    assert encode_snapshot(ENTRIES) == SNAPSHOT
    assert encode_snapshot(ENTRIES[::-1]) == SNAPSHOT
    assert decode_snapshot(SNAPSHOT) == ENTRIES


def test_snapshot_without_producers_is_ten_bytes() -> None:
    assert encode_snapshot([]) == bytes.fromhex("0001" "48674bc7" "00000000")  # fmt: skip
    assert decode_snapshot(encode_snapshot([])) == []


def test_snapshot_with_older_batches_has_them_behind_kafkas_entries_in_both_directions() -> None:
    entries = [replace(ENTRIES[0], older_batches=OLDER_BATCHES), ENTRIES[1]]
    assert encode_snapshot(entries) == SNAPSHOT_WITH_SECTION
    assert encode_snapshot(entries[::-1]) == SNAPSHOT_WITH_SECTION
    assert decode_snapshot(SNAPSHOT_WITH_SECTION) == entries


def test_snapshot_has_the_last_batch_s_own_time_where_it_is_another_than_the_append_s() -> None:
    last = bytes.fromhex("0000000000000001" "00000009" "00000000000004d2" "00000004" "00000000000007d0")  # fmt: skip
    for older, rows in (((), SECTION[:6]), (OLDER_BATCHES, SECTION)):
        entries = [replace(ENTRIES[0], older_batches=older, batch_timestamp=2000), ENTRIES[1]]
        assert encode_snapshot(entries) == with_crc(BODY + rows + last)
        assert decode_snapshot(encode_snapshot(entries)) == entries
        assert [batch.timestamp_ms for batch in entries[0].batches][-1] == 2000


def test_snapshot_with_a_section_of_version_1_is_read() -> None:
    section = SECTION[:5] + b"\1" + SECTION[6:]
    assert decode_snapshot(with_crc(BODY + section)) == decode_snapshot(SNAPSHOT_WITH_SECTION)


def test_snapshot_passes_over_a_section_of_another_version() -> None:
    for version in (0, 3, 0x7FFF):
        for rows in (b"", b"\0", SECTION[6:]):
            section = SECTION[:4] + version.to_bytes(2, "big") + rows
            assert decode_snapshot(with_crc(BODY + section)) == ENTRIES


@pytest.mark.parametrize("snapshot", [SNAPSHOT, SNAPSHOT_WITH_SECTION], ids=["Kafka's", "with older batches"])
def test_snapshot_is_refused_with_any_byte_changed_or_missing_or_added(snapshot: bytes) -> None:
    for position in range(len(snapshot)):
        for bit in range(8):
            changed = bytearray(snapshot)
            changed[position] ^= 1 << bit
            with pytest.raises(ValueError, match="snapshot"):
                decode_snapshot(bytes(changed))
        with pytest.raises(ValueError, match="snapshot"):
            decode_snapshot(snapshot[:position])
    with pytest.raises(ValueError, match="snapshot"):
        decode_snapshot(snapshot + b"\0")


@pytest.mark.parametrize(
    ("section", "text"),
    [
        (b"\0", "unknown bytes"),
        (SECTION[:5], "unknown bytes"),
        (b"TIDY" + SECTION[4:], "unknown bytes"),
        (SECTION[:-1], "a batch has 32"),
        (SECTION[:13] + b"\3" + SECTION[14:], "without entries"),
        (SECTION[:6] + SECTION[38:] + SECTION[6:38], "cannot be"),
        (SECTION[:6] + SECTION[6:38] * 2, "cannot be"),
        (SECTION[:6] + SECTION[38:45] + b"\xff" + SECTION[46:], "without entries"),
    ],
)
def test_snapshot_is_refused_when_its_section_is_wrong_though_its_crc_is_not(section: bytes, text: str) -> None:
    with pytest.raises(ValueError, match=text):
        decode_snapshot(with_crc(BODY + section))


@pytest.mark.parametrize(
    "older",
    [
        [BatchMetadata(4, 1230, 4, 0)],
        [BatchMetadata(4, 3, 4, 0)],
        [BatchMetadata(4, 1229, -1, 0)],
        [BatchMetadata(number, number, 0, 0) for number in range(5)],
    ],
    ids=["overlaps", "before the log", "negative", "too many"],
)
def test_snapshot_is_refused_with_older_batches_that_no_producer_has(older: list[BatchMetadata]) -> None:
    with pytest.raises(ValueError, match="cannot be"):
        decode_snapshot(encode_snapshot([replace(ENTRIES[0], older_batches=tuple(older))]))


def test_snapshot_is_refused_with_older_batches_of_a_producer_without_a_last_one() -> None:
    with pytest.raises(ValueError, match="cannot be"):
        decode_snapshot(encode_snapshot([replace(ENTRIES[1], older_batches=OLDER_BATCHES)]))


def test_snapshot_is_refused_when_its_count_does_not_fit_though_its_crc_does() -> None:
    for count in (-1, 1, 3, 2**31 - 1):
        body = count.to_bytes(4, "big", signed=True) + BODY[4:]
        with pytest.raises(ValueError, match="entries"):
            decode_snapshot(b"\0\1" + crc32c(body).to_bytes(4, "big") + body)


@pytest.mark.parametrize(
    ("name", "offset"),
    [
        ("00000000000000000042.snapshot", 42),
        ("42.snapshot", None),
        ("00000000000000000042.log", None),
        ("00000000000000000042.snapshot.tmp", None),
        ("0000000000000000004x.snapshot", None),
    ],
)
def test_snapshot_name_gives_its_offset(name: str, offset: int | None) -> None:
    assert snapshot_offset(name) == offset
    if offset is not None:
        assert snapshot_path(DIRECTORY, offset).name == name


def test_load_takes_the_newest_snapshot_and_tells_where_to_replay_from(
    disk: MemoryFiles, snapshots: ProducerSnapshots, header: Header
) -> None:
    snapshots.state.append(header(7, 0, 0, 5, offset=0))
    snapshots.take(5, durable=True)
    snapshots.state.append(header(7, 0, 5, 5, offset=5))
    snapshots.take(10, durable=True)
    snapshots.state.append(header(7, 0, 10, 5, offset=10))
    again = loaded(disk, 0, 15, replay_from=10)
    assert again.state.check(header(7, 0, 5, 5)) == Duplicate(5, 9, 1000)
    again.state.append(header(7, 0, 10, 5, offset=10))
    assert again.state.check(header(7, 0, 10, 5)) == Duplicate(10, 14, 1000)
    assert again.state.check(header(7, 0, 15)) is None


def test_load_knows_the_last_five_batches_without_a_replay(
    disk: MemoryFiles, snapshots: ProducerSnapshots, header: Header
) -> None:
    for number in range(7):
        snapshots.state.append(header(7, 0, 3 * number, 3, offset=3 * number, timestamp_ms=1000 + number))
    snapshots.state.append(header(8, 0, 0, offset=21))
    snapshots.take(22, durable=True)
    again = loaded(disk, 0, 22, replay_from=22)
    for number in range(2, 7):
        assert again.state.check(header(7, 0, 3 * number, 3)) == Duplicate(3 * number, 3 * number + 2, 1000 + number)
    assert again.state.check(header(8, 0, 0)) == Duplicate(21, 21, 1000)
    with pytest.raises(TidelogError) as caught:
        again.state.check(header(7, 0, 3, 3))
    assert caught.value.code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_load_removes_damaged_snapshots_and_takes_an_older_one(
    disk: MemoryFiles, snapshots: ProducerSnapshots, header: Header
) -> None:
    for number in range(4):
        snapshots.state.append(header(7, 0, number, offset=number))
        snapshots.take(number + 1, durable=True)
    disk.flip_bit(snapshot_path(DIRECTORY, 4), 30)
    disk.write_bytes(snapshot_path(DIRECTORY, 3), b"")
    again = loaded(disk, 0, 4, replay_from=2)
    assert again.state.check(header(7, 0, 1)) == Duplicate(1, 1, 1000)
    assert offsets(disk) == [1, 2]


def test_load_replays_from_the_start_when_no_snapshot_is_good(disk: MemoryFiles, snapshots: ProducerSnapshots) -> None:
    snapshots.take(5)
    disk.flip_bit(snapshot_path(DIRECTORY, 5), 3)
    again = loaded(disk, 3, 9, replay_from=3)
    assert again.state.entries() == []
    assert offsets(disk) == []


def test_load_ignores_snapshots_outside_of_the_log_and_removes_them(
    disk: MemoryFiles, snapshots: ProducerSnapshots
) -> None:
    for offset in (2, 5, 9):
        snapshots.take(offset)
    loaded(disk, 3, 8, replay_from=5)
    assert offsets(disk) == [5]


def test_load_removes_what_a_crash_left_of_a_snapshot(disk: MemoryFiles, snapshots: ProducerSnapshots) -> None:
    disk.write_bytes(DIRECTORY / "00000000000000000004.snapshot.tmp", b"half")
    disk.write_bytes(DIRECTORY / "leader-epoch-checkpoint.tmp", b"another's")
    loaded(disk, 0, 9, replay_from=0)
    assert disk.listdir(DIRECTORY) == ["leader-epoch-checkpoint.tmp"]


def test_load_leaves_out_producers_that_have_expired(
    disk: MemoryFiles, snapshots: ProducerSnapshots, header: Header
) -> None:
    snapshots.state.append(header(7, 0, 0, offset=0, timestamp_ms=1000))
    snapshots.state.append(header(8, 0, 0, offset=1, timestamp_ms=5000))
    snapshots.take(2)
    again = ProducerSnapshots(disk, DIRECTORY, EXPIRATION_MS)
    assert again.load(0, 2, now_ms=12_000) == 2
    assert [entry.producer_id for entry in again.state.entries()] == [8]


def test_truncation_goes_back_to_a_snapshot_and_removes_those_above(
    disk: MemoryFiles, snapshots: ProducerSnapshots, header: Header
) -> None:
    for number in range(6):
        snapshots.state.append(header(7, 0, number, offset=number))
        if number % 2:
            snapshots.take(number + 1)
    assert snapshots.load(0, 5, now_ms=0) == 4
    assert offsets(disk) == [2, 4]
    snapshots.state.append(header(7, 0, 4, offset=4))
    assert snapshots.state.check(header(7, 0, 5)) is None
    snapshots.check_invariants()


def test_truncation_to_a_snapshot_needs_no_replay(
    disk: MemoryFiles, snapshots: ProducerSnapshots, header: Header
) -> None:
    snapshots.state.append(header(7, 0, 0, offset=0))
    snapshots.take(1)
    snapshots.state.append(header(7, 0, 1, offset=1))
    assert snapshots.load(0, 1, now_ms=0) == 1
    assert snapshots.state.check(header(7, 0, 1)) is None


def test_truncated_snapshots_never_come_back_after_a_crash(disk: MemoryFiles, snapshots: ProducerSnapshots) -> None:
    for offset in (2, 4, 6):
        snapshots.take(offset, durable=True)
    snapshots.retain([2, 4])
    snapshots.delete_below(3)
    assert offsets(disk) == [4, 6]
    snapshots.load(0, 5, now_ms=0)
    disk.crash(random.Random(3))
    assert offsets(disk) == [4]


def test_snapshots_that_were_removed_without_a_sync_are_gone_after_a_truncation_below_them(
    disk: MemoryFiles, snapshots: ProducerSnapshots
) -> None:
    for offset in (2, 4, 6):
        snapshots.take(offset, durable=True)
    snapshots.retain([2])
    snapshots.delete_from(6)
    snapshots.load(0, 3, now_ms=0)
    disk.crash(random.Random(0))
    assert offsets(disk) == [2]


def test_snapshot_at_an_offset_that_has_one_is_not_written_again(
    disk: MemoryFiles, snapshots: ProducerSnapshots
) -> None:
    snapshots.take(5)
    snapshots.take(7)
    disk.fail = failing(28, "open", "pwrite", "rename")
    snapshots.take(5)
    snapshots.take(7, durable=True)
    assert snapshots.offsets == [5, 7]


def test_snapshots_are_retained_at_segment_bases_and_at_the_end(
    disk: MemoryFiles, snapshots: ProducerSnapshots
) -> None:
    for offset in (0, 3, 5, 8, 10, 12):
        snapshots.take(offset)
    snapshots.retain([0, 5, 10])
    assert offsets(disk) == [0, 5, 10, 12]
    snapshots.check_invariants()


def test_clear_forgets_producers_and_files(disk: MemoryFiles, snapshots: ProducerSnapshots, header: Header) -> None:
    snapshots.state.append(header(7, 0, 0))
    snapshots.take(1)
    snapshots.clear()
    assert snapshots.state.entries() == []
    assert offsets(disk) == []


@pytest.mark.parametrize("durable", [True, False])
@pytest.mark.parametrize("operation", ["open", "pwrite", "rename"])
def test_snapshot_on_a_failing_disk_is_a_storage_error_and_leaves_no_file(
    disk: MemoryFiles, snapshots: ProducerSnapshots, operation: str, durable: bool
) -> None:
    disk.fail = failing(28, operation)
    with pytest.raises(TidelogError, match="snapshot") as caught:
        snapshots.take(5, durable=durable)
    assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert disk.listdir(DIRECTORY) == []
    assert snapshots.offsets == []


def test_snapshot_is_whole_or_absent_when_the_machine_stops_at_any_step() -> None:
    def prepare(files: MemoryFiles) -> None:
        files.mkdir(DIRECTORY)
        files.fsync_directory(DIRECTORY.parent)

    def act(files: MemoryFiles, _: None) -> None:
        snapshots = ProducerSnapshots(files, DIRECTORY, EXPIRATION_MS)
        snapshots.load(0, 0, now_ms=0)
        snapshots.take(3, durable=True)
        snapshots.take(5)
        snapshots.flush()
        snapshots.load(0, 4, now_ms=0)

    def verify(files: MemoryFiles, _: None, is_done: bool) -> None:
        there = tuple(loaded(files, 0, 5).offsets)
        assert there == (3,) if is_done else set(there) <= {3, 5}

    crash_at_every_step(prepare, act, verify)


def test_flush_makes_snapshots_durable_and_passes_over_removed_ones(
    disk: MemoryFiles, snapshots: ProducerSnapshots
) -> None:
    snapshots.take(3)
    snapshots.take(5)
    snapshots.delete_below(4)
    snapshots.flush()
    disk.crash(random.Random(1))
    assert offsets(disk) == [5]
    assert decode_snapshot(disk.read_bytes(snapshot_path(DIRECTORY, 5))) == []
