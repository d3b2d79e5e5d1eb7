"""Metadata: brokers, topics and leaders of this node's image (Kafka's KafkaApis.handleTopicMetadataRequest).

Clients request it often and for many topics, so the answer is assembled from the cached bytes of each topic.
"""

from __future__ import annotations

from collections.abc import Awaitable, Iterable, Iterator
from itertools import islice
from typing import ClassVar, Final

from tidelog_foundation.authorization import Access
from tidelog_foundation.errors import ErrorCode, TidelogError
from tidelog_foundation.ids import TopicId
from tidelog_foundation.requests.acls import AclOperation, ResourceType
from tidelog_foundation.time_slices import TimeSlices
from tidelog_foundation.topic_names import validate_topic_name
from tidelog_node.kafka.apis.operations import CLUSTER_OPERATIONS, TOPIC_OPERATIONS
from tidelog_node.kafka.apis.topics import quota_client
from tidelog_node.kafka.cluster_view import ClusterView
from tidelog_node.kafka.protocol.api_keys import ApiKey
from tidelog_node.kafka.protocol.codec import decode, decode_in_steps, encode, encode_in_steps
from tidelog_node.kafka.protocol.messages import metadata as wire
from tidelog_node.kafka.protocol.metadata_bytes import Partition, TopicWriter
from tidelog_node.kafka.protocol.writer import Writer
from tidelog_node.kafka.served import SHORT_BYTES, Api, Body, Caller, KafkaNode, Request
from tidelog_quorum.metadata.description import INTERNAL_TOPICS
from tidelog_quorum.metadata.image import MetadataImage, TopicImage

_TAKES_IDS: Final = 12
_NO_ID: Final = bytes(16)
_TOPICS_AT_ONCE: Final = 128
_HIDDEN: Final = b""
"""The bytes of a topic that the caller may not describe: it counts for the time slices, and is not in the response."""
MAX_BYTES: Final = 32 * 1024**2


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
            return self._answer_long(node, request)
        asked = decode(wire.MetadataRequest, request.reader, caller.version)
        if not _is_valid(asked, caller.version):
            writer = Writer()
            encode(_refusal(asked), writer, caller.version)
            return writer.chunks()
        return self._answer(node, asked, request)

    async def _answer_long(self, node: KafkaNode, request: Request) -> Body:
        slices, caller = TimeSlices(), request.caller
        asked = await slices.result_of(decode_in_steps(wire.MetadataRequest, request.reader, caller.version))
        await slices.give_way()
        if not _is_valid(asked, caller.version):
            writer = Writer()
            await slices.result_of(encode_in_steps(_refusal(asked), writer, caller.version))
            return writer.chunks()
        await slices.give_way()
        answer = self._answer(node, asked, request)
        return await answer if isinstance(answer, Awaitable) else answer

    def _answer(self, node: KafkaNode, asked: wire.MetadataRequest, request: Request) -> Body | Awaitable[Body]:
        caller = request.caller
        image = node.context.metadata.image
        view = self._encoded.view(image, caller.listener)
        access = None if node.guard is None else node.guard.access("METADATA", caller)
        topics = self._topics(node, image, asked, view, caller, access)
        operations = wire.NO_OPERATIONS
        if asked.include_cluster_authorized_operations:
            operations = CLUSTER_OPERATIONS if access is None else access.operations_on_cluster()
        written = list(islice(topics, _TOPICS_AT_ONCE))
        if len(written) < _TOPICS_AT_ONCE:
            return _response(node, view, operations, written, request)
        return _in_turns(node, view, operations, written, topics, request)

    def _topics(
        self,
        node: KafkaNode,
        image: MetadataImage,
        asked: wire.MetadataRequest,
        view: ClusterView,
        caller: Caller,
        access: Access | None,
    ) -> Iterator[bytes]:
        writer = self._encoded.writer(caller.listener, caller.version)
        wants_operations = asked.include_topic_authorized_operations
        ending = writer.ending(TOPIC_OPERATIONS if wants_operations else wire.NO_OPERATIONS)
        by_id = any(topic.topic_id != _NO_ID for topic in asked.topics or ())
        is_named = bool(asked.topics)
        may_create = asked.allow_auto_topic_creation and node.context.topic_creator is not None
        names, unknown_ids = _names(image, asked, caller.version)
        for topic_id in unknown_ids:
            unknown = writer.topic(ErrorCode.UNKNOWN_TOPIC_ID.code, None, topic_id, is_internal=False, partitions=())
            yield unknown + writer.ending(wire.NO_OPERATIONS)
        missing = []
        for name in names:
            topic = image.topics.get(name)
            if access is not None:
                if not access.allows(AclOperation.DESCRIBE, ResourceType.TOPIC, name, log=is_named):
                    denied_id = image.topics[name].topic_id if by_id else _NO_ID
                    yield _denied(writer, None if by_id else name, denied_id) if is_named else _HIDDEN
                    continue
                if topic is None and may_create and not _may_create(access, name):
                    yield _denied(writer, name, _NO_ID)
                    continue
                if wants_operations:
                    ending = writer.ending(access.operations(ResourceType.TOPIC, name))
            if topic is None:
                error = _why_missing(name)
                yield writer.topic(error.code, name, _NO_ID, name in INTERNAL_TOPICS, ()) + ending
                if error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                    missing.append(name)
            else:
                yield self._encoded.topic(view, caller.listener, caller.version, topic) + ending
        if missing and may_create and node.context.topic_creator is not None:
            node.context.topic_creator.want(missing, quota_client(node, caller, is_strict=True))


def _denied(writer: TopicWriter, name: str | None, topic_id: bytes) -> bytes:
    error = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    denied = writer.topic(error.code, name, topic_id, is_internal=False, partitions=())
    return denied + writer.ending(wire.NO_OPERATIONS)


def _may_create(access: Access, name: str) -> bool:
    if access.on_cluster(AclOperation.CREATE, log=False):
        return True
    return access.allows(AclOperation.CREATE, ResourceType.TOPIC, name)


async def _in_turns(
    node: KafkaNode, view: ClusterView, operations: int, written: list[bytes], rest: Iterator[bytes], request: Request
) -> Body:
    written += [topic async for topic in TimeSlices().of(rest)]
    return _response(node, view, operations, written, request)


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


def _response(node: KafkaNode, view: ClusterView, operations: int, topics: list[bytes], request: Request) -> Body:
    """Return the response with the encoded topics inserted."""
    version = request.caller.version
    topics = [topic for topic in topics if topic is not _HIDDEN]
    brokers = [
        wire.MetadataResponseBroker(i, endpoint.host, endpoint.port, broker.rack or None)
        for i, (broker, endpoint) in view.alive.items()
    ]
    without = wire.MetadataResponse(
        throttle_time_ms=0 if request.usage is None else request.usage.answer(),
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


class EncodedTopics:
    """A cache of at most ``max_bytes``. A fence, registration or unregistration of a broker clears it.

    Deleted topics are not tracked. When the cache has twice as many topics as the cluster, it drops all of them.
    """

    def __init__(self, max_bytes: int = MAX_BYTES) -> None:
        self._max_bytes = max_bytes
        self._size = 0
        self._topic_count = 0
        self._views: dict[str, ClusterView] = {}
        self._kept: dict[tuple[str, int], tuple[TopicWriter, dict[str, tuple[TopicImage, bytes]]]] = {}

    @property
    def size(self) -> int:
        """The size of the cached bytes."""
        return self._size

    def view(self, image: MetadataImage, listener: str) -> ClusterView:
        """Return the view of an image's brokers for the clients of a listener."""
        self._topic_count = len(image.topics)
        view = self._views.get(listener)
        if view is None or view.brokers is not image.brokers:
            if any(known.brokers is not image.brokers for known in self._views.values()):
                self._clear()
            view = self._views[listener] = ClusterView(image.brokers, listener)
        return view

    def writer(self, listener: str, version: int) -> TopicWriter:
        """Return the writer of topics in a version."""
        return self._of(listener, version)[0]

    def topic(self, view: ClusterView, listener: str, version: int, topic: TopicImage) -> bytes:
        """Return a topic's bytes without their ending. They are not cached if the view is outdated."""
        writer, kept = self._of(listener, version)
        known = kept.get(topic.name)
        if known is not None and known[0] is topic and self._views.get(listener) is view:
            return known[1]
        is_internal = topic.name in INTERNAL_TOPICS
        encoded = writer.topic(0, topic.name, topic.topic_id, is_internal, _partitions(view, topic, version))
        if self._views.get(listener) is not view:
            return encoded
        if known is not None:
            self._size -= len(known[1])
        if self._size + len(encoded) > self._max_bytes or len(kept) >= 2 * self._topic_count:
            self._forget_topics()
        if len(encoded) <= self._max_bytes:
            self._size += len(encoded)
            kept[topic.name] = (topic, encoded)
        return encoded

    def _of(self, listener: str, version: int) -> tuple[TopicWriter, dict[str, tuple[TopicImage, bytes]]]:
        key = (listener, version)
        if key not in self._kept:
            self._kept[key] = (TopicWriter(version), {})
        return self._kept[key]

    def _clear(self) -> None:
        self._views.clear()
        self._kept.clear()
        self._size = 0

    def _forget_topics(self) -> None:
        for _, kept in self._kept.values():
            kept.clear()
        self._size = 0


def _partitions(view: ClusterView, topic: TopicImage, version: int) -> Iterator[Partition]:
    for index, partition in sorted(topic.partitions.items()):
        shown = view.partition(partition, version)
        yield (
            shown.error,
            index,
            shown.leader,
            partition.leader_epoch,
            shown.replicas,
            shown.isr,
            shown.offline,
        )


APIS: tuple[Api, ...] = (MetadataApi(),)
