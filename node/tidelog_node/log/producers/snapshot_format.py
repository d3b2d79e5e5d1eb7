"""The format of a producer snapshot: Kafka's ProducerSnapshot.json, version 1, and a section of Tidelog's own.

``version`` int16, ``crc`` uint32 (CRC-32C of everything after it), the number of entries int32, the entries. An entry
has the last batch of its producer. The section behind them has the earlier ones of the last five, so that duplicates
are recognized after a clean shutdown: ``TIDE``, its version int16, then until the end of the file for each batch, by
ascending producer id and offset: producer id int64, last sequence int32, last offset int64, offset delta int32,
timestamp int64. The section includes the last batch if its own timestamp differs from the entry's, which is the time of
the append: the answer to a duplicate needs it. Version 1 had only the earlier batches.

Kafka (ProducerStateManager.readSnapshot) computes the CRC to the end of the file but reads only the entries, so it
ignores the section. Kafka's files have no section, nor has a file without earlier batches. A section of another version
is ignored. Any other bytes behind the entries are a fault, as are truncated or altered ones.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

from crc32c import crc32c

from tidelog_node.log.producers.entries import NO_TIME, RETAINED_BATCHES, BatchMetadata, ProducerEntry

SNAPSHOT_VERSION = 1
SECTION_MAGIC = b"TIDE"
SECTION_VERSION = 2
_KNOWN_SECTIONS = (1, SECTION_VERSION)
_PREFIX = struct.Struct(">hI")
_COUNT = struct.Struct(">i")
_ENTRY = struct.Struct(">qhiqiqiq")
_ENTRIES_POSITION = _PREFIX.size + _COUNT.size
_SECTION = struct.Struct(">4sh")
_OLDER_BATCH = struct.Struct(">qiqiq")


def encode_snapshot(entries: Sequence[ProducerEntry]) -> bytes:
    """Return the file's content, by ascending producer id."""
    entries = sorted(entries, key=lambda entry: entry.producer_id)
    body = bytearray(_COUNT.pack(len(entries)))
    for entry in entries:
        body += _ENTRY.pack(
            entry.producer_id,
            entry.producer_epoch,
            entry.last_sequence,
            entry.last_offset,
            entry.offset_delta,
            entry.last_timestamp,
            entry.coordinator_epoch,
            entry.current_txn_first_offset,
        )
    older = [_OLDER_BATCH.pack(entry.producer_id, *batch) for entry in entries for batch in _listed_batches(entry)]
    if older:
        body += _SECTION.pack(SECTION_MAGIC, SECTION_VERSION) + b"".join(older)
    return _PREFIX.pack(SNAPSHOT_VERSION, crc32c(body)) + bytes(body)


def decode_snapshot(data: bytes) -> list[ProducerEntry]:
    """Return the entries of a snapshot file, with their older batches if it has them.

    Raises:
        ValueError: the bytes are truncated, altered or of another version; the text says which.
    """
    _check_prefix(data)
    (count,) = _COUNT.unpack_from(data, _PREFIX.size)
    section_position = _ENTRIES_POSITION + count * _ENTRY.size
    if count < 0 or len(data) < section_position:
        raise ValueError(
            f"the snapshot should have {count} entries, {len(data) - _ENTRIES_POSITION} bytes of them are there"
        )
    entries = [ProducerEntry(*fields) for fields in _ENTRY.iter_unpack(data[_ENTRIES_POSITION:section_position])]
    older = _older_batches(data[section_position:])
    unknown = older.keys() - {entry.producer_id for entry in entries}
    if unknown:
        raise ValueError(f"the snapshot has older batches of the producers {sorted(unknown)} without entries")
    return [_with_older_batches(entry, older.get(entry.producer_id, ())) for entry in entries]


def _listed_batches(entry: ProducerEntry) -> tuple[BatchMetadata, ...]:
    return entry.older_batches if entry.batch_timestamp == NO_TIME else entry.batches


def _check_prefix(data: bytes) -> None:
    if len(data) < _ENTRIES_POSITION:
        raise ValueError(f"the snapshot has {len(data)} bytes, at least {_ENTRIES_POSITION} are needed")
    version, crc = _PREFIX.unpack_from(data)
    if version != SNAPSHOT_VERSION:
        raise ValueError(f"the snapshot has version {version}, expected {SNAPSHOT_VERSION}")
    actual = crc32c(data[_PREFIX.size :])
    if crc != actual:
        raise ValueError(f"the snapshot has CRC {crc:#010x}, computed {actual:#010x}")


def _older_batches(section: bytes) -> dict[int, tuple[BatchMetadata, ...]]:
    if not section:
        return {}
    if len(section) < _SECTION.size or not section.startswith(SECTION_MAGIC):
        raise ValueError(f"the snapshot has {len(section)} unknown bytes after its entries")
    _, version = _SECTION.unpack_from(section)
    if version not in _KNOWN_SECTIONS:
        return {}
    rows = section[_SECTION.size :]
    if len(rows) % _OLDER_BATCH.size:
        raise ValueError(f"the snapshot has {len(rows)} bytes of older batches, a batch has {_OLDER_BATCH.size}")
    found: dict[int, tuple[BatchMetadata, ...]] = {}
    for producer_id, *fields in _OLDER_BATCH.iter_unpack(rows):
        found[producer_id] = (*found.get(producer_id, ()), BatchMetadata(*fields))
    return found


def _with_older_batches(entry: ProducerEntry, older: tuple[BatchMetadata, ...]) -> ProducerEntry:
    if not older:
        return entry
    *before, last = older
    if last[:-1] == (entry.last_sequence, entry.last_offset, entry.offset_delta):
        entry = replace(entry, older_batches=tuple(before), batch_timestamp=last.timestamp_ms)
    else:
        entry = replace(entry, older_batches=older)
    is_ascending = all(earlier.last_offset < later.base_offset for earlier, later in pairwise(entry.batches))
    is_sound = is_ascending and all(0 <= batch.base_offset <= batch.last_offset for batch in entry.batches)
    if entry.last_offset < 0 or len(entry.batches) > RETAINED_BATCHES or not is_sound:
        raise ValueError(f"the snapshot has older batches that cannot be its producer's: {entry}")
    return entry
