"""The limits and times of the Raft state machine and of snapshots, with the reasons for their defaults."""

from __future__ import annotations

from tidelog_foundation.config import at_least, between, setting
from tidelog_foundation.dataclass import dataclass


@dataclass(frozen=True, slots=True)
class RaftConfig:
    """Times and limits of one voter; all voters of a cluster should have the same.

    Raises:
        ValueError: heartbeats are so rare that followers would elect another leader between two of them.
    """

    election_timeout_ms: int = setting(
        1_000,
        "The time without a leader after which a voter requests votes, and without a majority after which a "
        "leader resigns, in milliseconds.",
        at_least(20),
        key="controller.quorum.election.timeout.ms",
    )
    heartbeat_interval_ms: int = setting(
        100,
        "The interval between heartbeats of a leader to its followers, in milliseconds.",
        at_least(1),
        key="controller.quorum.heartbeat.interval.ms",
    )
    max_append_bytes: int = setting(
        256 * 1024,
        "The maximum payload of an append, in bytes; a larger entry is sent alone.",
        between(1, 64 * 1024 * 1024),
        key="controller.quorum.append.max.bytes",
    )
    max_inflight_appends: int = setting(
        32,
        "The maximum number of appends in flight to a follower; further entries wait and are sent in larger batches.",
        between(1, 1024),
        key="controller.quorum.append.max.inflight",
    )
    max_inflight_bytes: int = setting(
        4 * 1024 * 1024,
        "The maximum payload of all appends in flight to a follower, in bytes; a larger entry is sent alone.",
        between(1, 1024 * 1024 * 1024),
        key="controller.quorum.append.max.inflight.bytes",
    )
    max_trailing_entries: int = setting(
        10_000,
        "The number of entries that stay in the log before a snapshot, for followers that are slightly behind.",
        at_least(0),
        key="controller.quorum.snapshot.trailing.entries",
    )
    max_trailing_bytes: int = setting(
        16 * 1024 * 1024,
        "The maximum payload of the entries that stay in the log before a snapshot, in bytes; the log is in memory.",
        at_least(0),
        key="controller.quorum.snapshot.trailing.bytes",
    )
    max_observers: int = setting(
        16,
        "The maximum number of observers to which a leader sends the log.",
        at_least(1),
        key="controller.quorum.observers.max",
    )

    def __post_init__(self) -> None:
        if self.heartbeat_interval_ms * 2 > self.election_timeout_ms:
            raise ValueError(
                f"a heartbeat interval of {self.heartbeat_interval_ms} ms leaves less than two heartbeats "
                f"in an election timeout of {self.election_timeout_ms} ms"
            )


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
