"""The order in which a node applies the changes of an image, and the settings of its topics.

1. The brokers: a registration names only brokers that the partitions know.
2. The removals: a topic that was deleted and created again can use its name's folder.
3. The settings: an ISR counts only by the ``min.insync.replicas`` that the controller used (KIP-966).
4. The replicas of this node, among them new ones. The node creates many new ones together, before it opens each.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from typing import NamedTuple, TypeAlias

from tidelog_foundation.config import TopicConfig
from tidelog_foundation.dataclass import dataclass
from tidelog_foundation.ids import BrokerId, TopicId
from tidelog_node.hosting.states import PartitionKey
from tidelog_quorum.metadata.delta import MetadataDelta, PartitionChange
from tidelog_quorum.metadata.image import MetadataImage
from tidelog_quorum.metadata.topic_config import topic_config

_CHANGES_AT_A_TIME = 512
_MANY_CHANGES = 64
"""From this many changed replicas on, the fetchers are interrupted once, at the end."""


@dataclass(frozen=True, slots=True)
class BrokersStep:
    """Give all replicas the brokers."""


@dataclass(frozen=True, slots=True)
class RemovalStep:
    """Delete a replica, because its partition ``is_gone`` or other nodes host it now."""

    key: PartitionKey
    topic_id: TopicId
    is_gone: bool


@dataclass(frozen=True, slots=True)
class ConfigsStep:
    """Apply the settings of these topics, or of all, to their replicas."""

    topics: frozenset[str] | None


@dataclass(frozen=True, slots=True)
class PauseStep:
    """Delay the fetchers."""


@dataclass(frozen=True, slots=True)
class CreationStep:
    """Create the new ones among these replicas together, if they are many."""

    changes: Sequence[PartitionChange]


class ReplicaStep(NamedTuple):
    """Open a replica, or change its registration."""

    key: PartitionKey
    topic_id: TopicId


@dataclass(frozen=True, slots=True)
class ResumeStep:
    """Let the fetchers continue."""


Step: TypeAlias = BrokersStep | RemovalStep | ConfigsStep | PauseStep | CreationStep | ReplicaStep | ResumeStep


class _Phase(enum.Enum):
    """The part of a plan that comes next."""

    BROKERS = enum.auto()
    REMOVALS = enum.auto()
    CONFIGS = enum.auto()
    PAUSE = enum.auto()
    CREATION = enum.auto()
    REPLICAS = enum.auto()
    RESUME = enum.auto()
    OVER = enum.auto()


class Plan:
    """The remaining steps of one image's changes. Each call does little work, however many changes there are."""

    def __init__(self, broker_id: BrokerId, delta: MetadataDelta, *, concerns_all: bool) -> None:
        """Plan the changes of ``delta``; ``concerns_all``: the settings of all topics may have changed."""
        self._broker_id = broker_id
        self._delta = delta
        self._concerns_all = concerns_all
        self._phase = _Phase.BROKERS
        self._looked_at = 0
        self._hosted_changes: list[PartitionChange] = []
        self._done = 0

    @property
    def is_over(self) -> bool:
        """True if no step is left."""
        return self._phase is _Phase.OVER

    def next_step(self) -> Step | None:
        """Return the next step, or None if there is none yet or no more."""
        match self._phase:
            case _Phase.BROKERS:
                self._phase = _Phase.REMOVALS
                return None if self._delta.changed_brokers is None else BrokersStep()
            case _Phase.REMOVALS:
                return self._next_removal()
            case _Phase.CONFIGS:
                self._phase = _Phase.PAUSE
                return self._configs()
            case _Phase.PAUSE:
                self._phase = _Phase.CREATION
                return PauseStep() if len(self._hosted_changes) >= _MANY_CHANGES else None
            case _Phase.CREATION:
                self._phase = _Phase.REPLICAS
                return CreationStep(self._hosted_changes[self._done : self._done + _CHANGES_AT_A_TIME])
            case _Phase.REPLICAS:
                return self._next_replica()
            case _Phase.RESUME:
                self._phase = _Phase.OVER
                return ResumeStep() if len(self._hosted_changes) >= _MANY_CHANGES else None
            case _Phase.OVER:
                return None

    def _next_removal(self) -> Step | None:
        changes, end = self._delta.changed_partitions, self._looked_at + _CHANGES_AT_A_TIME
        for change in changes[self._looked_at : end]:
            self._looked_at += 1
            if change.after is None or self._broker_id not in change.after.replicas:
                return RemovalStep((change.topic_name, change.index), change.topic_id, change.after is None)
            self._hosted_changes.append(change)
        if self._looked_at == len(changes):
            self._phase = _Phase.CONFIGS
        return None

    def _configs(self) -> Step | None:
        topics = self._delta.topics_with_changed_config
        return ConfigsStep(None if self._concerns_all else topics) if self._concerns_all or topics else None

    def _next_replica(self) -> Step | None:
        if self._done == len(self._hosted_changes):
            self._phase = _Phase.RESUME
            return None
        change = self._hosted_changes[self._done]
        self._done += 1
        if self._done % _CHANGES_AT_A_TIME == 0:
            self._phase = _Phase.CREATION
        return ReplicaStep((change.topic_name, change.index), change.topic_id)


class TopicConfigs:
    """The settings of one image at a time. All partitions of a topic share an object."""

    def __init__(self, defaults: TopicConfig) -> None:
        self._defaults = defaults
        self._has_other_defaults = False
        self._image = MetadataImage()
        self._configs: dict[str, TopicConfig] = {}

    def change_defaults(self, defaults: TopicConfig) -> None:
        """Change the defaults. They apply from the next :meth:`follow` on."""
        self._defaults = defaults
        self._has_other_defaults = True

    def follow(self, image: MetadataImage) -> bool:
        """Change to an image. Return True if it may concern all topics because the node's own settings changed."""
        self._image = image
        self._configs.clear()
        concerns_all, self._has_other_defaults = self._has_other_defaults, False
        return concerns_all

    def of(self, topic: str) -> TopicConfig:
        """Return a topic's settings."""
        config = self._configs.get(topic)
        if config is None:
            config = self._configs[topic] = topic_config(self._image, topic, self._defaults)
        return config
