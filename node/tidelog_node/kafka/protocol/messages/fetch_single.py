"""The most frequent form of Fetch in few steps: one partition of a topic named by id, from version 13 on.

The functions have the results and the bytes of :mod:`.fetch_request` and :mod:`.fetch_response`. They return None for
any other message, valid or not, which those modules read and write.
"""

from __future__ import annotations

from struct import Struct
from typing import Final

from tidelog_foundation.ids import BrokerEpoch, BrokerId, LeaderEpoch
from tidelog_node.fetching import FetchRequest, FetchResponse, FetchResult, FetchSpec, SessionStep
from tidelog_node.kafka.protocol.messages import fetch_parts as parts
from tidelog_node.kafka.protocol.writer import Buffer

_ONE: Final = 2
"""The compact length of an array with one element."""
_EMPTY: Final = 1
_NULL: Final = 0
_ID_BYTES: Final = 16
_NONE: Final = -1
_REPLICA_TAG: Final = 1
_REPLICA_TAG_BYTES: Final = 13
_READ_COMMITTED: Final = 1
_JOINED_BYTES: Final = 4_096
"""Records below this size are copied, as by :class:`~tidelog_node.kafka.protocol.writer.Writer`."""
_LONG: Final = 0x80

_REPLICA_ID: Final = Struct(">i")
_REQUEST: Final = Struct(">iiibiiB16sBiiqiqiBBBBB")
"""From the longest wait to the number of tagged fields: the limits, the session, one topic with one partition, the
number of forgotten topics, and an empty rack."""
_REPLICA: Final = Struct(">BBiqB")
"""The only tagged field of a follower's request."""
_RESPONSE: Final = Struct(">ihiB16sBihqqqBi")
"""From the throttle time to the preferred replica."""
_TAGS: Final = b"\0\0\0"
"""The tagged fields of the partition, the topic and the response."""
_PLAIN_SIZE: Final = _REQUEST.size
_FOLLOWER_SIZE: Final = _REQUEST.size + _REPLICA.size


def decode_request_of_one(view: memoryview, position: int, version: int) -> FetchRequest | None:
    """Return the request in ``view`` from ``position`` to its end, if it names one partition and has an empty rack."""
    if version < parts.WITH_TOPIC_IDS:
        return None
    replica = None
    if version < parts.WITH_REPLICA_STATE:
        if len(view) - position != _REPLICA_ID.size + _PLAIN_SIZE or _REPLICA_ID.unpack_from(view, position)[0] >= 0:
            return None
        position += _REPLICA_ID.size
    size = len(view) - position
    if size not in (_PLAIN_SIZE, _FOLLOWER_SIZE):
        return None
    fields = _REQUEST.unpack_from(view, position)
    max_wait_ms, min_bytes, max_bytes, isolation, session_id, session_epoch, topics, topic_id, partitions = fields[:9]
    index, epoch, offset, last_epoch, log_start, most, end, topic_end, forgotten, rack, tags = fields[9:]
    if (topics, partitions, end, topic_end, forgotten, rack) != (_ONE, _ONE, 0, 0, _EMPTY, _EMPTY):
        return None
    if size == _FOLLOWER_SIZE:
        tag, tag_size, replica_id, replica_epoch, tag_end = _REPLICA.unpack_from(view, position + _PLAIN_SIZE)
        if (tags, tag, tag_size, tag_end) != (1, _REPLICA_TAG, _REPLICA_TAG_BYTES, 0):
            return None
        replica = None if replica_id < 0 else (BrokerId(replica_id), BrokerEpoch(replica_epoch))
    elif tags:
        return None
    spec = FetchSpec(
        topic_id,
        offset,
        most,
        None if epoch < 0 else LeaderEpoch(epoch),
        None if last_epoch < 0 else LeaderEpoch(last_epoch),
        log_start,
    )
    return FetchRequest(
        {(topic_id, index): spec},
        max_bytes,
        max_wait_ms,
        min_bytes,
        replica,
        isolation == _READ_COMMITTED,
        session=SessionStep(session_id, session_epoch),
        uses_topic_ids=True,
        may_read_followers=True,
    )


def encode_request_of_one(request: FetchRequest, version: int) -> bytes | None:
    """Return the body of a follower's request in a session that names one partition."""
    session, replica = request.session, request.replica
    if version < parts.WITH_REPLICA_STATE or session is None or session.ends_wait or replica is None:
        return None
    if len(request.wanted) != 1 or request.forgotten or request.rack_id or request.cluster_id:
        return None
    [((topic, index), spec)] = request.wanted.items()
    if not isinstance(topic, bytes) or len(topic) != _ID_BYTES:
        return None
    _, offset, most, epoch, last_epoch, log_start = spec
    return _REQUEST.pack(
        request.max_wait_ms,
        request.min_bytes,
        request.max_bytes,
        _READ_COMMITTED if request.is_read_committed else 0,
        session.id,
        session.epoch,
        _ONE,
        topic,
        _ONE,
        index,
        _NONE if epoch is None else epoch,
        offset,
        _NONE if last_epoch is None else last_epoch,
        log_start,
        most,
        0,
        0,
        _EMPTY,
        _EMPTY,
        1,
    ) + _REPLICA.pack(_REPLICA_TAG, _REPLICA_TAG_BYTES, *replica, 0)


def encode_response_of_one(response: FetchResponse, version: int) -> list[Buffer] | None:
    """Return the chunks of the body of a response with records, or only offsets, of one partition."""
    if version < parts.WITH_TOPIC_IDS or len(response.topics) != 1 or response.error is not None:
        return None
    [(topic, results)] = response.topics.items()
    if len(results) != 1 or not isinstance(topic, bytes) or len(topic) != _ID_BYTES:
        return None
    [result] = results
    if result.error is not None or result.aborted or result.diverging is not None or result.current_leader is not None:
        return None
    records, preferred = result.records, result.preferred_replica
    size = len(records)
    head = _RESPONSE.pack(
        response.throttle_time_ms,
        0,
        response.session_id,
        _ONE,
        topic,
        _ONE,
        result.index,
        0,
        result.high_watermark,
        result.last_stable_offset,
        result.log_start_offset,
        _NULL if result.aborted is None else _EMPTY,
        _NONE if preferred is None else preferred,
    ) + _varint(size + 1)
    if size < _JOINED_BYTES:
        return [b"".join((head, records, _TAGS))]
    return [head, records, _TAGS]


def decode_response_of_one(view: memoryview, position: int, version: int) -> FetchResponse | None:
    """Return the response in ``view`` from ``position`` to its end; its records are a view."""
    begin = position + _RESPONSE.size
    if version < parts.WITH_TOPIC_IDS or len(view) - begin < len(_TAGS) + 1:
        return None
    fields = _RESPONSE.unpack_from(view, position)
    throttle_ms, error, session_id, topics, topic, partitions, index, code = fields[:8]
    high_watermark, last_stable, log_start, aborted, preferred = fields[8:]
    if (error, topics, partitions, code) != (0, _ONE, _ONE, 0) or aborted > _EMPTY:
        return None
    size = shift = 0
    while True:
        byte = view[begin]
        begin += 1
        size |= (byte & 0x7F) << shift
        shift += 7
        if byte < _LONG:
            break
        if shift > 21 or begin == len(view):
            return None
    size = max(size - 1, 0)
    end = begin + size
    if bytes(view[end : end + len(_TAGS) + 1]) != _TAGS:
        return None
    ended = None if aborted == _NULL else ()
    result = FetchResult(index, None, high_watermark, last_stable, log_start, view[begin:end], ended)
    if preferred >= 0:
        result.preferred_replica = BrokerId(preferred)
    return FetchResponse({topic: [result]}, session_id, None, throttle_ms)


def _varint(value: int) -> bytes:
    if value < _LONG:
        return bytes((value,))
    if value < _LONG << 7:
        return bytes((value & 0x7F | _LONG, value >> 7))
    encoded = bytearray()
    while value >= _LONG:
        encoded.append(value & 0x7F | _LONG)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)
