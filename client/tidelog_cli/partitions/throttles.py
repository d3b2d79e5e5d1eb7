"""Sets and removes the limits of ``tidelog partition reassign``, as Kafka's tool does (KIP-73).

A topic's lists name the limited replicas: ``leader.replication.throttled.replicas`` those that are copied from,
``follower.replication.throttled.replicas`` those that are being added. The nodes with any of them get the rate.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from operator import itemgetter

from tidelog.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    PartitionReassignment,
    ResourceType,
)
from tidelog.message import TopicPartition
from tidelog_cli.partitions.assignments import Assignment
from tidelog_foundation.errors import ErrorCode, TidelogError

LEADER_REPLICAS = "leader.replication.throttled.replicas"
FOLLOWER_REPLICAS = "follower.replication.throttled.replicas"
RATES = ("leader.replication.throttled.rate", "follower.replication.throttled.rate")
LOG_DIR_RATE = "replica.alter.log.dirs.io.max.bytes.per.second"

_GONE = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.RESOURCE_NOT_FOUND)


@dataclass(frozen=True, slots=True)
class Move:
    """A partition's move: the replicas to copy from, and those that copy."""

    sources: frozenset[int]
    destinations: frozenset[int]


def moves_of(
    wanted: Assignment, current: Assignment, ongoing: Mapping[TopicPartition, PartitionReassignment]
) -> dict[TopicPartition, Move]:
    """Return the moves from the ``current`` replicas to the wanted ones, together with those in progress."""
    moves = {}
    for key, reassignment in ongoing.items():
        adding = frozenset(reassignment.adding_replicas)
        moves[key] = Move(frozenset(reassignment.replicas) - adding, adding)
    for key, replicas in wanted.items():
        sources = moves[key].sources if key in moves else frozenset(current[key])
        moves[key] = Move(sources, frozenset(replicas) - sources)
    return moves


def throttled_replicas(moves: Mapping[TopicPartition, Move]) -> dict[str, dict[str, str]]:
    """Return the settings of each topic that list its limited replicas."""
    settings: dict[str, dict[str, list[str]]] = {}
    for key, move in sorted(moves.items(), key=itemgetter(0)):
        lists = settings.setdefault(key.topic, {})
        for name, brokers in ((LEADER_REPLICAS, move.sources), (FOLLOWER_REPLICAS, move.destinations)):
            if brokers:
                lists.setdefault(name, []).extend(f"{key.partition}:{broker}" for broker in sorted(brokers))
    return {topic: {name: ",".join(items) for name, items in lists.items()} for topic, lists in settings.items()}


def set_throttle(
    admin: AdminClient, moves: Mapping[TopicPartition, Move], bytes_per_second: int, timeout_s: float
) -> None:
    """Limit the moves; raise TidelogError if a setting is refused."""
    brokers = sorted({broker for move in moves.values() for broker in move.sources | move.destinations})
    resources = [_resource(ResourceType.TOPIC, topic, items) for topic, items in throttled_replicas(moves).items()]
    rates = dict.fromkeys(RATES, str(bytes_per_second))
    resources += [_resource(ResourceType.BROKER, str(broker), rates) for broker in brokers]
    _results(admin.incremental_alter_configs(resources, request_timeout=timeout_s))


def set_log_dir_throttle(admin: AdminClient, brokers: Iterable[int], bytes_per_second: int, timeout_s: float) -> None:
    """Limit the moves between log directories; raise TidelogError if a setting is refused."""
    rate = {LOG_DIR_RATE: str(bytes_per_second)}
    resources = [_resource(ResourceType.BROKER, str(broker), rate) for broker in sorted(set(brokers))]
    _results(admin.incremental_alter_configs(resources, request_timeout=timeout_s))


def clear_throttles(admin: AdminClient, brokers: Iterable[int], topics: Iterable[str], timeout_s: float) -> None:
    """Remove all these limits, from existing topics; raise TidelogError if that is refused."""
    of_broker = dict.fromkeys((*RATES, LOG_DIR_RATE))
    of_topic = dict.fromkeys((LEADER_REPLICAS, FOLLOWER_REPLICAS))
    resources = [_resource(ResourceType.BROKER, str(broker), of_broker) for broker in sorted(brokers)]
    resources += [_resource(ResourceType.TOPIC, topic, of_topic) for topic in topics]
    _results(admin.incremental_alter_configs(resources, request_timeout=timeout_s), _GONE)


def _resource(kind: ResourceType, name: str, settings: Mapping[str, str | None]) -> ConfigResource:
    return ConfigResource(kind, name, incremental_configs=[_entry(key, value) for key, value in settings.items()])


def _entry(key: str, value: str | None) -> ConfigEntry:
    operation = AlterConfigOpType.DELETE if value is None else AlterConfigOpType.SET
    return ConfigEntry(key, value, incremental_operation=operation)


def _results(futures: Mapping[ConfigResource, Future[None]], ignored: Iterable[ErrorCode] = ()) -> None:
    for future in futures.values():
        try:
            future.result()
        except TidelogError as error:
            if error.code not in ignored:
                raise
