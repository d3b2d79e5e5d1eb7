"""A consumer's assignment, positions and look-ups: everything that needs no group."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import json
import logging
import threading
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Self

from tidelog.cluster import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP, ClusterClient, Lifetime, OffsetAndTimestamp
from tidelog.cluster.config import read_settings, take_callbacks, take_logger
from tidelog.consumer.config import CALLBACKS, ConsumerConfig, merge_settings
from tidelog.consumer.core.commits import Commits, CommitSettings, OffsetAndMetadata
from tidelog.consumer.core.events import PositionSettings, Report
from tidelog.consumer.core.positions import Positions
from tidelog.consumer.fetcher import Fetcher
from tidelog.consumer.group import ConsumerGroup
from tidelog.consumer.partitions import MAX_INT64, Key, invalid, key_of, start_of, starts_of
from tidelog.consumer.records import RecordQueue
from tidelog.message import OFFSET_INVALID, Message, TopicPartition
from tidelog.monitor import Monitor
from tidelog.telemetry.instance_ids import InstanceIds
from tidelog.telemetry.measures import ConsumerMeasures
from tidelog.telemetry.points import Point
from tidelog.telemetry.pusher import TelemetryPusher
from tidelog_foundation.config import parse_config
from tidelog_foundation.errors import ErrorCode, TidelogError, error_for
from tidelog_foundation.transport import call_soon, network_loop, run_sync
from tidelog_foundation.transport.loop import monotonic_ms

if TYPE_CHECKING:
    from tidelog.admin.metadata import ClusterMetadata

logger = logging.getLogger("tidelog.consumer")

_OVERDUE_MS = 1_000


class AssignedConsumer(InstanceIds):
    """The base of :class:`tidelog.Consumer`: its settings and parts, without reading and the group."""

    def __init__(self, config: Mapping[str, Any] | None = None, /, **settings: Any) -> None:
        """Create a consumer from settings (``tidelog.consumer.config.ConsumerConfig``) and callbacks.

        The dict also takes ``on_commit(error, partitions)``, ``error_cb(KafkaError)``, which receives the errors of the
        whole client instead of :meth:`poll`, ``stats_cb(json)``, ``throttle_cb`` and ``logger``. poll(), consume() and
        close() call the callbacks. Settings can also be keyword arguments, which take precedence: ``group_id`` is
        ``group.id``.

        Raises:
            KafkaException: INVALID_CONFIG.
            TypeError: a callback is not callable.
        """
        given = read_settings(ConsumerConfig, merge_settings(config, settings), "C", objects=CALLBACKS)
        callbacks = take_callbacks(given, CALLBACKS)
        log = take_logger(given, logger)
        self._config = parse_config(ConsumerConfig, given).resolve(given)
        self._cluster = self._config.cluster_client(callbacks["oauth_cb"])
        self._monitor = monitor = Monitor()
        self._lock: threading.RLock = monitor.lock
        self._positions = Positions(_position_settings(self._config), self._cluster.backoff.wait_ms)
        awake = asyncio.Event()
        self._wake: Callable[[], None] = lambda: call_soon(awake.set)
        commits = Commits(_commit_settings(self._config), self._cluster.backoff.wait_ms)
        stores = self._config.enable_auto_offset_store and self._config.group_id is not None
        self._queue = RecordQueue(
            monitor, self._positions, commits if stores else None, self._wake, callbacks["error_cb"]
        )
        self._cluster.failures.on_insecure = self._queue.tell_insecure
        self._measures = ConsumerMeasures(monotonic_ms())
        self._group: ConsumerGroup | None = None
        if self._config.group_id is not None:
            on_commit = callbacks["on_commit"]
            self._group = ConsumerGroup(
                self._config, self._cluster, self._queue, commits, self._lock, self._measures, on_commit, log
            )
        offsets = None if self._group is None else self._group.offsets
        fetcher = Fetcher(
            self._config, self._cluster, self._positions, self._queue, self._lock, awake, self._measures, offsets, log
        )
        if callbacks["throttle_cb"] is not None:
            fetcher.tell_throttling(callbacks["throttle_cb"])
        if callbacks["stats_cb"] is not None and self._config.statistics_interval_ms:
            fetcher.tell_statistics(callbacks["stats_cb"], commits)
        self._statistics = functools.partial(fetcher.statistics, commits)
        # Not waited for: all that follows comes to the network thread after it.
        self._telemetry = _telemetry(
            self._config, self._cluster, self._measures, self._lock, self._positions, self._group
        )
        asyncio.run_coroutine_threadsafe(_start(fetcher, self._group, self._telemetry), network_loop())
        stop = functools.partial(_stop, fetcher, self._group, self._telemetry, self._cluster)
        self._lifetime = Lifetime(self, "consumer", stop)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def statistics(self) -> dict[str, Any]:
        """Return the present figures of ``stats_cb``, which need neither the callback nor ``statistics.interval.ms``.

        Raises:
            KafkaException: the consumer is closed.
        """
        self._lifetime.check()
        figures: dict[str, Any] = json.loads(run_sync(self._statistics()))
        return figures

    def close(self) -> None:
        """Close the consumer; see :meth:`tidelog.Consumer.close`."""
        if not self._lifetime.is_over:
            self._lifetime.end()
            self._queue.close()
            self._lifetime.stop()

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Read exactly these partitions, each from its offset.

        ``OFFSET_BEGINNING`` and ``OFFSET_END`` are the ends of the log. A partition without an offset starts at the
        group's committed offset, or without one as ``auto.offset.reset`` says.

        Raises:
            KafkaException: _INVALID_ARG for an invalid partition or offset; _DESTROY if closed.
        """
        starts = starts_of(partitions)
        self._check_open()
        with self._lock:
            self._queue.settle()
            self._assigning()
            self._give_up(self._positions.assignment)
            self._report(self._positions.assign(starts))

    def incremental_assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Add partitions. Raise the errors of :meth:`assign`, and _CONFLICT for one that is already assigned."""
        starts = starts_of(partitions)
        self._check_open()
        with self._lock:
            for (topic, partition), _, _ in starts:
                if self._positions.state(topic, partition) is not None:
                    raise error_for(ErrorCode._CONFLICT, f"{topic}-{partition} is already assigned")
            self._assigning()
            self._report(self._positions.add(starts))

    def incremental_unassign(self, partitions: Iterable[TopicPartition]) -> None:
        """Remove partitions. Raise _INVALID_ARG if one is not assigned, _DESTROY if closed."""
        keys = [key_of(p) for p in partitions]
        self._check_open()
        with self._lock:
            for topic, partition in keys:
                if self._positions.state(topic, partition) is None:
                    raise error_for(ErrorCode._INVALID_ARG, f"{topic}-{partition} is not assigned to the consumer")
            self._assigning()
            self.release(keys)

    def unassign(self) -> None:
        """Remove all partitions from the assignment."""
        self.assign([])

    def release(self, keys: Iterable[Key], *, lost: bool = False) -> None:
        """Remove those of the partitions, (topic, partition), that are assigned.

        Commit their stored offsets with ``enable.auto.commit``, unless they are ``lost`` to another member.
        """
        with self._lock:
            self._queue.settle()
            keys = [key for key in keys if self._positions.state(*key) is not None]
            self._give_up(keys, lost=lost)
            self._positions.remove(keys)
            self._changed()

    def assignment(self) -> list[TopicPartition]:
        """Return the assigned partitions."""
        self._check_open()
        with self._lock:
            return [TopicPartition(topic, partition) for topic, partition in self._positions.assignment]

    def seek(self, partition: TopicPartition) -> None:
        """Continue a partition at another offset, given as in :meth:`assign`.

        Raises:
            KafkaException: _STATE if the partition is not assigned; _INVALID_ARG.
        """
        start = start_of(partition)
        self._check_open()
        with self._lock:
            self._queue.settle()
            self._check_assigned(partition)
            self._report(self._positions.seek(key_of(partition), *start))

    def pause(self, partitions: Iterable[TopicPartition]) -> None:
        """Return no messages of these partitions until :meth:`resume`. Raise _STATE if one is not assigned."""
        self._check_open()
        with self._lock:
            self._queue.settle()
            for partition in partitions:
                self._check_assigned(partition)
                self._positions.pause(key_of(partition))
            self._changed()

    def resume(self, partitions: Iterable[TopicPartition]) -> None:
        """Continue paused partitions at their positions. Raise _STATE if one is not assigned."""
        self._check_open()
        with self._lock:
            for partition in partitions:
                self._check_assigned(partition)
                self._positions.resume(key_of(partition))
            self._changed()

    def position(self, partitions: Iterable[TopicPartition]) -> list[TopicPartition]:
        """Return each partition with the offset after its last returned record, or OFFSET_INVALID."""
        self._check_open()
        with self._lock:
            self._queue.settle()
            return [TopicPartition(p.topic, p.partition, self._position(p)) for p in partitions]

    def get_watermark_offsets(
        self, partition: TopicPartition, timeout: float | None = None, cached: bool = False
    ) -> tuple[int, int]:
        """Return a partition's first offset and its end, up to which this consumer can read.

        The end is the high watermark, or with ``isolation.level`` read_committed the last stable offset. With
        ``cached``, return the first offset and the high watermark as of the last fetch, or OFFSET_INVALID without one.

        Raises:
            KafkaException: the partition is unknown, or no node answered in ``timeout`` seconds.
        """
        self._check_open()
        if cached:
            with self._lock:
                state = self._positions.state(*key_of(partition))
                if state is None or state.high_watermark < 0:
                    return OFFSET_INVALID, OFFSET_INVALID
                return state.log_start_offset, state.high_watermark
        return run_sync(self._watermarks(key_of(partition), timeout_in_ms(timeout)))

    def offsets_for_times(
        self, partitions: Iterable[TopicPartition], timeout: float | None = None
    ) -> list[TopicPartition]:
        """Return each partition with the first offset whose timestamp is at least ``offset`` (ms since the epoch).

        The offset is ``OFFSET_END`` if there is no such record that this consumer can read.

        Raises:
            KafkaException: a partition is unknown, or no node answered in ``timeout`` seconds.
        """
        self._check_open()
        wanted = times_of(partitions)
        found = run_sync(self._list_offsets(wanted, timeout_in_ms(timeout)))
        return [TopicPartition(topic, partition, found[topic, partition].offset) for topic, partition in wanted]

    async def _watermarks(self, key: Key, timeout_ms: float | None) -> tuple[int, int]:
        low, high = await asyncio.gather(
            self._list_offsets({key: EARLIEST_TIMESTAMP}, timeout_ms),
            self._list_offsets({key: LATEST_TIMESTAMP}, timeout_ms),
        )
        return low[key].offset, high[key].offset

    async def _list_offsets(
        self, timestamps_ms: Mapping[Key, int], timeout_ms: float | None
    ) -> dict[Key, OffsetAndTimestamp]:
        committed = self._config.is_read_committed
        return await self._cluster.list_offsets(timestamps_ms, read_committed=committed, timeout_ms=timeout_ms)

    def set_sasl_credentials(self, username: str, password: str) -> None:
        """Log in with another name and password from now on; open sessions continue. Thread-safe.

        Raises:
            KafkaException: _INVALID_ARG, one of them is empty, or sasl.mechanisms is not PLAIN or SCRAM.
        """
        self._check_open()
        self._cluster.replace_credentials(username, password)

    def list_topics(self, topic: str | None = None, timeout: float = -1) -> ClusterMetadata:
        """Return the cluster's nodes and topics. Raise KafkaException if no node answers in ``timeout`` seconds."""
        # The import is local so that a consumer does not load the admin client.
        from tidelog.admin.metadata import list_topics

        self._check_open()
        return run_sync(list_topics(self._cluster, topic, timeout))

    def cluster_id(self, timeout: float = -1) -> str:
        """Return the cluster's id. Raise KafkaException if no node answers in ``timeout`` seconds."""
        self._check_open()
        return run_sync(self._cluster.refresh([], timeout_ms=timeout_in_ms(timeout))).cluster_id

    def _unread_messages(self, messages: Iterable[Message]) -> None:
        """Return these messages and events again, because a call ended before its application got them."""
        taken = list(messages)
        firsts: dict[Key, int] = {}
        for message in taken:
            topic, partition, offset = message.topic(), message.partition(), message.offset()
            if message.error() is None and topic is not None and partition is not None and offset is not None:
                firsts.setdefault((topic, partition), offset)
        self._unread(firsts)
        for message in reversed(taken):
            if message.error() is not None:
                self._queue.put_back(message)

    def _unread(self, firsts: Mapping[Key, int]) -> None:
        """Reset the positions and the stored offsets to these offsets."""
        for key, offset in firsts.items():
            # The partition may have been revoked in the meantime.
            with contextlib.suppress(TidelogError):
                self.seek(TopicPartition(*key, offset))
                if self._group is not None and self._config.enable_auto_offset_store:
                    self._group.store({key: OffsetAndMetadata(offset)}, self._positions)

    def _report(self, reports: Iterable[Report]) -> None:
        for report in reports:
            self._queue.put(report)
        self._changed()

    def _changed(self) -> None:
        self._queue.drop_stale()
        self._wake()

    def _assigning(self) -> None:
        if self._group is not None:
            self._group.assignment_changes()

    def _give_up(self, keys: Iterable[Key], *, lost: bool = False) -> None:
        if self._group is not None:
            self._group.release(keys, lost=lost)

    def _check_open(self) -> None:
        self._lifetime.check()

    def _check_assigned(self, partition: TopicPartition) -> None:
        if self._positions.state(*key_of(partition)) is None:
            text = f"{partition.topic}-{partition.partition} is not assigned to the consumer"
            raise error_for(ErrorCode._STATE, text)

    def _position(self, partition: TopicPartition) -> int:
        state = self._positions.state(*key_of(partition))
        if state is None or state.position is None or not state.consumed:
            return OFFSET_INVALID
        return state.position


def times_of(partitions: Iterable[TopicPartition]) -> dict[Key, int]:
    """Return the timestamp of each partition, which is in its offset field. Raise _INVALID_ARG."""
    wanted: dict[Key, int] = {}
    for partition in partitions:
        if not -MAX_INT64 - 1 <= partition.offset <= MAX_INT64:
            raise invalid(partition, f"timestamp {partition.offset}")
        wanted[key_of(partition)] = partition.offset
    return wanted


def timeout_in_ms(timeout: float | None) -> float | None:
    """Return seconds as milliseconds; None for None and negative values."""
    return None if timeout is None or timeout < 0 else timeout * 1000


def _position_settings(config: ConsumerConfig) -> PositionSettings:
    return PositionSettings(
        queue_bytes=config.queued_max_messages_kbytes * 1024,
        queue_messages=config.queued_min_messages,
        reset_timestamp_ms=config.reset_timestamp_ms,
        report_end=config.enable_partition_eof,
        overdue_ms=config.fetch_wait_max_ms + _OVERDUE_MS,
        preferred_ms=config.metadata_max_age_ms,
        has_group=config.group_id is not None,
    )


def _commit_settings(config: ConsumerConfig) -> CommitSettings:
    interval_ms = config.auto_commit_interval_ms if config.auto_commits else 0
    return CommitSettings(auto_commit_interval_ms=interval_ms or None, timeout_ms=config.request_timeout_ms)


def _telemetry(
    config: ConsumerConfig,
    cluster: ClusterClient,
    measures: ConsumerMeasures,
    lock: threading.RLock,
    positions: Positions,
    group: ConsumerGroup | None,
) -> TelemetryPusher | None:
    if not config.enable_metrics_push:
        return None

    def collect(prefix: str, now_ms: float) -> Iterable[Point]:
        with lock:
            assigned = len(positions.assignment)
        return measures.points(prefix, now_ms, assigned, has_group=group is not None)

    def labels() -> dict[str, str | None]:
        return {
            "client_rack": config.client_rack,
            "group_id": config.group_id,
            "group_instance_id": config.group_instance_id,
            "group_member_id": None if group is None else group.metadata.member_id,
        }

    return TelemetryPusher("consumer", cluster, collect, labels)


async def _start(fetcher: Fetcher, group: ConsumerGroup | None, telemetry: TelemetryPusher | None) -> None:
    await fetcher.start()
    if group is not None:
        await group.start()
    if telemetry is not None:
        telemetry.start()


async def _stop(
    fetcher: Fetcher, group: ConsumerGroup | None, telemetry: TelemetryPusher | None, cluster: ClusterClient
) -> None:
    if group is not None:
        await group.stop()
    await fetcher.stop()
    if telemetry is not None:
        await telemetry.stop()
    await cluster.close()
