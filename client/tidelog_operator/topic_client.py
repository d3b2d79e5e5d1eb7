"""Calls about one topic. Every function blocks, so the event loop calls it in a thread."""

from __future__ import annotations

from collections.abc import Mapping

from tidelog.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    ResourceType,
)
from tidelog_foundation.errors import ErrorCode, TidelogError
from tidelog_operator.cluster_client import TIMEOUT_S
from tidelog_operator.topics import AddPartitions, AlterConfig, Change, CreateTopic, TopicSpec, TopicState


def read_topic(admin: AdminClient, name: str) -> TopicState | None:
    """Return a topic as it is, or None if there is none."""
    try:
        found = admin.describe_topics([name], request_timeout=TIMEOUT_S)[name].result()
    except TidelogError as error:
        if error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            return None
        raise
    replicas = max((len(partition.replicas) for partition in found.partitions), default=0)
    return TopicState(str(found.topic_id), len(found.partitions), replicas, found.config)


def change_topic(admin: AdminClient, spec: TopicSpec, change: Change) -> None:
    """Make a change.

    Raises:
        TidelogError: the cluster refuses it.
    """
    match change:
        case CreateTopic():
            topic = NewTopic(spec.name, spec.partitions, spec.replicas, config=dict(spec.config))
            admin.create_topics([topic], request_timeout=TIMEOUT_S)[spec.name].result()
        case AddPartitions(count):
            new = NewPartitions(spec.name, count)
            admin.create_partitions([new], request_timeout=TIMEOUT_S)[spec.name].result()
        case AlterConfig(values):
            _alter(admin, spec.name, values)


def delete_topic(admin: AdminClient, name: str) -> None:
    """Delete a topic; one that is gone is fine."""
    try:
        admin.delete_topics([name], request_timeout=TIMEOUT_S)[name].result()
    except TidelogError as error:
        if error.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise


def _alter(admin: AdminClient, name: str, values: Mapping[str, str | None]) -> None:
    entries = [
        ConfigEntry(
            key,
            value,
            incremental_operation=AlterConfigOpType.DELETE if value is None else AlterConfigOpType.SET,
        )
        for key, value in values.items()
    ]
    resource = ConfigResource(ResourceType.TOPIC, name, incremental_configs=entries)
    admin.incremental_alter_configs([resource], request_timeout=TIMEOUT_S)[resource].result()
