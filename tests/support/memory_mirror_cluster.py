"""A cluster of a mirror in memory, whose brokers can be behind: what they know and serve is set by a test."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence

from tidelog_foundation.errors import ErrorCode, error_for
from tidelog_foundation.ids import BrokerId, LeaderEpoch, TopicId
from tidelog_foundation.link_settings import parse_link_settings
from tidelog_foundation.records import ControlType, assign_offsets, control_batch, iter_headers
from tidelog_mirror.batches import Producer
from tidelog_mirror.checkpoints import Committed
from tidelog_mirror.cluster import Group, MirrorCluster, PartitionKey, Topic, Topics
from tidelog_node.fetching import FetchRequest, FetchResponse, FetchResult
from tidelog_node.kafka.protocol.messages.produce_client import ProduceResult
from tidelog_node.kafka.protocol.writer import Buffer

ADDRESS = "broker:9092"


class MemoryCluster(MirrorCluster):
    """One broker that leads all partitions. Producers and transactions are not checked."""

    def __init__(self, topics: Mapping[str, int] | None = None) -> None:
        super().__init__(parse_link_settings({"bootstrap.servers": ADDRESS}), "test")
        self.partitions: dict[str, int] = dict(topics or {})
        self.unknown: list[set[str]] = []
        """Topics that the broker does not know yet: those of the next description, then of the one after it."""
        self.logs: dict[PartitionKey, list[bytes]] = {}
        self.behind: dict[PartitionKey, list[int]] = {}
        """Offsets at which a partition ends for the next fetches, one after the other. Then it has all its records."""
        self.aborted: dict[PartitionKey, list[tuple[int, int]]] = {}
        self.throttled_fetches = 0
        self.groups_listed: dict[str, Group] = {}
        self.committed_offsets: dict[str, dict[PartitionKey, int]] = {}
        self._ids: dict[str, TopicId] = {}
        self._used: dict[PartitionKey, int] = {}
        """The partitions of the open transaction, with the offsets at which it begins there."""

    def append(self, key: PartitionKey, batch: bytes) -> int:
        """Append a batch, and return its base offset."""
        base_offset, built = self.end(key), bytearray(batch)
        assign_offsets(built, base_offset, 0)
        self.logs.setdefault(key, []).append(bytes(built))
        return base_offset

    def end(self, key: PartitionKey) -> int:
        """Return the log end offset."""
        return next((header.next_offset for b in self.logs.get(key, [])[-1:] for _, header in iter_headers(b)), 0)

    async def describe(self, names: Sequence[str] | None = None) -> Topics:
        unknown = self.unknown.pop(0) if self.unknown else set()
        wanted = self.partitions if names is None else [name for name in names if name in self.partitions]
        leader = BrokerId(1), LeaderEpoch(0)
        found = {
            name: Topic(self._id(name), dict.fromkeys(range(self.partitions[name]), leader))
            for name in wanted
            if name not in unknown
        }
        return Topics({BrokerId(1): ADDRESS}, found)

    async def create_topic(
        self, name: str, partitions: int, replication_factor: int, settings: Mapping[str, str | None]
    ) -> bool:
        return self.partitions.setdefault(name, partitions) == partitions

    async def start_offsets(
        self, address: str, keys: Iterable[PartitionKey], timestamp: int
    ) -> dict[PartitionKey, int]:
        return {key: 0 if timestamp == -2 else self.end(key) for key in keys}

    async def stable_end(self, address: str, key: PartitionKey, epoch: LeaderEpoch) -> int:
        return self.end(key)

    async def fetch(self, address: str, request: FetchRequest, timeout_s: float) -> FetchResponse:
        await asyncio.sleep(0)
        if self.throttled_fetches:
            self.throttled_fetches -= 1
            return FetchResponse(throttle_time_ms=1)
        names = {topic_id: name for name, topic_id in self._ids.items()}
        response = FetchResponse()
        for (topic, index), spec in request.wanted.items():
            assert isinstance(topic, bytes)
            result = self._result((names[TopicId(topic)], index), spec.fetch_offset)
            response.topics.setdefault(topic, []).append(result)
        return response

    async def new_producer(self, transactional_id: str | None, timeout_ms: int) -> Producer:
        return Producer(7, 0, transactional_id)

    async def add_to_transaction(self, producer: Producer, keys: Iterable[PartitionKey]) -> None:
        self._used |= {key: self.end(key) for key in keys}

    async def end_transaction(self, producer: Producer, *, is_committed: bool) -> None:
        kind = ControlType.COMMIT if is_committed else ControlType.ABORT
        for key, first_offset in self._used.items():
            if not is_committed:
                self.aborted.setdefault(key, []).append((producer.producer_id, first_offset))
            self.append(key, control_batch(kind, producer.producer_id, producer.epoch, 0, 1_000))
        self._used.clear()

    async def produce(
        self,
        address: str,
        transactional_id: str | None,
        wanted: Mapping[str, Mapping[int, Sequence[Buffer]]],
    ) -> dict[PartitionKey, ProduceResult]:
        return {
            (topic, index): ProduceResult(0, self.append((topic, index), b"".join(batch)), None)
            for topic, batches in wanted.items()
            for index, batch in batches.items()
        }

    async def list_groups(self) -> dict[str, Group]:
        return dict(self.groups_listed)

    async def group_offsets(self, group_id: str) -> dict[PartitionKey, Committed]:
        return {key: Committed(offset) for key, offset in self.committed_offsets.get(group_id, {}).items()}

    async def commit(self, group_id: str, wanted: Mapping[PartitionKey, Committed]) -> None:
        found = {key: value.offset for key, value in wanted.items()}
        self.committed_offsets[group_id] = {**self.committed_offsets.get(group_id, {}), **found}

    def _id(self, name: str) -> TopicId:
        return self._ids.setdefault(name, TopicId(len(self._ids).to_bytes(16, "big")))

    def _result(self, key: PartitionKey, offset: int) -> FetchResult:
        behind = self.behind.get(key)
        end = behind.pop(0) if behind else self.end(key)
        if offset > end:
            return FetchResult(key[1], error_for(ErrorCode.OFFSET_OUT_OF_RANGE))
        found = self.logs.get(key, [])
        batches = [b for b in found for _, header in iter_headers(b) if offset < header.next_offset <= end]
        return FetchResult(key[1], None, end, end, 0, b"".join(batches), self.aborted.get(key))
