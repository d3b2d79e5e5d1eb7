"""The distinction of a write-ahead log's torn end from damage, on logs in RocksDB's format that the test writes."""

from __future__ import annotations

import random
import struct
import time
from pathlib import Path

import crc32c
import pytest
from example_counts import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from tidelog_foundation.errors import ErrorCode, TidelogError
from tidelog_quorum.raft.storage.wal import check_wal

BLOCK, PAGE = 32 * 1024, 4 * 1024
FULL, FIRST, MIDDLE, LAST = 1, 2, 3, 4


def record(kind: int, payload: bytes) -> bytes:
    crc = crc32c.crc32c(bytes([kind]) + payload)
    masked = (((crc >> 15) | (crc << 17)) + 0xA282EAD8) & 0xFFFFFFFF
    return struct.pack("<IHB", masked, len(payload), kind) + payload


def log_of(*writes: bytes) -> tuple[bytes, list[int]]:
    """Return the log and where each write begins."""
    log, begins = bytearray(), []
    for payload in writes:
        rest, is_first = payload, True
        while rest or is_first:
            room = BLOCK - len(log) % BLOCK
            if room < 7:
                log += bytes(room)
                room = BLOCK
            part, rest = rest[: room - 7], rest[room - 7 :]
            if is_first:
                begins.append(len(log))
            kind = (FIRST if rest else FULL) if is_first else (MIDDLE if rest else LAST)
            log += record(kind, part)
            is_first = False
    return bytes(log), begins


def is_refused(directory: Path, data: bytes) -> bool:
    (directory / "000001.log").write_bytes(data)
    try:
        check_wal(directory)
    except TidelogError as error:
        return error.code is ErrorCode.CORRUPT_MESSAGE
    return False


def payloads(*sizes: int) -> list[bytes]:
    return [random.Random(index).randbytes(size) for index, size in enumerate(sizes)]


sizes = st.lists(st.sampled_from([0, 1, 100, 5_000, BLOCK - 7, BLOCK, 3 * BLOCK + 11]), min_size=2, max_size=6)


@settings(max_examples=examples(60), deadline=None)
@given(sizes, st.data())
def test_wal_with_a_flipped_bit_before_its_last_write_is_refused(
    tmp_path_factory: pytest.TempPathFactory, sizes: list[int], data: st.DataObject
) -> None:
    log, begins = log_of(*payloads(*sizes))
    directory = tmp_path_factory.mktemp("flip")
    assert not is_refused(directory, log)
    position = data.draw(st.integers(0, begins[-1] - 1))
    is_padding = BLOCK - position % BLOCK < 7 and not any(log[position : position - position % BLOCK + BLOCK])
    flipped = bytes([log[position] ^ 1 << data.draw(st.integers(0, 7))])
    assert is_refused(directory, log[:position] + flipped + log[position + 1 :]) or is_padding


@settings(max_examples=examples(60), deadline=None)
@given(sizes, st.data())
def test_wal_whose_last_write_is_torn_is_accepted(
    tmp_path_factory: pytest.TempPathFactory, sizes: list[int], data: st.DataObject
) -> None:
    log, begins = log_of(*payloads(*sizes))
    directory = tmp_path_factory.mktemp("torn")
    cut = data.draw(st.integers(begins[-1], len(log)))
    assert not is_refused(directory, log[:cut])
    first_page = -(-begins[-1] // PAGE)
    lost = data.draw(st.sets(st.integers(first_page, max(first_page, len(log) // PAGE))))
    torn = bytearray(log)
    for page in lost:
        end = min(len(log), (page + 1) * PAGE)
        torn[page * PAGE : end] = bytes(max(0, end - page * PAGE))
    assert not is_refused(directory, bytes(torn))


@pytest.mark.costly
@pytest.mark.parametrize(("content", "lost_page"), [(b"", 0), (b"\x01", 3), (b"\x00\x20\x01", 3)])
def test_wal_with_a_big_torn_write_is_checked_quickly(tmp_path: Path, content: bytes, lost_page: int) -> None:
    size = 16 * 1024 * 1024
    big = (content * size)[:size] if content else payloads(size)[0]
    log = bytearray(log_of(b"small", big)[0])
    for block in range(BLOCK, len(log), BLOCK):
        start = block + lost_page * PAGE
        log[start : start + PAGE] = bytes(PAGE)
    started = time.process_time()
    assert not is_refused(tmp_path, bytes(log))
    assert time.process_time() - started < 2
