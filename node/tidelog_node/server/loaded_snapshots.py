"""The snapshots of the metadata log that a node has loaded, and their metrics.

Kafka's brokers generate snapshots of their own. A node of Tidelog keeps the metadata in memory and loads a snapshot
from a controller when it starts, or when it is far behind the log.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from tidelog_foundation.metrics import Family, Kind, Metric

_EMITTER: Final = "kafka.server:type=SnapshotEmitter"
_MILLISECONDS: Final = 1_000

AGE: Final = Metric(
    "tidelog_node_metadata_snapshot_age_seconds",
    Kind.GAUGE,
    "The time since this node loaded its latest snapshot of the metadata, or since its start without one.",
    unit="seconds",
    kafka=(f"{_EMITTER},name=LatestSnapshotGeneratedAgeMs",),
)
SIZE: Final = Metric(
    "tidelog_node_metadata_snapshot_size_bytes",
    Kind.GAUGE,
    "The size of the latest snapshot of the metadata that this node has loaded, 0 without any.",
    unit="bytes",
    kafka=(f"{_EMITTER},name=LatestSnapshotGeneratedBytes",),
)
LOADED: Final = Metric(
    "tidelog_node_metadata_snapshots_loaded_total",
    Kind.COUNTER,
    "The snapshots of the metadata that this node has loaded since its start. More than one: it fell far behind.",
    kafka=("kafka.server:type=MetadataLoader,name=HandleLoadSnapshotCount",),
)
METRICS: Final = (AGE, SIZE, LOADED)


class LoadedSnapshots:
    """Counts snapshots on the event loop. ``now_ms`` is the monotonic clock."""

    def __init__(self, now_ms: Callable[[], int]) -> None:
        self._now_ms = now_ms
        self._since_ms = now_ms()
        self._size_bytes = 0
        self._count = 0

    def add(self, size_bytes: int) -> None:
        """Count a loaded snapshot."""
        self._since_ms, self._size_bytes = self._now_ms(), size_bytes
        self._count += 1

    def families(self) -> Iterable[Family]:
        """Return the current values."""
        yield AGE.of((self._now_ms() - self._since_ms) / _MILLISECONDS)
        yield SIZE.of(self._size_bytes)
        yield LOADED.of(self._count)
