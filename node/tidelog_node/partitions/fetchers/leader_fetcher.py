"""Replica fetcher of one leader: one task copies all partitions that the leader leads, one long poll at a time.

A fetch at an offset acknowledges every record below it, so the fetcher sends the next fetch once the last answer is in
the logs. The partitions form a fetch session: a request names only the partitions that have changed (KIP-227).

- The fetcher computes a partition's request after each answer. It also recomputes a few other partitions with a poll,
  in turns, because retention moves the start of a log as well.
- A partition with an error pauses alone, longer each time; the others go on.
- For a new partition, the fetcher asks the leader to end the poll and sends the next one with the partition in it.
- While the node's limit is exceeded, the fetcher leaves out throttled partitions that are not in sync (KIP-73). A
  partition is in sync once its log has reached the leader's high watermark.
- Unthrottled partitions whose log ends below the high watermark are read ahead for a while (:mod:`.catch_up`).
- The most frequent polls, with few partitions and no error, have a short way that leaves the task out, if the transport
  has one (:mod:`.short_steps`).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final

from tidelog_foundation.dataclass import dataclass
from tidelog_foundation.errors import ErrorCode, TidelogError
from tidelog_foundation.fetch_session import FULL_EPOCH, FetchSessionHandler, SessionRequest
from tidelog_foundation.ids import NO_EPOCH, BrokerEpoch, BrokerId, LeaderEpoch
from tidelog_node.event_loop import Clock
from tidelog_node.fetching import FetchRequest, FetchResponse, FetchResult, PartitionKey, ReplicaTransport, SessionStep
from tidelog_node.partitions.directories.folder_creation import create_folders
from tidelog_node.partitions.fetchers import short_steps
from tidelog_node.partitions.fetchers.catch_up import CatchUp
from tidelog_node.partitions.fetchers.fetched_partitions import FetchedPartition, WantedRecords
from tidelog_node.partitions.partition import Partition
from tidelog_node.partitions.throttles import ReplicationThrottle, ThrottledSides
from tidelog_node.replication import FetchSpec
from tidelog_node.replication.fetch_session import SESSION_ERRORS

logger = logging.getLogger(__name__)

_FIRST_BACKOFF_MS = 20
_FIRST_PAUSE_MS = 5
"""A partition's first pause: its leader may receive a metadata change a few milliseconds later than this node."""
_THROTTLED_CHECK_MS = 500
"""Longest wait for the limit, because an operator may raise or remove it while a fetcher waits."""
_RECOMPUTED_PER_POLL = 16
"""Number of partitions whose request a poll recomputes although the last answer did not name them."""
_TURN_MS = 10
"""Shortest time between two polls that recompute such partitions."""
REDIRECTED: Final = frozenset(
    (
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
    )
)
"""A leader's errors while the two nodes' metadata differ. They are expected and soon over."""


@dataclass(frozen=True, slots=True)
class FetcherSettings:
    """The settings ``replica.fetch.*`` and ``replica.socket.timeout.ms``."""

    max_wait_ms: int = 500
    min_bytes: int = 1
    partition_max_bytes: int = 1024 * 1024
    response_max_bytes: int = 10 * 1024 * 1024
    max_backoff_ms: int = 1_000
    timeout_ms: int = 30_000


class LeaderFetcher:
    """The fetcher of one leader, in the task :meth:`run`. Call ``add`` and ``remove`` on the same event loop.

    ``_idle`` holds the partitions that pause after an error or because the limit is exceeded. ``_limited`` holds the
    partitions that the limit applies to. Both are small.
    """

    def __init__(
        self,
        leader_id: BrokerId,
        identity: Callable[[], tuple[BrokerId, BrokerEpoch]],
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
        self._session: FetchSessionHandler[PartitionKey, WantedRecords] = FetchSessionHandler()
        self._partitions: dict[Partition, FetchedPartition] = {}
        self._deferred: dict[Partition, FetchedPartition] = {}
        self._idle: dict[Partition, FetchedPartition] = {}
        self._limited: dict[Partition, FetchedPartition] = {}
        self._turns: deque[FetchedPartition] = deque()
        self._next_turn_ms = 0
        self._added = asyncio.Event()
        self._waiting_poll: tuple[str, FetchRequest] | None = None
        self._ending_wait: asyncio.Task[None] | None = None
        self._catch_up = CatchUp(self._read_ahead, self._take_back, settings.partition_max_bytes, cluster_id, clock)
        self._failures = 0
        self._session_errors = 0
        self._steps = short_steps.steps_of(self, transport)
        """The short way of the most frequent polls; None without one."""

    def add(self, partition: Partition, leader_epoch: LeaderEpoch, *, is_deferred: bool = False) -> None:
        """Fetch ``partition`` in ``leader_epoch``, from now or from the next :meth:`begin_deferred`."""
        self.remove(partition)
        if is_deferred:
            self._deferred[partition] = FetchedPartition(partition, leader_epoch)
        else:
            self._begin(FetchedPartition(partition, leader_epoch))

    def begin_deferred(self) -> None:
        """Fetch the partitions that were deferred, all with one new poll."""
        deferred, self._deferred = self._deferred, {}
        for fetched in deferred.values():
            self._begin(fetched)

    def remove(self, partition: Partition) -> None:
        """Stop fetching a partition and ignore an answer in flight."""
        for partitions in (self._partitions, self._deferred, self._idle, self._limited):
            partitions.pop(partition, None)
        self._catch_up.remove(partition)
        self._session.forget(_key(partition))

    async def run(self) -> None:
        """Fetch until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._catch_up.run(), name=f"catch-up-with-node-{self.leader_id}")
            await self._poll_forever()

    async def _poll_forever(self) -> None:
        while True:
            self._added.clear()
            self._recompute_some()
            if not len(self._session):
                await self._wait_for_work()
                continue
            try:
                await self._poll()
                self._failures = 0
            except TidelogError as error:
                await self._back_off(error)
            except Exception as error:
                logger.exception("Fetching from node %d failed with an unexpected error", self.leader_id)
                await self._back_off(TidelogError(ErrorCode.UNKNOWN_SERVER_ERROR, str(error)))

    def _begin(self, fetched: FetchedPartition) -> None:
        self._partitions[fetched.partition] = fetched
        self._turns.append(fetched)
        self._ask_for(fetched)
        self._note_added()

    async def _wait_for_work(self) -> None:
        pauses = self._pauses()
        with contextlib.suppress(TimeoutError):
            # wait_for would lose a cancellation that arrives together with a new partition.
            async with asyncio.timeout(max(1, min(pauses)) / 1000 if pauses else None):
                await self._added.wait()

    async def _poll(self) -> None:
        """Send one request and apply its answer.

        Raises:
            TidelogError: The call failed as a whole, or the leader does not know the session. The next request is full.
        """
        address = self._leader_address()
        asked = self._session.build()
        try:
            response = await self._call(address, self._request(asked))
        except BaseException:
            self._session.take_failure()
            raise
        if response is None:
            if asked.is_full:
                self._session.take_failure()
            return
        if response.error is not None:
            self._take_session_error(response.error)
            return
        results = response.results
        if self._session.take_answer(response.session_id, results.keys()):
            self._session_errors = 0 if not asked.is_full else self._session_errors
            await self._take(results)
        else:
            raise TidelogError(ErrorCode.NETWORK_EXCEPTION, "the response does not match the fetch session")

    def _leader_address(self) -> str:
        address = self._address(self.leader_id)
        if address is None:
            raise TidelogError(
                ErrorCode.BROKER_NOT_AVAILABLE,
                f"node {self.leader_id} is not registered or has no inter-broker listener",
            )
        return address

    async def _call(self, address: str, request: FetchRequest) -> FetchResponse | None:
        """Return the leader's answer; once a partition is added, ask the leader to answer without further delay.

        In a session, the short way may apply the answer, send the next request, and so on. The result is the answer
        that it leaves to the caller, or None if it has applied all of them.

        Without a session, a new partition abandons a request that waits, and the result is None. A request that does
        not wait gets its answer soon. If each of many new partitions abandoned it, the others would receive nothing.
        """
        timeout_s = (self._settings.max_wait_ms + self._settings.timeout_ms) / 1000
        if not request.max_wait_ms:
            return await self._transport.fetch(address, request, timeout_s)
        if request.session is None or request.session.epoch == FULL_EPOCH:
            return await self._call_unless_added(address, request, timeout_s)
        self._waiting_poll = (address, request)
        try:
            if self._steps is None or self._idle or self._limited:
                return await self._transport.fetch(address, request, timeout_s)
            return await self._steps.fetch(address, request, timeout_s)
        finally:
            self._waiting_poll = None
            if self._ending_wait is not None:
                self._ending_wait.cancel()
                self._ending_wait = None

    async def _call_unless_added(self, address: str, request: FetchRequest, timeout_s: float) -> FetchResponse | None:
        name = f"fetch-from-{self.leader_id}"
        fetch = asyncio.create_task(self._transport.fetch(address, request, timeout_s), name=name)
        added = asyncio.create_task(self._added.wait(), name=f"{name}-added")
        tasks: tuple[asyncio.Task[Any], ...] = (fetch, added)
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            return await fetch if fetch.done() else None
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def _note_added(self) -> None:
        """Wake the fetcher for an added partition and end the waiting poll, once."""
        self._added.set()
        if self._waiting_poll is not None:
            address, begun = self._waiting_poll
            self._waiting_poll = None
            # The short way has continued the session since.
            request = replace(begun, session=SessionStep(self._session.session_id, self._session.epoch))
            name = f"fetch-from-{self.leader_id}-added"
            self._ending_wait = asyncio.create_task(self._end_wait(address, request), name=name)

    async def _end_wait(self, address: str, request: FetchRequest) -> None:
        # A lost request does no harm: the poll ends at its own deadline.
        with contextlib.suppress(TidelogError):
            await self._transport.fetch(address, request.ending_wait(), self._settings.timeout_ms / 1000)

    def _take_session_error(self, error: TidelogError) -> None:
        self._session.take_error(error.code)
        self._session_errors += 1
        if error.code not in SESSION_ERRORS or self._session_errors > 1:
            raise error
        logger.debug("Node %d begins a new fetch session: %s", self.leader_id, error)

    async def _back_off(self, error: TidelogError) -> None:
        if self._failures == 0:
            logger.warning("Fetching from node %d failed, retrying: %s", self.leader_id, error)
        self._failures += 1
        await asyncio.sleep(min(_FIRST_BACKOFF_MS << min(self._failures, 10), self._settings.max_backoff_ms) / 1000)

    def _recompute_some(self) -> None:
        """Recompute the requests of all idle partitions, all limited ones, and a few others in turn."""
        if self._limited:
            self._limited = {p: f for p, f in self._limited.items() if f.is_limited}
        if self._idle or self._limited:
            for fetched in [*self._idle.values(), *self._limited.values()]:
                self._ask_for(fetched)
        now_ms = self._clock.monotonic_ms()
        if now_ms < self._next_turn_ms:
            return
        self._next_turn_ms = now_ms + _TURN_MS
        left = min(len(self._partitions), _RECOMPUTED_PER_POLL)
        while left:
            fetched = self._turns.popleft()
            # A partition that was removed, or added again, has lost this turn.
            if self._partitions.get(fetched.partition) is fetched:
                self._turns.append(fetched)
                self._ask_for(fetched)
                left -= 1

    def _ask_for(self, fetched: FetchedPartition) -> None:
        """Put a partition into the next request, from its log's end, or leave it out while it has to wait."""
        partition = fetched.partition
        if partition in self._catch_up:
            return
        is_limited, most = fetched.is_limited, self._settings.partition_max_bytes
        if is_limited:
            self._limited[partition] = fetched
            most = min(self._throttle.transfer_bytes // len(self._limited), most)
        is_held = is_limited and self._throttle.is_exceeded
        if is_held or (fetched.pause_until_ms and fetched.pause_until_ms > self._clock.monotonic_ms()):
            self._idle[partition] = fetched
            self._session.forget(_key(partition))
            return
        self._idle.pop(partition, None)
        log = partition.log
        wanted = WantedRecords(fetched, log.log_end_offset, most, log.latest_epoch, log.log_start_offset)
        self._session.want(_key(partition), wanted)

    def _pauses(self) -> list[int]:
        """Return the milliseconds until each idle partition's next check; 0 or less means now."""
        now_ms, throttled_ms = self._clock.monotonic_ms(), min(self._throttle.wait_ms(), _THROTTLED_CHECK_MS)
        return [max(f.pause_until_ms - now_ms, throttled_ms if f.is_limited else 0) for f in self._idle.values()]

    def _request(self, asked: SessionRequest[PartitionKey, WantedRecords]) -> FetchRequest:
        settings, is_full = self._settings, asked.is_full
        return FetchRequest(
            {key: _spec(wanted) for key, wanted in asked.wanted.items()},
            settings.response_max_bytes,
            # A new session must exist soon, because only its polls can be ended early for a new partition.
            0 if is_full and not self._session.was_refused else self._wait_ms(),
            settings.min_bytes,
            self._identity(),
            cluster_id=self._cluster_id if is_full else "",
            session=SessionStep(asked.session_id, asked.epoch),
            forgotten=tuple(asked.forgotten),
        )

    def _wait_ms(self) -> int:
        """Return the poll's longest wait, which ends in time for the paused partitions."""
        if not self._idle:
            return self._settings.max_wait_ms
        return min([self._settings.max_wait_ms, *(pause_ms for pause_ms in self._pauses() if pause_ms > 0)])

    async def _take(self, results: Mapping[PartitionKey, FetchResult]) -> None:
        answered = [(self._session.sent(key), result) for key, result in results.items()]
        new = [i.fetched.partition for i, r in answered if i and r.records and not i.fetched.partition.log.has_folder]
        if new:
            await create_folders(new)
        for item, result in answered:
            if item is None or self._partitions.get(item.fetched.partition) is not item.fetched:
                continue
            try:
                if result.error is None and result.diverging is None:
                    self._replicate(item, result)
                else:
                    await self._take_failure(item, result)
            except Exception as error:  # noqa: BLE001 - it is logged
                self._note_failure(item.fetched, error)
            if self._partitions.get(item.fetched.partition) is item.fetched:
                self._ask_for(item.fetched)

    async def _take_failure(self, item: WantedRecords, result: FetchResult) -> None:
        fetched, partition = item.fetched, item.fetched.partition
        if result.error is not None:
            if result.error.code is ErrorCode.OFFSET_OUT_OF_RANGE:
                await partition.restart_out_of_range(fetched.leader_epoch, item.offset, result.log_start_offset)
            raise result.error
        assert result.diverging is not None, "the result is a failure"
        await partition.truncate_diverging(fetched.leader_epoch, item.offset, result.diverging)

    def _replicate(self, item: WantedRecords, result: FetchResult) -> None:
        fetched, partition = item.fetched, item.fetched.partition
        partition.replicate(
            fetched.leader_epoch, item.offset, result.records, result.high_watermark, result.log_start_offset
        )
        fetched.backoff_ms = 0
        fetched.failing_with = None
        fetched.is_in_sync = partition.log.log_end_offset >= result.high_watermark
        if partition.throttled.follower and result.records:
            self._throttle.record(len(result.records))
        if not fetched.is_in_sync and partition.log.log_end_offset > item.offset:
            self._read_ahead_of(fetched)

    def _read_ahead_of(self, fetched: FetchedPartition) -> None:
        """Read a partition ahead that has advanced and is still behind, if its records are not limited."""
        if self._may_read_ahead(fetched):
            self._session.forget(_key(fetched.partition))
            self._catch_up.add(fetched.partition, fetched.leader_epoch)

    def _may_read_ahead(self, fetched: FetchedPartition) -> bool:
        if not self._catch_up.is_running:
            return False
        partition = fetched.partition
        is_throttled_there = ThrottledSides.of(partition.log.config, partition.index, self.leader_id).leader
        return not (partition.throttled.follower or is_throttled_there)

    async def _read_ahead(self, request: FetchRequest) -> FetchResponse:
        return await self._transport.fetch(self._leader_address(), request, self._settings.timeout_ms / 1000)

    def _take_back(self, partition: Partition) -> None:
        self._ask_for(self._partitions[partition])
        self._note_added()

    def _note_failure(self, fetched: FetchedPartition, error: Exception) -> None:
        """Pause a partition after an error. One bad partition never stops a fetcher."""
        if isinstance(error, TidelogError):
            self._pause(fetched, error)
            return
        text = "Fetching %s from node %d failed with an unexpected error"
        logger.error(text, fetched.partition, self.leader_id, exc_info=error)
        self._pause(fetched, TidelogError(ErrorCode.UNKNOWN_SERVER_ERROR, str(error)))

    def _pause(self, fetched: FetchedPartition, error: TidelogError) -> None:
        """Pause a partition. Log a warning only for the first of several consecutive failures with the same error."""
        is_news = error.code not in REDIRECTED and error.code is not fetched.failing_with
        level = logging.WARNING if is_news else logging.DEBUG
        fetched.failing_with = error.code
        logger.log(level, "Fetching %s from node %d failed: %s", fetched.partition, self.leader_id, error)
        fetched.backoff_ms = min(max(_FIRST_PAUSE_MS, 2 * fetched.backoff_ms), self._settings.max_backoff_ms)
        # Each end of a pause ends a poll, so the ends are rounded up to a grid and coincide for many partitions.
        end_ms, grid_ms = self._clock.monotonic_ms() + fetched.backoff_ms, max(1, fetched.backoff_ms // 2)
        fetched.pause_until_ms = -(-end_ms // grid_ms) * grid_ms


def _key(partition: Partition) -> PartitionKey:
    return partition.topic_id, partition.index


def _spec(wanted: WantedRecords) -> FetchSpec:
    return FetchSpec(
        wanted.fetched.partition.topic_id,
        wanted.offset,
        wanted.max_bytes,
        wanted.fetched.leader_epoch,
        None if wanted.last_fetched_epoch == NO_EPOCH else wanted.last_fetched_epoch,
        wanted.log_start_offset,
    )
