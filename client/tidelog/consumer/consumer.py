"""confluent-kafka's Consumer with assigned partitions: blocking calls around one fetcher on the network thread."""

from __future__ import annotations

import asyncio
import functools
import time
from collections.abc import Callable, Iterable, Mapping
from types import TracebackType
from typing import Any

from tidelog.admin.metadata import ClusterMetadata, list_topics
from tidelog.cluster import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP, ClusterClient, Lifetime
from tidelog.cluster.config import MAX_INT32, refuse_missing
from tidelog.config import parse_config
from tidelog.consumer.config import MISSING, ConsumerConfig
from tidelog.consumer.core import Positions, PositionSettings
from tidelog.consumer.fetcher import Fetcher
from tidelog.consumer.records import RecordQueue
from tidelog.errors import ErrorCode, TidelogError, error_for
from tidelog.message import OFFSET_BEGINNING, OFFSET_END, OFFSET_INVALID, OFFSET_STORED, Message, TopicPartition
from tidelog.monitor import Monitor
from tidelog.transport import call_soon, run_sync

_OVERDUE_MS = 1_000
_MAX_INT64 = 2**63 - 1


class Consumer:
    """Reads the partitions that it is assigned; one thread uses it at a time. Close it, or use it as a context manager.

    ::

        with Consumer({"bootstrap.servers": "127.0.0.1:9094"}) as consumer:
            consumer.assign([TopicPartition("flights", 0, OFFSET_BEGINNING)])
            message = consumer.poll(1.0)
    """

    def __init__(self, config: Mapping[str, Any]) -> None:
        """Read the settings (``tidelog.consumer.config.ConsumerConfig``).

        Raises:
            KafkaException: INVALID_CONFIG.
        """
        refuse_missing(config, MISSING)
        self._config = parse_config(ConsumerConfig, config)
        self._cluster = self._config.cluster_client()
        monitor = Monitor()
        self._lock = monitor.lock
        settings = PositionSettings(
            queue_bytes=self._config.queued_max_messages_kbytes * 1024,
            reset_timestamp_ms=self._config.reset_timestamp_ms,
            report_end=self._config.enable_partition_eof,
            overdue_ms=self._config.fetch_wait_max_ms + _OVERDUE_MS,
            preferred_ms=self._config.metadata_max_age_ms,
        )
        self._positions = Positions(settings, self._cluster.backoff.wait_ms)
        awake = asyncio.Event()
        self._wake: Callable[[], None] = lambda: call_soon(awake.set)
        self._queue = RecordQueue(monitor, self._positions, self._wake)
        self._fetcher = Fetcher(self._config, self._cluster, self._positions, self._queue, self._lock, awake)
        run_sync(self._fetcher.start())
        self._lifetime = Lifetime(self, "consumer", functools.partial(_stop, self._fetcher, self._cluster))

    def __enter__(self) -> Consumer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Read these partitions and no others, each from its offset.

        ``OFFSET_BEGINNING`` and ``OFFSET_END`` are the log's ends; without an offset ``auto.offset.reset`` decides.

        Raises:
            KafkaException: _INVALID_ARG for a partition or offset that cannot be; _DESTROY when closed.
        """
        starts = [(_key(p), *_start(p)) for p in partitions]
        self._check_open()
        with self._lock:
            for report in self._positions.assign(starts):
                self._queue.put(report)
            self._changed()

    def incremental_assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Read these partitions too; raises as :meth:`assign`."""
        starts = [(_key(p), *_start(p)) for p in partitions]
        self._check_open()
        with self._lock:
            for report in self._positions.add(starts):
                self._queue.put(report)
            self._changed()

    def incremental_unassign(self, partitions: Iterable[TopicPartition]) -> None:
        """Read these partitions no longer."""
        with self._lock:
            self._positions.remove([_key(p) for p in partitions])
            self._changed()

    def unassign(self) -> None:
        """Read nothing."""
        self.assign([])

    def assignment(self) -> list[TopicPartition]:
        """Return the partitions that are read."""
        with self._lock:
            return [TopicPartition(topic, partition) for topic, partition in self._positions.assignment]

    def seek(self, partition: TopicPartition) -> None:
        """Go on from another offset, given as in :meth:`assign`.

        Raises:
            KafkaException: _STATE when the partition is not assigned; _INVALID_ARG.
        """
        start = _start(partition)
        self._check_open()
        with self._lock:
            self._check_assigned(partition)
            for report in self._positions.seek(_key(partition), *start):
                self._queue.put(report)
            self._changed()

    def pause(self, partitions: Iterable[TopicPartition]) -> None:
        """Deliver nothing of these partitions until :meth:`resume`; raises _STATE when one is not assigned."""
        with self._lock:
            for partition in partitions:
                self._check_assigned(partition)
                self._positions.pause(_key(partition))
            self._changed()

    def resume(self, partitions: Iterable[TopicPartition]) -> None:
        """Go on with these partitions where they were paused; raises _STATE when one is not assigned."""
        with self._lock:
            for partition in partitions:
                self._check_assigned(partition)
                self._positions.resume(_key(partition))
            self._changed()

    def position(self, partitions: Iterable[TopicPartition]) -> list[TopicPartition]:
        """Return for each partition the offset after the last record that was returned, else OFFSET_INVALID."""
        with self._lock:
            return [TopicPartition(p.topic, p.partition, self._position(p)) for p in partitions]

    def poll(self, timeout: float = -1) -> Message | None:
        """Return the next message or event, or None after ``timeout`` seconds (-1: wait without end)."""
        messages = self.consume(1, timeout)
        return messages[0] if messages else None

    def consume(self, num_messages: int = 1, timeout: float = -1) -> list[Message]:
        """Return up to ``num_messages`` messages or events: fewer after ``timeout`` seconds (-1: wait without end).

        Raises:
            KafkaException: _DESTROY when closed.
            ValueError: ``num_messages`` is negative.
        """
        self._check_open()
        if num_messages < 0:
            raise ValueError(f"num_messages must be at least 0, not {num_messages}")
        deadline = None if timeout is None or timeout < 0 else time.monotonic() + timeout
        messages: list[Message] = []
        while len(messages) < num_messages:
            message = self._queue.next_message()
            if message is not None:
                messages.append(message)
                continue
            left_s = None if deadline is None else deadline - time.monotonic()
            if (left_s is not None and left_s <= 0) or not self._queue.wait(left_s):
                break
        return messages

    def get_watermark_offsets(
        self, partition: TopicPartition, timeout: float | None = None, cached: bool = False
    ) -> tuple[int, int]:
        """Return a partition's first offset and its high watermark (one past the last committed record).

        ``cached`` takes them from the last fetch, OFFSET_INVALID where there was none.

        Raises:
            KafkaException: the partition is not known, or no node answered in ``timeout`` seconds.
        """
        if cached:
            with self._lock:
                state = self._positions.state(*_key(partition))
                if state is None or state.high_watermark < 0:
                    return OFFSET_INVALID, OFFSET_INVALID
                return state.log_start_offset, state.high_watermark
        self._check_open()
        return run_sync(_watermarks(self._cluster, _key(partition), _timeout_ms(timeout)))

    def offsets_for_times(
        self, partitions: Iterable[TopicPartition], timeout: float | None = None
    ) -> list[TopicPartition]:
        """Return for each partition the first offset whose timestamp is at least ``offset`` (ms since the epoch).

        ``OFFSET_END`` stands where no record is as late.

        Raises:
            KafkaException: a partition is not known, or no node answered in ``timeout`` seconds.
        """
        self._check_open()
        partitions = list(partitions)
        wanted = {_key(p): p.offset for p in partitions}
        for partition in partitions:
            if not -_MAX_INT64 - 1 <= partition.offset <= _MAX_INT64:
                raise _invalid(partition, f"timestamp {partition.offset}")
        found = run_sync(self._cluster.list_offsets(wanted, timeout_ms=_timeout_ms(timeout)))
        return [TopicPartition(topic, partition, found[topic, partition].offset) for topic, partition in wanted]

    def list_topics(self, topic: str | None = None, timeout: float = -1) -> ClusterMetadata:
        """Return the cluster's brokers and topics; raises KafkaException when none answers in ``timeout`` seconds."""
        self._check_open()
        return run_sync(list_topics(self._cluster, topic, timeout))

    def close(self) -> None:
        """Stop reading; a poll() that waits in another thread returns. A second call does nothing."""
        if self._lifetime.is_over:
            return
        self._lifetime.end()
        self._queue.close()
        self._lifetime.stop()

    def _changed(self) -> None:
        self._queue.drop_stale()
        self._wake()

    def _check_open(self) -> None:
        self._lifetime.check()

    def _check_assigned(self, partition: TopicPartition) -> None:
        if self._positions.state(*_key(partition)) is None:
            text = f"{partition.topic}-{partition.partition} is not assigned to the consumer"
            raise error_for(ErrorCode._STATE, text)

    def _position(self, partition: TopicPartition) -> int:
        state = self._positions.state(*_key(partition))
        if state is None or state.position is None or not state.consumed:
            return OFFSET_INVALID
        return state.position


def _key(partition: TopicPartition) -> tuple[str, int]:
    if not isinstance(partition.topic, str):
        raise TypeError(f"topic must be text, not {type(partition.topic).__name__}")
    if not partition.topic or not 0 <= partition.partition <= MAX_INT32:
        raise _invalid(partition, f"partition {partition.partition}")
    return partition.topic, partition.partition


def _start(partition: TopicPartition) -> tuple[int | None, int | None]:
    match partition.offset:
        case int() as offset if 0 <= offset <= _MAX_INT64:
            return offset, None
        case value if value == OFFSET_BEGINNING:
            return None, EARLIEST_TIMESTAMP
        case value if value == OFFSET_END:
            return None, LATEST_TIMESTAMP
        case value if value in (OFFSET_STORED, OFFSET_INVALID):
            return None, None
    raise _invalid(partition, f"offset {partition.offset}")


def _invalid(partition: TopicPartition, what: str) -> TidelogError:
    return error_for(ErrorCode._INVALID_ARG, f'{what} of topic "{partition.topic}" is not valid')


def _timeout_ms(timeout: float | None) -> float | None:
    return None if timeout is None or timeout < 0 else timeout * 1000


async def _watermarks(cluster: ClusterClient, key: tuple[str, int], timeout_ms: float | None) -> tuple[int, int]:
    low, high = await asyncio.gather(
        cluster.list_offsets({key: EARLIEST_TIMESTAMP}, timeout_ms=timeout_ms),
        cluster.list_offsets({key: LATEST_TIMESTAMP}, timeout_ms=timeout_ms),
    )
    return low[key].offset, high[key].offset


async def _stop(fetcher: Fetcher, cluster: ClusterClient) -> None:
    await fetcher.stop()
    await cluster.close()
