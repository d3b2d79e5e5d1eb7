"""The bytes of a producer snapshot: Kafka's ProducerSnapshot.json, version 1.

``version`` int16, ``crc`` uint32 (CRC-32C of all that follows it), the number of entries int32, the entries. Kafka
refuses no bytes behind the entries, but its CRC covers them; here they are a fault, as anything torn or changed is.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

from crc32c import crc32c

from tidelog_node.log.producers.state import ProducerEntry

SNAPSHOT_VERSION = 1
_PREFIX = struct.Struct(">hI")
_COUNT = struct.Struct(">i")
_ENTRY = struct.Struct(">qhiqiqiq")
_ENTRIES_POSITION = _PREFIX.size + _COUNT.size


def encode_snapshot(entries: Sequence[ProducerEntry]) -> bytes:
    """Return the file's content, by ascending producer id."""
    body = bytearray(_COUNT.pack(len(entries)))
    for entry in sorted(entries, key=lambda entry: entry.producer_id):
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
    return _PREFIX.pack(SNAPSHOT_VERSION, crc32c(body)) + bytes(body)


def decode_snapshot(data: bytes) -> list[ProducerEntry]:
    """Return the entries of a snapshot file.

    Raises:
        ValueError: the bytes are torn, changed or of another version; the sentence says which.
    """
    if len(data) < _ENTRIES_POSITION:
        raise ValueError(f"the snapshot has {len(data)} bytes, at least {_ENTRIES_POSITION} are needed")
    version, crc = _PREFIX.unpack_from(data)
    if version != SNAPSHOT_VERSION:
        raise ValueError(f"the snapshot has version {version}, expected {SNAPSHOT_VERSION}")
    actual = crc32c(data[_PREFIX.size :])
    if crc != actual:
        raise ValueError(f"the snapshot says CRC {crc:#010x}, its bytes have {actual:#010x}")
    (count,) = _COUNT.unpack_from(data, _PREFIX.size)
    if count < 0 or len(data) - _ENTRIES_POSITION != count * _ENTRY.size:
        raise ValueError(f"the snapshot says {count} entries, {len(data) - _ENTRIES_POSITION} bytes of them are there")
    return [ProducerEntry(*fields) for fields in _ENTRY.iter_unpack(data[_ENTRIES_POSITION:])]
