"""The log lines of the leading controller about brokers and partitions, once their changes are committed."""

from __future__ import annotations

from collections.abc import Sequence

from tidelog_foundation.ids import NO_BROKER, BrokerId, TopicId
from tidelog_foundation.logs.events import EventLog
from tidelog_quorum.controller.state_machine import ChangedPartition
from tidelog_quorum.metadata.image import MetadataImage
from tidelog_quorum.metadata.registrations import PartitionRegistration


def report_brokers(log: EventLog, before: MetadataImage, after: MetadataImage) -> None:
    """Write a line for each broker that has registered, been fenced or unfenced, or left."""
    for broker_id in sorted(before.brokers.keys() | after.brokers.keys()):
        old, new = _broker_state(before, broker_id), _broker_state(after, broker_id)
        if old != new:
            log.write("Broker %d is %s, was %s", broker_id, new, old)
    log.summarize()


def report_partitions(
    log: EventLog, before: MetadataImage, after: MetadataImage, partitions: Sequence[ChangedPartition]
) -> None:
    """Write a line for each of these partitions with another leader, leader epoch or ISR."""
    for topic_id, index in partitions:
        topic = after.topic_by_id(topic_id)
        old, new = _partition(before, topic_id, index), _partition(after, topic_id, index)
        if topic is None or old is None or new is None:
            continue
        if old.leader_epoch != new.leader_epoch:
            text = "Leader of %s-%d is %s in leader epoch %d with ISR %s, was %s with ISR %s"
            fields = _leader(new), new.leader_epoch, list(new.isr), _leader(old), list(old.isr)
            log.write(text, topic.name, index, *fields)
        elif old.isr != new.isr:
            text = "ISR of %s-%d is %s in leader epoch %d, was %s"
            log.write(text, topic.name, index, list(new.isr), new.leader_epoch, list(old.isr))
    log.summarize()


def _partition(image: MetadataImage, topic_id: TopicId, index: int) -> PartitionRegistration | None:
    topic = image.topic_by_id(topic_id)
    return None if topic is None else topic.partitions.get(index)


def _leader(partition: PartitionRegistration) -> str:
    return "none" if partition.leader == NO_BROKER else f"broker {partition.leader}"


def _broker_state(image: MetadataImage, broker_id: BrokerId) -> str:
    broker = image.brokers.get(broker_id)
    if broker is None:
        return "not registered"
    state = "fenced" if broker.fenced else "shutting down" if broker.in_controlled_shutdown else "active"
    return f"{state} (epoch {broker.broker_epoch})"
