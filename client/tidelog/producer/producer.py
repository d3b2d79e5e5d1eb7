"""confluent-kafka's Producer: blocking calls around one sender task on the network thread."""

from __future__ import annotations

import functools
import operator
import random
import time
from collections.abc import Iterable, Mapping
from types import TracebackType
from typing import Any

from tidelog.admin.metadata import ClusterMetadata, list_topics
from tidelog.cluster import ClusterClient, Lifetime
from tidelog.cluster.config import refuse_missing
from tidelog.config import parse_config
from tidelog.errors import ErrorCode, error_for
from tidelog.monitor import Monitor
from tidelog.producer.config import MISSING, ProducerConfig
from tidelog.producer.core import Accumulator, AccumulatorLimits, DeliveryCallback
from tidelog.producer.reports import DeliveryReports
from tidelog.producer.sender import Sender
from tidelog.transport import call_soon, run_sync

HeadersArgument = Mapping[str, str | bytes | None] | Iterable[tuple[str, str | bytes | None]]

_MAX_INT64 = 2**63 - 1


class Producer:
    """Sends records; may be used from any thread. Close it, or use it as a context manager.

    ::

        with Producer({"bootstrap.servers": "127.0.0.1:9094"}) as producer:
            producer.produce("flights", value=b"...", key=b"UA", on_delivery=report)

    ``produce()`` returns at once. Callbacks are called by :meth:`poll`, :meth:`flush` and :meth:`close` on the thread
    that calls these, and may call any of them. Records of one partition are stored, and reported, in the order of
    ``produce()``, each once unless ``enable.idempotence`` is false. One that was reported as failed with _MSG_TIMED_OUT
    or _PURGE_INFLIGHT may be stored all the same, once and in its place; the report's sentence says where that is
    possible. A child process made by fork needs a producer of its own.
    """

    def __init__(self, config: Mapping[str, Any]) -> None:
        """Read the settings (``tidelog.producer.config.ProducerConfig``, and ``on_delivery``: a default callback).

        Raises:
            KafkaException: INVALID_CONFIG.
            TypeError: ``on_delivery`` cannot be called.
        """
        settings = dict(config)
        self._on_delivery: DeliveryCallback | None = settings.pop("on_delivery", None)
        if self._on_delivery is not None and not callable(self._on_delivery):
            raise TypeError(f"on_delivery must be callable, not {type(self._on_delivery).__name__}")
        refuse_missing(settings, MISSING)
        parsed = parse_config(ProducerConfig, settings)
        self._config = parsed.resolve_idempotence("enable.idempotence" in settings)
        self._cluster = self._config.cluster_client()
        monitor = Monitor()
        self._lock = monitor.lock
        self._accumulator = Accumulator(_limits(self._config), self._cluster.backoff.wait_ms, random.randrange)
        self._reports = DeliveryReports(self._accumulator, monitor)
        self._sender = Sender(self._config, self._cluster, self._accumulator, self._lock, self._reports.add)
        run_sync(self._sender.start())
        self._lifetime = Lifetime(self, "producer", functools.partial(_stop, self._sender, self._cluster))

    def __enter__(self) -> Producer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close; Ctrl-C and the like give up what is not acknowledged instead of waiting for it."""
        is_interrupted = kind is not None and not issubclass(kind, Exception)
        self.close(0 if is_interrupted else -1)

    def __len__(self) -> int:
        """Return how many records are not acknowledged, plus the callbacks not yet served."""
        return self._reports.total

    def __bool__(self) -> bool:
        return True

    def produce(
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
    ) -> None:
        """Take one record for sending. Text is encoded as UTF-8.

        ``partition`` -1 lets the partitioner decide; ``timestamp`` is in ms since the epoch, 0 for now;
        ``on_delivery(err, msg)`` (alias ``callback``) is called once the record's fate is known.

        Raises:
            BufferError: the queue is full: ``poll()`` and try again.
            KafkaException: MESSAGE_TOO_LARGE; _UNKNOWN_PARTITION; INVALID_TIMESTAMP; _INVALID_ARG for a topic without a
                name; _DESTROY when closed; _FATAL after an error whose ``fatal()`` is true: make another producer;
                _STATE in a child of the process that made the producer.
            TypeError: an argument is of the wrong type, as a key that is neither text, bytes nor None.
        """
        if type(value) is not bytes and value is not None:
            value = _to_bytes("value", value)
        if type(key) is not bytes and key is not None:
            key = _to_bytes("key", key)
        pairs = _header_pairs(headers) if headers else ()
        if partition != -1:
            partition = _checked_partition(topic, partition)
        timestamp_ms = _checked_timestamp(timestamp) if timestamp else int(time.time() * 1000)
        report = on_delivery or callback or self._on_delivery
        if self._lifetime.is_over:
            self._lifetime.check()
        with self._lock:
            # Asked under the lock: close() gives up what is queued, and nothing may be queued after that.
            self._lifetime.check()
            is_due = self._accumulator.append(
                topic, partition, key, value, pairs, timestamp_ms, report, time.monotonic() * 1000
            )
        if is_due:
            call_soon(self._sender.wake)

    def poll(self, timeout: float = -1) -> int:
        """Serve delivery callbacks and return how many; waits up to ``timeout`` s for the first (-1: without end)."""
        self._lifetime.check()
        served = self._reports.serve()
        if not served and timeout != 0 and self._reports.wait(_timeout_s(timeout)):
            served = self._reports.serve()
        return served

    def flush(self, timeout: float = -1) -> int:
        """Send everything now and serve all callbacks; returns how many records are left after ``timeout`` seconds.

        0 within ``message.timeout.ms`` at the latest: what is not acknowledged by then is reported as failed.
        Inside of a callback, the reports that are being served do not count.
        """
        self._lifetime.check()
        deadline = None if timeout < 0 else time.monotonic() + timeout
        with self._lock:
            self._accumulator.flushing += 1
        try:
            call_soon(self._sender.wake)
            while True:
                self._reports.serve()
                left_s = None if deadline is None else max(deadline - time.monotonic(), 0)
                if not self._reports.left or not self._reports.wait_for_progress(left_s) or left_s == 0:
                    return self._reports.left
        finally:
            with self._lock:
                self._accumulator.flushing -= 1

    def purge(self, in_queue: bool = True, in_flight: bool = True, blocking: bool = True) -> None:
        """Give up records: their callbacks get _PURGE_QUEUE or _PURGE_INFLIGHT. It never blocks."""
        self._lifetime.check()
        self._purge(in_queue, in_flight)

    def list_topics(self, topic: str | None = None, timeout: float = -1) -> ClusterMetadata:
        """Return the cluster's brokers and topics; raises KafkaException when none answers in ``timeout`` seconds."""
        self._lifetime.check()
        return run_sync(list_topics(self._cluster, topic, timeout))

    def close(self, timeout: float = -1) -> int:
        """Flush, then stop; returns how many records were left, which are reported as purged.

        A second call does nothing, nor does one in a child of the process that made the producer.
        """
        if self._lifetime.is_over:
            return 0
        left = self.flush(timeout)
        with self._lock:
            self._lifetime.end()
        self._purge(in_queue=True, in_flight=True)
        self._reports.close()
        try:
            self._reports.serve()
        finally:
            self._lifetime.stop()
        return left

    def _purge(self, in_queue: bool, in_flight: bool) -> None:
        with self._lock:
            commands = self._accumulator.purge(in_queue=in_queue, in_flight=in_flight)
        self._sender.carry_out(commands)


def _limits(config: ProducerConfig) -> AccumulatorLimits:
    return AccumulatorLimits(
        linger_ms=config.linger_ms,
        batch_size=config.batch_size,
        batch_num_messages=config.batch_num_messages,
        max_messages=config.queue_buffering_max_messages,
        max_bytes=config.queue_buffering_max_kbytes * 1024,
        message_max_bytes=config.message_max_bytes,
        message_timeout_ms=config.message_timeout_ms,
        propagation_max_ms=config.topic_metadata_propagation_max_ms,
        retries=config.retries,
        idempotent=config.enable_idempotence,
        max_in_flight=config.max_in_flight_requests_per_connection,
        compression=config.compression_type,
        compression_level=config.level,
        partitioner=config.partitioner,
    )


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
        raise TypeError(f"headers must be a dict or a list of (name, value), {pair!r} is not one")
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


async def _stop(sender: Sender, cluster: ClusterClient) -> None:
    await sender.stop()
    await cluster.close()
