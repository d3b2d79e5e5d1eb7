"""Leader elections (KIP-183, KIP-460), and reassignments of partitions to other replicas (KIP-455).

Names are those of confluent-kafka and, for reassignments, of Kafka's Java client.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from tidelog.admin.operations import Future, Operations, Outcomes
from tidelog.cluster.answers import error_of, group_by_topic
from tidelog.message import TopicPartition
from tidelog.v1 import admin_service_pb2 as pb
from tidelog.v1 import metadata_record_pb2
from tidelog_foundation.errors import TidelogError


@dataclass(frozen=True, slots=True)
class NewPartitionReassignment:
    """The target replicas of a partition, as node ids; the first is the preferred leader."""

    target_replicas: Sequence[int]


@dataclass(frozen=True, slots=True)
class PartitionReassignment:
    """A reassignment in progress. ``adding_replicas`` and ``removing_replicas`` are subsets of ``replicas``."""

    replicas: tuple[int, ...]
    adding_replicas: tuple[int, ...] = ()
    removing_replicas: tuple[int, ...] = ()

    @property
    def target_replicas(self) -> tuple[int, ...]:
        """The replicas of the partition after the reassignment."""
        return tuple(r for r in self.replicas if r not in self.removing_replicas)


class ElectionType(enum.Enum):
    """The kind of election: preferred leaders, or any running replicas for partitions without a leader.

    The latter can lose records.
    """

    PREFERRED = pb.ELECTION_TYPE_PREFERRED
    UNCLEAN = pb.ELECTION_TYPE_UNCLEAN


class ReplicaAdmin(Operations):
    """Operations that move replicas and elect leaders."""

    def alter_partition_reassignments(
        self,
        reassignments: Mapping[TopicPartition, NewPartitionReassignment | None],
        *,
        allow_replication_factor_change: bool = True,
        operation_timeout: float = 30,
        request_timeout: float | None = None,
    ) -> dict[TopicPartition, Future[None]]:
        """Start to move partitions to other nodes; None cancels a reassignment in progress (KIP-455).

        A future is done when the reassignment has started; :meth:`list_partition_reassignments` shows those in
        progress. Without ``allow_replication_factor_change``, a target of another size fails with
        INVALID_REPLICATION_FACTOR (KIP-860). ``operation_timeout`` limits the controller's work, ``request_timeout``
        the whole operation (default: request.timeout.ms), in seconds.
        """
        partitions = group_by_topic(
            (key.topic, pb.ReassignablePartition(index=key.partition, replicas=_broker_ids(wanted)))
            for key, wanted in reassignments.items()
        )
        request = pb.AlterPartitionReassignmentsRequest(
            topics=[pb.ReassignableTopic(name=name, partitions=items) for name, items in partitions.items()],
            timeout_ms=int(operation_timeout * 1000),
            refuse_replication_factor_change=not allow_replication_factor_change,
        )

        async def alter() -> Outcomes[TopicPartition, None]:
            response = await self._change(
                lambda c, t: c.admin.AlterPartitionReassignments(request, timeout=t), request_timeout
            )
            return {
                TopicPartition(topic.name, p.index): error_of(p) for topic in response.topics for p in topic.partitions
            }

        return self._futures(list(reassignments), alter())

    def list_partition_reassignments(
        self, partitions: Iterable[TopicPartition] | None = None, *, request_timeout: float | None = None
    ) -> Future[dict[TopicPartition, PartitionReassignment]]:
        """List the reassignments in progress, of these partitions or of all (KIP-455)."""
        wanted = None if partitions is None else list(partitions)

        async def list_ongoing() -> dict[TopicPartition, PartitionReassignment]:
            if wanted == []:
                return {}
            request = pb.ListPartitionReassignmentsRequest(topics=_topics(wanted or ()))
            response = await self._ask(
                lambda c, t: c.admin.ListPartitionReassignments(request, timeout=t), request_timeout
            )
            return {
                TopicPartition(topic.name, p.index): PartitionReassignment(
                    tuple(p.replicas), tuple(p.adding_replicas), tuple(p.removing_replicas)
                )
                for topic in response.topics
                for p in topic.partitions
            }

        return self._future(list_ongoing())

    def elect_leaders(
        self,
        election_type: ElectionType,
        partitions: Iterable[TopicPartition] | None = None,
        *,
        operation_timeout: float = 30,
        request_timeout: float | None = None,
    ) -> Future[dict[TopicPartition, TidelogError | None]]:
        """Elect preferred leaders, or for partitions without a leader any running replica (KIP-183, KIP-460).

        Without partitions, elect leaders of all. The result maps each partition to None, or to the error for which its
        leader did not change: ELECTION_NOT_NEEDED (omitted if all partitions are requested),
        PREFERRED_LEADER_NOT_AVAILABLE, ELIGIBLE_LEADERS_NOT_AVAILABLE, UNKNOWN_TOPIC_OR_PARTITION.
        ``operation_timeout`` limits the controller's work, ``request_timeout`` the whole operation (default:
        request.timeout.ms), in seconds.
        """
        request = pb.ElectLeadersRequest(
            election_type=election_type.value,
            topics=_topics(partitions or ()),
            all_partitions=partitions is None,
            timeout_ms=int(operation_timeout * 1000),
        )

        async def elect() -> dict[TopicPartition, TidelogError | None]:
            response = await self._change(lambda c, t: c.admin.ElectLeaders(request, timeout=t), request_timeout)
            return {
                TopicPartition(topic.name, p.index): error_of(p) for topic in response.topics for p in topic.partitions
            }

        return self._future(elect())


def _broker_ids(wanted: NewPartitionReassignment | None) -> metadata_record_pb2.BrokerIds | None:
    return None if wanted is None else metadata_record_pb2.BrokerIds(ids=wanted.target_replicas)


def _topics(partitions: Iterable[TopicPartition]) -> list[pb.TopicPartitions]:
    by_topic = group_by_topic((item.topic, item.partition) for item in partitions)
    return [pb.TopicPartitions(name=name, partitions=indexes) for name, indexes in by_topic.items()]
