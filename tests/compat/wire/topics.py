"""Topics: as Metadata and its kin tell of them, made, deleted, and given more partitions."""

from __future__ import annotations

from compat.wire.case import Case, Family
from compat.wire.side import UNKNOWN_ID, Side

from tidelog_node.kafka.protocol.messages.api_versions import ApiVersionsRequest
from tidelog_node.kafka.protocol.messages.metadata import (
    Cursor,
    DescribeClusterRequest,
    DescribedTopicName,
    DescribeTopicPartitionsRequest,
    MetadataRequest,
    MetadataRequestTopic,
)
from tidelog_node.kafka.protocol.messages.topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
    CreateTopicsRequest,
    DeleteTopicsRequest,
    DeleteTopicState,
)

TIMEOUT_MS = 9_000
_NODES = ("brokers", "controller_id")


def _by_name(*names: str, auto: bool = False, operations: bool = False) -> MetadataRequest:
    topics = [MetadataRequestTopic(name=name) for name in names]
    return MetadataRequest(topics, auto, operations, operations)


def _by_id(*ids: bytes) -> MetadataRequest:
    return MetadataRequest([MetadataRequestTopic(topic_id, None) for topic_id in ids], False, False, True)


def _partitions(*names: str, limit: int = 2_000, cursor: Cursor | None = None) -> DescribeTopicPartitionsRequest:
    return DescribeTopicPartitionsRequest([DescribedTopicName(name) for name in names], limit, cursor)


_METADATA = (
    Case("metadata: no topics", MetadataRequest([]), range(1, 14), ignore=["controller_id"]),
    Case("metadata: by name", _by_name("told", "none", "a b", "", "told2", "told", "."), range(4, 14), _NODES),
    Case("metadata: internal", _by_name("__consumer_offsets", "__cluster_metadata"), (4, 9, 12), _NODES),
    Case("metadata: the topic of share groups", _by_name("__share_group_state"), (4, 12), _NODES),
    Case("metadata: operations", _by_name("told", "none", operations=True), range(8, 13), _NODES),
    Case("metadata: unknown id", _by_id(UNKNOWN_ID), (12, 13), _NODES),
    Case("metadata: an id too early", _by_id(UNKNOWN_ID), (10, 11), _NODES),
    Case("metadata: by id", lambda side: _by_id(side.topic_ids["told"], UNKNOWN_ID), (12, 13), _NODES),
    Case(
        "metadata: an id and a name",
        lambda side: MetadataRequest([MetadataRequestTopic(side.topic_ids["told"], "told2")]),
        (10, 12),
        _NODES,
    ),
    Case("metadata: neither name nor id", MetadataRequest([MetadataRequestTopic(name=None)]), (10, 12), _NODES),
    Case("metadata: asked to create", _by_name("made-when-asked", "c d", auto=True), (4,), _NODES),
    Case("metadata: created", _by_name("made-when-asked"), (0, 1, 4, 5, 13), _NODES, settles=True),
    Case("cluster", DescribeClusterRequest(True), ignore=["controller_id"]),
    Case("cluster: controllers", DescribeClusterRequest(endpoint_type=2), (1, 2), ignore=["brokers"]),
    Case("cluster: endpoints of type 9", DescribeClusterRequest(endpoint_type=9), (1, 2)),
    Case("cluster: fenced too", DescribeClusterRequest(include_fenced_brokers=True), (2,), ["controller_id"]),
    Case("partitions: named", _partitions("told", "none", "a b", "told")),
    Case("partitions: as many as wanted", _partitions("told", limit=2)),
    Case("partitions: fewer than there are", _partitions("told", "told2", limit=3)),
    Case("partitions: none wanted", _partitions("told", limit=0)),
    Case("partitions: from a cursor", _partitions("told", "told2", limit=3, cursor=Cursor("told", 1))),
    Case("partitions: a cursor of a topic that is gone", _partitions("told", "told2", cursor=Cursor("told1", 0))),
    Case("partitions: a cursor below zero", _partitions("told", cursor=Cursor("told", -1))),
    Case("versions: a bad name", ApiVersionsRequest("-x", "1"), (3, 4), ignore=["api_keys"]),
    Case("versions: features", ApiVersionsRequest("x", "1"), (0, 3, 4), ignore=["api_keys"]),
)


def _create(*topics: CreatableTopic, check: bool = True, timeout_ms: int = TIMEOUT_MS) -> CreateTopicsRequest:
    return CreateTopicsRequest(list(topics), timeout_ms, check)


def _assigned(name: str, *replicas: tuple[int, list[int]], partitions: int = -1) -> CreateTopicsRequest:
    assignments = [CreatableReplicaAssignment(index, brokers) for index, brokers in replicas]
    return _create(CreatableTopic(name, partitions, -1, assignments))


def _configured(*configs: tuple[str, str | None]) -> CreateTopicsRequest:
    return _create(CreatableTopic("x", 1, 1, configs=[CreatableTopicConfig(*config) for config in configs]))


_CREATE = (
    Case("create: checked", _create(CreatableTopic("x", 2, 1)), range(2, 8), ignore=["configs"]),
    Case("create: by default", _create(CreatableTopic("x", -1, -1)), range(4, 8), ignore=["configs"]),
    Case("created", _create(CreatableTopic("made", 2, 1), check=False), (7,), ignore=["configs"]),
    Case("create: there is one", _create(CreatableTopic("made", 2, 1))),
    Case("create: no topics", _create()),
    Case("create: names", _create(*(CreatableTopic(name, 1, 1) for name in ("a b", "", ".", "..", "a" * 250)))),
    Case("create: a name but for a dot", _create(CreatableTopic("told_dot", 1, 1), CreatableTopic("told.dot", 1, 1))),
    Case("create: the log of metadata", _create(CreatableTopic("__cluster_metadata", 1, 1))),
    Case("create: no partitions", _create(CreatableTopic("x", 0, 1), CreatableTopic("y", -2, 1))),
    Case("create: no replicas", _create(CreatableTopic("x", 1, 0), CreatableTopic("y", 1, -2))),
    Case("create: too many replicas", _create(CreatableTopic("x", 1, 9))),
    Case(
        "create: named twice",
        _create(CreatableTopic("x", 1, 1), CreatableTopic("x", 1, 1), CreatableTopic("y", 1, 1)),
        ignore=["configs"],
    ),
    Case("create: an unknown key", _configured(("nope", "1"))),
    Case("create: a bad value", _configured(("retention.ms", "x"))),
    Case("create: a null value", _configured(("retention.ms", None))),
    Case("create: a key twice", _configured(("retention.ms", "1"), ("retention.ms", "2")), ignore=["configs"]),
    Case("create: assigned and counted", _assigned("x", (0, [1]), partitions=2)),
    Case("create: a broker twice", _assigned("x", (0, [1, 1]))),
    Case("create: assigned from one", _assigned("x", (1, [1]))),
    Case("create: an unknown broker", _assigned("x", (0, [7]))),
    Case("create: no brokers", _assigned("x", (0, []))),
    Case("create: a partition twice", _assigned("x", (0, [1]), (0, [1]))),
    Case("create: late", _create(CreatableTopic("late", 1, 1), check=False, timeout_ms=-1)),
)


def _delete(*topics: DeleteTopicState) -> DeleteTopicsRequest:
    return DeleteTopicsRequest(topics=list(topics), timeout_ms=TIMEOUT_MS)


def _delete_names(*names: str) -> DeleteTopicsRequest:
    return DeleteTopicsRequest(topic_names=list(names), timeout_ms=TIMEOUT_MS)


_DELETE = (
    Case("delete: names", _delete_names("none", "", "a b"), range(1, 6)),
    Case("delete: a name twice", _delete_names("told", "told"), range(1, 6)),
    Case("delete: the log of metadata", _delete_names("__cluster_metadata"), (1, 5)),
    Case("delete: states", _delete(DeleteTopicState("none"), DeleteTopicState(topic_id=UNKNOWN_ID)), (6,)),
    Case("delete: a state of nothing", _delete(DeleteTopicState()), (6,)),
    Case("delete: a name and an id", _delete(DeleteTopicState("told", UNKNOWN_ID)), (6,)),
    Case("delete: a state twice", _delete(DeleteTopicState("told"), DeleteTopicState("told")), (6,)),
    Case(
        "delete: one by name and by id",
        lambda side: _delete(DeleteTopicState("told"), DeleteTopicState(topic_id=side.topic_ids["told"])),
        (6,),
    ),
    Case("delete: by id", lambda side: _delete(DeleteTopicState(topic_id=side.topic_ids["gone"])), (6,)),
    Case("delete: gone", _by_name("gone"), (5, 12), _NODES, settles=True),
)


def _grow(*topics: CreatePartitionsTopic, timeout_ms: int = TIMEOUT_MS) -> CreatePartitionsRequest:
    return CreatePartitionsRequest(list(topics), timeout_ms, validate_only=True)


def _grow_on(*brokers: list[int]) -> CreatePartitionsRequest:
    return _grow(CreatePartitionsTopic("told", 3, [CreatePartitionsAssignment(on) for on in brokers]))


_GROW = (
    Case("grow: checked", _grow(CreatePartitionsTopic("told", 3, None), CreatePartitionsTopic("none", 4, None))),
    Case("grow: counts", _grow(CreatePartitionsTopic("told", 2, None), CreatePartitionsTopic("told2", -1, None))),
    Case("grow: to less", _grow(CreatePartitionsTopic("told", 1, None))),
    Case("grow: too many", _grow(CreatePartitionsTopic("told", 30_000, None))),
    Case("grow: twice", _grow(CreatePartitionsTopic("told", 4, None), CreatePartitionsTopic("told", 5, None))),
    Case("grow: assigned", _grow_on([1])),
    Case("grow: assigned too many", _grow_on([1], [1])),
    Case("grow: assigned none", _grow_on()),
    Case("grow: an unknown broker", _grow_on([7])),
    Case("grow: no brokers", _grow_on([])),
    Case("grow: late", _grow(CreatePartitionsTopic("told", 3, None), timeout_ms=-1)),
)


def _prepare(side: Side) -> None:
    side.create(["told", "told2", "told.dot", "gone"], 2)


FAMILIES = (Family("topics", (*_METADATA, *_CREATE, *_DELETE, *_GROW), _prepare),)
