"""Distinguishes a write that a crash cut short from damage to acknowledged ones, in RocksDB's write-ahead logs.

RocksDB silently ends its recovery at the first unreadable record. That is right for the last write before a crash,
which was never acknowledged, but damage anywhere would drop everything after it. So the logs are checked before RocksDB
opens them. A broken record is the end of a torn write if

- no other complete write begins after it (each begins only after the previous one was synced), and
- its length reaches beyond the file, or a part as large as a sector was never written, so is all zeros.

This check takes a flipped bit in the length of the very last record for a torn write.

Format (RocksDB wiki, "Write Ahead Log File Format"): blocks of 32 KiB; a record never spans blocks and has a header of
7 bytes: masked CRC-32C of type and payload, length, type; all little-endian. A write is one FULL record or one FIRST,
any MIDDLE and one LAST.
"""

from __future__ import annotations

import re
import struct
from pathlib import Path

import crc32c

from tidelog_foundation.errors import ErrorCode, error_for

_BLOCK_SIZE = 32 * 1024
_SECTOR_SIZE = 512
_HEADER = struct.Struct("<IHB")
_MASK_DELTA = 0xA282EAD8
_ZERO, _FULL, _FIRST, _MIDDLE = 0, 1, 2, 3
_BEGIN = re.compile(b"[%c%c]" % (_FULL, _FIRST))


def check_wal(directory: Path) -> None:
    """Raise an error if a write-ahead log in ``directory`` has damage other than a torn last write.

    Raises:
        TidelogError: CORRUPT_MESSAGE, with the file and the position of the damage.
    """
    for path in sorted(directory.glob("*.log")):
        data = path.read_bytes()
        broken = _first_broken(data)
        if broken is not None and (_write_begins_after(data, broken) or not _is_torn(data, broken)):
            raise error_for(ErrorCode.CORRUPT_MESSAGE, f"the metadata log is damaged: {path} at position {broken}")


def _first_broken(data: bytes) -> int | None:
    position = 0
    while position + _HEADER.size <= len(data):
        room = _BLOCK_SIZE - position % _BLOCK_SIZE
        if room < _HEADER.size:
            position += room
            continue
        size = _record_size(data, position, room)
        if size is None:
            return position
        position += size
    return None


def _write_begins_after(data: bytes, broken: int) -> bool:
    """Return whether a write begins after the broken record, which hides record starts only in its own block."""
    position = broken
    while position < len(data):
        block_end = position - position % _BLOCK_SIZE + _BLOCK_SIZE
        while (size := _record_size(data, position, block_end - position)) is not None:
            if data[position + 6] in (_FULL, _FIRST):
                return True
            position += size
        if not _fills_block(data, position, block_end) and _write_begins_within(data, position + 1, block_end):
            return True
        position = block_end
    return False


def _fills_block(data: bytes, position: int, block_end: int) -> bool:
    """Return whether a broken record claims to continue in the next block, so that no record follows it in this one."""
    if block_end - position < _HEADER.size or block_end > len(data):
        return False
    _, length, kind = _HEADER.unpack_from(data, position)
    return kind in (_FIRST, _MIDDLE) and position + _HEADER.size + length == block_end


def _write_begins_within(data: bytes, start: int, block_end: int) -> bool:
    for kind in _BEGIN.finditer(data, start + 6, block_end):
        position = kind.start() - 6
        if _record_size(data, position, block_end - position) is not None:
            return True
    return False


def _is_torn(data: bytes, broken: int) -> bool:
    length = _HEADER.unpack_from(data, broken)[1]
    if broken + _HEADER.size + length > len(data):
        return True
    start = broken
    while start < len(data):
        end = start - start % _SECTOR_SIZE + _SECTOR_SIZE
        if not any(data[start:end]):
            return True
        start = end
    return False


def _record_size(data: bytes, position: int, room: int) -> int | None:
    """Return the size, with header, of the record at ``position``; None if it is incomplete or altered."""
    if room < _HEADER.size or len(data) - position < _HEADER.size:
        return None
    checksum, length, kind = _HEADER.unpack_from(data, position)
    end = position + _HEADER.size + length
    if kind == _ZERO or length > room - _HEADER.size or end > len(data):
        return None
    crc = crc32c.crc32c(data[position + 6 : end])
    masked = (((crc >> 15) | (crc << 17)) + _MASK_DELTA) & 0xFFFFFFFF
    return end - position if masked == checksum else None
