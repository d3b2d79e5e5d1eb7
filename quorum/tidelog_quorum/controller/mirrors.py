"""Mirror topics of cluster links: creation, changes of state, and the reports of their leaders.

The states and their changes:

=============== ================================== ==========================================================
operation       from                               to
=============== ================================== ==========================================================
pause           ACTIVE                             PAUSED
resume          PAUSED, FAILED                     ACTIVE
promote         ACTIVE, PAUSED                     PENDING_STOPPED
(drained)       PENDING_STOPPED                    STOPPED, when all leaders have all records of the source
failover        all but STOPPED                    STOPPED
fail            ACTIVE, PENDING_STOPPED            FAILED
=============== ================================== ==========================================================

An operation that finds its own result changes nothing. A topic stops in one entry, with a new leader epoch for each of
its partitions: none is writable before all are. A report counts only from the leader of the partition's current epoch.
An epoch grows to at least the source's, so that it is never below the epoch of a batch.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Final

from tidelog_foundation.errors import ErrorCode, TidelogError, error_for
from tidelog_foundation.ids import TopicId
from tidelog_foundation.requests.configs import ConfigEntry
from tidelog_foundation.requests.links import (
    AlterMirrorTopicsRequest,
    AlterMirrorTopicsResponse,
    CreateMirrorTopicRequest,
    CreateMirrorTopicResponse,
    MirrorOperation,
    MirrorPartitionReport,
    MirrorState,
    MirrorTopicResult,
    ReportMirrorPartitionsRequest,
    ReportMirrorPartitionsResponse,
)
from tidelog_foundation.requests.topics import CreatableTopic
from tidelog_quorum.controller.brokers import check_broker_epoch
from tidelog_quorum.controller.links import find_link
from tidelog_quorum.controller.placement import place_replicas
from tidelog_quorum.controller.result import Result
from tidelog_quorum.controller.state import ControllerState
from tidelog_quorum.controller.topics import (
    MAX_PARTITIONS_PER_REQUEST,
    check_topic_count,
    new_partition,
    topic_records,
)
from tidelog_quorum.metadata.description import INTERNAL_TOPICS
from tidelog_quorum.metadata.image import MetadataImage, MirrorTopic, TopicImage
from tidelog_quorum.metadata.records import (
    MetadataRecord,
    MirrorTopicRecord,
    PartitionChangeRecord,
    PartitionRecord,
)

_ID_SIZE: Final = 16
_LARGEST_EPOCH: Final = 2**31 - 2
_ACTIVE, _PAUSED, _PENDING = MirrorState.ACTIVE, MirrorState.PAUSED, MirrorState.PENDING_STOPPED
_STOPPED, _FAILED = MirrorState.STOPPED, MirrorState.FAILED
_CHANGES: Final[Mapping[MirrorOperation, tuple[tuple[MirrorState, ...], MirrorState]]] = MappingProxyType(
    {
        MirrorOperation.PAUSE: ((_ACTIVE,), _PAUSED),
        MirrorOperation.RESUME: ((_PAUSED, _FAILED), _ACTIVE),
        MirrorOperation.PROMOTE: ((_ACTIVE, _PAUSED), _PENDING),
        MirrorOperation.FAILOVER: ((_ACTIVE, _PAUSED, _PENDING, _FAILED), _STOPPED),
        MirrorOperation.FAIL: ((_ACTIVE, _PENDING), _FAILED),
    }
)
"""The states in which an operation is possible, and the one that it leads to."""


def create_mirror_topic(
    state: ControllerState, request: CreateMirrorTopicRequest, now_ms: int
) -> Result[CreateMirrorTopicResponse]:
    """Create a mirror topic with the name and the id of its source. A repeated request changes nothing.

    Raises:
        TidelogError: RESOURCE_NOT_FOUND: there is no such link; INVALID_REQUEST; TOPIC_ALREADY_EXISTS: a topic has the
            name or the id; another error of the creation of topics.
    """
    image = state.latest
    link = find_link(image, request.link_name)
    response = CreateMirrorTopicResponse(request.num_partitions)
    if len(request.topic_id) != _ID_SIZE or not any(request.topic_id):
        text = f"the source has no id for topic {request.topic!r}: a source needs Apache Kafka 3.1 or later"
        raise error_for(ErrorCode.INVALID_REQUEST, text)
    if request.topic in INTERNAL_TOPICS:
        raise error_for(ErrorCode.INVALID_REQUEST, f"the internal topic {request.topic} cannot be a mirror")
    known, taken = image.mirror_topics.get(request.topic_id), image.topic_names.get(request.topic_id)
    if known is not None and (known.link_id, known.state, taken) == (link.link_id, _ACTIVE, request.topic):
        return Result([], response)
    if taken is not None:
        raise error_for(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{taken}' has the id of the source's topic already.")
    settings = tuple(ConfigEntry(s.name, s.value) for s in request.settings)
    topic = CreatableTopic(request.topic, request.num_partitions, request.replication_factor, configs=settings)
    records: list[MetadataRecord] = [
        replace(record, is_mirror=True) if isinstance(record, PartitionRecord) else record
        for record in topic_records(state, topic, request.topic_id, now_ms)
    ]
    return Result([*records, MirrorTopicRecord(request.topic_id, link.link_id, _ACTIVE)], response)


def alter_mirror_topics(
    state: ControllerState, request: AlterMirrorTopicsRequest, now_ms: int
) -> Result[AlterMirrorTopicsResponse]:
    """Change the state of mirror topics, each by itself.

    Raises:
        TidelogError: INVALID_REQUEST: an unknown operation, or a topic twice; POLICY_VIOLATION: too many topics.
    """
    if request.operation not in _CHANGES:
        raise error_for(ErrorCode.INVALID_REQUEST, f"unknown operation {request.operation} on mirror topics")
    check_topic_count(len(request.topics))
    if len(set(request.topics)) != len(request.topics):
        raise error_for(ErrorCode.INVALID_REQUEST, "a topic is named twice")
    records: list[MetadataRecord] = []
    results = []
    for name in request.topics:
        try:
            records += _changed(state, name, request.operation)
        except TidelogError as error:
            results.append(MirrorTopicResult(name, error.detached()))
        else:
            results.append(MirrorTopicResult(name))
    return Result(records, AlterMirrorTopicsResponse(tuple(results)))


def report_mirror_partitions(
    state: ControllerState, request: ReportMirrorPartitionsRequest, now_ms: int
) -> Result[ReportMirrorPartitionsResponse]:
    """Raise leader epochs to those of the source, add the partitions that the source has, and stop drained topics.

    Reports that are not from a partition's leader in its current epoch are outdated and have no effect.

    Raises:
        TidelogError: STALE_BROKER_EPOCH; INVALID_REQUEST: too many reports, or a partition twice.
    """
    image = state.latest
    broker = check_broker_epoch(image, request.broker_id, request.broker_epoch)
    reports = request.partitions
    if len({(r.topic_id, r.index) for r in reports}) != len(reports) or len(reports) > MAX_PARTITIONS_PER_REQUEST:
        text = f"broker {broker.broker_id} sends {len(reports)} reports, with a partition twice or more than"
        raise error_for(ErrorCode.INVALID_REQUEST, f"{text} {MAX_PARTITIONS_PER_REQUEST}")
    records: list[MetadataRecord] = []
    drained: dict[TopicId, None] = {}
    for report in reports:
        topic = image.topic_by_id(report.topic_id)
        partition = None if topic is None else topic.partitions.get(report.index)
        if topic is None or partition is None or not partition.is_mirror:
            continue
        if (partition.leader, partition.leader_epoch) != (broker.broker_id, report.leader_epoch):
            continue
        if partition.leader_epoch < report.least_leader_epoch <= _LARGEST_EPOCH:
            least = report.least_leader_epoch
            state.drained.get(report.topic_id, {}).pop(report.index, None)
            records.append(
                PartitionChangeRecord(report.topic_id, report.index, leader=partition.leader, leader_epoch=least)
            )
        elif report.is_drained and image.mirror_topics[report.topic_id].state is _PENDING:
            state.drained.setdefault(report.topic_id, {})[report.index] = report.leader_epoch
            drained[report.topic_id] = None
        records += _added_partitions(state, topic, report)
    for topic_id in drained:
        records += _stopped_if_drained(state, image, topic_id)
    return Result(records, ReportMirrorPartitionsResponse())


def _changed(state: ControllerState, name: str, operation: MirrorOperation) -> list[MetadataRecord]:
    image = state.latest
    topic = image.topics.get(name)
    if topic is None:
        raise error_for(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {name!r}")
    mirror = image.mirror_topics.get(topic.topic_id)
    if mirror is None:
        raise error_for(ErrorCode.INVALID_REQUEST, f"topic {name!r} is no mirror topic")
    sources, target = _CHANGES[operation]
    if mirror.state is target:
        return []
    if mirror.state not in sources:
        allowed = ", ".join(s.name for s in sources)
        text = f"topic {name!r} is {mirror.state.name}, {operation.name.lower()} is possible in {allowed}"
        raise error_for(ErrorCode.INVALID_REQUEST, text)
    state.drained.pop(topic.topic_id, None)
    if target is _STOPPED:
        return _stopped(topic, mirror)
    return [MirrorTopicRecord(topic.topic_id, mirror.link_id, target)]


def _stopped(topic: TopicImage, mirror: MirrorTopic) -> list[MetadataRecord]:
    """Return the records that make a topic writable, in new leader epochs, under the present leaders."""
    changes: list[MetadataRecord] = [
        PartitionChangeRecord(topic.topic_id, index, leader=partition.leader, is_mirror=False)
        for index, partition in sorted(topic.partitions.items())
    ]
    return [MirrorTopicRecord(topic.topic_id, mirror.link_id, _STOPPED), *changes]


def _stopped_if_drained(state: ControllerState, image: MetadataImage, topic_id: TopicId) -> list[MetadataRecord]:
    topic, reported = image.topic_by_id(topic_id), state.drained.get(topic_id, {})
    assert topic is not None
    if any(reported.get(index) != partition.leader_epoch for index, partition in topic.partitions.items()):
        return []
    del state.drained[topic_id]
    return _stopped(topic, image.mirror_topics[topic_id])


def _added_partitions(state: ControllerState, topic: TopicImage, report: MirrorPartitionReport) -> list[MetadataRecord]:
    """Return the records of partitions that the source has beyond those of the mirror, by the report of the first."""
    present = len(topic.partitions)
    added = min(report.num_partitions, MAX_PARTITIONS_PER_REQUEST) - present
    if report.index or added <= 0:
        return []
    image = state.latest
    state.load.follow(image)
    first = topic.partitions[0]
    factor = len(set(first.replicas) - set(first.removing_replicas))
    existing = [partition.replicas for _, partition in sorted(topic.partitions.items())]
    placements = place_replicas(image, added, factor, existing, state.load)
    state.drained.pop(topic.topic_id, None)
    return [
        replace(new_partition(image, topic.name, topic.topic_id, index, replicas), is_mirror=True)
        for index, replicas in enumerate(placements, present)
    ]
