"""Metadata: brokers, topics and leaders of this node's image (Kafka's KafkaApis.handleTopicMetadataRequest).

Clients request it often and for many topics, so the answer is assembled from the cached bytes of each topic.
"""

from __future__ import annotations

from collections.abc import Awaitable, Iterable, Iterator
from itertools import islice
from typing import ClassVar, Final

from tidelog_foundation.errors import ErrorCode, TidelogError
from tidelog_foundation.ids import TopicId
from tidelog_foundation.time_slices import TimeSlices
from tidelog_foundation.topic_names import validate_topic_name
from tidelog_node.kafka.apis.operations import CLUSTER_OPERATIONS, TOPIC_OPERATIONS
from tidelog_node.kafka.cluster_view import ClusterView
from tidelog_node.kafka.encoded_topics import EncodedTopics
from tidelog_node.kafka.protocol.api_keys import ApiKey
from tidelog_node.kafka.protocol.codec import decode, decode_in_steps, encode, encode_in_steps
from tidelog_node.kafka.protocol.messages import metadata as wire
from tidelog_node.kafka.protocol.reader import Reader
from tidelog_node.kafka.protocol.writer import Writer
from tidelog_node.kafka.served import SHORT_BYTES, Api, Body, Caller, KafkaNode, Request
from tidelog_quorum.metadata import MetadataImage
from tidelog_quorum.metadata.description import INTERNAL_TOPICS

_TAKES_IDS: Final = 12
_NO_ID: Final = bytes(16)
_TOPICS_AT_ONCE: Final = 128


class MetadataApi:
    """Metadata, answered from the newest image. Long requests and responses run in time slices."""

    key: ClassVar[ApiKey] = ApiKey.METADATA
    versions: ClassVar[tuple[int, int]] = wire.MetadataRequest.VERSIONS
    flexible: ClassVar[int] = wire.MetadataRequest.FLEXIBLE
    overlaps: ClassVar[bool] = False

    def __init__(self) -> None:
        self._encoded = EncodedTopics()

    def begin(self, node: KafkaNode, request: Request) -> Body | Awaitable[Body]:
        """Return the response. Missing topics are created in the background if the client and the node allow it."""
        caller = request.caller
        if request.reader.remaining > SHORT_BYTES:
            return self._answer_long(node, request.reader, caller)
        asked = decode(wire.MetadataRequest, request.reader, caller.version)
        if not _is_valid(asked, caller.version):
            writer = Writer()
            encode(_refusal(asked), writer, caller.version)
            return writer.chunks()
        return self._answer(node, asked, caller)

    async def _answer_long(self, node: KafkaNode, reader: Reader, caller: Caller) -> Body:
        slices = TimeSlices()
        asked = await slices.result_of(decode_in_steps(wire.MetadataRequest, reader, caller.version))
        await slices.give_way()
        if not _is_valid(asked, caller.version):
            writer = Writer()
            await slices.result_of(encode_in_steps(_refusal(asked), writer, caller.version))
            return writer.chunks()
        await slices.give_way()
        answer = self._answer(node, asked, caller)
        return await answer if isinstance(answer, Awaitable) else answer

    def _answer(self, node: KafkaNode, asked: wire.MetadataRequest, caller: Caller) -> Body | Awaitable[Body]:
        image = node.context.metadata.image
        view = self._encoded.view(image, caller.listener)
        topics = self._topics(node, image, asked, view, caller)
        operations = CLUSTER_OPERATIONS if asked.include_cluster_authorized_operations else wire.NO_OPERATIONS
        written = list(islice(topics, _TOPICS_AT_ONCE))
        if len(written) < _TOPICS_AT_ONCE:
            return _response(node, view, operations, written, caller.version)
        return _in_turns(node, view, operations, written, topics, caller.version)

    def _topics(
        self, node: KafkaNode, image: MetadataImage, asked: wire.MetadataRequest, view: ClusterView, caller: Caller
    ) -> Iterator[bytes]:
        writer = self._encoded.writer(caller.listener, caller.version)
        ending = writer.ending(TOPIC_OPERATIONS if asked.include_topic_authorized_operations else wire.NO_OPERATIONS)
        names, unknown_ids = _names(image, asked, caller.version)
        for topic_id in unknown_ids:
            unknown = writer.topic(ErrorCode.UNKNOWN_TOPIC_ID.code, None, topic_id, is_internal=False, partitions=())
            yield unknown + writer.ending(wire.NO_OPERATIONS)
        missing = []
        for name in names:
            topic = image.topics.get(name)
            if topic is None:
                error = _why_missing(name)
                yield writer.topic(error.code, name, _NO_ID, name in INTERNAL_TOPICS, ()) + ending
                if error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                    missing.append(name)
            else:
                yield self._encoded.topic(view, caller.listener, caller.version, topic) + ending
        if missing and asked.allow_auto_topic_creation and node.context.topic_creator is not None:
            node.context.topic_creator.want(missing)


async def _in_turns(
    node: KafkaNode, view: ClusterView, operations: int, written: list[bytes], rest: Iterator[bytes], version: int
) -> Body:
    written += [topic async for topic in TimeSlices().of(rest)]
    return _response(node, view, operations, written, version)


def _is_valid(asked: wire.MetadataRequest, version: int) -> bool:
    """Return whether the topics are valid: ids from version 12 on, and null names only with an id."""
    for topic in asked.topics or ():
        has_id = topic.topic_id != _NO_ID
        if (has_id and version < _TAKES_IDS) or (topic.name is None and not has_id):
            return False
    return True


def _names(image: MetadataImage, asked: wire.MetadataRequest, version: int) -> tuple[Iterable[str], list[TopicId]]:
    """Return the unique names of the requested topics and the unknown ids."""
    if asked.topics is None or (version == 0 and not asked.topics):
        return sorted(image.topics), []
    ids = dict.fromkeys(TopicId(t.topic_id) for t in asked.topics if t.topic_id != _NO_ID)
    if ids:
        # With ids, the names beside them are ignored.
        unknown = [i for i in ids if i not in image.topic_names]
        return [image.topic_names[i] for i in ids if i in image.topic_names], unknown
    return dict.fromkeys(t.name for t in asked.topics if t.name is not None), []


def _why_missing(name: str) -> ErrorCode:
    try:
        validate_topic_name(name)
    except TidelogError as invalid:
        return invalid.code
    return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def _response(node: KafkaNode, view: ClusterView, operations: int, topics: list[bytes], version: int) -> Body:
    """Return the response with the encoded topics inserted."""
    brokers = [
        wire.MetadataResponseBroker(i, endpoint.host, endpoint.port, broker.rack or None)
        for i, (broker, endpoint) in view.alive.items()
    ]
    without = wire.MetadataResponse(
        brokers=brokers,
        cluster_id=node.context.cluster_id,
        controller_id=view.any_alive(),
        cluster_authorized_operations=operations,
    )
    writer = Writer()
    encode(without, writer, version)
    is_flexible = version >= wire.MetadataResponse.FLEXIBLE
    end = len(writer.buffer) - _tail_size(version)
    whole = Writer()
    whole.buffer += writer.buffer[: end - (1 if is_flexible else 4)]
    if is_flexible:
        whole.unsigned_varint(len(topics) + 1)
    else:
        whole.int32(len(topics))
    whole.buffer += b"".join(topics)
    whole.buffer += writer.buffer[end:]
    return whole.chunks()


def _tail_size(version: int) -> int:
    """Return the size of the fields after the topics: the cluster's operations, an error, no tagged fields."""
    return 4 * (8 <= version <= 10) + 2 * (version >= 13) + (version >= wire.MetadataResponse.FLEXIBLE)


def _refusal(asked: wire.MetadataRequest) -> wire.MetadataResponse:
    """Return an error for each topic, as Kafka's MetadataRequest.getErrorResponse does."""
    error = ErrorCode.INVALID_REQUEST.code
    topics = [wire.MetadataResponseTopic(error, t.name or "", t.topic_id) for t in asked.topics or ()]
    return wire.MetadataResponse(topics=topics, error_code=error)


APIS: tuple[Api, ...] = (MetadataApi(),)
