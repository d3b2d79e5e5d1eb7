"""Reassignments of partitions to other replicas, with the names of Kafka's Java client (KIP-455)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from tidelog.admin.operations import Future, Operations, Outcomes
from tidelog.message import TopicPartition
from tidelog.v1 import admin_service_pb2 as pb
from tidelog.v1 import metadata_record_pb2
from tidelog_foundation.errors import TidelogError, error_for


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


class ReassignmentAdmin(Operations):
    """Operations on reassignments."""

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
        timeout_ms = int(operation_timeout * 1000)
        changes_factor = allow_replication_factor_change
        request = _alter_request(reassignments, timeout_ms, allow_replication_factor_change=changes_factor)

        async def alter() -> Outcomes[TopicPartition, None]:
            return _alter_outcomes(
                await self._change(
                    lambda c, t: c.admin.AlterPartitionReassignments(request, timeout=t), request_timeout
                )
            )

        return self._futures(list(reassignments), alter())

    def list_partition_reassignments(
        self, partitions: Iterable[TopicPartition] | None = None, *, request_timeout: float | None = None
    ) -> Future[dict[TopicPartition, PartitionReassignment]]:
        """List the reassignments in progress, of these partitions or of all (KIP-455)."""
        wanted = None if partitions is None else list(partitions)

        async def list_ongoing() -> Outcomes[str, dict[TopicPartition, PartitionReassignment]]:
            if wanted == []:
                return {"": {}}
            request = _list_request(wanted)
            response = await self._ask(
                lambda c, t: c.admin.ListPartitionReassignments(request, timeout=t), request_timeout
            )
            return {"": _ongoing_reassignments(response)}

        return self._futures([""], list_ongoing())[""]


def _alter_request(
    reassignments: Mapping[TopicPartition, NewPartitionReassignment | None],
    timeout_ms: int,
    *,
    allow_replication_factor_change: bool,
) -> pb.AlterPartitionReassignmentsRequest:
    """Return the request to begin these reassignments; None cancels that of a partition."""
    by_topic: defaultdict[str, list[pb.ReassignablePartition]] = defaultdict(list)
    for key, wanted in reassignments.items():
        replicas = None if wanted is None else metadata_record_pb2.BrokerIds(ids=wanted.target_replicas)
        by_topic[key.topic].append(pb.ReassignablePartition(index=key.partition, replicas=replicas))
    return pb.AlterPartitionReassignmentsRequest(
        topics=[pb.ReassignableTopic(name=name, partitions=items) for name, items in by_topic.items()],
        timeout_ms=timeout_ms,
        refuse_replication_factor_change=not allow_replication_factor_change,
    )


def _alter_outcomes(response: pb.AlterPartitionReassignmentsResponse) -> dict[TopicPartition, TidelogError | None]:
    """Return the outcome of each partition in the response; None: its reassignment has begun or is cancelled."""
    return {
        TopicPartition(topic.name, result.index): (
            error_for(result.error.code, result.error.message) if result.HasField("error") else None
        )
        for topic in response.topics
        for result in topic.partitions
    }


def _list_request(partitions: Iterable[TopicPartition] | None) -> pb.ListPartitionReassignmentsRequest:
    """Return the request for the reassignments of these partitions; None means all."""
    by_topic: defaultdict[str, list[int]] = defaultdict(list)
    for key in partitions or ():
        by_topic[key.topic].append(key.partition)
    topics = [pb.TopicPartitions(name=name, partitions=indexes) for name, indexes in by_topic.items()]
    return pb.ListPartitionReassignmentsRequest(topics=topics)


def _ongoing_reassignments(
    response: pb.ListPartitionReassignmentsResponse,
) -> dict[TopicPartition, PartitionReassignment]:
    """Return the reassignments in a response, by partition."""
    return {
        TopicPartition(topic.name, p.index): PartitionReassignment(
            tuple(p.replicas), tuple(p.adding_replicas), tuple(p.removing_replicas)
        )
        for topic in response.topics
        for p in topic.partitions
    }
