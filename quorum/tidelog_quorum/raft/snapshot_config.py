"""Settings for a replica's snapshots and for their transfer."""

from __future__ import annotations

from dataclasses import dataclass

from tidelog_foundation.config import at_least, between, setting


@dataclass(frozen=True, slots=True)
class SnapshotConfig:
    """The snapshot settings of one replica; they may differ between replicas."""

    max_bytes_between: int = setting(
        20_971_520,
        "The number of bytes committed since the last snapshot at which a snapshot is taken.",
        at_least(1),
        key="metadata.log.max.record.bytes.between.snapshots",
    )
    max_interval_ms: int = setting(
        3_600_000,
        "The age of the last snapshot at which a snapshot is taken if anything was committed since, in "
        "milliseconds; 0 disables snapshots by age.",
        at_least(0),
        key="metadata.log.max.snapshot.interval.ms",
    )
    chunk_bytes: int = setting(
        256 * 1024,
        "The size of a snapshot chunk, in bytes; a heartbeat waits for at most one chunk.",
        between(1, 4 * 1024 * 1024),
        key="controller.quorum.snapshot.chunk.bytes",
    )
