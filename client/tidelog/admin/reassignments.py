"""Partitions that move to other replicas, with the names of Kafka's Java client (KIP-455)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from tidelog.errors import TidelogError, error_for
from tidelog.message import TopicPartition
from tidelog.v1 import admin_service_pb2 as pb
from tidelog.v1 import metadata_record_pb2


@dataclass(frozen=True, slots=True)
class NewPartitionReassignment:
    """The nodes that are to hold a partition; the first is its preferred leader."""

    target_replicas: Sequence[int]


@dataclass(frozen=True, slots=True)
class PartitionReassignment:
    """A reassignment under way. ``adding_replicas`` and ``removing_replicas`` are parts of ``replicas``."""

    replicas: tuple[int, ...]
    adding_replicas: tuple[int, ...] = ()
    removing_replicas: tuple[int, ...] = ()

    @property
    def target_replicas(self) -> tuple[int, ...]:
        """Who holds the partition when the reassignment is over."""
        return tuple(r for r in self.replicas if r not in self.removing_replicas)


def alter_request(
    reassignments: Mapping[TopicPartition, NewPartitionReassignment | None],
    timeout_ms: int,
    *,
    allow_replication_factor_change: bool,
) -> pb.AlterPartitionReassignmentsRequest:
    """Return the request to begin these reassignments; None cancels the one of a partition."""
    by_topic: defaultdict[str, list[pb.ReassignablePartition]] = defaultdict(list)
    for key, wanted in reassignments.items():
        replicas = None if wanted is None else metadata_record_pb2.BrokerIds(ids=wanted.target_replicas)
        by_topic[key.topic].append(pb.ReassignablePartition(index=key.partition, replicas=replicas))
    return pb.AlterPartitionReassignmentsRequest(
        topics=[pb.ReassignableTopic(name=name, partitions=items) for name, items in by_topic.items()],
        timeout_ms=timeout_ms,
        refuse_replication_factor_change=not allow_replication_factor_change,
    )


def alter_outcomes(response: pb.AlterPartitionReassignmentsResponse) -> dict[TopicPartition, TidelogError | None]:
    """Return what became of each partition of an answer; None where its reassignment has begun, or is cancelled."""
    return {
        TopicPartition(topic.name, result.index): (
            error_for(result.error.code, result.error.message) if result.HasField("error") else None
        )
        for topic in response.topics
        for result in topic.partitions
    }


def list_request(partitions: Iterable[TopicPartition] | None) -> pb.ListPartitionReassignmentsRequest:
    """Return the request for the reassignments of these partitions, of all when there is None."""
    by_topic: defaultdict[str, list[int]] = defaultdict(list)
    for key in partitions or ():
        by_topic[key.topic].append(key.partition)
    topics = [pb.TopicPartitions(name=name, partitions=indexes) for name, indexes in by_topic.items()]
    return pb.ListPartitionReassignmentsRequest(topics=topics)


def ongoing_reassignments(
    response: pb.ListPartitionReassignmentsResponse,
) -> dict[TopicPartition, PartitionReassignment]:
    """Return the reassignments of an answer by partition."""
    return {
        TopicPartition(topic.name, p.index): PartitionReassignment(
            tuple(p.replicas), tuple(p.adding_replicas), tuple(p.removing_replicas)
        )
        for topic in response.topics
        for p in topic.partitions
    }
