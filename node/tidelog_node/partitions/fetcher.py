"""Copies the logs of all partitions that one other node leads: one task, one long poll at a time.

The fetch of an offset acknowledges everything below it, so the next fetch leaves as soon as the last answer is in the
logs. A partition with an error waits alone, longer each time; the others go on. A new partition interrupts the
poll, which then leaves again with it. While the node's limit is exceeded, throttled partitions that are not in sync
are left out (KIP-73); they are when they have reached the leader's high watermark.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from tidelog.errors import ErrorCode, TidelogError
from tidelog.ids import NO_EPOCH, BrokerEpoch, BrokerId, LeaderEpoch
from tidelog.v1 import log_service_pb2 as pb
from tidelog_node.partitions.clock import Clock
from tidelog_node.partitions.foundings import found_all
from tidelog_node.partitions.partition import Partition
from tidelog_node.partitions.throttles import ReplicationThrottle
from tidelog_node.partitions.transport import ReplicaTransport
from tidelog_node.replication import EpochEnd

logger = logging.getLogger(__name__)

_FIRST_BACKOFF_MS = 20
_THROTTLED_LOOK_MS = 500
"""The limit may be raised or taken away at any time, also while a fetcher waits for it."""
_REDIRECTED = (
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.FENCED_LEADER_EPOCH,
    ErrorCode.UNKNOWN_LEADER_EPOCH,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
)
"""What a leader answers while the two nodes' metadata differ: expected, and soon over."""


@dataclass(frozen=True, slots=True)
class FetcherSettings:
    """``replica.fetch.*`` and ``replica.socket.timeout.ms``."""

    max_wait_ms: int = 500
    min_bytes: int = 1
    partition_max_bytes: int = 1024 * 1024
    response_max_bytes: int = 10 * 1024 * 1024
    max_backoff_ms: int = 1_000
    timeout_ms: int = 30_000


@dataclass(slots=True)
class _Fetched:
    """A partition of a fetcher; ``pause_until_ms`` and ``backoff_ms`` grow with errors in a row.

    ``failing_with`` is the last of these errors, None after a success. ``is_in_sync``: it had all that was committed.
    """

    partition: Partition
    leader_epoch: LeaderEpoch
    pause_until_ms: int = 0
    backoff_ms: int = 0
    failing_with: ErrorCode | None = None
    is_in_sync: bool = False

    @property
    def is_limited(self) -> bool:
        """Whether it waits while the node's limit is exceeded."""
        return self.partition.throttled.follower and not self.is_in_sync


@dataclass(frozen=True, slots=True)
class _Sent:
    fetched: _Fetched
    offset: int


class LeaderFetcher:
    """The fetcher of one leader. ``run`` is its task; ``add`` and ``remove`` are called on the same loop."""

    def __init__(
        self,
        leader_id: BrokerId,
        identity: Callable[[], pb.ReplicaState],
        address: Callable[[BrokerId], str | None],
        cluster_id: str,
        transport: ReplicaTransport,
        settings: FetcherSettings,
        clock: Clock,
        throttle: ReplicationThrottle,
    ) -> None:
        self.leader_id = leader_id
        self._identity = identity
        self._address = address
        self._cluster_id = cluster_id
        self._transport = transport
        self._settings = settings
        self._clock = clock
        self._throttle = throttle
        self._partitions: dict[Partition, _Fetched] = {}
        self._held_back: dict[Partition, _Fetched] = {}
        self._added = asyncio.Event()
        self._failures = 0

    def add(self, partition: Partition, leader_epoch: LeaderEpoch, *, is_held_back: bool = False) -> None:
        """Copy ``partition`` in ``leader_epoch``: from now on, or from :meth:`begin_held_back` on."""
        self.remove(partition)
        if is_held_back:
            self._held_back[partition] = _Fetched(partition, leader_epoch)
        else:
            self._partitions[partition] = _Fetched(partition, leader_epoch)
            self._added.set()

    def begin_held_back(self) -> None:
        """Copy what was held back, all of it with one new poll."""
        if self._held_back:
            self._partitions |= self._held_back
            self._held_back = {}
            self._added.set()

    def remove(self, partition: Partition) -> None:
        """Copy it no more; an answer under way is ignored."""
        self._partitions.pop(partition, None)
        self._held_back.pop(partition, None)

    async def run(self) -> None:
        """Fetch until cancelled."""
        while True:
            self._added.clear()
            sent = self._ready()
            if not sent:
                await self._wait_for_work()
                continue
            try:
                response = await self._poll(sent)
                if response is not None:
                    await self._take(response, sent)
                    self._failures = 0
            except TidelogError as error:
                await self._back_off(error)
            except Exception as error:
                logger.exception("Fetching from node %d failed", self.leader_id)
                await self._back_off(TidelogError(ErrorCode.UNKNOWN_SERVER_ERROR, str(error)))

    async def _wait_for_work(self) -> None:
        pauses = self._pauses()
        with contextlib.suppress(TimeoutError):
            # Not wait_for, which forgets that it was cancelled when a partition was added at the same time.
            async with asyncio.timeout(max(1, min(pauses)) / 1000 if pauses else None):
                await self._added.wait()

    async def _poll(self, sent: dict[tuple[str, int], _Sent]) -> pb.FetchResponse | None:
        """Return the leader's answer, None when a new partition came first."""
        address = self._address(self.leader_id)
        if address is None:
            raise TidelogError(ErrorCode.BROKER_NOT_AVAILABLE, f"node {self.leader_id} is not registered")
        timeout_s = (self._settings.max_wait_ms + self._settings.timeout_ms) / 1000
        name = f"fetch-from-{self.leader_id}"
        fetch = asyncio.create_task(self._transport.fetch(address, self._request(sent), timeout_s), name=name)
        added = asyncio.create_task(self._added.wait(), name=f"{name}-added")
        try:
            await asyncio.wait((fetch, added), return_when=asyncio.FIRST_COMPLETED)
            return fetch.result() if fetch.done() else None
        finally:
            fetch.cancel()
            added.cancel()
            await asyncio.gather(fetch, added, return_exceptions=True)

    async def _back_off(self, error: TidelogError) -> None:
        if self._failures == 0:
            logger.warning("Fetching from node %d failed, trying again: %s", self.leader_id, error)
        self._failures += 1
        await asyncio.sleep(min(_FIRST_BACKOFF_MS << min(self._failures, 10), self._settings.max_backoff_ms) / 1000)

    def _ready(self) -> dict[tuple[str, int], _Sent]:
        now_ms = self._clock.monotonic_ms()
        is_exceeded = self._throttle.is_exceeded
        return {
            (p.topic, p.index): _Sent(fetched, p.log.log_end_offset)
            for p, fetched in self._partitions.items()
            if fetched.pause_until_ms <= now_ms and not (is_exceeded and fetched.is_limited)
        }

    def _pauses(self) -> list[int]:
        """Return in how many milliseconds each partition is to be looked at again; 0 or less: now."""
        now_ms, throttled_ms = self._clock.monotonic_ms(), min(self._throttle.wait_ms(), _THROTTLED_LOOK_MS)
        return [max(f.pause_until_ms - now_ms, throttled_ms if f.is_limited else 0) for f in self._partitions.values()]

    def _request(self, sent: dict[tuple[str, int], _Sent]) -> pb.FetchRequest:
        topics: dict[str, pb.FetchTopic] = {}
        limited = sum(item.fetched.is_limited for item in sent.values())
        limited_bytes = min(self._throttle.transfer_bytes // max(limited, 1), self._settings.partition_max_bytes)
        for item in sent.values():
            partition = item.fetched.partition
            topic = topics.get(partition.topic)
            if topic is None:
                topic = topics[partition.topic] = pb.FetchTopic(name=partition.topic, topic_id=partition.topic_id)
            latest_epoch = partition.log.latest_epoch
            topic.partitions.append(
                pb.FetchPartition(
                    index=partition.index,
                    fetch_offset=item.offset,
                    partition_max_bytes=(
                        limited_bytes if item.fetched.is_limited else self._settings.partition_max_bytes
                    ),
                    current_leader_epoch=item.fetched.leader_epoch,
                    last_fetched_epoch=None if latest_epoch == NO_EPOCH else latest_epoch,
                    log_start_offset=partition.log.log_start_offset,
                )
            )
        return pb.FetchRequest(
            replica=self._identity(),
            max_wait_ms=self._wait_ms(),
            min_bytes=self._settings.min_bytes,
            max_bytes=self._settings.response_max_bytes,
            topics=topics.values(),
            cluster_id=self._cluster_id,
        )

    def _wait_ms(self) -> int:
        """A poll ends in time for the partitions that are paused."""
        return min([self._settings.max_wait_ms, *(pause_ms for pause_ms in self._pauses() if pause_ms > 0)])

    async def _take(self, response: pb.FetchResponse, sent: dict[tuple[str, int], _Sent]) -> None:
        answered = [(sent.get((topic.name, r.index)), r) for topic in response.topics for r in topic.partitions]
        await found_all(item.fetched.partition for item, result in answered if item is not None and result.records)
        for item, result in answered:
            if item is None or self._partitions.get(item.fetched.partition) is not item.fetched:
                continue
            try:
                await self._take_partition(item, result)
            except TidelogError as error:
                self._pause(item.fetched, error)
            if result.records:
                self._move_to_end(item.fetched)

    async def _take_partition(self, item: _Sent, result: pb.FetchPartitionResult) -> None:
        fetched, partition = item.fetched, item.fetched.partition
        if result.HasField("error"):
            error = TidelogError(ErrorCode.of(result.error.code), result.error.message)
            if error.code is ErrorCode.OFFSET_OUT_OF_RANGE:
                await partition.restart_out_of_range(fetched.leader_epoch, item.offset, result.log_start_offset)
            raise error
        if result.HasField("diverging_epoch"):
            end = EpochEnd(LeaderEpoch(result.diverging_epoch.epoch), result.diverging_epoch.end_offset)
            await partition.truncate_diverging(fetched.leader_epoch, item.offset, end)
            return
        partition.replicate(
            fetched.leader_epoch, item.offset, result.records, result.high_watermark, result.log_start_offset
        )
        fetched.backoff_ms = 0
        fetched.failing_with = None
        fetched.is_in_sync = partition.log.log_end_offset >= result.high_watermark
        if partition.throttled.follower and result.records:
            self._throttle.record(len(result.records))

    def _pause(self, fetched: _Fetched, error: TidelogError) -> None:
        """Leave a partition alone for a while; of failures in a row for one reason only the first is worth a line."""
        is_news = error.code not in _REDIRECTED and error.code is not fetched.failing_with
        level = logging.WARNING if is_news else logging.DEBUG
        fetched.failing_with = error.code
        logger.log(level, "Fetching %s from node %d failed: %s", fetched.partition, self.leader_id, error)
        fetched.backoff_ms = min(max(_FIRST_BACKOFF_MS, 2 * fetched.backoff_ms), self._settings.max_backoff_ms)
        # Each end of a pause ends a poll: those of many partitions fall together.
        end_ms, grid_ms = self._clock.monotonic_ms() + fetched.backoff_ms, max(1, fetched.backoff_ms // 2)
        fetched.pause_until_ms = -(-end_ms // grid_ms) * grid_ms

    def _move_to_end(self, fetched: _Fetched) -> None:
        """A partition that got records comes last in the next request, so that none starves behind it."""
        if self._partitions.pop(fetched.partition, None) is not None:
            self._partitions[fetched.partition] = fetched


class FetcherPool:
    """The fetchers of a node by leader, started when needed and ended when they have nothing to do."""

    def __init__(
        self,
        tasks: asyncio.TaskGroup,
        broker_id: BrokerId,
        broker_epoch: Callable[[], BrokerEpoch],
        address: Callable[[BrokerId], str | None],
        cluster_id: str,
        transport: ReplicaTransport,
        settings: FetcherSettings,
        clock: Clock,
        throttle: ReplicationThrottle,
    ) -> None:
        self._tasks = tasks
        self._broker_id = broker_id
        self._broker_epoch = broker_epoch
        self._address = address
        self._cluster_id = cluster_id
        self._transport = transport
        self._settings = settings
        self._clock = clock
        self._throttle = throttle
        self._leader_of: dict[Partition, BrokerId] = {}
        self._led: Counter[BrokerId] = Counter()
        self._running: dict[BrokerId, tuple[LeaderFetcher, asyncio.Task[None]]] = {}
        self._holds_back = False

    def hold_back(self) -> None:
        """Let partitions that are started wait for :meth:`go_on`: many are, and each would interrupt a poll."""
        self._holds_back = True

    def go_on(self) -> None:
        """Copy what was held back."""
        self._holds_back = False
        for fetcher, _ in self._running.values():
            fetcher.begin_held_back()

    def start(self, partition: Partition, leader_id: BrokerId, leader_epoch: LeaderEpoch) -> None:
        """Copy a partition from ``leader_id``, and from nobody else."""
        if self._leader_of.get(partition, leader_id) != leader_id:
            self.stop(partition)
        if partition not in self._leader_of:
            self._leader_of[partition] = leader_id
            self._led[leader_id] += 1
        self._fetcher(leader_id).add(partition, leader_epoch, is_held_back=self._holds_back)

    def stop(self, partition: Partition) -> None:
        """Copy a partition no more."""
        leader_id = self._leader_of.pop(partition, None)
        if leader_id is None:
            return
        fetcher, task = self._running[leader_id]
        fetcher.remove(partition)
        self._led[leader_id] -= 1
        if not self._led[leader_id]:
            task.cancel()
            del self._running[leader_id]

    def stop_all(self) -> None:
        """End every fetcher."""
        for _, task in self._running.values():
            task.cancel()
        self._running.clear()
        self._leader_of.clear()
        self._led.clear()

    def _fetcher(self, leader_id: BrokerId) -> LeaderFetcher:
        if leader_id not in self._running:
            fetcher = LeaderFetcher(
                leader_id,
                self._identity,
                self._address,
                self._cluster_id,
                self._transport,
                self._settings,
                self._clock,
                self._throttle,
            )
            task = self._tasks.create_task(fetcher.run(), name=f"fetcher-of-node-{leader_id}")
            self._running[leader_id] = (fetcher, task)
        return self._running[leader_id][0]

    def _identity(self) -> pb.ReplicaState:
        return pb.ReplicaState(replica_id=self._broker_id, replica_epoch=self._broker_epoch())
