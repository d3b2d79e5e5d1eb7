"""The order in which a node takes over the changes of an image.

1. The brokers: a registration names only brokers that the partitions know.
2. The removals: a topic that was deleted and created again under its name finds its place free.
3. The settings: an ISR counts only by the ``min.insync.replicas`` that the controller went by (KIP-966).
4. The replicas that this node has, among them new ones; many new ones are created together, before each is opened.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from tidelog_foundation.ids import BrokerId, TopicId
from tidelog_node.hosting.states import PartitionKey
from tidelog_quorum.metadata import MetadataDelta, PartitionChange

_CHANGES_AT_A_TIME = 512
_MANY_CHANGES = 64
"""So many changed replicas interrupt the fetchers once, in the end."""


@dataclass(frozen=True, slots=True)
class BrokersStep:
    """Tell all replicas the brokers."""


@dataclass(frozen=True, slots=True)
class RemovalStep:
    """Delete a replica: of a partition that ``is_gone``, or that others hold now."""

    key: PartitionKey
    topic_id: TopicId
    is_gone: bool


@dataclass(frozen=True, slots=True)
class ConfigsStep:
    """Give the replicas of these topics, or of all, their settings."""

    topics: frozenset[str] | None


@dataclass(frozen=True, slots=True)
class HoldStep:
    """Let the fetchers wait."""


@dataclass(frozen=True, slots=True)
class CreationStep:
    """Create those of the replicas together that are new, if they are many."""

    changes: Sequence[PartitionChange]


class ReplicaStep(NamedTuple):
    """Open a replica, or change its registration."""

    key: PartitionKey
    topic_id: TopicId


@dataclass(frozen=True, slots=True)
class ReleaseStep:
    """Let the fetchers go on."""


Step: TypeAlias = BrokersStep | RemovalStep | ConfigsStep | HoldStep | CreationStep | ReplicaStep | ReleaseStep


class _Phase(enum.Enum):
    """What comes next of a plan."""

    BROKERS = enum.auto()
    REMOVALS = enum.auto()
    CONFIGS = enum.auto()
    HOLD = enum.auto()
    CREATION = enum.auto()
    REPLICAS = enum.auto()
    RELEASE = enum.auto()
    OVER = enum.auto()


class Plan:
    """The steps of one image's changes that are left; each call does little, however many changes there are."""

    def __init__(self, broker_id: BrokerId, delta: MetadataDelta, *, concerns_all: bool) -> None:
        """``concerns_all``: the settings of all topics may have changed."""
        self._broker_id = broker_id
        self._delta = delta
        self._concerns_all = concerns_all
        self._phase = _Phase.BROKERS
        self._looked_at = 0
        self._ours: list[PartitionChange] = []
        self._done = 0

    @property
    def is_over(self) -> bool:
        """Whether no step is left."""
        return self._phase is _Phase.OVER

    def next_step(self) -> Step | None:
        """Return the next step; None when there is none yet, or no more."""
        match self._phase:
            case _Phase.BROKERS:
                self._phase = _Phase.REMOVALS
                return None if self._delta.changed_brokers is None else BrokersStep()
            case _Phase.REMOVALS:
                return self._next_removal()
            case _Phase.CONFIGS:
                self._phase = _Phase.HOLD
                return self._configs()
            case _Phase.HOLD:
                self._phase = _Phase.CREATION
                return HoldStep() if len(self._ours) >= _MANY_CHANGES else None
            case _Phase.CREATION:
                self._phase = _Phase.REPLICAS
                return CreationStep(self._ours[self._done : self._done + _CHANGES_AT_A_TIME])
            case _Phase.REPLICAS:
                return self._next_replica()
            case _Phase.RELEASE:
                self._phase = _Phase.OVER
                return ReleaseStep() if len(self._ours) >= _MANY_CHANGES else None
            case _Phase.OVER:
                return None

    def _next_removal(self) -> Step | None:
        changes, end = self._delta.changed_partitions, self._looked_at + _CHANGES_AT_A_TIME
        for change in changes[self._looked_at : end]:
            self._looked_at += 1
            if change.after is None or self._broker_id not in change.after.replicas:
                return RemovalStep((change.topic_name, change.index), change.topic_id, change.after is None)
            self._ours.append(change)
        if self._looked_at == len(changes):
            self._phase = _Phase.CONFIGS
        return None

    def _configs(self) -> Step | None:
        topics = self._delta.topics_with_changed_config
        return ConfigsStep(None if self._concerns_all else topics) if self._concerns_all or topics else None

    def _next_replica(self) -> Step | None:
        if self._done == len(self._ours):
            self._phase = _Phase.RELEASE
            return None
        change = self._ours[self._done]
        self._done += 1
        if self._done % _CHANGES_AT_A_TIME == 0:
            self._phase = _Phase.CREATION
        return ReplicaStep((change.topic_name, change.index), change.topic_id)
