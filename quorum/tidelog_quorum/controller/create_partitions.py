"""Adds partitions to existing topics (KIP-195).

A topic never has fewer partitions than before. New partitions get as many replicas as partition 0 has, or will have
after its reassignment; a reassignment in progress does not matter otherwise, as in Kafka. Their placement continues
that of the existing ones: see :mod:`tidelog_quorum.controller.placement`.
"""

from __future__ import annotations

from collections import Counter

from tidelog_foundation.errors import ErrorCode, TidelogError, error_for
from tidelog_foundation.requests.topics import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsResult,
    NewPartitions,
)
from tidelog_quorum.controller.mutation_quotas import MutationQuota
from tidelog_quorum.controller.placement import ClusterLoad, Replicas, place_replicas
from tidelog_quorum.controller.result import Result
from tidelog_quorum.controller.state import ControllerState
from tidelog_quorum.controller.topics import (
    MAX_PARTITIONS_PER_REQUEST,
    check_assignment,
    check_topic_count,
    new_partition,
)
from tidelog_quorum.metadata.image import MetadataImage
from tidelog_quorum.metadata.records import MetadataRecord


def create_partitions(
    state: ControllerState, request: CreatePartitionsRequest, now_ms: int
) -> Result[CreatePartitionsResponse]:
    """Add partitions to the topics that can have them; each of the others gets its own error.

    Raises:
        TidelogError: POLICY_VIOLATION, the request has too many topics or partitions.
    """
    image = state.latest
    _check_size(image, request)
    state.load.follow(image)
    together = state.load.copy()
    counts = Counter(t.name for t in request.topics)
    quota = state.mutation_quota(request.quota_client, now_ms)
    records: list[MetadataRecord] = []
    results: dict[str, CreatePartitionsResult] = {}
    for topic in request.topics:
        try:
            if counts[topic.name] > 1:
                raise error_for(ErrorCode.INVALID_REQUEST, f"topic {topic.name!r} is named {counts[topic.name]} times")
            records += _add(image, together, topic, quota)
        except TidelogError as error:
            results[topic.name] = CreatePartitionsResult(name=topic.name, error=error.detached())
        else:
            results[topic.name] = CreatePartitionsResult(name=topic.name)
    response = CreatePartitionsResponse(tuple(results.values()), quota.throttle_time_ms)
    return Result([] if request.validate_only else records, response)


def _check_size(image: MetadataImage, request: CreatePartitionsRequest) -> None:
    check_topic_count(len(request.topics))

    def added(wanted: NewPartitions) -> int:
        topic = image.topics.get(wanted.name)
        return 0 if topic is None else max(0, wanted.count - len(topic.partitions))

    total = sum(map(added, request.topics))
    if total > MAX_PARTITIONS_PER_REQUEST:
        raise error_for(
            ErrorCode.POLICY_VIOLATION, f"{total} partitions in one request, more than {MAX_PARTITIONS_PER_REQUEST}"
        )


def _add(image: MetadataImage, load: ClusterLoad, wanted: NewPartitions, quota: MutationQuota) -> list[MetadataRecord]:
    topic = image.topics.get(wanted.name)
    if topic is None:
        raise error_for(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {wanted.name!r}")
    if topic.partitions[0].is_mirror:
        text = f"topic {wanted.name!r} is a mirror topic: it gets partitions when its source does"
        raise error_for(ErrorCode.INVALID_REQUEST, text)
    present = len(topic.partitions)
    if wanted.count <= present:
        text = f"The topic {wanted.name} currently has {present} partition(s); {wanted.count} would not be an increase."
        raise error_for(ErrorCode.INVALID_PARTITIONS, text)
    first = topic.partitions[0]
    factor = len(set(first.replicas) - set(first.removing_replicas))
    added = wanted.count - present
    if wanted.assignments:
        placements = _manual(image, wanted, present, added, factor)
    else:
        existing = [partition.replicas for _, partition in sorted(topic.partitions.items())]
        placements = place_replicas(image, added, factor, existing, load)
    records: list[MetadataRecord] = [
        new_partition(image, topic.name, topic.topic_id, index, replicas)
        for index, replicas in enumerate(placements, present)
    ]
    quota.take(added)
    load.add(placements)
    return records


def _manual(image: MetadataImage, wanted: NewPartitions, present: int, added: int, factor: int) -> list[Replicas]:
    if len(wanted.assignments) != added:
        text = f"topic {wanted.name!r} gets {added} more partitions, but {len(wanted.assignments)} are assigned"
        raise error_for(ErrorCode.INVALID_REPLICA_ASSIGNMENT, text)
    return [
        check_assignment(image, wanted.name, index, assignment.broker_ids, factor)
        for index, assignment in enumerate(wanted.assignments, present)
    ]
