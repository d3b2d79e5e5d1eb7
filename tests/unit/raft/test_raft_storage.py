"""The voter's disk: what was written survives a kill, damage is told by name, a full disk is an error."""

from __future__ import annotations

import os
import resource
import signal
import struct
import time
from collections.abc import Callable
from pathlib import Path

import crc32c
import pytest
from rocksdict import Options, Rdict

from tidelog_foundation.errors import ErrorCode, TidelogError
from tidelog_quorum.raft.core.commands import Persist
from tidelog_quorum.raft.core.messages import Entry, EntryKind, HardState
from tidelog_quorum.raft.core.voters import Voter, VoterSet
from tidelog_quorum.raft.storage.raft_storage import RaftStorage, open_storage
from tidelog_quorum.raft.storage.stored_log import StoredState, read_stored_log

DIRECTORY_ID = bytes(range(16))


def entries(start: int, end: int, term: int = 1, size: int = 100) -> tuple[Entry, ...]:
    return tuple(Entry(i, term, EntryKind.DATA, bytes([i % 256]) * size) for i in range(start, end))


def append(start: int, end: int, term: int = 1, size: int = 100) -> Persist:
    return Persist(0, None, None, entries(start, end, term, size))


def reopen(directory: Path) -> StoredState:
    storage, state = open_storage(directory, "c", 1)
    storage.close()
    return state


def stored(hard_state: HardState, entries: tuple[Entry, ...] = ()) -> StoredState:
    return StoredState(hard_state, entries, directory_id=DIRECTORY_ID)


def write_and_be_killed(directory: Path, write: Callable[[RaftStorage], None]) -> None:
    """Run ``write`` in a child that dies by SIGKILL right after it, with the database open."""
    child = os.fork()
    if child == 0:
        try:
            storage, _ = open_storage(directory, "c", 1, lambda: DIRECTORY_ID)
            write(storage)
        finally:
            os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(child, 0)


def wal_of(directory: Path) -> Path:
    return max(directory.glob("*.log"), key=lambda path: path.stat().st_size)


def flip_bit(path: Path, position: int) -> None:
    data = bytearray(path.read_bytes())
    data[position] ^= 0x40
    path.write_bytes(data)


def test_storage_gives_back_what_it_took_after_a_restart(tmp_path: Path) -> None:
    storage, state = open_storage(tmp_path, "c", 1, lambda: DIRECTORY_ID)
    assert state == stored(HardState())
    storage.write([Persist(1, HardState(3, None), None, entries(1, 4)), Persist(2, HardState(4, 0), None, ())])
    storage.write([append(4, 6, term=4)])
    storage.close()
    assert reopen(tmp_path) == stored(HardState(4, 0), entries(1, 4) + entries(4, 6, term=4))


def test_storage_replaces_what_is_truncated_also_within_one_write(tmp_path: Path) -> None:
    storage, _ = open_storage(tmp_path, "c", 1)
    storage.write([append(1, 8), Persist(2, None, 3, entries(3, 5, term=2)), Persist(3, None, 4, ())])
    storage.close()
    assert reopen(tmp_path).entries == entries(1, 3) + entries(3, 4, term=2)


def test_storage_of_a_fresh_folder_opens_quickly(tmp_path: Path) -> None:
    durations = []
    for name in "abc":
        started = time.perf_counter()
        storage, _ = open_storage(tmp_path / name, "c", 1)
        durations.append(time.perf_counter() - started)
        storage.close()
    assert min(durations) < 0.1


def test_storage_keeps_every_acknowledged_write_when_killed(tmp_path: Path) -> None:
    def write(storage: RaftStorage) -> None:
        for i in range(1, 51):
            storage.write([Persist(i, HardState(i), None, entries(i, i + 1))])

    write_and_be_killed(tmp_path, write)
    assert reopen(tmp_path) == stored(HardState(50), entries(1, 51))


def test_storage_drops_a_torn_last_write_and_nothing_else(tmp_path: Path) -> None:
    write_and_be_killed(tmp_path, lambda storage: [storage.write([append(i, i + 1)]) for i in range(1, 21)])
    wal = wal_of(tmp_path)
    os.truncate(wal, wal.stat().st_size - 30)
    assert reopen(tmp_path).entries == entries(1, 20)


def test_storage_drops_a_torn_write_of_many_blocks_as_a_whole(tmp_path: Path) -> None:
    def write(storage: RaftStorage) -> None:
        storage.write([append(1, 3)])
        storage.write([append(3, 40, size=10_000)])

    write_and_be_killed(tmp_path, write)
    wal = wal_of(tmp_path)
    data = bytearray(wal.read_bytes())
    # A page in the middle did not reach the disk, later ones did.
    data[40_960:45_056] = bytes(4_096)
    wal.write_bytes(data)
    assert reopen(tmp_path).entries == entries(1, 3)


def test_storage_refuses_to_start_when_a_bit_of_its_last_write_has_flipped(tmp_path: Path) -> None:
    write_and_be_killed(tmp_path, lambda storage: [storage.write([append(i, i + 1)]) for i in range(1, 21)])
    flip_bit(wal_of(tmp_path), wal_of(tmp_path).stat().st_size - 30)
    with pytest.raises(TidelogError, match="damaged"):
        reopen(tmp_path)


@pytest.mark.parametrize("field", ["checksum", "length", "kind", "payload"])
def test_storage_refuses_to_start_when_a_bit_of_its_log_has_flipped(tmp_path: Path, field: str) -> None:
    write_and_be_killed(tmp_path, lambda storage: [storage.write([append(i, i + 1)]) for i in range(1, 21)])
    wal = wal_of(tmp_path)
    first_size = 7 + int.from_bytes(wal.read_bytes()[4:6], "little")
    flip_bit(wal, first_size + {"checksum": 0, "length": 5, "kind": 6, "payload": 30}[field])
    with pytest.raises(TidelogError, match="damaged") as refused:
        reopen(tmp_path)
    assert refused.value.code is ErrorCode.CORRUPT_MESSAGE
    assert str(tmp_path) in refused.value.message


def test_storage_names_the_index_when_an_entry_is_damaged(tmp_path: Path) -> None:
    storage, _ = open_storage(tmp_path, "c", 1)
    storage.write([append(1, 10)])
    storage.close()
    change(tmp_path, b"e" + (7).to_bytes(8, "big"), lambda value: value[:-1] + bytes([value[-1] ^ 1]))
    with pytest.raises(TidelogError, match=r"entry at index 7 of the metadata log .* is damaged"):
        reopen(tmp_path)


def test_storage_keeps_the_voters_of_an_entry_and_names_the_index_when_they_cannot_be_read(tmp_path: Path) -> None:
    voters = Entry(1, 1, EntryKind.VOTERS, voters=VoterSet([Voter.at(1, "a", 9093), Voter.at(2, "b", 9093, bytes(16))]))
    storage, _ = open_storage(tmp_path, "c", 1)
    storage.write([Persist(1, HardState(1), None, (voters,))])
    storage.close()
    assert reopen(tmp_path).entries == (voters,)
    key = b"e" + (1).to_bytes(8, "big")
    change(tmp_path, key, lambda value: sealed(key, value[4:9] + b"\xff"))
    with pytest.raises(TidelogError, match=r"entry at index 1 of the metadata log .* not a set of voters") as refused:
        reopen(tmp_path)
    assert refused.value.code is ErrorCode.CORRUPT_MESSAGE


@pytest.mark.parametrize("index", [1, 5, 9])
def test_storage_names_the_index_when_an_entry_is_missing(tmp_path: Path, index: int) -> None:
    storage, _ = open_storage(tmp_path, "c", 1)
    storage.write([append(1, 10)])
    storage.close()
    change(tmp_path, b"e" + index.to_bytes(8, "big"), lambda _: None)
    with pytest.raises(TidelogError, match=f"entry at index {index} of the metadata log .* is missing, entries 1 to 9"):
        reopen(tmp_path)


def test_storage_names_an_index_when_a_table_file_has_a_flipped_bit(tmp_path: Path) -> None:
    storage, _ = open_storage(tmp_path, "c", 1)
    storage.write([append(1, 2000)])
    storage.close()
    reopen(tmp_path)
    table = max(tmp_path.glob("*.sst"), key=lambda path: path.stat().st_size)
    flip_bit(table, table.stat().st_size // 2)
    with pytest.raises(TidelogError, match=r"entry at index \d+ of .* cannot be read: Corruption"):
        reopen(tmp_path)


def test_storage_refuses_the_folder_of_another_cluster_or_voter(tmp_path: Path) -> None:
    reopen(tmp_path)
    with pytest.raises(TidelogError, match=r'is of cluster "c", cluster\.id is "d"') as cluster:
        open_storage(tmp_path, "d", 1)
    assert cluster.value.code is ErrorCode.INCONSISTENT_CLUSTER_ID
    with pytest.raises(TidelogError, match=r"is controller 1's, node\.id is 2"):
        open_storage(tmp_path, "c", 2)


def test_storage_keeps_the_directory_id_that_was_drawn_first(tmp_path: Path) -> None:
    first = reopen(tmp_path)
    assert len(first.directory_id) == 16
    assert reopen(tmp_path).directory_id == first.directory_id
    assert reopen(tmp_path.with_name("other")).directory_id != first.directory_id


def test_storage_upgrades_a_folder_of_format_1(tmp_path: Path) -> None:
    write_format_1(tmp_path, HardState(7, 3), entries(1, 6, term=7))
    _, before = read_stored_log(tmp_path)
    assert before == StoredState(HardState(7, 3), entries(1, 6, term=7))
    upgraded = reopen(tmp_path)
    assert upgraded == StoredState(HardState(7, 3), entries(1, 6, term=7), directory_id=upgraded.directory_id)
    assert len(upgraded.directory_id) == 16
    identity, again = read_stored_log(tmp_path)
    assert again == upgraded
    assert (identity.format, identity.node_id, identity.cluster_id) == (2, 1, "c")


def test_storage_of_format_1_is_left_as_it_is_when_it_is_another_voters(tmp_path: Path) -> None:
    write_format_1(tmp_path, HardState(7, 3), entries(1, 6, term=7))
    with pytest.raises(TidelogError, match=r"is controller 1's, node\.id is 2"):
        open_storage(tmp_path, "c", 2)
    assert read_stored_log(tmp_path)[0].format == 1


def test_storage_refuses_a_format_that_it_does_not_know(tmp_path: Path) -> None:
    reopen(tmp_path)
    change(tmp_path, b"m", lambda value: sealed(b"m", (3).to_bytes(4, "big") + value[8:]))
    with pytest.raises(TidelogError, match="of format 3, this version reads 1 to 2") as refused:
        reopen(tmp_path)
    assert refused.value.code is ErrorCode.UNSUPPORTED_VERSION


def test_stored_log_is_read_without_being_changed(tmp_path: Path) -> None:
    write_and_be_killed(tmp_path, lambda storage: storage.write([append(1, 4)]))
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    identity, state = read_stored_log(tmp_path)
    assert state == stored(HardState(), entries(1, 4))
    assert identity.directory_id == DIRECTORY_ID
    after = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert {n: c for n, c in after.items() if n in before and not n.startswith("LOG")} == {
        n: c for n, c in before.items() if not n.startswith("LOG")
    }


def test_storage_refuses_a_folder_that_is_in_use(tmp_path: Path) -> None:
    storage, _ = open_storage(tmp_path, "c", 1)
    with pytest.raises(TidelogError, match="in use by another process"):
        open_storage(tmp_path, "c", 1)
    storage.close()


def test_storage_raises_when_the_disk_is_full_and_keeps_what_it_acknowledged(tmp_path: Path) -> None:
    storage, _ = open_storage(tmp_path, "c", 1)
    acknowledged, full = 0, None
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (30_000, hard))
    try:
        while acknowledged < 1000:
            storage.write([append(acknowledged + 1, acknowledged + 2)])
            acknowledged += 1
    except TidelogError as error:
        full = error
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert full is not None
    assert full.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert "cannot write to the metadata log" in full.message
    with pytest.raises(TidelogError, match="cannot close"):
        storage.close()
    kept = reopen(tmp_path).entries
    assert len(kept) >= acknowledged > 100
    assert kept == entries(1, len(kept) + 1)


def sealed(key: bytes, body: bytes) -> bytes:
    return struct.pack(">I", crc32c.crc32c(key + body)) + body


def write_format_1(directory: Path, hard_state: HardState, kept: tuple[Entry, ...]) -> None:
    """Make a folder as the format's first version did."""
    options = Options(raw_mode=True)
    options.create_if_missing(True)
    database = Rdict(str(directory), options)
    values = {
        b"m": struct.pack(">Ii", 1, 1) + b"c",
        b"h": struct.pack(">i?iQ", hard_state.term, hard_state.voted_for is not None, hard_state.voted_for, len(kept)),
    }
    values |= {b"e" + struct.pack(">Q", e.index): struct.pack(">iB", e.term, e.kind) + e.payload for e in kept}
    for key, body in values.items():
        database[key] = sealed(key, body)
    database.close()


def change(directory: Path, key: bytes, by: Callable[[bytes], bytes | None]) -> None:
    """Change a value behind the storage's back."""
    database = Rdict(str(directory), Options(raw_mode=True))
    value = by(database[key])
    if value is None:
        del database[key]
    else:
        database[key] = value
    database.close()
