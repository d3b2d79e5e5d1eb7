"""A leader's change of its partition's ISR: compare-and-set on both epochs (KIP-497, 841, 858, 903).

The checks of one partition, in Kafka's order; the first that fails determines the answer:

=========================== =====================================================================================
UNKNOWN_TOPIC_ID            no topic has the id
UNKNOWN_TOPIC_OR_PARTITION  the topic has no such partition
NOT_CONTROLLER              an epoch is ahead: another controller must have issued it
FENCED_LEADER_EPOCH         the leader epoch is outdated
INVALID_REQUEST             another broker leads
INVALID_UPDATE_VERSION      the partition epoch is outdated
INVALID_REQUEST             the ISR is empty, has a non-replica or a member twice, or lacks the leader
INELIGIBLE_REPLICA          a member is unknown, shutting down, fenced, of another epoch, or on a failed directory
NEW_LEADER_ELECTED          the change is made, and completes a reassignment that removes the leader
=========================== =====================================================================================
"""

from __future__ import annotations

from collections.abc import Iterable

from tidelog_foundation.config import TopicConfig
from tidelog_foundation.errors import ErrorCode, TidelogError, error_for
from tidelog_foundation.ids import BrokerId, topic_id_text
from tidelog_foundation.requests.replicas import (
    AlterPartitionItem,
    AlterPartitionItemResult,
    AlterPartitionRequest,
    AlterPartitionResponse,
    AlterPartitionTopic,
    AlterPartitionTopicResult,
    IsrMember,
)
from tidelog_quorum.controller.brokers import check_broker_epoch
from tidelog_quorum.controller.elections import rules_of
from tidelog_quorum.controller.partition_change import PartitionTarget, partition_change
from tidelog_quorum.controller.result import Result
from tidelog_quorum.controller.state import ControllerState
from tidelog_quorum.metadata.image import MetadataImage, TopicImage
from tidelog_quorum.metadata.records import MetadataRecord, PartitionChangeRecord
from tidelog_quorum.metadata.registrations import PartitionRegistration


def alter_partition(
    state: ControllerState, request: AlterPartitionRequest, now_ms: int
) -> Result[AlterPartitionResponse]:
    """Change the ISR of partitions that the calling broker leads; each result is the partition's new state or an error.

    Raises:
        TidelogError: STALE_BROKER_EPOCH, the broker is not registered with that epoch; INVALID_REQUEST, a partition is
            named twice.
    """
    image, own = state.latest, state.own
    broker = check_broker_epoch(image, request.broker_id, request.broker_epoch)
    _check_unique(request)
    records: list[MetadataRecord] = []
    topics = []
    for item in request.topics:
        topic = image.topic_by_id(item.topic_id)
        results = tuple(_alter(image, own, topic, item, p, broker.broker_id, records) for p in item.partitions)
        topics.append(AlterPartitionTopicResult(item.topic_id, results))
    return Result(records, AlterPartitionResponse(tuple(topics)), atomic=False)


def _check_unique(request: AlterPartitionRequest) -> None:
    named = [(t.topic_id, p.index) for t in request.topics for p in t.partitions]
    if len(named) != len(set(named)):
        raise error_for(ErrorCode.INVALID_REQUEST, f"broker {request.broker_id} names a partition twice")


def _alter(
    image: MetadataImage,
    own: TopicConfig,
    topic: TopicImage | None,
    item: AlterPartitionTopic,
    asked: AlterPartitionItem,
    broker_id: BrokerId,
    records: list[MetadataRecord],
) -> AlterPartitionItemResult:
    try:
        topic, partition = _checked(image, topic, item, asked, broker_id)
        change = partition_change(
            image.brokers,
            rules := rules_of(image, topic.name, own),
            topic.topic_id,
            asked.index,
            partition,
            PartitionTarget(isr=tuple(m.broker_id for m in asked.new_isr)),
            rules.election,
        )
        # An unchanged ISR gets a new partition epoch too, with which a leader withdraws an earlier proposal.
        change = change or PartitionChangeRecord(topic.topic_id, asked.index, isr=partition.isr)
        records.append(change)
        partition = partition.changed_by(change)
        _check_still_leads(f"{topic.name}-{asked.index}", partition, broker_id)
    except TidelogError as error:
        return AlterPartitionItemResult(index=asked.index, error=error.detached())
    return AlterPartitionItemResult(
        index=asked.index,
        leader_id=partition.leader,
        leader_epoch=partition.leader_epoch,
        partition_epoch=partition.partition_epoch,
        isr=partition.isr,
    )


def _checked(
    image: MetadataImage,
    topic: TopicImage | None,
    item: AlterPartitionTopic,
    asked: AlterPartitionItem,
    broker_id: BrokerId,
) -> tuple[TopicImage, PartitionRegistration]:
    """Return the topic and partition to change, unless one of the checks above fails."""
    if topic is None:
        topic_id = topic_id_text(item.topic_id)
        raise error_for(ErrorCode.UNKNOWN_TOPIC_ID, f"there is no topic of the id {topic_id}")
    partition = topic.partitions.get(asked.index)
    if partition is None:
        raise error_for(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no partition {topic.name}-{asked.index}")
    name = f"{topic.name}-{asked.index}"
    _check_epochs(name, partition, asked, broker_id)
    _check_isr(image, name, partition, asked)
    return topic, partition


def _check_still_leads(name: str, partition: PartitionRegistration, broker_id: BrokerId) -> None:
    """Raise an error if the leader changed. Unlike all others it comes with a record, which the leader reads in the
    log.
    """
    if partition.leader != broker_id:
        text = f"the change completed the reassignment of {name}, which {partition.leader} leads now"
        raise error_for(ErrorCode.NEW_LEADER_ELECTED, text)


def _check_epochs(name: str, partition: PartitionRegistration, asked: AlterPartitionItem, broker_id: BrokerId) -> None:
    ahead = asked.leader_epoch > partition.leader_epoch or asked.partition_epoch > partition.partition_epoch
    seen = f"{name} has leader epoch {partition.leader_epoch} and partition epoch {partition.partition_epoch}"
    said = f"not {asked.leader_epoch} and {asked.partition_epoch}"
    if ahead:
        # Only another controller can have issued later epochs than this one knows.
        raise error_for(ErrorCode.NOT_CONTROLLER, f"{seen} on this controller, {said}")
    if asked.leader_epoch < partition.leader_epoch:
        raise error_for(ErrorCode.FENCED_LEADER_EPOCH, f"{seen}, {said}")
    if broker_id != partition.leader:
        raise error_for(ErrorCode.INVALID_REQUEST, f"{name} is led by {partition.leader}, not by {broker_id}")
    if asked.partition_epoch < partition.partition_epoch:
        raise error_for(ErrorCode.INVALID_UPDATE_VERSION, f"{seen}, {said}")


def _check_isr(image: MetadataImage, name: str, partition: PartitionRegistration, asked: AlterPartitionItem) -> None:
    isr = [m.broker_id for m in asked.new_isr]
    if not isr or len(set(isr)) != len(isr) or not set(isr) <= set(partition.replicas):
        raise error_for(
            ErrorCode.INVALID_REQUEST, f"{isr} cannot be the ISR of {name}, whose replicas are {partition.replicas}"
        )
    if partition.leader not in isr:
        raise error_for(ErrorCode.INVALID_REQUEST, f"{isr} cannot be the ISR of {name}: its leader is not in it")
    problems = list(_ineligible(image, partition, asked.new_isr))
    if problems:
        raise error_for(ErrorCode.INELIGIBLE_REPLICA, f"{isr} cannot be the ISR of {name}: {'; '.join(problems)}")


def _ineligible(image: MetadataImage, partition: PartitionRegistration, members: Iterable[IsrMember]) -> Iterable[str]:
    for member in members:
        broker = image.brokers.get(member.broker_id)
        if broker is None:
            yield f"broker {member.broker_id} is not registered"
        elif broker.in_controlled_shutdown:
            yield f"broker {member.broker_id} is shutting down"
        elif broker.fenced:
            yield f"broker {member.broker_id} is fenced"
        elif member.broker_epoch not in (-1, broker.broker_epoch):
            yield f"broker {member.broker_id} has epoch {broker.broker_epoch}, not {member.broker_epoch}"
        elif not image.can_serve(partition, broker.broker_id):
            yield f"the log directory of broker {member.broker_id} is offline"
