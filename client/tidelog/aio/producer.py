"""The producer for asyncio: the blocking one's core and sender, with the event loop's futures and waits."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import replace
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from tidelog.admin.metadata import ClusterMetadata, cluster_id, list_topics
from tidelog.aio.callbacks import Callbacks, WakeUp
from tidelog.message import Message, TopicPartition
from tidelog.producer import Producer as BlockingProducer
from tidelog.producer.calls import HeadersArgument
from tidelog.producer.core.transaction_manager import TransactionManager
from tidelog.producer.core.transaction_operations import Operation
from tidelog.producer.core.transaction_requests import PreparedTransaction
from tidelog.producer.transactional import Start, group_member, offsets_of, operation_timeout_s, prepared_transaction
from tidelog.producer.written import WrittenRows
from tidelog.telemetry.instance_ids import awaited_instance_id
from tidelog.uuid import Uuid
from tidelog_foundation.errors import ConfigError, ErrorCode, KafkaError, KafkaException
from tidelog_foundation.transport import run_on_network

if TYPE_CHECKING:
    from tidelog.consumer.group import ConsumerGroupMetadata

_CALLBACKS = frozenset(("error_cb", "stats_cb", "throttle_cb"))
_MOST_AT_ONCE = 500
"""The number of reports served before the loop gets its turn."""

DeliveryCallback = Callable[[KafkaError | None, Message], object]
"""A function or a coroutine function."""


class Producer:
    """Sends records from the event loop that it is created in. Close it, or use it as an async context manager.

    ::

        async with Producer({"bootstrap.servers": "127.0.0.1:9094"}) as producer:
            delivery = await producer.produce("flights", value=b"...", key=b"UA")
            message = await delivery

    Callbacks and futures complete in the loop as records are acknowledged, without polling. Otherwise its behavior and
    settings are those of :class:`tidelog.Producer`.
    """

    def __init__(self, config: Mapping[str, Any]) -> None:
        """Create a producer from settings, like :class:`tidelog.Producer`; callbacks may be coroutine functions.

        ``max.block.ms`` limits the time for which :meth:`produce` waits for room; by default it waits forever.

        Raises:
            KafkaException: INVALID_CONFIG.
            RuntimeError: there is no running event loop.
            TypeError: ``on_delivery`` is not callable.
        """
        self._loop = asyncio.get_running_loop()
        self._callbacks = Callbacks(self._loop, "producer")
        settings = dict(config)
        self._on_delivery: DeliveryCallback | None = settings.pop("on_delivery", None)
        if self._on_delivery is not None and not callable(self._on_delivery):
            raise TypeError(f"on_delivery must be callable, not {type(self._on_delivery).__name__}")
        if "delivery.report.only.error" in settings:
            text = 'configuration "delivery.report.only.error" is not supported here: every record has a future'
            raise ConfigError(text)
        for key in _CALLBACKS & settings.keys():
            settings[key] = self._callbacks.wrap(settings[key])
        self._producer = BlockingProducer(settings)
        # The loop waits for room, so the blocking producer must report a full queue at once.
        self._max_block_s = self._producer._config.max_block_ms / 1000 if "max.block.ms" in settings else None
        self._producer._config = replace(self._producer._config, max_block_ms=0)
        # Callbacks belong to the loop; another waiting thread must not serve them.
        self._producer._wait_for = self._producer._reports.wait_unserved
        self._wake_up = WakeUp(self._loop, self._serve)
        self._producer._monitor.announce_to(self._wake_up.send)
        self._turn = asyncio.Lock()
        self._waiting = 0
        self._served = 0
        self._unpolled = 0
        self._since_turn = 0

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the producer. On cancellation and Ctrl-C, discard unacknowledged records instead of waiting."""
        is_interrupted = kind is not None and not issubclass(kind, Exception)
        await self.close(0 if is_interrupted else -1)

    def __len__(self) -> int:
        """Return the number of unacknowledged records plus the number of pending callbacks."""
        return len(self._producer)

    def __bool__(self) -> bool:
        return True

    async def produce(
        self,
        topic: str,
        value: str | bytes | None = None,
        key: str | bytes | None = None,
        partition: int = -1,
        on_delivery: DeliveryCallback | None = None,
        timestamp: int = 0,
        headers: HeadersArgument | None = None,
        *,
        callback: DeliveryCallback | None = None,
    ) -> asyncio.Future[Message]:
        """Queue one record when there is room for it; return the future of its delivery.

        The future returns the delivered message or raises KafkaException. Awaiting it is optional. Arguments and
        callbacks are those of :meth:`tidelog.Producer.produce`. If the queue is full, callers wait for room in order; a
        caller that is cancelled meanwhile has sent nothing.

        Raises:
            BufferError: there is no room after ``max.block.ms``.
            KafkaException, TypeError: see :meth:`tidelog.Producer.produce`.
        """
        report = on_delivery or callback or self._on_delivery
        delivery = _Delivery(self._loop.create_future(), report, self._callbacks)
        record = (topic, value, key, partition, delivery, timestamp, headers)
        self._since_turn += 1
        if self._since_turn > _MOST_AT_ONCE or self._waiting or not self._take(*record):
            await self._take_in_turn(*record)
        return delivery.future

    async def produce_batch(
        self,
        topic: str,
        data: Any,
        key: Any = None,
        partition: Any = -1,
        timestamp: Any = None,
        headers: Any = None,
    ) -> WrittenRows:
        """Send many records in one call and wait for them, like :meth:`tidelog.Producer.produce_batch`.

        A thread of the loop's default executor reads the columns. A cancelled call stops waiting, but the rows are
        sent.
        """
        columns = (data, key, partition, timestamp, headers)
        return await asyncio.to_thread(self._producer.produce_batch, topic, *columns)

    async def poll(self, timeout: float = 0) -> int:  # noqa: ASYNC109
        """Return the number of callbacks called since the last poll; wait up to ``timeout`` s for one (-1: forever).

        Callbacks are called without it, too.
        """
        self._producer._lifetime.check()
        await self._wake_up.wait_until(lambda: self._unpolled > 0 or self._is_over, _timeout_s(timeout))
        served, self._unpolled = self._unpolled, 0
        return served

    async def flush(self, timeout: float = -1) -> int:  # noqa: ASYNC109
        """Send all queued records and wait for the reports; return the number left after ``timeout`` seconds.

        The number is 0 after ``message.timeout.ms`` at the latest, when unacknowledged records are reported as failed.
        """
        self._producer._lifetime.check()
        reports = self._producer._reports
        with self._producer._flushing():
            await self._wake_up.wait_until(lambda: not reports.left or self._is_over, _timeout_s(timeout))
        return reports.left

    async def init_transactions(self, timeout: float = -1, *, keep_prepared: bool = False) -> None:  # noqa: ASYNC109
        """Fence older producers and end their transaction, like :meth:`tidelog.Producer.init_transactions`."""
        self._producer._check_keeps_prepared(keep_prepared)
        await self._complete(lambda manager: manager.initialize(keep_prepared=keep_prepared), timeout, factor=2)

    async def begin_transaction(self) -> None:
        """Begin a transaction, to which all records that are produced from now on belong."""
        self._producer.begin_transaction()

    async def send_offsets_to_transaction(
        self,
        positions: Sequence[TopicPartition],
        group_metadata: ConsumerGroupMetadata,
        timeout: float = -1,  # noqa: ASYNC109
    ) -> None:
        """Commit positions with the transaction, like :meth:`tidelog.Producer.send_offsets_to_transaction`."""
        member, offsets = group_member(group_metadata), offsets_of(positions)
        if offsets:
            await self._complete(lambda manager: manager.send_offsets(member, offsets), timeout)
        else:
            self._producer._transactions()

    async def commit_transaction(self, timeout: float = -1) -> None:  # noqa: ASYNC109
        """Wait until all records are stored, and commit, like :meth:`tidelog.Producer.commit_transaction`."""
        await self._complete(TransactionManager.commit, timeout)

    async def abort_transaction(self, timeout: float = -1) -> None:  # noqa: ASYNC109
        """Abort the transaction, like :meth:`tidelog.Producer.abort_transaction`."""
        await self._complete(TransactionManager.abort, timeout)

    async def prepare_transaction(self, timeout: float = -1) -> PreparedTransaction:  # noqa: ASYNC109
        """Store all records and keep the transaction, like :meth:`tidelog.Producer.prepare_transaction`."""
        self._producer._check_is_two_phase("prepare_transaction()")
        prepared = (await self._complete(TransactionManager.prepare, timeout)).prepared
        assert prepared is not None
        return prepared

    async def complete_transaction(self, state: PreparedTransaction, timeout: float = -1) -> None:  # noqa: ASYNC109
        """Commit or abort a prepared transaction, like :meth:`tidelog.Producer.complete_transaction`."""
        prepared = prepared_transaction(state)
        await self._complete(lambda manager: manager.complete(prepared), timeout)

    @contextlib.asynccontextmanager
    async def transaction(self) -> AsyncIterator[Self]:
        """Return a context manager that begins a transaction and commits it, or aborts it after an exception or a
        cancellation, like :meth:`tidelog.Producer.transaction`.
        """
        await self.begin_transaction()
        try:
            yield self
            await self.commit_transaction()
        except BaseException:
            if self._producer._is_open:
                with contextlib.suppress(KafkaException):
                    await self.abort_transaction()
            raise

    async def purge(self, in_queue: bool = True, in_flight: bool = True, blocking: bool = True) -> None:
        """Discard records: their futures fail with _PURGE_QUEUE or _PURGE_INFLIGHT. Never waits."""
        self._producer.purge(in_queue, in_flight, blocking)

    async def set_sasl_credentials(self, username: str, password: str) -> None:
        """Log in with another name and password from now on; open sessions continue.

        Raises:
            KafkaException: _INVALID_ARG, one of them is empty, or sasl.mechanisms is not PLAIN or SCRAM.
        """
        self._producer._lifetime.check()
        self._producer._cluster.replace_credentials(username, password)

    async def cluster_id(self, timeout: float = -1) -> str:  # noqa: ASYNC109
        """Return the cluster's id. Raise KafkaException if no node answers in ``timeout`` seconds."""
        self._producer._lifetime.check()
        return await run_on_network(cluster_id(self._producer._cluster, timeout))

    async def client_instance_id(self, timeout: float) -> Uuid:  # noqa: ASYNC109
        """Return the id under which a node exports the pushed metrics, as :class:`tidelog.Producer` does."""
        return await awaited_instance_id(self._producer._lifetime, self._producer._telemetry, timeout)

    async def list_topics(self, topic: str | None = None, timeout: float = -1) -> ClusterMetadata:  # noqa: ASYNC109
        """Return the cluster's nodes and topics. Raise KafkaException if no node answers in ``timeout`` seconds."""
        self._producer._lifetime.check()
        return await run_on_network(list_topics(self._producer._cluster, topic, timeout))

    async def close(self, timeout: float = -1) -> int:  # noqa: ASYNC109
        """Flush and stop; return the number of records left, which are reported as purged.

        A cancelled call stops the producer without waiting. The coroutines of callbacks have completed when the call
        returns, except one that called it. A second call has no effect.
        """
        left = 0
        if not self._is_over:
            try:
                if self._producer._is_open:
                    with contextlib.suppress(KafkaException):
                        await self.abort_transaction(timeout)
                left = await self.flush(timeout)
            finally:
                await self._stop()
        await self._callbacks.ended()
        return left

    async def _complete(self, start: Start, timeout: float, factor: int = 1) -> Operation:  # noqa: ASYNC109
        timeout_s = operation_timeout_s(self._producer._config, timeout, factor)
        operation = self._producer._start(start)
        reports = self._producer._reports

        def is_over() -> bool:
            return self._is_over or (operation.is_done and not reports.left)

        await self._wake_up.wait_until(is_over, timeout_s)
        return self._producer._outcome(operation, timeout_s)

    async def _stop(self) -> None:
        if self._is_over:
            return
        self._producer._end()
        while self._serve():
            pass
        await self._producer._lifetime.stop_awaited()

    @property
    def _is_over(self) -> bool:
        return self._producer._lifetime.is_over

    def _serve(self) -> int:
        served = self._producer._reports.serve(_MOST_AT_ONCE)
        self._served += served
        self._unpolled += served
        if served >= _MOST_AT_ONCE:
            self._wake_up.send()
        return served

    async def _take_in_turn(self, *record: Any) -> None:
        self._waiting += 1
        try:
            async with asyncio.timeout(self._max_block_s), self._turn:
                if self._since_turn > _MOST_AT_ONCE:
                    # With room always available, no other task would ever run.
                    self._since_turn = 0
                    await asyncio.sleep(0)
                while not self._take(*record):
                    await self._more_served()
        except TimeoutError as error:
            text = f"the queue is still full after {self._max_block_s} seconds (max.block.ms)"
            raise BufferError(text) from error
        finally:
            self._waiting -= 1

    async def _more_served(self) -> None:
        # Each record has a report, and the report frees the record's room.
        before = self._served
        await self._wake_up.wait_until(lambda: self._served != before or self._is_over, None)

    def _take(self, *record: Any) -> bool:
        try:
            self._producer.produce(*record)
        except BufferError:
            return False
        return True


class _Delivery:
    """The callback of one record."""

    __slots__ = ("_callbacks", "_report", "future")

    def __init__(self, future: asyncio.Future[Message], report: DeliveryCallback | None, callbacks: Callbacks) -> None:
        self.future = future
        self._report = report
        self._callbacks = callbacks

    def __call__(self, error: KafkaError | None, message: Message) -> None:
        future = self.future
        if not future.done():
            if error is None:
                future.set_result(message)
            else:
                future.set_exception(KafkaException(error))
        is_known = self._report is not None or error == ErrorCode._PURGE_QUEUE.code
        if error is not None and is_known and not future.cancelled():
            # The callback reports the error, or the application discarded the record, by aborting its transaction for
            # example: asyncio need not warn that no one retrieved the error.
            future.exception()
        if self._report is not None:
            self._callbacks.call(self._report, error, message)


def _timeout_s(timeout: float) -> float | None:
    return None if timeout < 0 else timeout
