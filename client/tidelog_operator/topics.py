"""The resource ``TidelogTopic``: the next change of its topic. Pure.

1. A topic that does not exist is created. One that exists is adopted with its records.
2. A topic can get more partitions. Fewer are refused, since records would be lost (Kafka has no such change).
3. Another number of replicas is refused: a reassignment moves data, and is a decision of its own.
4. Settings become those of the resource: one that somebody else has set goes back to its default.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from tidelog_foundation.errors import TidelogError
from tidelog_foundation.topic_names import validate_topic_name
from tidelog_operator.conditions import Refusal
from tidelog_operator.resources import config_texts

KEEP: Final = "Keep"
# Reassignments with a throttle set and remove them.
_OF_REASSIGNMENTS: Final = ("leader.replication.throttled.replicas", "follower.replication.throttled.replicas")


@dataclass(frozen=True, slots=True)
class TopicSpec:
    """A wanted topic. -1 partitions or replicas are the cluster's default when the topic is created."""

    cluster: str
    name: str
    partitions: int
    replicas: int
    config: Mapping[str, str]
    is_kept: bool
    """Whether the topic outlives its resource."""


@dataclass(frozen=True, slots=True)
class TopicState:
    """A topic as it is, with the settings that are its own."""

    topic_id: str
    partitions: int
    replicas: int
    config: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class CreateTopic:
    """Create the topic."""


@dataclass(frozen=True, slots=True)
class AddPartitions:
    """Let the topic have this many partitions."""

    count: int


@dataclass(frozen=True, slots=True)
class AlterConfig:
    """Set the settings; those with None go back to their defaults."""

    values: Mapping[str, str | None]


Change = CreateTopic | AddPartitions | AlterConfig


def parse_topic(resource: Mapping[str, Any]) -> TopicSpec:
    """Return the topic that a resource describes.

    Raises:
        Refusal: the name is not that of a topic, or a setting is not a text, a number or a boolean.
    """
    spec = resource["spec"]
    name = spec.get("topicName", resource["metadata"]["name"])
    try:
        validate_topic_name(name)
    except TidelogError as error:
        raise Refusal("InvalidName", error.message) from error
    return TopicSpec(
        spec["cluster"],
        name,
        spec.get("partitions", -1),
        spec.get("replicas", -1),
        config_texts(spec.get("config") or {}, "spec.config"),
        spec.get("deletionPolicy") == KEEP,
    )


def next_change(spec: TopicSpec, state: TopicState | None) -> Change | None:
    """Return the next change, or None if the topic is as wanted. ``state`` is None if there is no such topic.

    Raises:
        Refusal: the topic would need a change that does not exist.
    """
    if state is None:
        return CreateTopic()
    if spec.partitions not in (-1, state.partitions):
        if spec.partitions < state.partitions:
            text = f"topic {spec.name} has {state.partitions} partitions, and spec.partitions is {spec.partitions}: "
            raise Refusal("PartitionsRefused", text + "a topic cannot have fewer partitions than before")
        return AddPartitions(spec.partitions)
    if spec.replicas not in (-1, state.replicas):
        text = f"topic {spec.name} has {state.replicas} replicas, and spec.replicas is {spec.replicas}: "
        raise Refusal("ReplicasRefused", text + "change it with tidelog partition reassign")
    values: dict[str, str | None] = {k: v for k, v in spec.config.items() if state.config.get(k) != v}
    foreign = (key for key in state.config if key not in spec.config and key not in _OF_REASSIGNMENTS)
    values |= dict.fromkeys(foreign)
    return AlterConfig(values) if values else None
