"""Gathers the facts about a cluster. What does not answer is a fact, too."""

from __future__ import annotations

import time
from collections.abc import Mapping

from tidelog.admin import AdminClient, ConfigResource, DescribeClusterResult, ResourceType
from tidelog.message import TopicPartition
from tidelog_cli.health.doctor_rules import SHARED_SETTINGS
from tidelog_cli.health.facts import (
    ClusterFacts,
    FeatureFacts,
    LogDirFacts,
    NodeFacts,
    PartitionFacts,
    ProcessFacts,
    TopicFacts,
    VoterFacts,
)
from tidelog_cli.output.printing import settle
from tidelog_foundation.config.broker import CORDONED_LOG_DIRS
from tidelog_foundation.errors import ErrorCode, TidelogError

_MIN_ISR = "min.insync.replicas"
_MILLISECONDS = 1_000


def gather(admin: AdminClient, timeout_s: float, *, asks_processes: bool = False) -> ClusterFacts:
    """Return the facts, with ``asks_processes`` also those that each process alone knows.

    Raises:
        TidelogError: no node answers, or the caller may not describe the cluster.
    """
    cluster = admin.describe_cluster(request_timeout=timeout_s).result()
    nodes = _nodes(admin, cluster, timeout_s)
    defaults: Mapping[str, str] = next((node.settings for node in nodes if node.settings), {})
    topics, partitions = _topics(admin, int(defaults.get(_MIN_ISR, "1")), timeout_s)
    voters, controllers, quorum_error = _voters(admin, timeout_s)
    running = [node.node_id for node in nodes if not node.is_fenced]
    return ClusterFacts(
        cluster.cluster_id,
        nodes,
        voters,
        quorum_error,
        topics,
        partitions,
        _log_dirs(admin, [node.node_id for node in nodes if node.settings], timeout_s),
        _features(admin, timeout_s) if voters is not None else (),
        _processes(admin, running, controllers, timeout_s) if asks_processes else (),
    )


def _nodes(admin: AdminClient, cluster: DescribeClusterResult, timeout_s: float) -> tuple[NodeFacts, ...]:
    running = [node.id for node in cluster.nodes if node.id not in cluster.fenced_ids]
    resources = {node_id: ConfigResource(ResourceType.BROKER, str(node_id)) for node_id in running}
    futures = admin.describe_configs(resources.values(), request_timeout=timeout_s) if resources else {}
    configs, errors = settle({node_id: futures[resource] for node_id, resource in resources.items()})
    return tuple(
        NodeFacts(
            node.id,
            node.rack or None,
            node.id in cluster.fenced_ids,
            errors[node.id].message if node.id in errors else "",
            {
                key: entry.value
                for key, entry in configs.get(node.id, {}).items()
                if key in (*SHARED_SETTINGS, CORDONED_LOG_DIRS) and entry.value is not None
            },
        )
        for node in cluster.nodes
    )


def _topics(
    admin: AdminClient, default_min_isr: int, timeout_s: float
) -> tuple[tuple[TopicFacts, ...], tuple[PartitionFacts, ...]]:
    names = list(admin.list_topics(timeout=timeout_s).topics)
    # A topic can be deleted in between.
    described, _ = settle(admin.describe_topics(names, request_timeout=timeout_s) if names else {})
    moves = admin.list_partition_reassignments(request_timeout=timeout_s).result()
    topics, partitions = [], []
    for name, topic in described.items():
        min_isr = int(topic.config.get(_MIN_ISR, default_min_isr))
        factor = max((len(partition.replicas) for partition in topic.partitions), default=0)
        topics.append(TopicFacts(name, topic.is_internal, factor, min_isr, topic.config))
        for partition in topic.partitions:
            move = moves.get(TopicPartition(name, partition.id))
            partitions.append(
                PartitionFacts(
                    name,
                    partition.id,
                    None if partition.leader is None else partition.leader.id,
                    tuple(node.id for node in partition.replicas),
                    tuple(node.id for node in partition.isr),
                    min_isr,
                    () if move is None else tuple(move.adding_replicas),
                )
            )
    return tuple(topics), tuple(partitions)


def _voters(admin: AdminClient, timeout_s: float) -> tuple[tuple[VoterFacts, ...] | None, list[int], str]:
    try:
        quorum = admin.describe_metadata_quorum(request_timeout=timeout_s).result()
    except TidelogError as error:
        return None, [], error.message
    now_ms = time.time() * _MILLISECONDS
    voters = []
    for voter in quorum.voters:
        seen_ms = voter.last_fetch_timestamp
        age_s = None if seen_ms is None else max(0.0, (now_ms - seen_ms) / _MILLISECONDS)
        voters.append(
            VoterFacts(
                voter.replica_id,
                0.0 if voter.replica_id == quorum.leader_id else age_s,
                max(0, quorum.high_watermark - voter.log_end_offset),
            )
        )
    return tuple(voters), [each.replica_id for each in (*quorum.voters, *quorum.observers)], ""


def _processes(
    admin: AdminClient, nodes: list[int], controllers: list[int], timeout_s: float
) -> tuple[ProcessFacts, ...]:
    """Return the accounts of all processes, which are asked at the same time."""
    asked = {
        (process_id, is_node): admin.describe_process(process_id, is_controller=not is_node, request_timeout=timeout_s)
        for is_node, ids in ((False, controllers), (True, nodes))
        for process_id in ids
    }
    found, errors = settle(asked)
    return tuple(
        ProcessFacts(*key, found[key])
        if key in found
        else ProcessFacts(*key, error=errors[key].message, is_older=errors[key].code is ErrorCode.UNSUPPORTED_VERSION)
        for key in asked
    )


def _log_dirs(admin: AdminClient, nodes: list[int], timeout_s: float) -> tuple[LogDirFacts, ...]:
    found, _ = settle(admin.describe_log_dirs(nodes, request_timeout=timeout_s) if nodes else {})
    return tuple(
        LogDirFacts(
            node_id,
            path,
            "" if directory.error is None else directory.error.message,
            directory.total_bytes,
            directory.usable_bytes,
        )
        for node_id, directories in sorted(found.items())
        for path, directory in sorted(directories.items())
    )


def _features(admin: AdminClient, timeout_s: float) -> tuple[FeatureFacts, ...]:
    found = admin.describe_features(request_timeout=timeout_s).result()
    return tuple(
        FeatureFacts(name, found.finalized_features.get(name, 0), levels.max_version)
        for name, levels in sorted(found.supported_features.items())
    )
