"""The partitions of the subscribed topics and the bounds of their logs, with one client per cluster and process."""

from __future__ import annotations

import os
import threading

from tidelog.cluster import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP, ClusterClient
from tidelog.cluster.config import ClientConfig
from tidelog_foundation.errors import ErrorCode, TidelogError
from tidelog_foundation.transport.loop import run_sync
from tidelog_spark.offsets import OffsetBound, Offsets, PartitionKey, check_within_log, resolve_offsets
from tidelog_spark.options import SourceOptions

_MAX_TIMEOUT_MS = 60_000
"""The limit on the planner's wait for an answer, however long tasks may wait."""


class LogBounds:
    """The first offset and the end of every partition at the time of the call: the last stable offset, or the high
    watermark for readers of uncommitted records. Blocking.
    """

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._timeout_ms = min(options.poll_timeout_ms, _MAX_TIMEOUT_MS)
        self._client = cluster_client(options.client)

    def latest(self, tolerate_missing: bool = False) -> Offsets:
        """Return the end of every partition; ``tolerate_missing`` leaves out deleted topics.

        Raises:
            TidelogError: UNKNOWN_TOPIC_OR_PARTITION, or no node answered.
        """
        partitions = run_sync(self._partitions(tolerate_missing))
        return self._lookup(partitions, LATEST_TIMESTAMP)

    def resolve(self, *bounds: tuple[str, OffsetBound]) -> list[Offsets]:
        """Return the offsets for each (option, bound), all from one look at the logs.

        Raises:
            ConfigError: a bound does not name exactly the existing partitions.
            TidelogError: UNKNOWN_TOPIC_OR_PARTITION, no answer, or OFFSET_OUT_OF_RANGE for an offset outside the log.
        """
        partitions = run_sync(self._partitions(tolerate_missing=False))
        wanted = [bound.of(partitions, option) for option, bound in bounds]
        earliest = self._lookup(partitions, EARLIEST_TIMESTAMP)
        latest = self._lookup(partitions, LATEST_TIMESTAMP)
        fails = self._options.fail_on_data_loss
        return [
            check_within_log(option, resolve_offsets(offsets, earliest, latest), earliest, latest, fails)
            for (option, _), offsets in zip(bounds, wanted, strict=True)
        ]

    async def _partitions(self, tolerate_missing: bool) -> list[PartitionKey]:
        # Refresh each time: a topic may have new partitions.
        await self._client.refresh(self._options.subscribe, timeout_ms=self._timeout_ms)
        found: list[PartitionKey] = []
        for name in dict.fromkeys(self._options.subscribe):
            try:
                topic = await self._client.topic(name, timeout_ms=self._timeout_ms)
            except TidelogError as error:
                if not tolerate_missing or error.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                    raise
                continue
            found.extend((name, index) for index in topic.partitions)
        return found

    def _lookup(self, partitions: list[PartitionKey], timestamp_ms: int) -> Offsets:
        if not partitions:
            return {}
        wanted = dict.fromkeys(partitions, timestamp_ms)
        found = run_sync(
            self._client.list_offsets(
                wanted, timeout_ms=self._timeout_ms, read_committed=self._options.is_read_committed
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
