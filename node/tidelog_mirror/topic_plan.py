"""The topics of a flow: those it copies, and the changes of topics, settings and ACLs that the target needs (pure)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from tidelog_foundation.dataclass import dataclass
from tidelog_mirror.patterns import NameFilter
from tidelog_mirror.policy import ReplicationPolicy

TOPIC: Final = 2
"""The number of topics among the types of resources of ACLs."""
LITERAL: Final = 3
ALL, READ, WRITE = 2, 3, 4
DENY, ALLOW = 2, 3


@dataclass(frozen=True, slots=True)
class Setting:
    """A topic's setting as a cluster describes it."""

    name: str
    value: str | None
    is_default: bool
    """True unless the setting is set on the topic itself."""
    is_read_only: bool = False
    is_sensitive: bool = False


@dataclass(frozen=True, slots=True)
class TopicAcl:
    """An ACL of one topic."""

    topic: str
    principal: str
    host: str
    operation: int
    permission: int


@dataclass(frozen=True, slots=True)
class TopicSelection:
    """The topics that a flow copies."""

    policy: ReplicationPolicy
    source: str
    target: str
    topics: NameFilter

    def copies(self, topic: str) -> bool:
        """Return whether a topic of the source is copied."""
        is_wanted = self.topics.matches(topic) or self.policy.is_heartbeats(topic)
        return is_wanted and not self.policy.is_internal(topic) and not self.policy.is_cycle(topic, self.target)

    def remote(self, topic: str) -> str:
        """Return a source topic's name on the target."""
        return self.policy.remote_topic(self.source, topic)

    def checkpoint_topic(self, topic: str) -> str:
        """Return the topic of the target that a group continues with, which is the original of a copy."""
        if self.policy.topic_source(topic) == self.target:
            return self.policy.original_topic(topic)
        return self.remote(topic)


@dataclass(frozen=True, slots=True)
class TopicChanges:
    """The topics to create and the numbers of partitions to raise on the target, by remote name."""

    created: Mapping[str, int]
    extended: Mapping[str, int]


def plan_topics(selection: TopicSelection, on_source: Mapping[str, int], on_target: Mapping[str, int]) -> TopicChanges:
    """Return the changes that give each copied topic at least its source's partitions."""
    wanted = {selection.remote(topic): count for topic, count in on_source.items() if selection.copies(topic)}
    return TopicChanges(
        {topic: count for topic, count in wanted.items() if topic not in on_target},
        {topic: count for topic, count in wanted.items() if 0 < on_target.get(topic, count) < count},
    )


def plan_settings(
    on_source: Iterable[Setting], own_on_target: Mapping[str, str], excluded: NameFilter, *, has_source_defaults: bool
) -> dict[str, str | None]:
    """Return the settings to set on a remote topic, and as None those to remove, which differ from the source.

    Settings at their default are removed, so that the target's default applies, unless ``has_source_defaults``
    (``use.defaults.from=source``).
    """
    changes: dict[str, str | None] = {}
    for setting in on_source:
        if setting.is_read_only or setting.is_sensitive or excluded.matches(setting.name):
            continue
        value = None if setting.is_default and not has_source_defaults else setting.value
        if own_on_target.get(setting.name) != value:
            changes[setting.name] = value
    return changes


def plan_acls(selection: TopicSelection, acls: Iterable[TopicAcl]) -> list[TopicAcl]:
    """Return the ACLs of remote topics. The right to write is not copied: only the mirror writes to them."""
    found = []
    for acl in acls:
        if not selection.copies(acl.topic) or (acl.permission == ALLOW and acl.operation == WRITE):
            continue
        operation = READ if acl.permission == ALLOW and acl.operation == ALL else acl.operation
        found.append(TopicAcl(selection.remote(acl.topic), acl.principal, acl.host, operation, acl.permission))
    return found
