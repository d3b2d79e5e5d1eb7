"""The output of ``tidelog topic describe``, and its options that select partitions, as in kafka-topics.sh."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import typer

from tidelog.admin import ConfigResource, PartitionReassignment, ResourceType, TopicDescription, TopicPartitionInfo
from tidelog.message import TopicPartition
from tidelog_cli.output.printing import counted, print_json, print_records
from tidelog_foundation.ids import uuid_text

if TYPE_CHECKING:
    from tidelog.admin import AdminClient
    from tidelog_cli.options.connection import Session

_MIN_ISR = "min.insync.replicas"
_COLUMNS = ("partition", "leader", "leader_epoch", "replicas", "isr")
_MOVES = ("adding", "removing")
_INTERNAL = frozenset({"__consumer_offsets", "__transaction_state"})


def internal_topics() -> Collection[str]:
    """Return the names of the cluster's internal topics (Kafka's ``Topic.INTERNAL_TOPICS``)."""
    return _INTERNAL


@dataclass(frozen=True, slots=True)
class PartitionView:
    """A partition with its reassignment, its topic's min.insync.replicas and the live nodes, which give its health."""

    info: TopicPartitionInfo
    reassignment: PartitionReassignment | None
    min_isr: int
    live_nodes: Collection[int]

    @property
    def replication_factor(self) -> int:
        """The target number of replicas; those that a reassignment adds do not count yet (KIP-455)."""
        replicas = {node.id for node in self.info.replicas}
        moved = self.reassignment
        if moved is None or not replicas & {*moved.adding_replicas, *moved.removing_replicas}:
            return len(replicas)
        return len(moved.replicas) - len(moved.adding_replicas)

    @property
    def is_under_replicated(self) -> bool:
        """True if fewer replicas are in sync than the target number."""
        return len(self.info.isr) < self.replication_factor

    @property
    def is_at_min_isr(self) -> bool:
        """True if the loss of one more replica stops producers with acks=all."""
        return len(self.info.isr) == self.min_isr

    @property
    def is_under_min_isr(self) -> bool:
        """True if producers with acks=all are stopped."""
        return self.info.leader is None or len(self.info.isr) < self.min_isr

    @property
    def is_unavailable(self) -> bool:
        """True if the partition has no live leader."""
        return self.info.leader is None or self.info.leader.id not in self.live_nodes

    @property
    def document(self) -> dict[str, Any]:
        """The partition as a JSON document."""
        moved = self.reassignment
        return {
            "partition": self.info.id,
            "leader": None if self.info.leader is None else self.info.leader.id,
            "leader_epoch": self.info.leader_epoch,
            "replicas": [node.id for node in self.info.replicas],
            "isr": [node.id for node in self.info.isr],
            "adding": [] if moved is None else list(moved.adding_replicas),
            "removing": [] if moved is None else list(moved.removing_replicas),
        }


@dataclass(frozen=True, slots=True)
class TopicFilter:
    """The options of ``describe``; a partition is shown if any of the first four selects it, or if none is set."""

    under_replicated: bool = False
    at_min_isr: bool = False
    under_min_isr: bool = False
    unavailable: bool = False
    with_overrides: bool = False
    exclude_internal: bool = False

    @property
    def chooses_partitions(self) -> bool:
        """True if the options select partitions."""
        return self.under_replicated or self.at_min_isr or self.under_min_isr or self.unavailable

    @property
    def needs_min_isr(self) -> bool:
        """True if the topics' min.insync.replicas must be known."""
        return self.at_min_isr or self.under_min_isr

    def wants(self, partition: PartitionView) -> bool:
        """Return whether to show a partition."""
        return not self.chooses_partitions or (
            (self.under_replicated and partition.is_under_replicated)
            or (self.at_min_isr and partition.is_at_min_isr)
            or (self.under_min_isr and partition.is_under_min_isr)
            or (self.unavailable and partition.is_unavailable)
        )


def describe_topics(session: Session, names: list[str] | None, wanted: TopicFilter) -> None:
    """Print the selected parts of topics, of all without ``names``.

    Raises:
        TidelogError: a named topic does not exist; no node answered.
    """
    with session.admin() as admin:
        topics = _described(admin, names, wanted, session.timeout_s)
        views = _views(admin, topics, wanted, session.timeout_s)
    if wanted.with_overrides:
        topics = [topic for topic in topics if topic.config]
    shown = {topic.name: [view for view in views[topic.name] if wanted.wants(view)] for topic in topics}
    if wanted.chooses_partitions:
        topics = [topic for topic in topics if shown[topic.name]]
    if session.as_json:
        print_json({"topics": [_document(topic, shown[topic.name]) for topic in topics]})
    elif wanted.chooses_partitions:
        _print_chosen(shown)
    else:
        for index, topic in enumerate(topics):
            if index:
                typer.echo()
            _print_topic(topic, [] if wanted.with_overrides else shown[topic.name], views[topic.name])


def _described(
    admin: AdminClient, names: list[str] | None, wanted: TopicFilter, timeout_s: float
) -> list[TopicDescription]:
    asked = list(admin.list_topics(timeout=timeout_s).topics) if names is None else list(dict.fromkeys(names))
    futures = admin.describe_topics(asked, request_timeout=timeout_s) if asked else {}
    topics = [future.result() for future in futures.values()]
    return [t for t in topics if not (wanted.exclude_internal and (t.is_internal or t.name in _INTERNAL))]


def _views(
    admin: AdminClient, topics: list[TopicDescription], wanted: TopicFilter, timeout_s: float
) -> dict[str, list[PartitionView]]:
    min_isr = _min_isr(admin, topics, timeout_s) if wanted.needs_min_isr else {}
    moves = admin.list_partition_reassignments(request_timeout=timeout_s).result()
    cluster = admin.describe_cluster(request_timeout=timeout_s).result()
    live = {node.id for node in cluster.nodes} - cluster.fenced_ids
    return {
        topic.name: [
            PartitionView(p, moves.get(TopicPartition(topic.name, p.id)), min_isr.get(topic.name, 1), live)
            for p in topic.partitions
        ]
        for topic in topics
    }


def _min_isr(admin: AdminClient, topics: list[TopicDescription], timeout_s: float) -> dict[str, int]:
    resources = [ConfigResource(ResourceType.TOPIC, topic.name) for topic in topics]
    futures = admin.describe_configs(resources, request_timeout=timeout_s) if resources else {}
    return {resource.name: int(future.result()[_MIN_ISR].value or 1) for resource, future in futures.items()}


def _document(topic: TopicDescription, views: list[PartitionView]) -> dict[str, Any]:
    return {
        "topic": topic.name,
        "topic_id": uuid_text(bytes(topic.topic_id)),
        "internal": topic.is_internal,
        "config": dict(sorted(topic.config.items())),
        "partitions": [view.document for view in views],
    }


def _print_chosen(shown: Mapping[str, list[PartitionView]]) -> None:
    records = [{"topic": name, **view.document} for name, views in shown.items() for view in views]
    if records:
        print_records(records, ("topic", *_COLUMNS, *_given_moves(records)))
    else:
        typer.echo("No partition matches.", err=True)


def _print_topic(topic: TopicDescription, shown: list[PartitionView], views: list[PartitionView]) -> None:
    factor = max((view.replication_factor for view in views), default=0)
    typer.echo(f"{topic.name}: {counted(len(topic.partitions), 'partition')}, replication factor {factor}")
    for key, value in sorted(topic.config.items()):
        typer.echo(f"  {key}={value}")
    records = [view.document for view in shown]
    if records:
        print_records(records, (*_COLUMNS, *_given_moves(records)))


def _given_moves(records: list[dict[str, Any]]) -> tuple[str, ...]:
    """Return the columns of a reassignment, if one is in progress."""
    return tuple(column for column in _MOVES if any(record[column] for record in records))
