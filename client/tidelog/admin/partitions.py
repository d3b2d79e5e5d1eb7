"""Addition of partitions to topics, with confluent-kafka's names (KIP-195)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tidelog.admin.operations import Future, Operations, Outcomes
from tidelog.v1 import admin_service_pb2 as pb
from tidelog_foundation.errors import ErrorCode, error_for


@dataclass(slots=True)
class NewPartitions:
    """The new number of partitions of a topic, which must be larger than the current one.

    ``replica_assignment`` lists the node ids of each added partition; if it is empty, the controller chooses them.
    """

    topic: str
    new_total_count: int
    replica_assignment: Sequence[Sequence[int]] = ()

    def to_proto(self) -> pb.NewPartitions:
        """Return the protobuf message.

        Raises:
            TidelogError: _INVALID_ARG for a value that a request cannot carry, such as a number beyond 32 bits.
        """
        try:
            assignments = [pb.ReplicaAssignment(broker_ids=ids) for ids in self.replica_assignment]
            return pb.NewPartitions(name=self.topic, count=self.new_total_count, assignments=assignments)
        except (TypeError, ValueError) as error:
            text = f"new partitions of topic {self.topic!r} are not valid: {error}"
            raise error_for(ErrorCode._INVALID_ARG, text) from error


class PartitionAdmin(Operations):
    """Operations on the partitions of topics."""

    def create_partitions(
        self,
        new_partitions: Iterable[NewPartitions],
        *,
        operation_timeout: float = 30,
        request_timeout: float | None = None,
        validate_only: bool = False,
    ) -> dict[str, Future[None]]:
        """Add partitions to topics. A future is done when they exist, or fails with KafkaException.

        ``operation_timeout`` limits the controller's work, ``request_timeout`` the whole operation (default:
        request.timeout.ms), in seconds. ``validate_only`` only validates. Existing records stay in their partitions,
        while new records with the same keys may go to other ones.
        """
        wanted = list(new_partitions)
        request = pb.CreatePartitionsRequest(
            topics=[topic.to_proto() for topic in wanted],
            timeout_ms=int(operation_timeout * 1000),
            validate_only=validate_only,
        )

        async def create() -> Outcomes[str, None]:
            response = await self._change(lambda c, t: c.admin.CreatePartitions(request, timeout=t), request_timeout)
            return {
                r.name: error_for(r.error.code, r.error.message) if r.HasField("error") else None
                for r in response.topics
            }

        return self._futures([topic.topic for topic in wanted], create())
