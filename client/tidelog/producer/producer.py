"""confluent-kafka's Producer: blocking calls around one sender task on the network thread."""

from __future__ import annotations

import asyncio
import random
import threading
import time
import weakref
from collections.abc import Iterable, Mapping
from types import TracebackType
from typing import Any

from tidelog.admin.metadata import ClusterMetadata, list_topics
from tidelog.cluster import ClusterClient
from tidelog.config import parse_config
from tidelog.errors import ErrorCode, error_for
from tidelog.producer.config import ProducerConfig
from tidelog.producer.core import Accumulator, AccumulatorLimits, DeliveryCallback
from tidelog.producer.reports import DeliveryReports
from tidelog.producer.sender import Sender
from tidelog.transport import call_soon, network_loop, run_sync

HeadersArgument = Mapping[str, str | bytes | None] | Iterable[tuple[str, str | bytes | None]]

_STOP_TIMEOUT_S = 10.0


class Producer:
    """Sends records; may be used from any thread. Close it, or use it as a context manager.

    ::

        with Producer({"bootstrap.servers": "127.0.0.1:9094"}) as producer:
            producer.produce("flights", value=b"...", key=b"UA", on_delivery=report)

    ``produce()`` returns at once. Callbacks are called by :meth:`poll`, :meth:`flush` and :meth:`close` on the thread
    that calls these. Records of one partition are stored, and reported, in the order of ``produce()``.
    """

    def __init__(self, config: Mapping[str, Any]) -> None:
        """Read the settings (``tidelog.producer.config.ProducerConfig``, and ``on_delivery``: a default callback).

        Raises:
            KafkaException: INVALID_CONFIG.
        """
        settings = dict(config)
        self._on_delivery: DeliveryCallback | None = settings.pop("on_delivery", None)
        self._config = parse_config(ProducerConfig, settings)
        self._cluster = self._config.cluster_client()
        self._lock = threading.Condition(threading.Lock())
        self._accumulator = Accumulator(_limits(self._config), self._cluster.backoff.wait_ms, random.randrange)
        self._reports = DeliveryReports(self._accumulator, self._lock)
        self._sender = Sender(self._config, self._cluster, self._accumulator, self._lock, self._reports.add)
        run_sync(self._sender.start())
        self._closed = False
        self._finalizer = weakref.finalize(self, _stop, self._sender, self._cluster)
        self._finalizer.atexit = False

    def __enter__(self) -> Producer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __len__(self) -> int:
        """Return how many records are not acknowledged, plus the callbacks not yet served."""
        with self._lock:
            return len(self._accumulator)

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
            KafkaException: MESSAGE_TOO_LARGE; _UNKNOWN_PARTITION; _DESTROY when closed.
            TypeError: key or value is neither text, bytes nor None.
        """
        if type(value) is not bytes and value is not None:
            value = _to_bytes("value", value)
        if type(key) is not bytes and key is not None:
            key = _to_bytes("key", key)
        pairs = _header_pairs(headers) if headers else ()
        timestamp_ms = timestamp or int(time.time() * 1000)
        report = on_delivery or callback or self._on_delivery
        if self._closed:
            raise error_for(ErrorCode._DESTROY, "the producer is closed")
        with self._lock:
            is_due = self._accumulator.append(
                topic, partition, key, value, pairs, timestamp_ms, report, time.monotonic() * 1000
            )
        if is_due:
            call_soon(self._sender.wake)

    def poll(self, timeout: float = -1) -> int:
        """Serve delivery callbacks and return how many; waits up to ``timeout`` s for the first (-1: without end)."""
        served = self._reports.serve()
        if not served and timeout != 0 and self._reports.wait(_timeout_s(timeout)):
            served = self._reports.serve()
        return served

    def flush(self, timeout: float = -1) -> int:
        """Send everything now and serve all callbacks; returns how many records are left after ``timeout`` seconds."""
        deadline = None if timeout < 0 else time.monotonic() + timeout
        with self._lock:
            self._accumulator.flushing += 1
        try:
            call_soon(self._sender.wake)
            while True:
                self._reports.serve()
                left_s = None if deadline is None else max(deadline - time.monotonic(), 0)
                if not len(self) or not self._reports.wait_for_progress(left_s) or left_s == 0:
                    return len(self)
        finally:
            with self._lock:
                self._accumulator.flushing -= 1

    def purge(self, in_queue: bool = True, in_flight: bool = True, blocking: bool = True) -> None:
        """Give up records: their callbacks get _PURGE_QUEUE or _PURGE_INFLIGHT. It never blocks."""
        with self._lock:
            commands = self._accumulator.purge(in_queue=in_queue, in_flight=in_flight)
        self._sender.carry_out(commands)

    def list_topics(self, topic: str | None = None, timeout: float = -1) -> ClusterMetadata:
        """Return the cluster's brokers and topics; raises KafkaException when none answers in ``timeout`` seconds."""
        return run_sync(list_topics(self._cluster, topic, timeout))

    def close(self, timeout: float = -1) -> int:
        """Flush, then stop; returns how many records were left. A second call does nothing."""
        if self._closed:
            return 0
        left = self.flush(timeout)
        self._closed = True
        self._finalizer.detach()
        run_sync(_close(self._sender, self._cluster), _STOP_TIMEOUT_S)
        self.purge()
        self._reports.serve()
        return left


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
    return tuple((name, None if value is None else _to_bytes("a header's value", value)) for name, value in pairs)


def _timeout_s(timeout: float) -> float | None:
    return None if timeout < 0 else timeout


async def _close(sender: Sender, cluster: ClusterClient) -> None:
    await sender.stop()
    await cluster.close()


def _stop(sender: Sender, cluster: ClusterClient) -> None:
    asyncio.run_coroutine_threadsafe(_close(sender, cluster), network_loop())
