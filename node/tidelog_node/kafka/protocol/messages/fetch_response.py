"""Encoding and decoding of Fetch responses (API 1), versions 4 to 18, with records by reference.

The responses are those of :mod:`tidelog_node.fetching`. Fields that a version does not have are omitted.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from struct import Struct
from typing import Final

from tidelog_foundation.errors import ErrorCode, TidelogError, error_for
from tidelog_foundation.ids import BrokerId, LeaderEpoch
from tidelog_node.fetching import CurrentLeader, FetchResponse, FetchResult
from tidelog_node.kafka.protocol.messages import fetch_parts as parts
from tidelog_node.kafka.protocol.primitives import (
    NodeEndpoint,
    Tags,
    read_count,
    skip_tags,
    write_count,
    write_endpoints,
)
from tidelog_node.kafka.protocol.reader import MalformedMessageError, Reader
from tidelog_node.kafka.protocol.writer import Writer
from tidelog_node.replication import EpochEnd

_STORAGE_ERROR_SINCE: Final = 6
"""Clients of older versions do not know KAFKA_STORAGE_ERROR (KIP-112).

They receive an error that makes them find another leader.
"""
_DIVERGING_TAG, _LEADER_TAG = 0, 1
_NONE = -1

_RESULT_4 = Struct(">ihqq")
_RESULT_5 = Struct(">ihqqq")
_EPOCH_END = Struct(">iq")
_LEADER = Struct(">ii")
_ABORTED = Struct(">qq")


def encode_response(
    response: FetchResponse, writer: Writer, version: int, endpoints: Sequence[NodeEndpoint] = ()
) -> None:
    """Write a response's body. ``endpoints`` are the addresses of the named leaders."""
    is_flexible = version >= parts.FLEXIBLE
    _encode_head(response, writer, version)
    for topic, results in response.topics.items():
        parts.write_topic(writer, topic, version)
        write_count(writer, len(results), is_flexible=is_flexible)
        for result in results:
            _encode_result(result, writer, version)
        if is_flexible:
            writer.buffer.append(0)
    if is_flexible:
        write_endpoints(writer, endpoints if version >= parts.WITH_ENDPOINTS else ())


def encode_response_in_steps(
    response: FetchResponse, writer: Writer, version: int, endpoints: Sequence[NodeEndpoint] = ()
) -> Generator[None, None, None]:
    """Write a response's body, one partition per step.

    The response is consumed, since freeing all of it at once takes long.
    """
    is_flexible = version >= parts.FLEXIBLE
    _encode_head(response, writer, version)
    for topic, results in response.topics.items():
        parts.write_topic(writer, topic, version)
        write_count(writer, len(results), is_flexible=is_flexible)
        results.reverse()
        while results:
            _encode_result(results.pop(), writer, version)
            yield
        if is_flexible:
            writer.buffer.append(0)
    if is_flexible:
        write_endpoints(writer, endpoints if version >= parts.WITH_ENDPOINTS else ())


def decode_response(reader: Reader, version: int) -> FetchResponse:
    """Read a response's body. Its records refer to the reader's bytes.

    Raises:
        MalformedMessageError: The bytes are not such a response.
    """
    throttle_time_ms = reader.int32()
    is_flexible = version >= parts.FLEXIBLE
    error, session_id = (reader.int16(), reader.int32()) if version >= parts.WITH_SESSIONS else (0, 0)
    response = FetchResponse({}, session_id, _error(error), throttle_time_ms)
    for _ in range(read_count(reader, is_flexible=is_flexible)):
        results = response.topics.setdefault(parts.read_topic(reader, version), [])
        for _ in range(read_count(reader, is_flexible=is_flexible)):
            results.append(_decode_result(reader, version))
        if is_flexible:
            skip_tags(reader)
    if is_flexible:
        skip_tags(reader)
    return response


def _encode_head(response: FetchResponse, writer: Writer, version: int) -> None:
    writer.int32(response.throttle_time_ms)
    if version >= parts.WITH_SESSIONS:
        writer.int16(0 if response.error is None else response.error.code.code)
        writer.int32(response.session_id)
    write_count(writer, len(response.topics), is_flexible=version >= parts.FLEXIBLE)


def _encode_result(result: FetchResult, writer: Writer, version: int) -> None:
    is_flexible, code = version >= parts.FLEXIBLE, 0
    if result.error is not None:
        code = result.error.code.code
        if version < _STORAGE_ERROR_SINCE and code == ErrorCode.KAFKA_STORAGE_ERROR.code:
            code = ErrorCode.NOT_LEADER_OR_FOLLOWER.code
    watermarks = (result.index, code, result.high_watermark, result.last_stable_offset)
    if version >= parts.WITH_LOG_START:
        writer.buffer += _RESULT_5.pack(*watermarks, result.log_start_offset)
    else:
        writer.buffer += _RESULT_4.pack(*watermarks)
    _encode_aborted(result.aborted, writer, is_flexible=is_flexible)
    if version >= parts.WITH_RACK:
        writer.int32(_NONE if result.preferred_replica is None else result.preferred_replica)
    if not is_flexible:
        writer.int32(len(result.records))
        writer.blob(result.records)
        return
    writer.unsigned_varint(len(result.records) + 1)
    writer.blob(result.records)
    if result.diverging is None and result.current_leader is None:
        writer.buffer.append(0)
    else:
        _encode_result_tags(result, writer, version)


def _encode_aborted(aborted: Sequence[tuple[int, int]] | None, writer: Writer, *, is_flexible: bool) -> None:
    write_count(writer, _NONE if aborted is None else len(aborted), is_flexible=is_flexible)
    for producer_id, first_offset in aborted or ():
        writer.buffer += _ABORTED.pack(producer_id, first_offset)
        if is_flexible:
            writer.buffer.append(0)


def _encode_result_tags(result: FetchResult, writer: Writer, version: int) -> None:
    tags = Tags()
    if result.diverging is not None:
        tags.add(_DIVERGING_TAG, _EPOCH_END.pack(result.diverging.epoch, result.diverging.end_offset) + b"\0")
    leader = result.current_leader
    if leader is not None and version >= parts.WITH_ENDPOINTS:
        tags.add(_LEADER_TAG, _LEADER.pack(leader.leader_id, leader.leader_epoch) + b"\0")
    tags.write(writer)


def _decode_result(reader: Reader, version: int) -> FetchResult:
    is_flexible, log_start_offset = version >= parts.FLEXIBLE, _NONE
    if version >= parts.WITH_LOG_START:
        index, code, high_watermark, last_stable, log_start_offset = _RESULT_5.unpack_from(
            reader.view, reader.advance(_RESULT_5.size)
        )
    else:
        index, code, high_watermark, last_stable = _RESULT_4.unpack_from(reader.view, reader.advance(_RESULT_4.size))
    result = FetchResult(index, _error(code), high_watermark, last_stable, log_start_offset)
    result.aborted = _decode_aborted(reader, is_flexible=is_flexible)
    preferred = reader.int32() if version >= parts.WITH_RACK else _NONE
    result.preferred_replica = None if preferred < 0 else BrokerId(preferred)
    length = reader.unsigned_varint() - 1 if is_flexible else reader.int32()
    result.records = reader.blob(max(length, 0))
    if is_flexible:
        _decode_result_tags(reader, result)
    return result


def _decode_aborted(reader: Reader, *, is_flexible: bool) -> list[tuple[int, int]] | None:
    count = reader.unsigned_varint() - 1 if is_flexible else reader.int32()
    if count < 0:
        return None
    aborted = []
    for _ in range(reader.count(count)):
        aborted.append(_ABORTED.unpack_from(reader.view, reader.advance(_ABORTED.size)))
        if is_flexible:
            skip_tags(reader)
    return aborted


def _decode_result_tags(reader: Reader, result: FetchResult) -> None:
    for _ in range(reader.count(reader.unsigned_varint())):
        tag, size = reader.unsigned_varint(), reader.unsigned_varint()
        begin = reader.advance(size)
        end, reader.position = reader.position, begin
        if tag == _DIVERGING_TAG:
            result.diverging = EpochEnd(LeaderEpoch(reader.int32()), reader.int64())
            skip_tags(reader)
        elif tag == _LEADER_TAG:
            result.current_leader = CurrentLeader(BrokerId(reader.int32()), LeaderEpoch(reader.int32()))
            skip_tags(reader)
        else:
            reader.position = end
        if reader.position != end:
            raise MalformedMessageError(f"tagged field {tag} at byte {begin} does not end after its {size} bytes")


def _error(code: int) -> TidelogError | None:
    return error_for(code) if code else None
