"""confluent-kafka's Producer: blocking calls around one sender task on the network thread."""

from __future__ import annotations

import contextlib
import functools
import json
import operator
import random
import time
from collections.abc import Iterator, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any

from tidelog.cluster import ClusterClient, Lifetime
from tidelog.cluster.config import read_settings
from tidelog.message import Message
from tidelog.monitor import Monitor
from tidelog.producer.batch_feed import BatchFeed
from tidelog.producer.calls import HeadersArgument, ProduceCalls
from tidelog.producer.columns import read_columns
from tidelog.producer.config import ProducerConfig, read_config
from tidelog.producer.core.accumulator import Accumulator
from tidelog.producer.core.batch import DeliveryCallback
from tidelog.producer.core.limits import AccumulatorLimits
from tidelog.producer.core.transaction_manager import TransactionManager
from tidelog.producer.hooks import (
    CALLBACKS,
    OBJECTS,
    Hooks,
    ProducerRecord,
    after_acknowledgement,
    before_send,
    take_hooks,
)
from tidelog.producer.reports import DeliveryReports, Intercepted
from tidelog.producer.sender import Sender
from tidelog.producer.transactional import TransactionalCalls
from tidelog.producer.written import WrittenRows
from tidelog.telemetry.instance_ids import InstanceIds
from tidelog.telemetry.pusher import TelemetryPusher
from tidelog_foundation.errors import ErrorCode, KafkaError, TidelogError, error_for
from tidelog_foundation.transport import call_soon, run_sync

if TYPE_CHECKING:
    from tidelog.admin.metadata import ClusterMetadata

_MAX_INT64 = 2**63 - 1


class Producer(ProduceCalls, TransactionalCalls, InstanceIds):
    """Sends records to topics. Thread-safe. Close it, or use it as a context manager.

    ::

        with Producer({"bootstrap.servers": "127.0.0.1:9094"}) as producer:
            producer.produce("flights", value=b"...", key=b"UA", on_delivery=report)

    ``produce()`` queues a record and returns. :meth:`poll`, :meth:`flush` and :meth:`close` call the delivery
    callbacks on the thread that calls these methods, and callbacks may call them too. The records of a partition are
    stored and reported in the order of ``produce()``, each exactly once unless ``enable.idempotence`` is false. A
    record that is reported as failed with _MSG_TIMED_OUT or _PURGE_INFLIGHT may still be stored, once and in order;
    the error's text says so if that is possible. Create another producer after a fork.

    With ``transactional.id``, records are produced in transactions; :class:`TransactionalCalls` describes the errors::

        producer.init_transactions()
        with producer.transaction():
            producer.produce("flights", value=b"...")
    """

    def __init__(self, config: Mapping[str, Any] | None = None, /, **more: Any) -> None:
        """Create a producer from settings (``tidelog.producer.config.ProducerConfig``) and callbacks.

        The dict also takes ``on_delivery`` (the default callback), ``error_cb(KafkaError)``, ``stats_cb(json)``,
        ``throttle_cb``, ``logger``, ``interceptors`` (objects with ``on_send`` or ``on_acknowledgement``), and a
        callable as ``partitioner``. Callbacks are called in the same places as delivery callbacks. A partitioner is
        called under the producer's lock, possibly on the network thread, and must not use the producer. Settings can
        also be keyword arguments, with ``_`` for dots.

        Raises:
            KafkaException: INVALID_CONFIG.
            TypeError: a callback is not callable.
        """
        settings = {**dict(config or {}), **{_dotted(key): value for key, value in more.items()}}
        settings = read_settings(ProducerConfig, settings, "P", objects=OBJECTS)
        self._hooks = take_hooks(settings)
        self._config = read_config(settings)
        self._cluster = self._config.cluster_client(self._hooks.oauth_cb)
        self._monitor = monitor = Monitor()
        self._lock = monitor.lock
        limits = _limits(self._config, self._hooks)
        self._accumulator = Accumulator(limits, self._cluster.backoff.wait_ms, random.Random().randrange)
        self._manager = None
        if self._accumulator.scope is not None:
            self._manager = TransactionManager(self._accumulator, self._cluster.backoff.wait_ms)
        only_errors = self._config.delivery_report_only_error
        self._reports = DeliveryReports(self._accumulator, monitor, self._hooks, only_errors=only_errors)
        self._wait_for = self._reports.wait_for
        self._sender = Sender(
            self._config, self._cluster, self._accumulator, self._lock, self._reports, self._hooks, self._manager
        )
        self._telemetry = _telemetry(self._config, self._cluster, self._sender)
        call_soon(functools.partial(_start, self._sender, self._telemetry))
        stop = functools.partial(_stop, self._sender, self._telemetry, self._cluster)
        self._lifetime = Lifetime(self, "producer", stop)
        is_plain = not self._hooks.interceptors
        self._attach(self._accumulator.intake, self._lock, self._lifetime, self._hooks.on_delivery, is_plain)

    def __enter__(self) -> Producer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the producer. On Ctrl-C and similar exceptions, discard unacknowledged records instead of waiting."""
        is_interrupted = kind is not None and not issubclass(kind, Exception)
        self.close(0 if is_interrupted else -1)

    def statistics(self) -> dict[str, Any]:
        """Return the present figures of ``stats_cb``, which need neither the callback nor ``statistics.interval.ms``.

        Raises:
            KafkaException: the producer is closed.
        """
        self._lifetime.check()
        figures: dict[str, Any] = json.loads(run_sync(self._sender.statistics()))
        return figures

    def __len__(self) -> int:
        """Return the number of unacknowledged records plus the number of pending callbacks."""
        return self._reports.total

    def __bool__(self) -> bool:
        return True

    def _take(
        self,
        topic: str,
        value: Any,
        key: Any,
        partition: int,
        on_delivery: DeliveryCallback | None,
        timestamp: int,
        headers: HeadersArgument | None,
    ) -> None:
        if type(value) is not bytes and value is not None:
            value = _to_bytes("value", value)
        if type(key) is not bytes and key is not None:
            key = _to_bytes("key", key)
        pairs = _header_pairs(headers) if headers else ()
        if partition != -1:
            partition = _checked_partition(topic, partition)
        timestamp_ms = _checked_timestamp(timestamp) if timestamp else int(time.time() * 1000)
        report = self._hooks.on_delivery if on_delivery is None else on_delivery
        if self._hooks.interceptors:
            self._take_intercepted(ProducerRecord(topic, value, key, partition, timestamp_ms, list(pairs)), report)
        else:
            self._append(topic, partition, key, value, pairs, timestamp_ms, report)

    def _take_intercepted(self, record: ProducerRecord, report: DeliveryCallback | None) -> None:
        record = before_send(self._hooks.interceptors, record, self._hooks.log)
        topic, value, key, partition, timestamp_ms, headers = record
        try:
            self._append(topic, partition, key, value, tuple(headers), timestamp_ms, Intercepted(report))
        except (TidelogError, BufferError) as error:
            code = error.error if isinstance(error, TidelogError) else KafkaError(ErrorCode._QUEUE_FULL, str(error))
            metadata = Message(topic, partition, None, key, value, list(headers), error=code)
            after_acknowledgement(self._hooks.interceptors, metadata, code, self._hooks.log)
            raise

    def _append(
        self,
        topic: str,
        partition: int,
        key: bytes | None,
        value: bytes | None,
        pairs: Sequence[tuple[str, bytes | None]],
        timestamp_ms: int,
        report: DeliveryCallback | None,
    ) -> None:
        deadline: float | None = None
        # Check before locking too: in a child of fork(), a thread that no longer exists may hold the lock.
        self._lifetime.check()
        while True:
            try:
                with self._lock:
                    # Check under the lock: close() discards queued records, and nothing may be queued after that.
                    self._lifetime.check()
                    now_ms = time.monotonic() * 1000
                    try:
                        is_due = self._accumulator.append(
                            topic, partition, key, value, pairs, timestamp_ms, report, now_ms
                        )
                    except Exception:
                        raise
                    except BaseException:
                        self._accumulator.recount()
                        call_soon(self._sender.wake)
                        raise
                    break
            except BufferError:
                deadline = deadline or time.monotonic() + self._config.max_block_ms / 1000
                if not self._wait_for_room(len(key or b"") + len(value or b""), deadline):
                    raise
        if is_due:
            call_soon(self._sender.wake)

    def _wait_for_room(self, size: int, deadline: float) -> bool:
        left_s = deadline - time.monotonic()
        return left_s > 0 and self._reports.wait_for(lambda: self._accumulator.has_room(1, size), left_s)

    def produce_batch(
        self,
        topic: str,
        data: Any,
        key: Any = None,
        partition: Any = -1,
        timestamp: Any = None,
        headers: Any = None,
    ) -> WrittenRows:
        """Send many records in one call and wait until they are acknowledged, without an object per record.

        ``data`` is a table (pandas, polars, Arrow) with a column ``value``, and optionally ``key``, ``timestamp`` (ms
        or a timestamp), ``partition`` and ``headers``. It can also be the values alone: a series or an Arrow array of
        binary or string, or a list of bytes, text (as UTF-8) and None. In that case ``key``, ``timestamp``,
        ``partition`` and ``headers`` may be columns of the same length. ``partition`` and ``timestamp`` may always be
        one number for all rows. Keys choose partitions as in :meth:`produce`; rows without a key go to the sticky
        partition of their batch. Rows with headers (lists of pairs) are processed one by one, which is slower.

        Rows with the same partition are stored in their order, behind the records produced before. Rows that get their
        partition from the sticky partitioner are in order among themselves, and may be before or behind the others. All
        rows count against ``queue.buffering.max.messages`` and ``buffer.memory``: the call waits for room and meanwhile
        calls the callbacks of other records, as :meth:`flush` does. Rows have no callbacks.

        Returns the offset of each row (see :class:`WrittenRows`).

        Raises:
            BatchDeliveryError: some rows were not delivered; its ``rows`` identifies them. They are not retried.
            KafkaException: as in :meth:`produce`, before anything is sent; _STATE if there are interceptors, which
                would have to see every record.
            TypeError, ValueError: ``data`` has another type, or columns do not match; nothing is sent.
        """
        self._lifetime.check()
        if self._hooks.interceptors:
            raise error_for(ErrorCode._STATE, "produce_batch() does not support interceptors")
        pieces = read_columns(data, key, partition, timestamp, headers)
        wake = functools.partial(call_soon, self._sender.wake)
        limits = _limits(self._config, self._hooks)
        check = self._lifetime.check
        feed = BatchFeed(topic, limits, self._accumulator, self._lock, self._wait_for, check, wake)
        return feed.run(pieces)

    def poll(self, timeout: float = -1) -> int:
        """Call delivery callbacks and return their number; wait up to ``timeout`` s for the first (-1: forever)."""
        self._lifetime.check()
        served = self._reports.serve()
        if not served and timeout != 0 and self._reports.wait(_timeout_s(timeout)):
            served = self._reports.serve()
        return served

    def flush(self, timeout: float = -1) -> int:
        """Send all queued records and call all callbacks; return the number of records left after ``timeout`` seconds.

        The number is 0 after ``message.timeout.ms`` at the latest, when unacknowledged records are reported as failed.
        Inside a callback, reports in progress do not count.
        """
        self._lifetime.check()
        deadline = None if timeout < 0 else time.monotonic() + timeout
        with self._flushing():
            while True:
                self._reports.serve()
                left_s = None if deadline is None else max(deadline - time.monotonic(), 0)
                if not self._reports.left or not self._reports.wait_for_progress(left_s) or left_s == 0:
                    return self._reports.left

    def purge(self, in_queue: bool = True, in_flight: bool = True, blocking: bool = True) -> None:
        """Discard records: their callbacks receive _PURGE_QUEUE or _PURGE_INFLIGHT. Never blocks."""
        self._lifetime.check()
        self._purge(in_queue, in_flight)

    def set_sasl_credentials(self, username: str, password: str) -> None:
        """Log in with another name and password from now on; open sessions continue. Thread-safe.

        Raises:
            KafkaException: _INVALID_ARG, one of them is empty, or sasl.mechanisms is not PLAIN or SCRAM.
        """
        self._lifetime.check()
        self._cluster.replace_credentials(username, password)

    def list_topics(self, topic: str | None = None, timeout: float = -1) -> ClusterMetadata:
        """Return the cluster's nodes and topics. Raise KafkaException if no node answers in ``timeout`` seconds."""
        # The import is local so that a producer does not load the admin client.
        from tidelog.admin.metadata import list_topics

        self._lifetime.check()
        return run_sync(list_topics(self._cluster, topic, timeout))

    def cluster_id(self, timeout: float = -1) -> str:
        """Return the cluster's id. Raise KafkaException if no node answers in ``timeout`` seconds."""
        self._lifetime.check()
        timeout_ms = None if timeout < 0 else timeout * 1000
        return run_sync(self._cluster.refresh((), timeout_ms=timeout_ms)).cluster_id

    def close(self, timeout: float = -1) -> int:
        """Flush and stop; return the number of records left, which are reported as purged. Abort an open transaction.

        A second call has no effect, and neither has a call in a forked child of the process that created the producer.
        """
        if self._lifetime.is_over:
            return 0
        if self._is_open:
            with contextlib.suppress(TidelogError):
                self.abort_transaction(timeout)
        left = self.flush(timeout)
        self._end()
        try:
            self._reports.serve_all()
        finally:
            self._lifetime.stop()
        return left

    @contextlib.contextmanager
    def _flushing(self) -> Iterator[None]:
        # No batch lingers inside this context.
        with self._lock:
            self._accumulator.flushing += 1
        try:
            call_soon(self._sender.wake)
            yield
        finally:
            with self._lock:
                self._accumulator.flushing -= 1

    def _end(self) -> None:
        # Accept no more records and discard the rest; their reports remain to be served.
        with self._lock:
            self._lifetime.end()
        self._purge(in_queue=True, in_flight=True)
        self._reports.close()

    def _purge(self, in_queue: bool, in_flight: bool) -> None:
        with self._lock:
            commands = self._accumulator.purge(in_queue=in_queue, in_flight=in_flight)
        self._sender.carry_out(commands)


def _limits(config: ProducerConfig, hooks: Hooks) -> AccumulatorLimits:
    return AccumulatorLimits(
        linger_ms=config.linger_ms,
        batch_size=min(config.batch_size, config.message_max_bytes),
        batch_num_messages=config.batch_num_messages,
        max_messages=config.queue_buffering_max_messages,
        max_bytes=config.buffer_bytes,
        message_max_bytes=config.message_max_bytes,
        message_timeout_ms=config.message_timeout_ms,
        propagation_max_ms=config.topic_metadata_propagation_max_ms,
        retries=config.retries,
        idempotent=config.enable_idempotence,
        transactional=config.transactional_id is not None,
        max_in_flight=config.max_in_flight_requests_per_connection,
        compression=config.compression_type,
        compression_level=config.level,
        partitioner=hooks.partitioner or config.partitioner,
    )


def _dotted(key: str) -> str:
    return key if key in CALLBACKS else key.replace("_", ".")


def _to_bytes(name: str, value: object) -> bytes:
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value)
    raise TypeError(f"{name} must be text, bytes or None, not {type(value).__name__}")


def _header_pairs(headers: HeadersArgument) -> tuple[tuple[str, bytes | None], ...]:
    pairs = headers.items() if isinstance(headers, Mapping) else headers
    return tuple(map(_header_pair, pairs))


def _header_pair(pair: tuple[str, str | bytes | None]) -> tuple[str, bytes | None]:
    if not isinstance(pair, tuple | list) or len(pair) != 2:
        raise TypeError(f"headers must be a dict or a list of pairs (name, value), not of {pair!r}")
    name, value = pair
    if not isinstance(name, str):
        raise TypeError(f"a header's name must be text, not {type(name).__name__}")
    return name, None if value is None else _to_bytes("a header's value", value)


def _checked_partition(topic: str, partition: int) -> int:
    partition = operator.index(partition)
    if partition < -1:
        text = f'partition {partition} of topic "{topic}" is not valid: must be -1 (any) or at least 0'
        raise error_for(ErrorCode._UNKNOWN_PARTITION, text)
    return partition


def _checked_timestamp(timestamp: int) -> int:
    timestamp = operator.index(timestamp)
    if not 0 <= timestamp <= _MAX_INT64:
        text = f"timestamp {timestamp} is not valid: must be from 0 (now) to {_MAX_INT64} ms"
        raise error_for(ErrorCode.INVALID_TIMESTAMP, text)
    return timestamp


def _timeout_s(timeout: float) -> float | None:
    return None if timeout < 0 else timeout


def _telemetry(config: ProducerConfig, cluster: ClusterClient, sender: Sender) -> TelemetryPusher | None:
    if not config.enable_metrics_push:
        return None
    return TelemetryPusher(
        "producer", cluster, sender.measures.points, lambda: {"transactional_id": config.transactional_id}
    )


def _start(sender: Sender, telemetry: TelemetryPusher | None) -> None:
    sender.start()
    if telemetry is not None:
        telemetry.start()


async def _stop(sender: Sender, telemetry: TelemetryPusher | None, cluster: ClusterClient) -> None:
    await sender.stop()
    if telemetry is not None:
        await telemetry.stop()
    await cluster.close()
