"""The partitions of the subscribed topics and the bounds of their logs, with one client per cluster and process."""

from __future__ import annotations

import os
import threading

from tidelog.cluster import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP, ClusterClient
from tidelog.cluster.client import unknown_partition
from tidelog.cluster.config import ClientConfig
from tidelog_foundation.errors import ErrorCode, TidelogError
from tidelog_foundation.transport.loop import run_sync
from tidelog_spark.offsets import Offsets, PartitionKey, check_within_log, match_timestamps, resolve_offsets
from tidelog_spark.options import SourceOptions
from tidelog_spark.positions import OffsetBound

_MAX_TIMEOUT_MS = 60_000
"""The limit on the planner's wait for an answer, however long tasks may wait."""


class LogBounds:
    """The first offset and the end of every partition at the time of the call: the last stable offset, or the high
    watermark for readers of uncommitted records. Blocking.
    """

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._selection = options.topics
        self._timeout_ms = min(options.poll_timeout_ms, _MAX_TIMEOUT_MS)
        self._client = cluster_client(options.client)

    def latest(self, tolerate_missing: bool = False) -> Offsets:
        """Return the end of every partition; ``tolerate_missing`` leaves out deleted topics.

        Raises:
            TidelogError: UNKNOWN_TOPIC_OR_PARTITION, or no node answered.
        """
        partitions = run_sync(self._partitions(tolerate_missing))
        return self._lookup(dict.fromkeys(partitions, LATEST_TIMESTAMP))

    def resolve(self, *bounds: OffsetBound) -> list[Offsets]:
        """Return the offsets for each bound, all from one look at the logs.

        Raises:
            ConfigError: a bound does not name exactly the existing partitions, or no record matches a timestamp.
            TidelogError: UNKNOWN_TOPIC_OR_PARTITION, no answer, or OFFSET_OUT_OF_RANGE for an offset outside the log.
        """
        partitions = run_sync(self._partitions(tolerate_missing=False))
        wanted = [bound.of(partitions) for bound in bounds]
        earliest = self._lookup(dict.fromkeys(partitions, EARLIEST_TIMESTAMP))
        latest = self._lookup(dict.fromkeys(partitions, LATEST_TIMESTAMP))
        return [
            self._by_timestamp(bound, positions, latest)
            if bound.is_timestamp
            else check_within_log(
                bound.option,
                resolve_offsets(positions, earliest, latest),
                earliest,
                latest,
                self._options.fail_on_data_loss,
            )
            for bound, positions in zip(bounds, wanted, strict=True)
        ]

    def _by_timestamp(self, bound: OffsetBound, timestamps: Offsets, latest: Offsets) -> Offsets:
        found = self._lookup(timestamps)
        return match_timestamps(bound.option, timestamps, found, latest, bound.takes_latest)

    async def _partitions(self, tolerate_missing: bool) -> list[PartitionKey]:
        found: list[PartitionKey] = []
        for name in await self._topics():
            try:
                topic = await self._client.topic(name, timeout_ms=self._timeout_ms)
            except TidelogError as error:
                if not tolerate_missing or error.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                    raise
                continue
            present, missing = self._selection.choose_partitions(name, topic.partitions)
            if missing and not tolerate_missing:
                raise unknown_partition(name, missing[0], len(topic.partitions))
            found.extend((name, index) for index in present)
        return found

    async def _topics(self) -> tuple[str, ...]:
        # Refresh each time: a pattern may have new topics, and a topic new partitions.
        names = None if self._selection.pattern is not None else self._selection.names
        metadata = await self._client.refresh(names, timeout_ms=self._timeout_ms)
        return self._selection.choose_topics({name: topic.is_internal for name, topic in metadata.topics.items()})

    def _lookup(self, timestamps: Offsets) -> Offsets:
        if not timestamps:
            return {}
        found = run_sync(
            self._client.list_offsets(
                timestamps, timeout_ms=self._timeout_ms, read_committed=self._options.is_read_committed
            )
        )
        return {key: position.offset for key, position in found.items()}


FETCH_TIMEOUT_MS = 10_000
"""The timeout of a fetch from a node that is silent: a paused node must not hold up a query."""


# Spark forks its workers: a child must not use its parent's channels.
_clients: dict[tuple[int, ClientConfig], ClusterClient] = {}
_lock = threading.Lock()


def cluster_client(config: ClientConfig) -> ClusterClient:
    """Return this process's client of a cluster; created at first use and kept until the process ends.

    Raises:
        ConfigError: The settings contradict each other, or a file cannot be read.
    """
    key = (os.getpid(), config)
    with _lock:
        if key not in _clients:
            _clients[key] = config.cluster_client()
        return _clients[key]
