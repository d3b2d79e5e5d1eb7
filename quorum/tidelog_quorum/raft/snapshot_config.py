"""When a replica takes snapshots of its own, and in which parts they travel."""

from __future__ import annotations

from dataclasses import dataclass

from tidelog.config import at_least, between, setting


@dataclass(frozen=True, slots=True)
class SnapshotConfig:
    """Each replica decides for itself; the values need not be the same everywhere."""

    max_bytes_between: int = setting(
        20_971_520,
        key="metadata.log.max.record.bytes.between.snapshots",
        check=at_least(1),
        doc="A snapshot is taken when so many bytes were committed since the last one.",
    )
    max_interval_ms: int = setting(
        3_600_000,
        key="metadata.log.max.snapshot.interval.ms",
        check=at_least(0),
        doc="A snapshot is taken when the last one is so old and anything was committed since; 0: never for its age.",
    )
    chunk_bytes: int = setting(
        256 * 1024,
        key="controller.quorum.snapshot.chunk.bytes",
        check=between(1, 4 * 1024 * 1024),
        doc="Bytes of a snapshot in one message: heartbeats wait for at most one such message.",
    )
