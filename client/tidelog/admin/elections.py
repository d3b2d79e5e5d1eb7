"""Elections of leaders, with confluent-kafka's names (KIP-183, KIP-460)."""

from __future__ import annotations

import enum
from collections import defaultdict
from collections.abc import Iterable

from tidelog.errors import TidelogError, error_for
from tidelog.message import TopicPartition
from tidelog.v1 import admin_service_pb2 as pb


class ElectionType(enum.Enum):
    """Whom to elect: the first replica of a partition or, where nobody leads, any that lives: it may lose records."""

    PREFERRED = pb.ELECTION_TYPE_PREFERRED
    UNCLEAN = pb.ELECTION_TYPE_UNCLEAN


def election_request(
    election_type: ElectionType, partitions: Iterable[TopicPartition] | None, timeout_ms: int
) -> pb.ElectLeadersRequest:
    """Return the request to elect the leaders of these partitions, of all when there is None."""
    by_topic: defaultdict[str, list[int]] = defaultdict(list)
    for item in partitions or ():
        by_topic[item.topic].append(item.partition)
    return pb.ElectLeadersRequest(
        election_type=election_type.value,
        topics=[pb.TopicPartitions(name=name, partitions=indexes) for name, indexes in by_topic.items()],
        all_partitions=partitions is None,
        timeout_ms=timeout_ms,
    )


def election_outcomes(response: pb.ElectLeadersResponse) -> dict[TopicPartition, TidelogError | None]:
    """Return what became of each partition of an answer; None where its leader was elected."""
    return {
        TopicPartition(topic.name, result.index): (
            error_for(result.error.code, result.error.message) if result.HasField("error") else None
        )
        for topic in response.topics
        for result in topic.partitions
    }
