"""Leader elections, with confluent-kafka's names (KIP-183, KIP-460)."""

from __future__ import annotations

import enum
from collections import defaultdict
from collections.abc import Iterable

from tidelog.admin.operations import Future, Operations, Outcomes
from tidelog.message import TopicPartition
from tidelog.v1 import admin_service_pb2 as pb
from tidelog_foundation.errors import TidelogError, error_for


class ElectionType(enum.Enum):
    """The kind of election: preferred leaders, or any running replicas for partitions without a leader.

    The latter can lose records.
    """

    PREFERRED = pb.ELECTION_TYPE_PREFERRED
    UNCLEAN = pb.ELECTION_TYPE_UNCLEAN


class ElectionAdmin(Operations):
    """Operations that elect leaders."""

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
        request = _request(election_type, partitions, int(operation_timeout * 1000))

        async def elect() -> Outcomes[str, dict[TopicPartition, TidelogError | None]]:
            response = await self._change(lambda c, t: c.admin.ElectLeaders(request, timeout=t), request_timeout)
            return {"": _outcomes(response)}

        return self._futures([""], elect())[""]


def _request(
    election_type: ElectionType, partitions: Iterable[TopicPartition] | None, timeout_ms: int
) -> pb.ElectLeadersRequest:
    """Return the request to elect the leaders of the partitions; None means all."""
    by_topic: defaultdict[str, list[int]] = defaultdict(list)
    for item in partitions or ():
        by_topic[item.topic].append(item.partition)
    return pb.ElectLeadersRequest(
        election_type=election_type.value,
        topics=[pb.TopicPartitions(name=name, partitions=indexes) for name, indexes in by_topic.items()],
        all_partitions=partitions is None,
        timeout_ms=timeout_ms,
    )


def _outcomes(response: pb.ElectLeadersResponse) -> dict[TopicPartition, TidelogError | None]:
    """Return the outcome of each partition in the response; None means that its leader was elected."""
    return {
        TopicPartition(topic.name, result.index): (
            error_for(result.error.code, result.error.message) if result.HasField("error") else None
        )
        for topic in response.topics
        for result in topic.partitions
    }
