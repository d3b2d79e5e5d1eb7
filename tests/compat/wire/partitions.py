"""Partitions: their offsets and producers, their leaders and replicas, where they lie; features and the quorum."""

from __future__ import annotations

from compat.wire.case import Case, Family
from compat.wire.side import Side

from tidelog_node.kafka.protocol.messages.log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
    DescribableLogDirTopic,
    DescribeLogDirsRequest,
)
from tidelog_node.kafka.protocol.messages.offsets import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from tidelog_node.kafka.protocol.messages.producers import (
    DescribeProducersRequest,
    InitProducerIdRequest,
    TopicRequest,
)
from tidelog_node.kafka.protocol.messages.quorum import (
    DescribeQuorumRequest,
    FeatureUpdateKey,
    QuorumPartition,
    QuorumTopic,
    UnregisterBrokerRequest,
    UpdateFeaturesRequest,
)
from tidelog_node.kafka.protocol.messages.replicas import (
    AlterPartitionReassignmentsRequest,
    ElectLeadersRequest,
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsTopics,
    ReassignablePartition,
    ReassignableTopic,
    TopicPartitions,
)

TIMEOUT_MS = 9_000
_TIMES = {"latest": -1, "earliest": -2, "of the greatest time": -3, "earliest local": -4, "at the start of time": 0}
_LATER_TIMES = {"at -7": -7, "in the future": 10**13}


def _list(
    *partitions: ListOffsetsPartition, topic: str = "part", replica: int = -1, level: int = 0
) -> ListOffsetsRequest:
    return ListOffsetsRequest(replica, level, [ListOffsetsTopic(topic, list(partitions))], TIMEOUT_MS)


def _at(timestamp: int, partition: int = 0, epoch: int = -1) -> ListOffsetsPartition:
    return ListOffsetsPartition(partition, epoch, timestamp)


def _epochs(*asked: tuple[int, int, int], topic: str = "part") -> OffsetForLeaderEpochRequest:
    partitions = [OffsetForLeaderPartition(*partition) for partition in asked]
    return OffsetForLeaderEpochRequest(topics=[OffsetForLeaderTopic(topic, partitions)])


def _truncate(*offsets: tuple[int, int], topic: str = "part", timeout_ms: int = TIMEOUT_MS) -> DeleteRecordsRequest:
    partitions = [DeleteRecordsPartition(*partition) for partition in offsets]
    return DeleteRecordsRequest([DeleteRecordsTopic(topic, partitions)], timeout_ms)


_PRODUCER = ["producer_id"]
_OFFSETS = (
    *(Case(f"offset: {name}", _list(_at(timestamp))) for name, timestamp in (_TIMES | _LATER_TIMES).items()),
    Case("offset: tiered", _list(_at(-5)), range(1, 11)),
    Case("offset: partitions", _list(_at(-1, 9), _at(-1, 0, 5), _at(-1, 1))),
    Case("offset: a partition twice", _list(_at(-1, 1), _at(-2, 1))),
    Case("offset: no such topic", _list(_at(-1), topic="none")),
    Case("offset: a bad name", _list(_at(-1), topic="a b")),
    Case("offset: isolation level 3", _list(_at(-1), level=3), (7,)),
    Case("offset: asked by a replica", _list(_at(-1), replica=4), (7,)),
    Case("offset: asked by a debugger", _list(_at(-1), replica=-2), (7,)),
    Case("epoch: partitions", _epochs((0, -1, 0), (9, -1, 0), (1, 7, 0))),
    Case("epoch: not yet", _epochs((0, -1, 5), (1, -1, -1))),
    Case("epoch: no such topic", _epochs((0, -1, 0), topic="none")),
    Case("truncate: nothing, too far and nowhere", _truncate((0, 0), (1, 5), (9, 0))),
    Case("truncate: all and below zero", _truncate((0, -1), (1, -2))),
    Case("truncate: a partition twice", _truncate((0, 9), (0, 0))),
    Case("truncate: nothing named", _truncate()),
    Case("truncate: no such topic", _truncate((0, 0), topic="none")),
    Case("truncate: an internal topic", _truncate((0, 0), topic="__consumer_offsets")),
    Case("producer: new", InitProducerIdRequest(None, 5_000), ignore=_PRODUCER),
    Case("producer: again", InitProducerIdRequest(None, 5_000, 50_000, 3), range(3, 6), _PRODUCER),
    Case("producer: an id and no epoch", InitProducerIdRequest(None, 5_000, 5, -1), range(3, 6)),
    Case("producer: an epoch and no id", InitProducerIdRequest(None, 5_000, -1, 5), range(3, 6)),
    Case("producer: an empty transactional id", InitProducerIdRequest("", 5_000)),
    Case("producers", DescribeProducersRequest([TopicRequest("part", [0, 9]), TopicRequest("none", [0])])),
    Case("producers: a bad name", DescribeProducersRequest([TopicRequest("a b", [0])])),
)


def _elect(*topics: tuple[str, list[int]], kind: int = 0, timeout_ms: int = TIMEOUT_MS) -> ElectLeadersRequest:
    return ElectLeadersRequest(kind, [TopicPartitions(*topic) for topic in topics], timeout_ms)


def _reassign(
    *targets: tuple[int, list[int] | None], topic: str = "part", grows: bool = True, timeout_ms: int = TIMEOUT_MS
) -> AlterPartitionReassignmentsRequest:
    partitions = [ReassignablePartition(*target) for target in targets]
    return AlterPartitionReassignmentsRequest(timeout_ms, grows, [ReassignableTopic(topic, partitions)])


def _reassignments(*topics: tuple[str, list[int]]) -> ListPartitionReassignmentsRequest:
    return ListPartitionReassignmentsRequest(TIMEOUT_MS, [ListPartitionReassignmentsTopics(*topic) for topic in topics])


def _lie(*topics: tuple[str, list[int]]) -> DescribeLogDirsRequest:
    return DescribeLogDirsRequest([DescribableLogDirTopic(*topic) for topic in topics])


def _move(path: str, *topics: str) -> AlterReplicaLogDirsRequest:
    return AlterReplicaLogDirsRequest([AlterReplicaLogDir(path, [AlterReplicaLogDirTopic(t, [0]) for t in topics])])


_DISK = ("log_dir", "total_bytes", "usable_bytes")
_REPLICAS = (
    Case("elect: preferred", _elect(("part", [0, 9]), ("none", [0]))),
    Case("elect: unclean", _elect(("part", [0]), kind=1), (1, 2)),
    Case("elect: type 5", _elect(("part", [0]), kind=5), (1, 2)),
    Case("elect: none", _elect()),
    Case("elect: all", ElectLeadersRequest(0, None, TIMEOUT_MS)),
    Case("reassign: where it is", _reassign((0, [1]))),
    Case("reassign: partitions", _reassign((9, [1]), (1, [7]))),
    Case("reassign: no such topic", _reassign((0, [1]), topic="none")),
    Case("reassign: bad replicas", _reassign((0, []), (1, [1, 1]))),
    Case("reassign: below zero", _reassign((0, [-1]))),
    Case("reassign: cancel what is not", _reassign((0, None))),
    Case("reassign: as many replicas", _reassign((0, [1]), grows=False), (1,)),
    Case("reassign: none", AlterPartitionReassignmentsRequest(TIMEOUT_MS, True, [])),
    Case("reassign: late", _reassign((0, [1]), timeout_ms=-1)),
    Case("reassignments: all", ListPartitionReassignmentsRequest(TIMEOUT_MS, None)),
    Case("reassignments: named", _reassignments(("part", [0, 9]), ("none", [0]))),
    Case("reassignments: no topics", _reassignments()),
    Case("reassignments: late", ListPartitionReassignmentsRequest(-1, None)),
    Case("log dirs: named", _lie(("part", [0, 1, 9]), ("none", [0])), ignore=_DISK),
    Case("log dirs: no topics", _lie(), ignore=_DISK),
    Case("log dirs: move to nowhere", _move("/nowhere", "part", "none")),
    Case("log dirs: move to no path", _move("", "part")),
)


def _update(feature: str, level: int, kind: int = 1) -> UpdateFeaturesRequest:
    return UpdateFeaturesRequest(TIMEOUT_MS, [FeatureUpdateKey(feature, level, False, kind)], True)


def _quorum(topic: str, partition: int) -> DescribeQuorumRequest:
    return DescribeQuorumRequest([QuorumTopic(topic, [QuorumPartition(partition)])])


_LOG = ("leader_id", "leader_epoch", "high_watermark", "current_voters", "observers", "nodes")
_CLUSTER = (
    Case("feature: unknown", _update("nope", 1), (1, 2)),
    Case("feature: none", UpdateFeaturesRequest(TIMEOUT_MS, [], True), (1, 2)),
    Case("feature: update of type 9", _update("metadata.version", 1, kind=9), (1, 2)),
    Case("feature: too high", _update("eligible.leader.replicas.version", 9), (1, 2)),
    Case("quorum", _quorum("__cluster_metadata", 0), ignore=_LOG),
    Case("quorum: another partition", _quorum("__cluster_metadata", 1)),
    Case("quorum: another topic", _quorum("part", 0)),
    Case("quorum: no topics", DescribeQuorumRequest([])),
    Case("unregister: no such broker", UnregisterBrokerRequest(77)),
)


def _prepare(side: Side) -> None:
    side.create(["part"], 2)


FAMILIES = (Family("partitions", (*_OFFSETS, *_REPLICAS, *_CLUSTER), _prepare),)
