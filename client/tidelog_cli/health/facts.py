"""The facts about a cluster by which the rules judge it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tidelog.admin import ProcessDescription


@dataclass(frozen=True, slots=True)
class NodeFacts:
    """A registered node. ``error`` is the reason if it did not answer; then it has no settings."""

    node_id: int
    rack: str | None = None
    is_fenced: bool = False
    error: str = ""
    settings: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class VoterFacts:
    """A controller with a vote. ``contact_age_s`` is the time since the leader heard from it, None for never."""

    voter_id: int
    contact_age_s: float | None
    lag: int


@dataclass(frozen=True, slots=True)
class PartitionFacts:
    """A partition. ``leader`` is None while there is none. ``adding`` are replicas that a reassignment adds."""

    topic: str
    index: int
    leader: int | None
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    min_isr: int
    adding: tuple[int, ...] = ()

    @property
    def name(self) -> str:
        """The topic and the index."""
        return f"{self.topic}-{self.index}"


@dataclass(frozen=True, slots=True)
class TopicFacts:
    """The settings of a topic that differ from the defaults."""

    name: str
    is_internal: bool
    replication_factor: int
    min_isr: int
    config: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class LogDirFacts:
    """A log directory of a node. Bytes are those of its file system, -1 if unknown."""

    node_id: int
    path: str
    error: str = ""
    total_bytes: int = -1
    usable_bytes: int = -1

    @property
    def free_share(self) -> float | None:
        """The usable part of the file system, None if it is unknown."""
        return self.usable_bytes / self.total_bytes if self.total_bytes > 0 and self.usable_bytes >= 0 else None


@dataclass(frozen=True, slots=True)
class FeatureFacts:
    """The level of a feature, and the highest that all processes support."""

    name: str
    level: int
    max_level: int


@dataclass(frozen=True, slots=True)
class ProcessFacts:
    """A node or a controller by its own account, or the ``error`` instead. ``is_older``: its version has no account."""

    process_id: int
    is_node: bool
    description: ProcessDescription | None = None
    error: str = ""
    is_older: bool = False

    @property
    def name(self) -> str:
        """The kind of process and its id."""
        return f"{'node' if self.is_node else 'controller'} {self.process_id}"


@dataclass(frozen=True, slots=True)
class ClusterFacts:
    """A cluster at one moment. ``voters`` is None if no controller leads, for the reason ``quorum_error``.

    ``processes`` are those that were asked; the rules of health need none.
    """

    cluster_id: str
    nodes: tuple[NodeFacts, ...] = ()
    voters: tuple[VoterFacts, ...] | None = ()
    quorum_error: str = ""
    topics: tuple[TopicFacts, ...] = ()
    partitions: tuple[PartitionFacts, ...] = ()
    log_dirs: tuple[LogDirFacts, ...] = ()
    features: tuple[FeatureFacts, ...] = ()
    processes: tuple[ProcessFacts, ...] = ()
