"""Encoding and decoding of Fetch requests (API 1), versions 4 to 18, as types of :mod:`tidelog_node.fetching`.

Fields that a version does not have are omitted. Tidelog's own tagged field, :data:`ENDS_WAIT_TAG`, has no bytes: the
request only ends the wait of the request with the same session and epoch. Kafka numbers its tags from zero, and a
receiver skips unknown tags (KIP-482).
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from struct import Struct
from typing import Final, TypeAlias

from tidelog_foundation.ids import NO_BROKER, BrokerEpoch, BrokerId, LeaderEpoch
from tidelog_node.fetching import FetchRequest, FetchSpec, PartitionKey, SessionStep, TopicRef
from tidelog_node.kafka.protocol.messages import fetch_parts as parts
from tidelog_node.kafka.protocol.primitives import Tags, read_count, read_string, skip_tags, write_count, write_string
from tidelog_node.kafka.protocol.reader import MalformedMessageError, Reader
from tidelog_node.kafka.protocol.writer import Writer

ENDS_WAIT_TAG: Final = 10_000
_CLUSTER_ID_TAG, _REPLICA_STATE_TAG = 0, 1
_READ_COMMITTED = 1
_NONE = -1

_LIMITS = Struct(">iiib")
_SESSION = Struct(">ii")
_REPLICA_STATE = Struct(">iq")
_PARTITION_4 = Struct(">iqi")
_PARTITION_5 = Struct(">iqqi")
_PARTITION_9 = Struct(">iiqqi")
_PARTITION_12 = Struct(">iiqiqi")
_INT32 = Struct(">i")

_ReadPartition: TypeAlias = Callable[[Reader, bytes], tuple[int, FetchSpec]]


def decode_request(reader: Reader, version: int) -> FetchRequest:
    """Read a request's body. The result does not refer to the reader's bytes.

    Raises:
        MalformedMessageError: The bytes are not such a request.
    """
    request = _decode_head(reader, version)
    request.wanted = _decode_wanted(reader, version)
    _decode_rest(reader, version, request)
    return request


def decode_request_in_steps(reader: Reader, version: int) -> Generator[None, None, FetchRequest]:
    """Read a request's body, one partition per step.

    Raises:
        MalformedMessageError: The bytes are not such a request.
    """
    request = _decode_head(reader, version)
    is_flexible, read = version >= parts.FLEXIBLE, _partition_reader(version)
    for _ in range(read_count(reader, is_flexible=is_flexible)):
        topic = parts.read_topic(reader, version)
        topic_id = topic if isinstance(topic, bytes) else b""
        for _ in range(read_count(reader, is_flexible=is_flexible)):
            index, spec = read(reader, topic_id)
            request.wanted[topic, index] = spec
            if is_flexible:
                skip_tags(reader)
            yield
        if is_flexible:
            skip_tags(reader)
        yield
    _decode_rest(reader, version, request)
    return request


def encode_request(request: FetchRequest, writer: Writer, version: int) -> None:
    """Write a request's body. Its topics must have the names or ids that the version uses."""
    replica_id, replica_epoch = request.replica or (NO_BROKER, _NONE)
    if version < parts.WITH_REPLICA_STATE:
        writer.int32(replica_id)
    isolation = _READ_COMMITTED if request.is_read_committed else 0
    writer.buffer += _LIMITS.pack(request.max_wait_ms, request.min_bytes, request.max_bytes, isolation)
    session = request.session or SessionStep(epoch=_NONE)
    if version >= parts.WITH_SESSIONS:
        writer.buffer += _SESSION.pack(session.id, session.epoch)
    _encode_wanted(request.wanted, writer, version)
    if version >= parts.WITH_SESSIONS:
        _encode_forgotten(request.forgotten, writer, version)
    if version >= parts.WITH_RACK:
        write_string(writer, request.rack_id, is_flexible=version >= parts.FLEXIBLE)
    if version < parts.FLEXIBLE:
        return
    tags = Tags()
    if request.cluster_id:
        tags.add(_CLUSTER_ID_TAG, _compact(request.cluster_id))
    if version >= parts.WITH_REPLICA_STATE and request.replica is not None:
        tags.add(_REPLICA_STATE_TAG, _REPLICA_STATE.pack(replica_id, replica_epoch) + b"\0")
    if session.ends_wait:
        tags.add(ENDS_WAIT_TAG, b"")
    tags.write(writer)


def _decode_head(reader: Reader, version: int) -> FetchRequest:
    replica_id = reader.int32() if version < parts.WITH_REPLICA_STATE else NO_BROKER
    max_wait_ms, min_bytes, max_bytes, isolation = _LIMITS.unpack_from(reader.view, reader.advance(_LIMITS.size))
    session = None
    if version >= parts.WITH_SESSIONS:
        session = SessionStep(*_SESSION.unpack_from(reader.view, reader.advance(_SESSION.size)))
    return FetchRequest(
        {},
        max_bytes,
        max_wait_ms,
        min_bytes,
        _replica(replica_id, _NONE),
        isolation == _READ_COMMITTED,
        session=session,
        uses_topic_ids=version >= parts.WITH_TOPIC_IDS,
        may_read_followers=version >= parts.WITH_RACK,
    )


def _decode_rest(reader: Reader, version: int, request: FetchRequest) -> None:
    if request.session is not None:
        request.forgotten = _decode_forgotten(reader, version)
    if version >= parts.WITH_RACK:
        request.rack_id = read_string(reader, is_flexible=version >= parts.FLEXIBLE) or ""
    if version >= parts.FLEXIBLE:
        _decode_tags(reader, version, request)


def _decode_wanted(reader: Reader, version: int) -> dict[PartitionKey, FetchSpec]:
    wanted: dict[PartitionKey, FetchSpec] = {}
    is_flexible, read = version >= parts.FLEXIBLE, _partition_reader(version)
    for _ in range(read_count(reader, is_flexible=is_flexible)):
        topic = parts.read_topic(reader, version)
        topic_id = topic if isinstance(topic, bytes) else b""
        for _ in range(read_count(reader, is_flexible=is_flexible)):
            index, spec = read(reader, topic_id)
            wanted[topic, index] = spec
            if is_flexible:
                skip_tags(reader)
        if is_flexible:
            skip_tags(reader)
    return wanted


def _partition_reader(version: int) -> _ReadPartition:
    if version >= parts.FLEXIBLE:
        return _read_partition_12
    if version >= parts.WITH_LEADER_EPOCH:
        return _read_partition_9
    return _read_partition_5 if version >= parts.WITH_LOG_START else _read_partition_4


def _read_partition_12(reader: Reader, topic_id: bytes) -> tuple[int, FetchSpec]:
    index, epoch, offset, last_epoch, log_start, max_bytes = _PARTITION_12.unpack_from(
        reader.view, reader.advance(_PARTITION_12.size)
    )
    return index, FetchSpec(topic_id, offset, max_bytes, _epoch(epoch), _epoch(last_epoch), log_start)


def _read_partition_9(reader: Reader, topic_id: bytes) -> tuple[int, FetchSpec]:
    begin = reader.advance(_PARTITION_9.size)
    index, epoch, offset, log_start, max_bytes = _PARTITION_9.unpack_from(reader.view, begin)
    return index, FetchSpec(topic_id, offset, max_bytes, _epoch(epoch), None, log_start)


def _read_partition_5(reader: Reader, topic_id: bytes) -> tuple[int, FetchSpec]:
    begin = reader.advance(_PARTITION_5.size)
    index, offset, log_start, max_bytes = _PARTITION_5.unpack_from(reader.view, begin)
    return index, FetchSpec(topic_id, offset, max_bytes, log_start_offset=log_start)


def _read_partition_4(reader: Reader, topic_id: bytes) -> tuple[int, FetchSpec]:
    index, offset, max_bytes = _PARTITION_4.unpack_from(reader.view, reader.advance(_PARTITION_4.size))
    return index, FetchSpec(topic_id, offset, max_bytes)


def _encode_wanted(wanted: dict[PartitionKey, FetchSpec], writer: Writer, version: int) -> None:
    is_flexible = version >= parts.FLEXIBLE
    topics: dict[TopicRef, list[tuple[int, FetchSpec]]] = {}
    for (topic, index), spec in wanted.items():
        topics.setdefault(topic, []).append((index, spec))
    write_count(writer, len(topics), is_flexible=is_flexible)
    for topic, partitions in topics.items():
        parts.write_topic(writer, topic, version)
        write_count(writer, len(partitions), is_flexible=is_flexible)
        for index, spec in partitions:
            writer.buffer += _pack_partition(index, spec, version)
        if is_flexible:
            writer.buffer.append(0)


def _pack_partition(index: int, spec: FetchSpec, version: int) -> bytes:
    epoch = _NONE if spec.leader_epoch is None else spec.leader_epoch
    if version >= parts.FLEXIBLE:
        last_epoch = _NONE if spec.last_fetched_epoch is None else spec.last_fetched_epoch
        packed = _PARTITION_12.pack(index, epoch, spec.fetch_offset, last_epoch, spec.log_start_offset, spec.max_bytes)
        return packed + b"\0"
    if version >= parts.WITH_LEADER_EPOCH:
        return _PARTITION_9.pack(index, epoch, spec.fetch_offset, spec.log_start_offset, spec.max_bytes)
    if version >= parts.WITH_LOG_START:
        return _PARTITION_5.pack(index, spec.fetch_offset, spec.log_start_offset, spec.max_bytes)
    return _PARTITION_4.pack(index, spec.fetch_offset, spec.max_bytes)


def _decode_forgotten(reader: Reader, version: int) -> list[PartitionKey]:
    is_flexible, forgotten = version >= parts.FLEXIBLE, []
    for _ in range(read_count(reader, is_flexible=is_flexible)):
        topic = parts.read_topic(reader, version)
        indexes = [reader.int32() for _ in range(read_count(reader, is_flexible=is_flexible))]
        forgotten += [(topic, index) for index in indexes]
        if is_flexible:
            skip_tags(reader)
    return forgotten


def _encode_forgotten(forgotten: Sequence[PartitionKey], writer: Writer, version: int) -> None:
    is_flexible = version >= parts.FLEXIBLE
    topics: dict[TopicRef, list[int]] = {}
    for topic, index in forgotten:
        topics.setdefault(topic, []).append(index)
    write_count(writer, len(topics), is_flexible=is_flexible)
    for topic, indexes in topics.items():
        parts.write_topic(writer, topic, version)
        write_count(writer, len(indexes), is_flexible=is_flexible)
        for index in indexes:
            writer.buffer += _INT32.pack(index)
        if is_flexible:
            writer.buffer.append(0)


def _decode_tags(reader: Reader, version: int, request: FetchRequest) -> None:
    for _ in range(reader.count(reader.unsigned_varint())):
        tag, size = reader.unsigned_varint(), reader.unsigned_varint()
        begin = reader.advance(size)
        end, reader.position = reader.position, begin
        if tag == _CLUSTER_ID_TAG:
            request.cluster_id = read_string(reader, is_flexible=True) or ""
        elif tag == _REPLICA_STATE_TAG and version >= parts.WITH_REPLICA_STATE:
            request.replica = _replica(reader.int32(), reader.int64())
            skip_tags(reader)
        elif tag == ENDS_WAIT_TAG and size == 0 and request.session is not None:
            request.session = request.session._replace(ends_wait=True)
        else:
            reader.position = end
        if reader.position != end:
            raise MalformedMessageError(f"tagged field {tag} at byte {begin} does not end after its {size} bytes")


def _replica(replica_id: int, replica_epoch: int) -> tuple[BrokerId, BrokerEpoch] | None:
    return None if replica_id < 0 else (BrokerId(replica_id), BrokerEpoch(replica_epoch))


def _epoch(epoch: int) -> LeaderEpoch | None:
    return None if epoch < 0 else LeaderEpoch(epoch)


def _compact(text: str) -> bytearray:
    writer = Writer()
    write_string(writer, text, is_flexible=True)
    return writer.buffer
