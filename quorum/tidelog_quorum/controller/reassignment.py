"""Moves partitions to other replicas (KIP-455), with an error per partition.

The *original* replicas are those of the partition before any reassignment: the replicas without ``adding``. A
reassignment to a target

1. makes the replicas the target followed by the current ones that are not in it, which are ``removing``; ``adding`` are
   all of them that are not original;
2. waits until the ISR has the whole target: new replicas fetch from the leader like any other that is behind;
3. is completed by the change that brings the last of them into the ISR (``partition_change``): the replicas to remove
   leave replicas and ISR, and a leader among them gives way to the first of the target.

If the ISR has the target already, because it only drops replicas or changes their order, 2 and 3 happen at once.

A new target may replace one in progress. A replica that the earlier one was adding, and the new one is not, leaves at
once if it is not in the ISR; otherwise it may be the only one with the latest records, and leaves with the others in 3.
It is then in ``adding`` and in ``removing``, so that a cancellation still leads back to the original replicas, after
any number of targets.

A cancellation removes all of ``adding`` at once. If no original replica is left in the ISR, that would lose records; it
is refused, unless the topic's ``unclean.leader.election.enable`` allows it. So nothing depends on an original replica
that was in sync once and is gone now.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable

from tidelog_foundation.errors import ErrorCode, TidelogError, error_for
from tidelog_foundation.ids import BrokerId
from tidelog_foundation.requests.partitions import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
    ReassignablePartition,
    ReassignablePartitionResult,
    ReassignableTopicResult,
)
from tidelog_quorum.controller.partition_change import Election, ElectionRules, PartitionTarget, partition_change
from tidelog_quorum.controller.result import Result
from tidelog_quorum.controller.state import ControllerState
from tidelog_quorum.metadata.cordons import cordoned_among
from tidelog_quorum.metadata.image import MetadataImage, TopicImage
from tidelog_quorum.metadata.records import PartitionChangeRecord
from tidelog_quorum.metadata.registrations import PartitionRegistration

MAX_PARTITIONS_PER_REQUEST = 10_000

TopicRules = Callable[[str], ElectionRules]
"""Returns the election rules of a topic, by its name."""
_Replicas = tuple[BrokerId, ...]


def alter_partition_reassignments(
    state: ControllerState, request: AlterPartitionReassignmentsRequest, now_ms: int
) -> Result[AlterPartitionReassignmentsResponse]:
    """Begin, replace or cancel reassignments. The valid ones form one entry; each of the others gets its own error.

    Errors: UNKNOWN_TOPIC_OR_PARTITION; INVALID_REPLICA_ASSIGNMENT for a target that is empty, names a broker twice or
    an unregistered one (a fenced one is allowed: the reassignment waits for it), adds a cordoned one (KIP-1066), or
    would lose records;
    INVALID_REPLICATION_FACTOR for another number of replicas if the request forbids that (KIP-860);
    NO_REASSIGNMENT_IN_PROGRESS for a cancellation without a reassignment; INVALID_REQUEST for a partition that is named
    twice.

    Raises:
        TidelogError: POLICY_VIOLATION, the request has too many partitions.
    """
    counts = Counter((t.name, p.index) for t in request.topics for p in t.partitions)
    if counts.total() > MAX_PARTITIONS_PER_REQUEST:
        text = f"{counts.total()} partitions in one request, more than {MAX_PARTITIONS_PER_REQUEST}"
        raise error_for(ErrorCode.POLICY_VIOLATION, text)
    image = state.latest
    records: list[PartitionChangeRecord] = []
    topics = []
    for topic in request.topics:
        results = []
        for asked in topic.partitions:
            error = None
            try:
                if (count := counts[topic.name, asked.index]) > 1:
                    text = f"{topic.name}-{asked.index} is named {count} times"
                    raise error_for(ErrorCode.INVALID_REQUEST, text)
                change = _alter(image, state.rules_of, topic.name, asked, request.refuse_replication_factor_change)
            except TidelogError as refusal:
                error, change = refusal.detached(), None
            if change is not None:
                records.append(change)
            results.append(ReassignablePartitionResult(asked.index, error))
        topics.append(ReassignableTopicResult(topic.name, tuple(results)))
    return Result(records, AlterPartitionReassignmentsResponse(tuple(topics)))


def list_partition_reassignments(
    image: MetadataImage, request: ListPartitionReassignmentsRequest
) -> ListPartitionReassignmentsResponse:
    """List the reassignments in progress: of the named partitions, or all. Other and unknown partitions are omitted."""
    topics = []
    for topic, indexes in _asked_for(image, request):
        ongoing = [(i, topic.partitions[i]) for i in indexes if i in topic.partitions]
        partitions = tuple(_ongoing(i, p) for i, p in ongoing if p.is_reassigning)
        if partitions:
            topics.append(OngoingTopicReassignment(topic.name, partitions))
    return ListPartitionReassignmentsResponse(tuple(topics))


def _asked_for(
    image: MetadataImage, request: ListPartitionReassignmentsRequest
) -> Iterable[tuple[TopicImage, Iterable[int]]]:
    if not request.topics:
        for _, topic in sorted(image.topics.items()):
            yield topic, sorted(topic.partitions)
    for asked in request.topics:
        named = image.topics.get(asked.name)
        if named is not None:
            yield named, asked.partitions


def _ongoing(index: int, partition: PartitionRegistration) -> OngoingPartitionReassignment:
    return OngoingPartitionReassignment(
        index=index,
        replicas=partition.replicas,
        adding_replicas=partition.adding_replicas,
        removing_replicas=partition.removing_replicas,
    )


def _alter(
    image: MetadataImage, rules_of: TopicRules, name: str, asked: ReassignablePartition, refuses_factor_change: bool
) -> PartitionChangeRecord | None:
    topic = image.topics.get(name)
    partition = None if topic is None else topic.partitions.get(asked.index)
    if topic is None or partition is None:
        raise error_for(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no partition {name}-{asked.index}")
    if asked.replicas is None:
        return _cancel(image, rules_of(name), topic, asked.index, partition)
    wanted = tuple(BrokerId(b) for b in asked.replicas)
    _check_target(image, f"{name}-{asked.index}", partition, wanted)
    if refuses_factor_change:
        _check_factor(f"{name}-{asked.index}", partition, wanted)
    return _begin(image, rules_of(name), topic, asked.index, partition, wanted)


def _check_target(image: MetadataImage, where: str, partition: PartitionRegistration, wanted: _Replicas) -> None:
    unknown = [b for b in wanted if b not in image.brokers]
    if not wanted:
        raise _bad_target(where, "it has no replica")
    if unknown:
        raise _bad_target(where, f"it names brokers that are not registered: {unknown}")
    if len(set(wanted)) != len(wanted):
        raise _bad_target(where, f"it names a broker twice: {list(wanted)}")
    if cordoned := cordoned_among(image, (b for b in wanted if b not in partition.replicas)):
        raise _bad_target(where, f"it adds replicas on brokers that are cordoned: {cordoned}")


def _check_factor(where: str, partition: PartitionRegistration, wanted: _Replicas) -> None:
    # With a reassignment in progress, its target counts.
    factor = len(partition.replicas) - len(partition.removing_replicas)
    if len(wanted) != factor:
        text = f"{where} has replication factor {factor}, the target {list(wanted)} would change it to {len(wanted)}"
        raise error_for(ErrorCode.INVALID_REPLICATION_FACTOR, text)


def _begin(
    image: MetadataImage,
    rules: ElectionRules,
    topic: TopicImage,
    index: int,
    partition: PartitionRegistration,
    wanted: _Replicas,
) -> PartitionChangeRecord | None:
    removing = tuple(sorted({*_original(partition), *_holders(partition)}.difference(wanted)))
    replicas = (*wanted, *removing)
    adding = tuple(sorted(set(replicas).difference(_original(partition))))
    target = PartitionTarget(replicas=replicas, adding=adding, removing=removing)
    return partition_change(image.brokers, rules, topic.topic_id, index, partition, target, rules.election)


def _cancel(
    image: MetadataImage, rules: ElectionRules, topic: TopicImage, index: int, partition: PartitionRegistration
) -> PartitionChangeRecord | None:
    where, replicas = f"{topic.name}-{index}", _original(partition)
    if not partition.is_reassigning:
        raise error_for(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, f"no reassignment of {where} is in progress")
    isr = tuple(b for b in partition.isr if b in replicas)
    election = rules.election
    needed = _holders(partition).difference(replicas)
    if not isr and needed:
        if not rules.allows_unclean:
            raise _bad_target(where, f"without {sorted(needed)}, which the cancellation takes away, records are lost")
        survivors = [b for b in replicas if image.can_serve(partition, b)] or replicas
        isr, election = (survivors[0],), Election.ONLINE
    target = PartitionTarget(isr=isr, replicas=replicas, adding=(), removing=())
    return partition_change(image.brokers, rules, topic.topic_id, index, partition, target, election)


def _original(partition: PartitionRegistration) -> _Replicas:
    return tuple(b for b in partition.replicas if b not in partition.adding_replicas)


def _holders(partition: PartitionRegistration) -> set[BrokerId]:
    """Return the replicas that may have all committed records."""
    return {*partition.isr, *partition.eligible_leader_replicas, *partition.last_known_elr}


def _bad_target(where: str, problem: str) -> TidelogError:
    return error_for(ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"reassignment of {where}: {problem}")
