"""Deletes records from the beginning of partitions, with confluent-kafka's names (KIP-107)."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from tidelog.cluster import LATEST_TIMESTAMP, ClusterClient, TopicPartitionKey
from tidelog.errors import ErrorCode, TidelogError, error_for
from tidelog.message import OFFSET_END, TopicPartition
from tidelog.v1 import log_service_pb2 as pb

_ATTEMPT_MS = 5_000
"""A leader waits so long for the other replicas, then it is asked again, or the one that has replaced it."""
_ANSWER_MS = 3_000
"""A leader has so much longer to answer before it counts as gone."""


@dataclass(frozen=True, slots=True)
class DeletedRecords:
    """What is left of a partition: the least offset that is still there on any replica whose node lives."""

    low_watermark: int


def deletion_offsets(partitions: Iterable[TopicPartition]) -> dict[TopicPartitionKey, int]:
    """Return the offset of each partition below which records are to be deleted; OFFSET_END for all.

    Raises:
        TidelogError: _INVALID_ARG: another offset below 0, a partition below 0, or one is named twice.
    """
    offsets: dict[TopicPartitionKey, int] = {}
    for item in partitions:
        if item.partition < 0 or (item.offset < 0 and item.offset != OFFSET_END):
            raise error_for(ErrorCode._INVALID_ARG, f"{item!r} has no offset to delete below: 0 or more, or OFFSET_END")
        if (item.topic, item.partition) in offsets:
            raise error_for(ErrorCode._INVALID_ARG, f"{item.topic}-{item.partition} is named twice")
        offsets[item.topic, item.partition] = item.offset
    return offsets


class RecordDeletion:
    """One deletion: asks each leader for its partitions until all have their outcome or the time is over.

    OFFSET_END is looked up first: asking again must not delete what was written since.
    """

    def __init__(
        self,
        client: ClusterClient,
        offsets: dict[TopicPartitionKey, int],
        operation_timeout_ms: float,
        timeout_ms: float | None,
    ) -> None:
        now_ms = _now_ms()
        self._client = client
        self._missing = offsets
        self._replicas_until_ms = now_ms + operation_timeout_ms
        self._deadline_ms = now_ms + (client.request_timeout_ms if timeout_ms is None else timeout_ms)
        self._outcomes: dict[TopicPartitionKey, DeletedRecords | TidelogError] = {}

    async def run(self) -> dict[TopicPartitionKey, DeletedRecords | TidelogError]:
        """Return the outcome of every partition."""
        await asyncio.gather(*(self._find_end(key) for key, o in list(self._missing.items()) if o == OFFSET_END))
        attempt = 0
        while self._missing:
            errors = await self._ask_leaders()
            attempt += 1
            wait_ms = self._client.backoff.wait_ms(attempt)
            is_over = self._left_ms() <= wait_ms
            for key, error in errors.items():
                if is_over or not self._is_worth_another(error):
                    self._settle(key, error)
            if self._missing:
                await asyncio.sleep(wait_ms / 1000)
                await self._refresh()
        return self._outcomes

    async def _find_end(self, key: TopicPartitionKey) -> None:
        try:
            found = await self._client.list_offsets({key: LATEST_TIMESTAMP}, timeout_ms=self._left_ms())
            self._missing[key] = found[key].offset
        except TidelogError as error:
            self._settle(key, error)

    async def _ask_leaders(self) -> dict[TopicPartitionKey, TidelogError]:
        by_leader: defaultdict[int, list[TopicPartitionKey]] = defaultdict(list)
        for topic, partition in list(self._missing):
            try:
                leader = await self._client.leader(topic, partition, timeout_ms=self._left_ms())
                by_leader[leader.node_id].append((topic, partition))
            except TidelogError as error:
                self._settle((topic, partition), error)
        errors: dict[TopicPartitionKey, TidelogError] = {}
        for failed in await asyncio.gather(*(self._ask(node, keys) for node, keys in by_leader.items())):
            errors |= failed
        return errors

    async def _ask(self, node_id: int, keys: list[TopicPartitionKey]) -> dict[TopicPartitionKey, TidelogError]:
        wait_ms = max(0, min(self._replicas_until_ms - _now_ms(), _ATTEMPT_MS, self._left_ms()))
        request = self._request(keys, int(wait_ms))
        timeout_s = min(wait_ms + _ANSWER_MS, self._left_ms()) / 1000
        try:
            connection = self._client.connection(node_id)
            response = await connection.call(lambda c: c.log.DeleteRecords(request, timeout=timeout_s))
        except TidelogError as error:
            return dict.fromkeys(keys, error)
        text = f"the answer of node {node_id} to a deletion leaves the partition out"
        errors = dict.fromkeys(keys, error_for(ErrorCode.NETWORK_EXCEPTION, text))
        for topic in response.topics:
            for result in topic.partitions:
                errors.pop((topic.name, result.index), None)
                if result.HasField("error"):
                    errors[topic.name, result.index] = error_for(result.error.code, result.error.message)
                else:
                    self._settle((topic.name, result.index), DeletedRecords(result.low_watermark))
        return errors

    def _request(self, keys: list[TopicPartitionKey], timeout_ms: int) -> pb.DeleteRecordsRequest:
        by_topic: defaultdict[str, list[pb.DeleteRecordsPartition]] = defaultdict(list)
        for topic, partition in keys:
            item = pb.DeleteRecordsPartition(index=partition, offset=self._missing[topic, partition])
            by_topic[topic].append(item)
        topics = [pb.DeleteRecordsTopic(name=name, partitions=items) for name, items in by_topic.items()]
        return pb.DeleteRecordsRequest(topics=topics, timeout_ms=timeout_ms)

    def _settle(self, key: TopicPartitionKey, outcome: DeletedRecords | TidelogError) -> None:
        if self._missing.pop(key, None) is not None:
            self._outcomes[key] = outcome

    def _is_worth_another(self, error: TidelogError) -> bool:
        if error.code is ErrorCode.REQUEST_TIMED_OUT:
            return _now_ms() < self._replicas_until_ms
        return error.code.retriable

    async def _refresh(self) -> None:
        try:
            await self._client.refresh({topic for topic, _ in self._missing}, timeout_ms=self._left_ms())
        except TidelogError as error:
            for key in list(self._missing):
                self._settle(key, error)

    def _left_ms(self) -> float:
        return max(self._deadline_ms - _now_ms(), 1)


def _now_ms() -> float:
    return asyncio.get_running_loop().time() * 1000
