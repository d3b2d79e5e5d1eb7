"""Elections at an administrator's request (KIP-183, KIP-460), with an error per partition.

A *preferred* election makes the first replica the leader, if it may lead; this returns leaderships to their placement.
An *unclean* election gives a partition without a leader any replica that can serve, whatever the value of
``unclean.leader.election.enable``: records that only other replicas have are lost, which is why an administrator must
request it.

A request is handled in slices, each a request of its own: no other request waits for all partitions of a cluster, and
no entry is larger than a slice.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import islice

from tidelog_foundation.errors import ErrorCode, TidelogError, error_for
from tidelog_foundation.ids import NO_BROKER
from tidelog_foundation.requests.partitions import (
    ElectionType,
    ElectLeadersPartitionResult,
    ElectLeadersRequest,
    ElectLeadersResponse,
    ElectLeadersTopicResult,
    TopicPartitions,
)
from tidelog_quorum.controller.partition_change import Election, partition_change
from tidelog_quorum.controller.reassignment import TopicRules
from tidelog_quorum.controller.result import Result
from tidelog_quorum.controller.state import ControllerState
from tidelog_quorum.metadata.image import MetadataImage, TopicImage
from tidelog_quorum.metadata.records import PartitionChangeRecord
from tidelog_quorum.metadata.registrations import PartitionRegistration

MAX_PARTITIONS_PER_REQUEST = 10_000
"""The maximum number of partitions that a request may name."""
PARTITIONS_PER_SLICE = 1_000


def election_slices(image: MetadataImage, request: ElectLeadersRequest) -> Iterator[ElectLeadersRequest]:
    """Split a request into requests for a bounded number of partitions each; yield at least one.

    They name their partitions even if the request is for all: the flag then only omits partitions that need no
    election.

    Raises:
        TidelogError: POLICY_VIOLATION, the request names too many partitions.
    """
    named = 0 if request.all_partitions else sum(len(t.partitions) for t in request.topics)
    if named > MAX_PARTITIONS_PER_REQUEST:
        text = f"{named} partitions in one request, more than {MAX_PARTITIONS_PER_REQUEST}: name fewer, or ask for all"
        raise error_for(ErrorCode.POLICY_VIOLATION, text)
    asked = _all_of(image) if request.all_partitions else _named_in(request)
    part = _slice_of(request, islice(asked, PARTITIONS_PER_SLICE))
    yield part
    while (part := _slice_of(request, islice(asked, PARTITIONS_PER_SLICE))).topics:
        yield part


def elect_leaders(state: ControllerState, request: ElectLeadersRequest, now_ms: int) -> Result[ElectLeadersResponse]:
    """Elect leaders for the named partitions, else for all; of all, those that need no election are omitted.

    Errors: UNKNOWN_TOPIC_OR_PARTITION; ELECTION_NOT_NEEDED if the preferred replica leads or, for an unclean election,
    any replica leads; PREFERRED_LEADER_NOT_AVAILABLE if the preferred replica may not lead;
    ELIGIBLE_LEADERS_NOT_AVAILABLE if no replica can serve. A partition that is named twice gets one election.

    Raises:
        TidelogError: INVALID_REQUEST, the type of election is unknown.
    """
    image, election = state.latest, _election(request.election_type)
    records: list[PartitionChangeRecord] = []
    results: dict[str, list[ElectLeadersPartitionResult]] = {}
    is_of_all = request.all_partitions and not request.topics
    for name, index in _all_of(image) if is_of_all else _named_in(request):
        error = None
        try:
            records.append(_elect(image, state.rules_of, name, index, election))
        except TidelogError as refusal:
            if request.all_partitions and refusal.code is ErrorCode.ELECTION_NOT_NEEDED:
                continue
            error = refusal.detached()
        results.setdefault(name, []).append(ElectLeadersPartitionResult(index, error))
    return Result(records, election_response(results), atomic=False)


def election_response(results: Mapping[str, Iterable[ElectLeadersPartitionResult]]) -> ElectLeadersResponse:
    """Return the response with the results of each topic."""
    return ElectLeadersResponse(tuple(ElectLeadersTopicResult(name, tuple(found)) for name, found in results.items()))


def preferred_election(
    image: MetadataImage, rules_of: TopicRules, topic: TopicImage, index: int, partition: PartitionRegistration
) -> PartitionChangeRecord | None:
    """Return the change that makes the first replica the leader; None if it may not lead or already leads."""
    if partition.leader == partition.replicas[0] or not image.can_serve(partition, partition.replicas[0]):
        return None
    rules = rules_of(topic.name)
    change = partition_change(image.brokers, rules, topic.topic_id, index, partition, election=Election.PREFERRED)
    return change if change is not None and change.leader == partition.replicas[0] else None


def _election(kind: int) -> Election:
    match kind:
        case ElectionType.UNSPECIFIED | ElectionType.PREFERRED:
            return Election.PREFERRED
        case ElectionType.UNCLEAN:
            return Election.UNCLEAN
        case _:
            raise error_for(ErrorCode.INVALID_REQUEST, f"there is no election type {kind}")


def _all_of(image: MetadataImage) -> Iterator[tuple[str, int]]:
    for name, topic in sorted(image.topics.items()):
        for index in sorted(topic.partitions):
            yield name, index


def _named_in(request: ElectLeadersRequest) -> Iterator[tuple[str, int]]:
    return iter(dict.fromkeys((t.name, index) for t in request.topics for index in t.partitions))


def _slice_of(request: ElectLeadersRequest, partitions: Iterator[tuple[str, int]]) -> ElectLeadersRequest:
    topics: dict[str, list[int]] = {}
    for name, index in partitions:
        topics.setdefault(name, []).append(index)
    named = tuple(TopicPartitions(name, tuple(indexes)) for name, indexes in topics.items())
    return ElectLeadersRequest(request.election_type, named, request.all_partitions)


def _elect(
    image: MetadataImage, rules_of: TopicRules, name: str, index: int, election: Election
) -> PartitionChangeRecord:
    topic = image.topics.get(name)
    partition = None if topic is None else topic.partitions.get(index)
    if topic is None or partition is None:
        raise error_for(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no partition {name}-{index}")
    if election is Election.PREFERRED:
        return _elect_preferred(image, rules_of, topic, index, partition)
    if partition.leader != NO_BROKER:
        raise error_for(ErrorCode.ELECTION_NOT_NEEDED, f"{name}-{index} is led by {partition.leader}")
    change = partition_change(
        image.brokers, rules_of(name), topic.topic_id, index, partition, election=Election.UNCLEAN
    )
    if change is None or change.leader in (None, NO_BROKER):
        text = f"none of the replicas of {name}-{index} can lead: {list(partition.replicas)}"
        raise error_for(ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE, text)
    return change


def _elect_preferred(
    image: MetadataImage, rules_of: TopicRules, topic: TopicImage, index: int, partition: PartitionRegistration
) -> PartitionChangeRecord:
    preferred = partition.replicas[0]
    if partition.leader == preferred:
        raise error_for(ErrorCode.ELECTION_NOT_NEEDED, f"{topic.name}-{index} is led by {preferred}, its preferred one")
    change = preferred_election(image, rules_of, topic, index, partition)
    if change is None:
        isr = list(partition.isr)
        why = f"it is not in the ISR {isr}" if preferred not in isr else "it is not available"
        text = f"{preferred}, the preferred leader of {topic.name}-{index}, may not lead: {why}"
        raise error_for(ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE, text)
    return change
