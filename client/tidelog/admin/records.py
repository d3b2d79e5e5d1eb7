"""Deletion of records from the beginning of partitions, with confluent-kafka's names (KIP-107)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from tidelog.admin.operations import Future, Operations, Outcomes
from tidelog.cluster import LATEST_TIMESTAMP, ClusterClient, Connection, TopicPartitionKey
from tidelog.cluster.answers import error_of, group_by_topic
from tidelog.cluster.attempts import ask_leaders
from tidelog.cluster.loop_time import now_ms
from tidelog.cluster.offsets import search_offsets
from tidelog.message import OFFSET_END, TopicPartition
from tidelog.v1 import log_service_pb2 as pb
from tidelog_foundation.errors import ErrorCode, TidelogError, error_for

_ATTEMPT_MS = 5_000
"""The longest wait of a leader for the other replicas in one request. The client then asks the current leader."""
_ANSWER_MS = 3_000
"""The leader's extra time to answer before the client counts it as gone."""


@dataclass(frozen=True, slots=True)
class DeletedRecords:
    """The remaining start of a partition: the lowest offset that a replica on a running node still has."""

    low_watermark: int


class RecordAdmin(Operations):
    """Operations on records."""

    def delete_records(
        self,
        topic_partition_offsets: Iterable[TopicPartition],
        *,
        operation_timeout: float = 30,
        request_timeout: float | None = None,
    ) -> dict[TopicPartition, Future[DeletedRecords]]:
        """Delete the records below the offset of each partition; OFFSET_END deletes all committed records (KIP-107).

        A future is done when the records are deleted from every replica on a running node, or fails with
        KafkaException: POLICY_VIOLATION if the topic is only compacted, OFFSET_OUT_OF_RANGE above the high watermark,
        REQUEST_TIMED_OUT if a replica is late (the leader deletes nevertheless). Timeouts as in :meth:`create_topics`.

        Raises:
            KafkaException: _INVALID_ARG for a negative offset or partition, or a repeated partition.
        """
        partitions = list(topic_partition_offsets)
        offsets = _deletion_offsets(partitions)

        async def delete() -> Outcomes[TopicPartition, DeletedRecords]:
            timeout_ms = self._request_ms(request_timeout)
            outcomes = await _Deletion(self._cluster, offsets, operation_timeout * 1000, timeout_ms).run()
            return {p: outcomes[p.topic, p.partition] for p in partitions}

        return self._futures(partitions, delete())


def _deletion_offsets(partitions: Iterable[TopicPartition]) -> dict[TopicPartitionKey, int]:
    offsets: dict[TopicPartitionKey, int] = {}
    for item in partitions:
        if item.partition < 0 or (item.offset < 0 and item.offset != OFFSET_END):
            raise error_for(ErrorCode._INVALID_ARG, f"{item!r} must have an offset of at least 0, or OFFSET_END")
        if (item.topic, item.partition) in offsets:
            raise error_for(ErrorCode._INVALID_ARG, f"{item.topic}-{item.partition} is named twice")
        offsets[item.topic, item.partition] = item.offset
    return offsets


class _Deletion:
    """One deletion. It resolves OFFSET_END once, so that retries do not delete records written since."""

    def __init__(
        self,
        cluster: ClusterClient,
        offsets: dict[TopicPartitionKey, int],
        operation_timeout_ms: float,
        timeout_ms: float,
    ) -> None:
        self._cluster = cluster
        self._offsets = offsets
        self._replicas_until_ms = now_ms() + operation_timeout_ms
        self._deadline_ms = now_ms() + timeout_ms

    async def run(self) -> Outcomes[TopicPartitionKey, DeletedRecords]:
        wanted = {key: LATEST_TIMESTAMP for key, offset in self._offsets.items() if offset == OFFSET_END}
        ends = await search_offsets(self._cluster, wanted, timeout_ms=self._left_ms())
        failed = {key: end for key, end in ends.items() if isinstance(end, TidelogError)}
        self._offsets |= {key: end.offset for key, end in ends.items() if not isinstance(end, TidelogError)}
        deleted = await ask_leaders(
            self._cluster,
            self._offsets.keys() - failed.keys(),
            self._ask,
            timeout_ms=self._left_ms(),
            may_pass=lambda _, error: self._may_pass(error),
        )
        return deleted | failed

    async def _ask(
        self, connection: Connection, keys: list[TopicPartitionKey], left_ms: float
    ) -> Outcomes[TopicPartitionKey, DeletedRecords]:
        wait_ms = max(0, min(self._replicas_until_ms - now_ms(), _ATTEMPT_MS, left_ms))
        request = self._request(keys, int(wait_ms))
        timeout_s = min(wait_ms + _ANSWER_MS, left_ms) / 1000
        response = await connection.call(lambda c: c.log.DeleteRecords(request, timeout=timeout_s))
        return {
            (topic.name, result.index): error_of(result) or DeletedRecords(result.low_watermark)
            for topic in response.topics
            for result in topic.partitions
        }

    def _request(self, keys: list[TopicPartitionKey], timeout_ms: int) -> pb.DeleteRecordsRequest:
        by_topic = group_by_topic(
            (key[0], pb.DeleteRecordsPartition(index=key[1], offset=self._offsets[key])) for key in keys
        )
        topics = [pb.DeleteRecordsTopic(name=name, partitions=items) for name, items in by_topic.items()]
        return pb.DeleteRecordsRequest(topics=topics, timeout_ms=timeout_ms)

    def _may_pass(self, error: TidelogError) -> bool:
        if error.code is ErrorCode.REQUEST_TIMED_OUT:
            return now_ms() < self._replicas_until_ms
        return error.code.retriable

    def _left_ms(self) -> float:
        return max(self._deadline_ms - now_ms(), 1)
