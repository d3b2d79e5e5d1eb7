"""Fetches the partitions of a source from their leaders, a task per broker, while there is room for their batches."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Mapping, Sequence
from typing import Final

from tidelog_foundation.config.process import ungrouped
from tidelog_foundation.dataclass import dataclass
from tidelog_foundation.errors import ErrorCode, TidelogError, error_for
from tidelog_foundation.ids import LeaderEpoch
from tidelog_mirror.batches import source_batches
from tidelog_mirror.cluster import MirrorCluster, PartitionKey, Topics
from tidelog_mirror.offset_syncs import SyncPacing
from tidelog_mirror.settings import LATEST, FlowConfig
from tidelog_mirror.target_writer import Lane
from tidelog_node.fetching import FetchRequest, FetchResult
from tidelog_node.replication.fetch_session import FetchSpec
from tidelog_node.replication.fetch_session import PartitionKey as FetchKey

logger = logging.getLogger(__name__)
_TIMEOUT_S: Final = 10.0
_BACKOFF_S: Final = 0.2
_LONG_BACKOFF_S: Final = 1.0
_FULL_WAIT_MS: Final = 20
"""The longest wait of a fetch without the partitions that have no room, which may have some soon."""
_LOST_LEADER_S: Final = 30.0
"""The time for which a leader whose log ends below a position may be one that its cluster has replaced.

It is longer than Kafka's default of ``broker.session.timeout.ms``, 9 s, within which another leader is elected.
"""
_START, _END = -2, -1
_MOVED: Final = (
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.FENCED_LEADER_EPOCH,
    ErrorCode.UNKNOWN_LEADER_EPOCH,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.LEADER_NOT_AVAILABLE,
    ErrorCode.KAFKA_STORAGE_ERROR,
)


@dataclass(slots=True, eq=False)
class PartitionCopy:
    """A partition of the source, the lane of its copy, and its counts."""

    topic: str
    partition: int
    lane: Lane
    pacing: SyncPacing
    position: int | None
    """The offset of the next fetch; None: the start that ``auto.offset.reset`` says."""
    copied: int | None = None
    """The source's offset behind the last record that the target has, once that is certain."""
    ahead_since_s: float | None = None
    """The time since which the position has been above the end of the leader's log, on the monotonic clock."""
    high_watermark: int = 0
    record_count: int = 0
    byte_count: int = 0
    age_ms: int = 0
    """The age of the newest record of the last fetch."""
    latency_ms: int = 0
    """The time from the timestamp of the last record to its acknowledgement by the target."""

    @property
    def key(self) -> PartitionKey:
        """Topic and partition on the source."""
        return self.topic, self.partition

    @property
    def lag(self) -> int:
        """The records of the source that the target does not have."""
        return 0 if self.copied is None else max(self.high_watermark - self.copied, 0)


class SourceReader:
    """The fetches of one flow. ``partitions`` may change at any time; then set ``changed``."""

    def __init__(self, name: str, cluster: MirrorCluster, config: FlowConfig) -> None:
        self._name = name
        self._cluster = cluster
        self._config = config
        self.partitions: dict[PartitionKey, PartitionCopy] = {}
        self.changed = asyncio.Event()
        """The partitions or their leaders may have changed."""
        self.has_records = asyncio.Event()
        self.has_room = asyncio.Event()
        """Set after each write."""
        self.failures = 0

    async def run(self) -> None:
        """Fetch until cancelled."""
        while True:
            self.changed.clear()
            try:
                topics = await self._cluster.describe(sorted({topic for topic, _ in self.partitions}))
            except TidelogError as error:
                self._report("the topics of the source", error)
                await asyncio.sleep(_LONG_BACKOFF_S)
                continue
            by_leader: dict[str, list[tuple[PartitionCopy, LeaderEpoch]]] = {}
            for copy in self.partitions.values():
                leader = topics.leader(copy.topic, copy.partition)
                if leader is not None:
                    by_leader.setdefault(leader[0], []).append((copy, leader[1]))
            led = sum(map(len, by_leader.values()))
            with ungrouped():
                async with asyncio.TaskGroup() as tasks:
                    for address, copies in by_leader.items():
                        tasks.create_task(self._follow(address, copies, topics), name=f"mirror-fetch-{address}")
                    if led < len(self.partitions) or not led:
                        tasks.create_task(self._look_again(), name="mirror-fetch-refresh")

    async def _look_again(self) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_LONG_BACKOFF_S):
                await self.changed.wait()
        self.changed.set()

    async def _follow(self, address: str, copies: Sequence[tuple[PartitionCopy, LeaderEpoch]], topics: Topics) -> None:
        """Fetch from one broker until something has changed."""
        first = 0
        while not self.changed.is_set():
            # A broker returns at least one batch for the first partition alone, however large that is.
            first = (first + 1) % len(copies)
            self.has_room.clear()
            try:
                await self._fetch([*copies[first:], *copies[:first]], address, topics)
            except TidelogError as error:
                if not error.error.retriable():
                    raise
                self._report(f"the broker {address}", error)
                await asyncio.sleep(_BACKOFF_S)
                self.changed.set()

    async def _fetch(self, copies: Sequence[tuple[PartitionCopy, LeaderEpoch]], address: str, topics: Topics) -> None:
        config = self._config
        await self._find_starts([copy for copy, _ in copies if copy.position is None], address)
        open_copies = [
            each for each in copies if each[0].lane.pending_bytes < config.consumer_max_partition_fetch_bytes
        ]
        if not open_copies:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_TIMEOUT_S):
                    await self.has_room.wait()
            return
        wanted: dict[FetchKey, FetchSpec] = {}
        by_key: dict[FetchKey, PartitionCopy] = {}
        for copy, epoch in open_copies:
            topic_id = topics.topics[copy.topic].id
            assert copy.position is not None, "its start has been found"
            key = topic_id, copy.partition
            wanted[key] = FetchSpec(topic_id, copy.position, config.consumer_max_partition_fetch_bytes, epoch)
            by_key[key] = copy
        is_full = len(open_copies) < len(copies)
        wait_ms = min(
            config.consumer_fetch_max_wait_ms, _FULL_WAIT_MS if is_full else config.consumer_fetch_max_wait_ms
        )
        request = FetchRequest(
            wanted,
            config.consumer_fetch_max_bytes,
            wait_ms,
            config.consumer_fetch_min_bytes,
            is_read_committed=config.reads_committed,
        )
        response = await self._cluster.fetch(address, request, _TIMEOUT_S)
        if response.throttle_time_ms:
            await asyncio.sleep(response.throttle_time_ms / 1000)
        await self._take(response.results, by_key, address)

    async def _take(
        self, results: Mapping[FetchKey, FetchResult], by_key: Mapping[FetchKey, PartitionCopy], address: str
    ) -> None:
        now_ms = time.time_ns() // 1_000_000
        for key, result in results.items():
            copy = by_key.get(key)
            if copy is None or self.partitions.get(copy.key) is not copy:
                continue
            if result.error is not None:
                await self._handle(copy, result.error, address)
                continue
            copy.ahead_since_s = None
            copy.high_watermark = result.high_watermark
            if not len(result.records):
                continue
            assert copy.position is not None, "its start has been found"
            aborted = result.aborted if self._config.reads_committed else None
            batches, copy.position = source_batches(result.records, aborted, copy.position)
            for batch in batches:
                copy.lane.add(batch)
            if batches:
                copy.age_ms = max(now_ms - batches[-1].max_timestamp, 0)
                self.has_records.set()

    async def _handle(self, copy: PartitionCopy, error: TidelogError, address: str) -> None:
        name = f"{copy.topic}-{copy.partition}"
        if error.code is ErrorCode.OFFSET_OUT_OF_RANGE:
            (start,) = (await self._starts([copy], address)).values()
            if not _is_leader_lost(copy, start):
                logger.warning(
                    "%s: %s of the source has no offset %s, continuing at %s", self._name, name, copy.position, start
                )
                copy.position = start
                return
        self._report(f"{name} of the source", error)
        await asyncio.sleep(_BACKOFF_S if error.code in _MOVED else _LONG_BACKOFF_S)
        self.changed.set()

    async def _find_starts(self, copies: Sequence[PartitionCopy], address: str) -> None:
        for copy, start in (await self._starts(copies, address)).items():
            copy.position = start
            if copy.copied is None:
                copy.copied = start

    async def _starts(self, copies: Sequence[PartitionCopy], address: str) -> dict[PartitionCopy, int]:
        if not copies:
            return {}
        timestamp = _END if self._config.consumer_auto_offset_reset == LATEST else _START
        found = await self._cluster.start_offsets(address, [copy.key for copy in copies], timestamp)
        for copy in copies:
            if copy.key not in found:
                self.changed.set()
                raise _no_start(copy)
        return {copy: found[copy.key] for copy in copies}

    def _report(self, what: str, error: TidelogError) -> None:
        self.failures += 1
        level = logging.DEBUG if error.code in _MOVED else logging.WARNING
        logger.log(level, "%s: %s: %s", self._name, what, error)


def _is_leader_lost(copy: PartitionCopy, start: int) -> bool:
    """Return whether a leader without the copy's position may be one that its cluster has replaced.

    Such a leader lacks the newest records. If it still does after a time, the source has lost them.
    """
    assert copy.position is not None, "it has been fetched from"
    if start >= copy.position:
        # The source has deleted the records there.
        return False
    now_s = time.monotonic()
    copy.ahead_since_s = now_s if copy.ahead_since_s is None else copy.ahead_since_s
    return now_s - copy.ahead_since_s < _LOST_LEADER_S


def _no_start(copy: PartitionCopy) -> TidelogError:
    return error_for(ErrorCode.LEADER_NOT_AVAILABLE, f"{copy.topic}-{copy.partition} of the source has no start")
