"""The task that executes the commands of the positions (long polls, look-ups, metadata) and fills the queue."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from collections import defaultdict
from collections.abc import Awaitable, Callable, Hashable, Iterable, Mapping
from typing import TypeVar, assert_never

from tidelog.cluster import ClusterClient
from tidelog.cluster.offsets import ask_epoch_ends
from tidelog.cluster.tasks import TaskSet
from tidelog.consumer.config import ConsumerConfig
from tidelog.consumer.core.commits import Commits, OffsetAndMetadata
from tidelog.consumer.core.events import (
    AskMetadata,
    AssignedPartition,
    Command,
    Deliver,
    Event,
    Fetch,
    FetchCommitted,
    Fetched,
    FetchedPartition,
    FetchFailed,
    FetchSpec,
    Interrupt,
    LookUp,
    LookUpSpec,
    OffsetFound,
    Refused,
    Report,
    RequestFailed,
    Validate,
    Validated,
)
from tidelog.consumer.core.positions import Positions
from tidelog.consumer.group_offsets import GroupOffsets
from tidelog.consumer.node_sessions import NodeSession
from tidelog.consumer.records import Call, RecordQueue
from tidelog.consumer.statistics import Tally, statistics_text
from tidelog.message import ThrottleEvent
from tidelog.telemetry.measures import ConsumerMeasures
from tidelog.v1 import log_service_pb2 as pb
from tidelog_foundation.errors import ErrorCode, TidelogError, error_for
from tidelog_foundation.transport import call_soon
from tidelog_foundation.transport.loop import monotonic_ms, step_when_due
from tidelog_foundation.waiting import Outage, watch_waits

T = TypeVar("T")
S = TypeVar("S", bound=AssignedPartition)

_END_SESSION_MS = 200


class Fetcher:
    """The fetcher. It runs on the network thread from :meth:`start` to :meth:`stop`, and shares data under ``lock``.

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
        measures: ConsumerMeasures,
        offsets: GroupOffsets | None = None,
        log: logging.Logger | None = None,
    ) -> None:
        """Create a fetcher; ``offsets`` provides the starting offsets of partitions assigned in a group."""
        self._tally = Tally()
        self._measures = measures
        self._log = log or logging.getLogger(__name__)
        self._config = config
        self._cluster = cluster
        self._positions = positions
        self._queue = queue
        self._lock = lock
        self._awake = awake
        self._offsets = offsets
        self._sessions = defaultdict[int, NodeSession](lambda: NodeSession(config))
        self._polls: dict[int, asyncio.Task[Fetched | FetchFailed]] = {}
        self._tasks = TaskSet()
        self._wanted_topics: set[str] = set()
        self._refresher: asyncio.Task[None] | None = None
        self._throttle_cb: Callable[[ThrottleEvent], object] | None = None
        self._statistics: tuple[Callable[[str], object], Commits] | None = None
        self._outage = Outage()
        self._stopping = False

    def tell_statistics(self, callback: Callable[[str], object], commits: Commits) -> None:
        """Call ``callback`` with statistics every ``statistics.interval.ms``. Call this before :meth:`start`."""
        self._statistics = (callback, commits)

    def tell_throttling(self, callback: Callable[[ThrottleEvent], object]) -> None:
        """Call ``callback`` when a quota delays a node's next fetch. Call this before :meth:`start`."""
        self._throttle_cb = callback

    async def start(self) -> None:
        """Start the fetcher's tasks."""
        run = step_when_due(self._step, self._awake, self._config.retry_backoff_max_ms, "the consumer's fetcher")
        self._tasks.start(run, "consumer-fetcher")
        self._tasks.start(self._refresh_old(), "consumer-metadata-age")
        self._tasks.start(watch_waits("records to read", self._hindrances), "consumer-waits")
        if self._statistics is not None:
            self._tasks.start(self._keep_statistics(*self._statistics), "consumer-statistics")

    async def stop(self) -> None:
        """End all tasks."""
        self._stopping = True
        await self._tasks.cancel()
        await asyncio.gather(*(self._end_session(node_id, session) for node_id, session in self._sessions.items()))

    async def _end_session(self, node_id: int, session: NodeSession) -> None:
        # Best effort: a node reuses the session's slot sooner or later.
        with contextlib.suppress(TidelogError):
            if (request := session.ending()) is not None:
                await self._cluster.fetch(node_id, request, timeout_ms=_END_SESSION_MS)

    def _step(self) -> float | None:
        with self._lock:
            now_ms = monotonic_ms()
            commands = self._positions.poll(now_ms, self._leader_of, self._can_read)
            timer_ms = self._positions.next_timer_ms(now_ms)
        self._execute(commands)
        return timer_ms

    def _leader_of(self, topic: str, partition: int) -> tuple[int, int] | None:
        known = self._cluster.metadata.partition(topic, partition)
        leader = self._cluster.metadata.leader(topic, partition)
        return None if known is None or leader is None else (leader.node_id, known.leader_epoch)

    def _can_read(self, topic: str, partition: int, node_id: int) -> bool:
        known = self._cluster.metadata.partition(topic, partition)
        is_replica = known is not None and node_id in known.replicas and node_id not in known.offline_replicas
        return is_replica and node_id in self._cluster.metadata.brokers

    def _hindrances(self) -> Mapping[Hashable, str]:
        with self._lock:
            states = [state for key in self._positions.assignment if (state := self._positions.state(*key))]
            found = {
                (s.topic, s.partition, s.generation): s.hindrance(
                    has_leader=self._leader_of(s.topic, s.partition) is not None
                )
                for s in states
            }
        return {key: reason for key, reason in found.items() if reason is not None}

    def _handle(self, events: Iterable[Event]) -> None:
        with self._lock:
            self._queue.settle()
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
                    # One by one, so that a partition without an answer does not delay the others.
                    for spec in command.specs:
                        self._tasks.start(self._look_up(spec), f"offset-{spec.topic}-{spec.partition}")
                case Validate():
                    self._tasks.start(self._validate(command), f"validate-{command.node_id}")
                case FetchCommitted():
                    self._tasks.start(self._fetch_committed(command), "committed-offsets")
                case AskMetadata():
                    self._ask_metadata(command.topics)
                case Deliver() | Report():
                    with self._lock:
                        self._queue.put(command)
                case _:
                    assert_never(command)

    def _start_poll(self, fetch: Fetch) -> None:
        task = self._tasks.start(self._poll_node(fetch), f"fetch-{fetch.node_id}")
        self._polls[fetch.node_id] = task
        task.add_done_callback(lambda done: self._poll_done(fetch, done))

    async def _poll_node(self, fetch: Fetch) -> Fetched | FetchFailed:
        began_s, fetched = self._tally.begin(fetch.node_id), None
        try:
            found = await self._ask_node(fetch)
            if isinstance(found, Fetched):
                fetched, now_ms = found, monotonic_ms()
                self._measures.fetches.record(now_ms - began_s * 1000, now_ms)
            return found
        finally:
            self._tally.end(fetch.node_id, began_s, fetched)

    async def _ask_node(self, fetch: Fetch) -> Fetched | FetchFailed:
        session = self._sessions[fetch.node_id]
        try:
            response = await self._cluster.fetch(fetch.node_id, session.request(fetch.specs))
        except TidelogError as error:
            session.fail()
            return FetchFailed(fetch.node_id, fetch.specs, error)
        except BaseException:
            session.fail()
            raise
        if response.HasField("error"):
            return FetchFailed(fetch.node_id, fetch.specs, session.refused(response.error))
        results = {(t.name, p.index): p for t in response.topics for p in t.partitions}
        if response.throttle_time_ms and not results:
            # The node delays the next fetch itself.
            self._tell_throttled(fetch.node_id, response.throttle_time_ms)
            session.take_throttled(response.session_id)
            return Fetched(fetch.node_id, [FetchedPartition(spec, is_unchanged=True) for spec in fetch.specs])
        is_incremental = session.take(response.session_id, results.keys())
        found = [self._result(s, results.get((s.topic, s.partition)), is_incremental) for s in fetch.specs]
        return Fetched(fetch.node_id, found)

    def _tell_throttled(self, node_id: int, throttle_time_ms: int) -> None:
        callback = self._throttle_cb
        if callback is not None:
            event = ThrottleEvent(self._cluster.connection(node_id).address, node_id, throttle_time_ms / 1000)
            self._queue.post(_throttled(callback, event))

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
        self._log.error("a fetch from node %d failed", fetch.node_id, exc_info=error)
        failure = error_for(ErrorCode._FAIL, f"the consumer failed: {error!r}")
        self._handle([FetchFailed(fetch.node_id, fetch.specs, failure)])

    def _result(
        self, spec: FetchSpec, result: pb.FetchPartitionResult | None, is_incremental: bool
    ) -> FetchedPartition:
        if result is None and is_incremental:
            return FetchedPartition(spec, is_unchanged=True)
        if result is None:
            text = f"the fetch response does not contain {spec.topic}-{spec.partition}"
            return FetchedPartition(spec, error=error_for(ErrorCode.NETWORK_EXCEPTION, text))
        if result.HasField("error"):
            error = error_for(result.error.code, result.error.message)
            is_news = result.HasField("current_leader") and self._cluster.learn_leader(
                spec.topic, spec.partition, result.current_leader
            )
            return FetchedPartition(spec, error=error, leader_known=is_news)
        return FetchedPartition(
            spec,
            result.records,
            result.high_watermark,
            result.log_start_offset,
            preferred_node=result.preferred_read_replica if result.HasField("preferred_read_replica") else None,
            aborted=tuple((t.producer_id, t.first_offset) for t in result.aborted_transactions),
            end_offset=result.last_stable_offset if self._config.is_read_committed else None,
        )

    async def _validate(self, command: Validate) -> None:
        wanted = {(s.topic, s.partition): (s.offset_epoch, s.leader_epoch) for s in command.specs}
        found = await self._attempt(
            ask_epoch_ends(self._cluster, command.node_id, wanted), f"validating positions at node {command.node_id}"
        )
        self._handle(
            [_event(s, found, lambda s, end: Validated(s, end.leader_epoch, end.end_offset)) for s in command.specs]
        )

    async def _fetch_committed(self, command: FetchCommitted) -> None:
        assert self._offsets is not None
        keys = [(spec.topic, spec.partition) for spec in command.specs]
        found = await self._attempt(self._offsets.committed_after_commits(keys), "fetching committed offsets")
        self._handle([_event(spec, found, _committed) for spec in command.specs])

    async def _look_up(self, spec: LookUpSpec) -> None:
        key = (spec.topic, spec.partition)
        search = self._cluster.list_offsets({key: spec.timestamp_ms}, read_committed=self._config.is_read_committed)
        found = await self._attempt(search, f"looking up an offset of {spec.topic}-{spec.partition}")
        self._handle([_event(spec, found, lambda s, at: OffsetFound(s, at.offset, at.leader_epoch))])

    async def _attempt(self, work: Awaitable[T], what: str) -> T | TidelogError:
        """Return the result or the error of a request; an unexpected error is logged, and the consumer continues."""
        try:
            return await work
        except TidelogError as error:
            return error
        except Exception as error:  # noqa: BLE001 any error is logged, and the consumer continues
            self._log.exception("%s failed", what)
            return error_for(ErrorCode._FAIL, f"the consumer failed: {error!r}")

    def _refusals(self, topics: frozenset[str], failure: TidelogError | None) -> list[Refused]:
        with self._lock:
            assigned = [key for key in self._positions.assignment if key[0] in topics]
        found = [(key, failure or self._cluster.metadata_error(*key)) for key in assigned]
        return [Refused(*key, error) for key, error in found if error is not None]

    def _ask_metadata(self, topics: frozenset[str]) -> None:
        self._wanted_topics |= topics
        if self._refresher is None or self._refresher.done():
            self._refresher = self._tasks.start(self._refresh_wanted(), "consumer-metadata")

    async def statistics(self, commits: Commits) -> str:
        """Return the statistics as JSON."""
        with self._lock:
            self._queue.settle()
            return statistics_text(
                self._config, self._tally, self._positions, commits, self._cluster.metadata, self._queue.waiting
            )

    async def _keep_statistics(self, callback: Callable[[str], object], commits: Commits) -> None:
        is_served = asyncio.Event()
        is_served.set()
        while True:
            await asyncio.sleep(self._config.statistics_interval_ms / 1000)
            # An application that does not poll later gets one text, not a queue of them.
            await is_served.wait()
            is_served.clear()
            self._queue.post(_telling(callback, await self.statistics(commits), is_served))

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
                if self._outage.is_news(error):
                    self._log.warning("the consumer cannot get metadata: %s", error)
                self._wanted_topics |= topics
                self._handle(self._refusals(topics, error))
            except Exception:  # noqa: BLE001 any error is logged, and the consumer continues
                self._log.exception("the consumer's request for metadata failed; retrying")
                self._wanted_topics |= topics
            else:
                self._outage.end()
                self._handle(self._refusals(topics, None))
            attempt += 1
            await asyncio.sleep(self._cluster.backoff.wait_ms(attempt) / 1000)


def _event(
    spec: S, found: Mapping[tuple[str, int], T | TidelogError] | TidelogError, answered: Callable[[S, T], Event]
) -> Event:
    """Return the outcome of a request for one partition: its error, the error of the whole request, or the answer."""
    outcome = found if isinstance(found, TidelogError) else found[spec.topic, spec.partition]
    return RequestFailed(spec, outcome) if isinstance(outcome, TidelogError) else answered(spec, outcome)


def _committed(spec: AssignedPartition, found: OffsetAndMetadata | None) -> OffsetFound:
    return OffsetFound(spec, None) if found is None else OffsetFound(spec, found.offset, found.leader_epoch)


def _throttled(callback: Callable[[ThrottleEvent], object], event: ThrottleEvent) -> Call:
    def call(_: object) -> None:
        callback(event)

    return call


def _telling(callback: Callable[[str], object], text: str, is_told: asyncio.Event) -> Call:
    def call(_: object) -> None:
        call_soon(is_told.set)
        callback(text)

    return call
