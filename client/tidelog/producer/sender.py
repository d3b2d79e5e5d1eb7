"""The task that executes the accumulator's commands: it sends batches, requests metadata and reports outcomes."""

from __future__ import annotations

import asyncio
import functools
import threading
import time
from collections.abc import Hashable, Iterable, Mapping
from typing import assert_never

from tidelog.cluster import ClusterClient, Topic
from tidelog.cluster.connections import Connection
from tidelog.cluster.tasks import TaskSet
from tidelog.message import ThrottleEvent
from tidelog.producer.config import ProducerConfig
from tidelog.producer.coordination import Coordination
from tidelog.producer.core.accumulator import Accumulator
from tidelog.producer.core.events import (
    AskMetadata,
    AskProducerId,
    BatchAcknowledged,
    BatchFailed,
    Command,
    Event,
    ProducerIdLearned,
    ProducerRefused,
    Send,
    Settle,
    TopicLearned,
    TopicRefused,
)
from tidelog.producer.core.faults import fatal_error
from tidelog.producer.core.transaction_manager import TransactionManager
from tidelog.producer.core.transaction_requests import Answered, Ask, Unanswered
from tidelog.producer.hooks import Hooks
from tidelog.producer.reports import DeliveryReports
from tidelog.producer.requests import (
    ACKS,
    EncodedRequest,
    encode_batches,
    failures,
    outcomes,
    produce_request,
    unconfirmed,
)
from tidelog.producer.statistics import Tally, statistics_json
from tidelog.producer.stream import NodeStream, StreamRefusedError
from tidelog.telemetry.measures import ProducerMeasures
from tidelog.v1 import log_service_pb2 as pb
from tidelog_foundation.errors import INSECURE, OUTAGES, UNREACHABLE, ErrorCode, TidelogError, error_for
from tidelog_foundation.transport.loop import monotonic_ms, step_when_due
from tidelog_foundation.waiting import Outage, watch_waits

_NODE_SHARE = 0.8
"""The node's share of request.timeout.ms, so that its answer arrives before the client's timeout."""
_CUT_OFF = UNREACHABLE | {ErrorCode.REQUEST_TIMED_OUT}
"""The errors of a leader that is cut off and may not know that another node leads."""
_ID_ATTEMPT_MS = 5_000
"""The longest wait for one node's producer id before the client asks the next."""


class Sender:
    """The sender. It runs on the network thread from :meth:`start` to :meth:`stop`; ``lock`` guards the accumulator."""

    def __init__(
        self,
        config: ProducerConfig,
        cluster: ClusterClient,
        accumulator: Accumulator,
        lock: threading.RLock,
        reports: DeliveryReports,
        hooks: Hooks | None = None,
        manager: TransactionManager | None = None,
    ) -> None:
        self._manager = manager
        self._coordination = None if manager is None else Coordination(cluster, config)
        self._hooks = hooks or Hooks()
        self._log = self._hooks.log
        self._reports = reports
        self._report = reports.add
        self._tally = Tally()
        self.measures = ProducerMeasures()
        """The waits of batches, for the producer's telemetry."""
        self._config = config
        self._cluster = cluster
        self._accumulator = accumulator
        self._lock = lock
        self._acks = ACKS[config.acks]
        self._streams: dict[int, NodeStream] = {}
        self._tasks = TaskSet()
        self._awake = asyncio.Event()
        self._wanted_topics: set[str] = set()
        self._refresher: asyncio.Task[None] | None = None
        self._identifier: asyncio.Task[None] | None = None
        self._main: asyncio.Task[None] | None = None
        self._outage = Outage()
        self._has_told_fatal = False
        cluster.failures.on_insecure = self._tell_error

    @property
    def is_running(self) -> bool:
        """True until the sender's task ends."""
        return self._main is not None and not self._main.done()

    def start(self) -> None:
        """Start the sender's tasks. Runs on the network thread."""
        self._main = self._tasks.start(self._run(), "producer-sender")
        self._tasks.start(self._refresh_old(), "producer-metadata-age")
        self._tasks.start(watch_waits("acknowledgements", self._hindrances), "producer-waits")
        if self._hooks.stats_cb is not None and self._config.statistics_interval_ms:
            self._tasks.start(self._tell_statistics(), "producer-statistics")

    async def stop(self) -> None:
        """End all tasks and streams; unsettled records stay in the accumulator.

        Such records are abandoned: their producer was garbage-collected, or the process ends without a flush.
        """
        if self._accumulator.count:
            self._log.warning(
                "the producer was closed with %d unacknowledged records: call flush() or close() first",
                self._accumulator.count,
            )
        await self._tasks.cancel()
        await asyncio.gather(*(stream.finish() for stream in self._streams.values()))
        self._streams.clear()

    def wake(self) -> None:
        """Check the accumulator soon. Runs on the network thread."""
        self._awake.set()

    def carry_out(self, commands: Iterable[Command]) -> None:
        """Execute commands outside the sender's task, reports only. Thread-safe."""
        for command in commands:
            assert isinstance(command, Settle)
            self._report(command)

    async def _run(self) -> None:
        await step_when_due(self._step, self._awake, self._config.retry_backoff_max_ms, "the producer's sender")

    def _step(self) -> float | None:
        with self._lock:
            now_ms = monotonic_ms()
            self._accumulator.connection_error = self._cluster.failures.latest
            commands: list[Command | Ask] = [*self._accumulator.poll(now_ms, self._leader_of)]
            timers_ms = [self._accumulator.next_timer_ms(now_ms)]
            if self._manager is not None:
                commands += self._manager.poll(now_ms)
                self._tell_fatal(self._manager.fatal_error)
                timers_ms.append(self._manager.next_timer_ms(now_ms))
        self._execute(commands)
        if self._manager is not None:
            # The poll may have completed an operation.
            self._reports.wake()
        return min((time_ms for time_ms in timers_ms if time_ms is not None), default=None)

    def _leader_of(self, topic: str, partition: int) -> int | None:
        leader = self._cluster.metadata.leader(topic, partition)
        return None if leader is None else leader.node_id

    def _hindrances(self) -> Mapping[Hashable, str]:
        with self._lock:
            return self._accumulator.hindrances(self._leader_of)

    def _execute(self, commands: Iterable[Command | Ask]) -> None:
        for command in commands:
            match command:
                case Send():
                    self._tasks.start(self._send(command), f"produce-{command.node_id}")
                case Settle():
                    self._report(command)
                case AskMetadata():
                    self._ask_metadata(command.topics)
                case AskProducerId():
                    self._ask_producer_id()
                case Ask():
                    self._tasks.start(self._coordinate(command), "producer-transaction")
                case _:
                    assert_never(command)

    def _handle(self, events: Iterable[Event]) -> None:
        with self._lock:
            now_ms = monotonic_ms()
            commands = [c for event in events for c in self._accumulator.handle(event, now_ms)]
        self._execute(commands)
        self._reports.wake()
        self._awake.set()

    async def _coordinate(self, ask: Ask) -> None:
        assert self._manager is not None
        assert self._coordination is not None
        event: Answered | Unanswered
        try:
            event = Answered(ask.request_id, await self._coordination.execute(ask.request))
        except TidelogError as error:
            event = Unanswered(ask.request_id, error.detached())
        except Exception as error:  # noqa: BLE001 the outermost loop of this task: the operation must end
            self._log.exception("a request of a transaction failed")
            event = Unanswered(ask.request_id, error_for(ErrorCode._FAIL, f"the producer failed: {error!r}"))
        with self._lock:
            self._manager.handle(event, monotonic_ms())
            # Under the lock, so that whoever sees the outcome of the operation finds the report.
            self._tell_fatal(self._manager.fatal_error)
        self._reports.wake()
        self._awake.set()

    async def _send(self, send: Send) -> None:
        began_s = time.monotonic()
        try:
            events = await self._exchange(send)
        except TidelogError as error:
            events = failures(send, error)
            self._tell_error(error)
        except Exception as error:  # noqa: BLE001 the outermost loop of this task: the batches must be settled
            self._log.exception("a produce request to node %d failed", send.node_id)
            events = failures(send, error_for(ErrorCode._FAIL, f"the producer failed: {error!r}"))
        if any(isinstance(event, BatchFailed) and event.error.code in _CUT_OFF for event in events):
            self._cluster.doubt(send.node_id)
        self._tally.end(send.node_id, began_s, send.batches, events)
        self._handle(events)

    async def _exchange(self, send: Send) -> list[BatchAcknowledged | BatchFailed]:
        timeout_ms = self._config.request_timeout_ms
        timeout_s = timeout_ms / 1000
        waits = self._acks != pb.ACKS_NONE
        # Start at once, so that batches of several requests are compressed concurrently.
        encoding = asyncio.ensure_future(self._request(send, int(timeout_ms * _NODE_SHARE)))
        is_first = True
        try:
            stream = await self._stream(send.node_id)
            with self._cluster.connection(send.node_id).measured():
                response = await stream.send(encoding, timeout_s, wait=waits)
        except StreamRefusedError:
            is_first = False
            request = await encoding
            connection = self._cluster.connection(send.node_id)
            response = await connection.call(lambda c: c.log.Produce(request.message(), timeout=timeout_s))
        finally:
            encoding.cancel()
        if not waits:
            return unconfirmed(send)
        self.measures.throttle_time.record(response.throttle_time_ms, monotonic_ms())
        if response.throttle_time_ms:
            self._tell_throttled(send.node_id, response.throttle_time_ms)
        return outcomes(send, response, self._cluster.learn_leader, is_first=is_first)

    async def _request(self, send: Send, timeout_ms: int) -> EncodedRequest:
        encoded = await encode_batches(send, in_thread=self._config.compression_type != "none")
        self._tally.begin(send.node_id, send.batches, encoded)
        for batch in send.batches:
            self.measures.queue_time.record(max(batch.sent_ms - batch.created_ms, 0.0), batch.sent_ms)
        return produce_request(send, encoded, self._acks, timeout_ms, self._config.transactional_id)

    async def _stream(self, node_id: int) -> NodeStream:
        connection = self._cluster.connection(node_id)
        # First, since several requests may wait for the login, and the first of them opens the stream.
        await connection.log_in()
        stream = self._streams.get(node_id)
        if stream is None or stream.is_broken or stream.address != connection.address:
            self._streams[node_id] = NodeStream(connection)
            if stream is not None:
                await stream.close()
        return self._streams[node_id]

    def _ask_metadata(self, topics: frozenset[str]) -> None:
        self._wanted_topics |= topics
        if self._refresher is None or self._refresher.done():
            self._refresher = self._tasks.start(self._refresh_wanted(), "producer-metadata")

    def _ask_producer_id(self) -> None:
        if self._identifier is None or self._identifier.done():
            self._identifier = self._tasks.start(self._identify(), "producer-id")

    async def _identify(self) -> None:
        attempt = 0
        while self._accumulator.wants_producer_id:
            try:
                response = await self._cluster.ask_any(_init_producer_id, attempt_ms=_ID_ATTEMPT_MS)
            except TidelogError as error:
                if not error.code.retriable and error.code not in OUTAGES:
                    self._end(error)
                    return
                self._tell_outage("the producer is still waiting for a producer id", error)
            else:
                self._outage.end()
                self._handle([ProducerIdLearned(response.producer_id, response.producer_epoch)])
                return
            attempt += 1
            await asyncio.sleep(self._cluster.backoff.wait_ms(attempt) / 1000)

    def _end(self, error: TidelogError) -> None:
        """End the producer because the cluster refuses it a producer id, and report that once."""
        with self._lock:
            is_ended = self._accumulator.fatal_error is not None
        if not is_ended:
            self._log.error("the producer cannot be used, because the cluster refuses it: %s", error)
            # Before the records fail, so that an application that waits for these has the reason.
            self._tell_error(fatal_error(error.code, error.message))
        self._handle([ProducerRefused(error)])

    def _tell_outage(self, what: str, error: TidelogError) -> None:
        """Log and report an outage, once for its duration and reason."""
        if self._outage.is_news(error):
            self._log.warning("%s: %s", what, error)
            if error.code not in INSECURE:
                self._tell_error(error)

    def _tell_fatal(self, error: TidelogError | None) -> None:
        """Log and report the error that ended the producer, once."""
        if error is not None and not self._has_told_fatal:
            self._has_told_fatal = True
            self._log.error("the producer cannot be used any more: %s", error)
            self._tell_error(error)

    def _tell_error(self, error: TidelogError) -> None:
        callback = self._hooks.error_cb
        if callback is not None:
            self._reports.call(functools.partial(callback, error.error))

    def _tell_throttled(self, node_id: int, throttle_time_ms: int) -> None:
        callback = self._hooks.throttle_cb
        if callback is not None:
            event = ThrottleEvent(self._cluster.connection(node_id).address, node_id, throttle_time_ms / 1000)
            self._reports.call(functools.partial(callback, event))

    async def statistics(self) -> str:
        """Return the statistics as JSON."""
        with self._lock:
            waiting = self._reports.waiting
            return statistics_json(self._config, self._tally, self._accumulator, self._cluster.metadata, waiting)

    async def _tell_statistics(self) -> None:
        callback = self._hooks.stats_cb
        assert callback is not None
        while True:
            await asyncio.sleep(self._config.statistics_interval_ms / 1000)
            self._reports.call(functools.partial(callback, await self.statistics()))

    async def _refresh_old(self) -> None:
        while True:
            await asyncio.sleep(self._config.metadata_max_age_ms / 1000)
            with self._lock:
                topics = self._accumulator.topics
            self._ask_metadata(frozenset(topics))

    async def _refresh_wanted(self) -> None:
        attempt = 0
        while self._wanted_topics:
            topics = frozenset(self._wanted_topics)
            self._wanted_topics.clear()
            try:
                metadata = await self._cluster.refresh(
                    topics, allow_auto_topic_creation=self._config.allow_auto_create_topics
                )
            except TidelogError as error:
                self._tell_outage("the producer cannot get metadata", error)
                self._wanted_topics |= topics
            except Exception:  # noqa: BLE001 the outermost loop of this task: it asks again
                self._log.exception("the producer's request for metadata failed; retrying")
                self._wanted_topics |= topics
            else:
                self._outage.end()
                self._handle([_topic_event(name, metadata.topics.get(name)) for name in topics])
            attempt += 1
            await asyncio.sleep(self._cluster.backoff.wait_ms(attempt) / 1000)


def _topic_event(name: str, topic: Topic | None) -> Event:
    if topic is None:
        return TopicRefused(name, error_for(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f'there is no topic "{name}"'))
    if topic.error is not None:
        return TopicRefused(name, error_for(topic.error.error_code(), topic.error.str()))
    if not topic.partitions:
        return TopicRefused(name, error_for(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f'topic "{name}" has no partitions'))
    available = tuple(p.index for p in topic.partitions.values() if p.leader_id >= 0)
    return TopicLearned(name, len(topic.partitions), available, topic.topic_id)


async def _init_producer_id(connection: Connection, timeout_s: float) -> pb.InitProducerIdResponse:
    response: pb.InitProducerIdResponse = await connection.log.InitProducerId(
        pb.InitProducerIdRequest(), timeout=timeout_s
    )
    return response
