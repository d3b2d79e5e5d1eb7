"""The obstacles that delay acknowledgements, for the log."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping

from tidelog.producer.core.batch import Batch
from tidelog.producer.core.partition_queue import PartitionQueue

LeaderOf = Callable[[str, int], int | None]


def hindrances(
    queues: Iterable[PartitionQueue], unknown_topics: Iterable[str], leader_of: LeaderOf
) -> Mapping[Hashable, str]:
    """Return the obstacle of each partition's oldest batch, by its id; batches that only wait their turn have none.

    Records of unknown topics are in no batch; their key is the topic's name.
    """
    oldest = (queue.oldest for queue in queues if not queue.is_empty)
    found: dict[Hashable, str] = {batch.batch_id: _hindrance(batch, leader_of) for batch in oldest}
    unknown = {name: f'the cluster has not said that there is a topic "{name}"' for name in unknown_topics}
    return {key: reason for key, reason in (*found.items(), *unknown.items()) if reason}


def _hindrance(batch: Batch, leader_of: LeaderOf) -> str:
    name = f"{batch.topic}-{batch.partition}"
    if batch.last_error is not None:
        return f"{name}: {batch.last_error}"
    if batch.in_flight:
        return f"{name}: node {batch.sent_to} has not answered"
    return f"{name} has no leader" if leader_of(batch.topic, batch.partition) is None else ""
