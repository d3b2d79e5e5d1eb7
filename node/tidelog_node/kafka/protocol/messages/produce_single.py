"""The most frequent form of Produce in few steps: one batch for one partition, without a transactional id.

`decode_single` reads such a request, and leaves all others, valid or not, to :mod:`.produce`. `encode_single` writes
the answer to one that has succeeded. Both have the same bytes as there.
"""

from __future__ import annotations

from struct import Struct
from typing import Final, NamedTuple

from tidelog_foundation.records import HEADER_SIZE
from tidelog_node.kafka.protocol.messages.produce import FIRST_SERVED, FIRST_WITH_TOPIC_IDS, FLEXIBLE

_FIRST_WITH_START_OFFSET: Final = 5
_FIRST_WITH_MESSAGES: Final = 8
_NULL: Final = -1
_ONE: Final = 2
"""The compact length of an array with one element."""
_LONG: Final = 0x80
"""Compact lengths from here on have several bytes."""
_ID_BYTES: Final = 16
_TAGS: Final = 3
"""The number of the tagged fields, of the partition, the topic and the request: a byte each if there are none."""
_MAGIC_POSITION, _MAGIC = 16, 2
_ATTRIBUTES_POSITION: Final = 22
_COMPRESSED_OR_TRANSACTIONAL: Final = 0x17
MAX_BYTES: Final = 64 * 1024
"""The largest batch of such a request."""
_MAX_SHIFT: Final = 14
"""That of the third byte of a length, the last one of a small batch."""

_HEAD: Final = Struct(">hhiih").unpack_from
_PARTITION: Final = Struct(">iii").unpack_from
_COMPACT_HEAD: Final = Struct(">BhiB").unpack_from
_COMPACT_PARTITION: Final = Struct(">BiB").unpack_from
_ANSWER_V3: Final = Struct(">iihqqi").pack
_ANSWER_V5: Final = Struct(">iihqqqi").pack
_ANSWER_V8: Final = Struct(">iihqqqihi").pack
_ANSWER_HEAD: Final = Struct(">ih").pack
_COMPACT_ANSWER: Final = Struct(">BihqqqBBBBiB").pack


class SingleBatch(NamedTuple):
    """A request. Its topic has a name, or from version 13 on an id; ``place`` is either as it was sent.

    ``records`` are an uncompressed batch of magic 2 outside of transactions, of at most 64 KiB.
    """

    acks: int
    timeout_ms: int
    place: bytes
    partition: int
    records: memoryview


class Appended(NamedTuple):
    """The result of the batch."""

    base_offset: int
    log_append_time_ms: int
    log_start_offset: int


def decode_single(view: memoryview, position: int, version: int) -> SingleBatch | None:
    """Return the request in ``view`` from ``position`` to its end; None for any other request."""
    end = len(view)
    if version >= FLEXIBLE:
        found = _decode_compact(view, position, end, version)
    elif version >= FIRST_SERVED and end - position > 26:
        found = _decode_plain(view, position, end)
    else:
        return None
    if found is None:
        return None
    records = found.records
    size = len(records)
    if size < HEADER_SIZE or size > MAX_BYTES or records[_MAGIC_POSITION] != _MAGIC:
        return None
    return None if records[_ATTRIBUTES_POSITION] & _COMPRESSED_OR_TRANSACTIONAL else found


def _decode_plain(view: memoryview, position: int, end: int) -> SingleBatch | None:
    id_length, acks, timeout_ms, topics, length = _HEAD(view, position)
    begin = position + 14
    behind = begin + length
    if id_length != _NULL or topics != 1 or length <= 0 or behind + 12 > end:
        return None
    partitions, index, size = _PARTITION(view, behind)
    if partitions != 1 or size <= 0 or behind + 12 + size != end:
        return None
    return SingleBatch(acks, timeout_ms, bytes(view[begin:behind]), index, view[behind + 12 :])


def _decode_compact(view: memoryview, position: int, end: int, version: int) -> SingleBatch | None:
    if end - position < 32:
        return None
    id_length, acks, timeout_ms, topics = _COMPACT_HEAD(view, position)
    begin = position + 8
    length = _ID_BYTES
    if version < FIRST_WITH_TOPIC_IDS:
        length = view[begin] - 1
        begin += 1
    behind = begin + length
    if id_length or topics != _ONE or length <= 0 or length >= _LONG - 1 or behind + 10 > end:
        return None
    partitions, index, size = _COMPACT_PARTITION(view, behind)
    first, shift = behind + 6, 7
    if size >= _LONG:
        size &= 0x7F
        while shift <= _MAX_SHIFT:
            byte = view[first]
            first += 1
            size |= (byte & 0x7F) << shift
            if byte < _LONG:
                break
            shift += 7
        else:
            return None
    last = first + size - 1
    if partitions != _ONE or last + _TAGS != end or view[last] or view[last + 1] or view[last + 2]:
        return None
    return SingleBatch(acks, timeout_ms, bytes(view[begin:behind]), index, view[first:last])


def encode_single(batch: SingleBatch, result: Appended, version: int) -> bytes:
    """Return the body of the answer to a batch that was appended, and replicated as ``acks`` asks."""
    base_offset, time_ms, start_offset = result
    place, index = batch.place, batch.partition
    if version >= FLEXIBLE:
        answer = _COMPACT_ANSWER(_ONE, index, 0, base_offset, time_ms, start_offset, 1, 0, 0, 0, 0, 0)
        if version >= FIRST_WITH_TOPIC_IDS:
            return b"\x02" + place + answer
        return bytes((_ONE, len(place) + 1)) + place + answer
    head = _ANSWER_HEAD(1, len(place)) + place
    if version >= _FIRST_WITH_MESSAGES:
        return head + _ANSWER_V8(1, index, 0, base_offset, time_ms, start_offset, 0, _NULL, 0)
    if version >= _FIRST_WITH_START_OFFSET:
        return head + _ANSWER_V5(1, index, 0, base_offset, time_ms, start_offset, 0)
    return head + _ANSWER_V3(1, index, 0, base_offset, time_ms, 0)
