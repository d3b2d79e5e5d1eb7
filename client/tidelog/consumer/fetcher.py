"""The task that carries out what the positions ask for: long polls, look-ups, metadata; fills the queue."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import defaultdict
from collections.abc import Iterable
from typing import assert_never

from tidelog.cluster import ClusterClient
from tidelog.consumer.config import ConsumerConfig
from tidelog.consumer.core import (
    AskMetadata,
    Command,
    Deliver,
    Event,
    Fetch,
    Fetched,
    FetchedPartition,
    FetchFailed,
    FetchSpec,
    Interrupt,
    LookedUp,
    LookUp,
    LookUpFailed,
    LookUpSpec,
    Positions,
    Refused,
    Report,
)
from tidelog.consumer.records import RecordQueue
from tidelog.errors import ErrorCode, TidelogError, error_for
from tidelog.transport.pacing import monotonic_ms, step_when_due
from tidelog.v1 import log_service_pb2 as pb

logger = logging.getLogger(__name__)


class Fetcher:
    """Runs on the network thread from :meth:`start` to :meth:`stop`; shares positions and queue under ``lock``.

    ``awake`` is set, on the network thread, whenever the positions have changed.
    """

    def __init__(
        self,
        config: ConsumerConfig,
        cluster: ClusterClient,
        positions: Positions,
        queue: RecordQueue,
        lock: threading.RLock,
        awake: asyncio.Event,
    ) -> None:
        self._config = config
        self._cluster = cluster
        self._positions = positions
        self._queue = queue
        self._lock = lock
        self._awake = awake
        self._polls: dict[int, asyncio.Task[Fetched | FetchFailed]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._wanted_topics: set[str] = set()
        self._refresher: asyncio.Task[None] | None = None
        self._main: asyncio.Task[None] | None = None
        self._ager: asyncio.Task[None] | None = None
        self._stopping = False

    async def start(self) -> None:
        """Start the fetcher's task."""
        self._main = asyncio.create_task(self._run(), name="consumer-fetcher")
        self._ager = asyncio.create_task(self._refresh_old(), name="consumer-metadata-age")

    async def stop(self) -> None:
        """End all tasks."""
        self._stopping = True
        owned = (self._main, self._ager, self._refresher, *self._polls.values(), *self._tasks)
        tasks = [t for t in owned if t is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _run(self) -> None:
        await step_when_due(self._step, self._awake, self._config.retry_backoff_max_ms, "the consumer's fetcher")

    def _step(self) -> float | None:
        with self._lock:
            now_ms = monotonic_ms()
            commands = self._positions.poll(now_ms, self._leader_of)
            timer_ms = self._positions.next_timer_ms(now_ms)
        self._execute(commands)
        return timer_ms

    def _leader_of(self, topic: str, partition: int) -> tuple[int, int] | None:
        known = self._cluster.metadata.partition(topic, partition)
        leader = self._cluster.metadata.leader(topic, partition)
        return None if known is None or leader is None else (leader.node_id, known.leader_epoch)

    def _handle(self, events: Iterable[Event]) -> None:
        with self._lock:
            now_ms = monotonic_ms()
            commands = [c for event in events for c in self._positions.handle(event, now_ms)]
        self._execute(commands)
        self._awake.set()

    def _execute(self, commands: Iterable[Command]) -> None:
        for command in commands:
            match command:
                case Fetch():
                    self._start_poll(command)
                case Interrupt():
                    self._polls[command.node_id].cancel()
                case LookUp():
                    self._start_look_up(command)
                case AskMetadata():
                    self._ask_metadata(command.topics)
                case Deliver() | Report():
                    with self._lock:
                        self._queue.put(command)
                case _:
                    assert_never(command)

    def _start_poll(self, fetch: Fetch) -> None:
        task = asyncio.create_task(self._poll_node(fetch), name=f"fetch-{fetch.node_id}")
        self._polls[fetch.node_id] = task
        task.add_done_callback(lambda done: self._poll_done(fetch, done))

    async def _poll_node(self, fetch: Fetch) -> Fetched | FetchFailed:
        try:
            response = await self._cluster.fetch(fetch.node_id, self._request(fetch.specs))
        except TidelogError as error:
            return FetchFailed(fetch.node_id, fetch.specs, error)
        results = {(t.name, p.index): p for t in response.topics for p in t.partitions}
        found = [self._result(spec, results.get((spec.topic, spec.partition))) for spec in fetch.specs]
        return Fetched(fetch.node_id, found)

    def _poll_done(self, fetch: Fetch, task: asyncio.Task[Fetched | FetchFailed]) -> None:
        if self._stopping:
            return
        if task.cancelled():
            self._handle([FetchFailed(fetch.node_id, fetch.specs, None)])
            return
        error = task.exception()
        if error is None:
            self._handle([task.result()])
            return
        logger.error("a fetch from node %d failed", fetch.node_id, exc_info=error)
        failure = error_for(ErrorCode._FAIL, f"the consumer failed: {error!r}")
        self._handle([FetchFailed(fetch.node_id, fetch.specs, failure)])

    def _request(self, specs: Iterable[FetchSpec]) -> pb.FetchRequest:
        topics: defaultdict[str, list[pb.FetchPartition]] = defaultdict(list)
        for spec in specs:
            item = pb.FetchPartition(
                index=spec.partition,
                fetch_offset=spec.offset,
                partition_max_bytes=self._config.max_partition_fetch_bytes,
                current_leader_epoch=spec.leader_epoch,
            )
            topics[spec.topic].append(item)
        return pb.FetchRequest(
            max_wait_ms=self._config.fetch_wait_max_ms,
            min_bytes=self._config.fetch_min_bytes,
            max_bytes=self._config.fetch_max_bytes,
            topics=[pb.FetchTopic(name=name, partitions=items) for name, items in topics.items()],
        )

    def _result(self, spec: FetchSpec, result: pb.FetchPartitionResult | None) -> FetchedPartition:
        if result is None:
            text = f"the answer to a fetch says nothing of {spec.topic}-{spec.partition}"
            return FetchedPartition(spec, error=error_for(ErrorCode.NETWORK_EXCEPTION, text))
        if result.HasField("error"):
            error = error_for(result.error.code, result.error.message)
            is_news = result.HasField("current_leader") and self._cluster.learn_leader(
                spec.topic, spec.partition, result.current_leader
            )
            return FetchedPartition(spec, error=error, leader_known=is_news)
        return FetchedPartition(spec, result.records, result.high_watermark, result.log_start_offset)

    def _start_look_up(self, look_up: LookUp) -> None:
        # One by one, so that a partition that cannot be found does not hold up the others.
        for spec in look_up.specs:
            task = asyncio.create_task(self._look_up(spec), name=f"offset-{spec.topic}-{spec.partition}")
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _look_up(self, spec: LookUpSpec) -> None:
        self._handle([await self._look_up_one(spec)])

    async def _look_up_one(self, spec: LookUpSpec) -> LookedUp | LookUpFailed:
        key = (spec.topic, spec.partition)
        try:
            found = await self._cluster.list_offsets({key: spec.timestamp_ms})
        except TidelogError as error:
            return LookUpFailed(spec, error)
        except Exception as error:
            logger.exception("looking up an offset of %s-%d failed", spec.topic, spec.partition)
            return LookUpFailed(spec, error_for(ErrorCode._FAIL, f"the consumer failed: {error!r}"))
        return LookedUp(spec, found[key].offset)

    def _refusals(self, topics: frozenset[str], failure: TidelogError | None) -> list[Refused]:
        with self._lock:
            assigned = [key for key in self._positions.assignment if key[0] in topics]
        found = [(key, failure or self._cluster.metadata_error(*key)) for key in assigned]
        return [Refused(*key, error) for key, error in found if error is not None]

    def _ask_metadata(self, topics: frozenset[str]) -> None:
        self._wanted_topics |= topics
        if self._refresher is None or self._refresher.done():
            self._refresher = asyncio.create_task(self._refresh_wanted(), name="consumer-metadata")

    async def _refresh_old(self) -> None:
        while True:
            await asyncio.sleep(self._config.metadata_max_age_ms / 1000)
            with self._lock:
                topics = {topic for topic, _ in self._positions.assignment}
            self._ask_metadata(frozenset(topics))

    async def _refresh_wanted(self) -> None:
        attempt = 0
        while self._wanted_topics:
            topics = frozenset(self._wanted_topics)
            self._wanted_topics.clear()
            try:
                await self._cluster.refresh(topics, allow_auto_topic_creation=self._config.allow_auto_create_topics)
            except TidelogError as error:
                logger.warning("the consumer cannot get metadata: %s", error)
                self._wanted_topics |= topics
                self._handle(self._refusals(topics, error))
            except Exception:
                logger.exception("the consumer's request for metadata failed; it goes on")
                self._wanted_topics |= topics
            else:
                self._handle(self._refusals(topics, None))
            attempt += 1
            await asyncio.sleep(self._cluster.backoff.wait_ms(attempt) / 1000)
