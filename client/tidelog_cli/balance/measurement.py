"""Takes the snapshot of a cluster: its metadata, the sizes of its replicas, and the rates of its partitions."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace

from tidelog.admin import AdminClient, ConfigResource, LogDirDescription, ResourceType
from tidelog.message import TopicPartition
from tidelog_cli.balance.scraping import TopicBytes, scrape
from tidelog_cli.balance.snapshot import ClusterSnapshot, Node, NodeState, Partition
from tidelog_cli.output.printing import settle
from tidelog_foundation.config.broker import CORDONED_LOG_DIRS


def take_snapshot(admin: AdminClient, timeout_s: float, *, draining: Collection[int] = ()) -> ClusterSnapshot:
    """Return the cluster as it is. Partitions that are being reassigned have their target replicas.

    Raises:
        TidelogError: the cluster does not answer, or a running node does not describe its log directories.
    """
    cluster = admin.describe_cluster(request_timeout=timeout_s).result()
    ongoing = admin.list_partition_reassignments(request_timeout=timeout_s).result()
    topics = admin.list_topics(timeout=timeout_s).topics
    running = [node.id for node in cluster.nodes if node.id not in cluster.fenced_ids]
    directories, errors = settle(admin.describe_log_dirs(running, request_timeout=timeout_s))
    for error in errors.values():
        raise error
    cordoned = cordoned_nodes(admin, running, timeout_s)
    sizes = _sizes(directories)
    partitions = {}
    for name, topic in topics.items():
        for index, found in topic.partitions.items():
            key = TopicPartition(name, index)
            replicas = ongoing[key].target_replicas if key in ongoing else tuple(found.replicas)
            size = max((sizes.get((node, key), 0) for node in {*found.replicas, *replicas}), default=0)
            partitions[key] = Partition(replicas, found.leader, size)
    nodes = {}
    for node in cluster.nodes:
        state = NodeState.FENCED if node.id in cluster.fenced_ids else NodeState.AVAILABLE
        state = NodeState.CORDONED if node.id in cordoned else state
        state = NodeState.DRAINING if node.id in draining else state
        nodes[node.id] = Node(node.id, node.rack or None, state, _capacity(directories.get(node.id, {}).values()))
    named = {node for partition in partitions.values() for node in partition.replicas}
    nodes |= {node: Node(node, state=NodeState.UNREGISTERED) for node in sorted(named - nodes.keys())}
    return ClusterSnapshot(nodes, partitions)


def with_rates(
    admin: AdminClient, snapshot: ClusterSnapshot, sample_s: float, metrics_urls: Sequence[str], timeout_s: float
) -> ClusterSnapshot:
    """Return the snapshot with the rates of its partitions over the next ``sample_s`` seconds.

    Bytes in are the growth of logs, bytes out those that ``metrics_urls`` count: a topic's bytes are its partitions' in
    proportion to their growth, or equally if none grows.
    """
    begun_s, before = time.monotonic(), _sizes_of(admin, snapshot, timeout_s)
    scraped = scrape(metrics_urls, timeout_s)
    time.sleep(sample_s)
    after, scraped_after = _sizes_of(admin, snapshot, timeout_s), scrape(metrics_urls, timeout_s)
    seconds = time.monotonic() - begun_s
    grown = {key: max(0, after.get(key, 0) - before.get(key, 0)) for key in snapshot.partitions}
    sent = _sent(grown, scraped, scraped_after)
    return ClusterSnapshot(
        snapshot.nodes,
        {
            key: replace(partition, bytes_in=int(grown[key] / seconds), bytes_out=int(sent[key] / seconds))
            for key, partition in snapshot.partitions.items()
        },
    )


def cordoned_nodes(admin: AdminClient, running: Iterable[int], timeout_s: float) -> set[int]:
    """Return those of the running nodes that get no new replicas (KIP-1066).

    Raises:
        TidelogError: a node does not describe its settings, or the caller may not see them.
    """
    resources = {ConfigResource(ResourceType.BROKER, str(node)): node for node in running}
    found, errors = settle(admin.describe_configs(resources, request_timeout=timeout_s) if resources else {})
    for error in errors.values():
        raise error
    # A node of an earlier version does not have the setting.
    settings = {node: found[resource].get(CORDONED_LOG_DIRS) for resource, node in resources.items()}
    return {node for node, setting in settings.items() if setting is not None and setting.value}


def copied_bytes(
    admin: AdminClient, adding: Mapping[TopicPartition, Iterable[int]], timeout_s: float
) -> dict[TopicPartition, int]:
    """Return the bytes that new replicas of partitions have so far; a node that does not answer counts as none."""
    nodes = sorted({node for added in adding.values() for node in added})
    directories, _ = settle(admin.describe_log_dirs(nodes, request_timeout=timeout_s))
    sizes = _sizes(directories)
    return {key: sum(sizes.get((node, key), 0) for node in added) for key, added in adding.items()}


def _sizes(directories: Mapping[int, Mapping[str, LogDirDescription]]) -> dict[tuple[int, TopicPartition], int]:
    return {
        (node, key): info.size
        for node, by_path in directories.items()
        for description in by_path.values()
        for key, info in description.replica_infos.items()
        if not info.is_future
    }


def _sizes_of(admin: AdminClient, snapshot: ClusterSnapshot, timeout_s: float) -> dict[TopicPartition, int]:
    """Return the sizes of partitions at their leaders."""
    stopped = (NodeState.FENCED, NodeState.UNREGISTERED)
    running = [n.id for n in snapshot.nodes.values() if n.state not in stopped]
    directories, _ = settle(admin.describe_log_dirs(running, request_timeout=timeout_s))
    sizes = _sizes(directories)
    return {key: sizes.get((p.leader, key), 0) for key, p in snapshot.partitions.items()}


def _capacity(directories: Iterable[LogDirDescription]) -> int | None:
    """Return the bytes that replicas use and could use; directories with the same space share a file system."""
    online = [d for d in directories if d.error is None]
    if not online or any(d.usable_bytes < 0 for d in online):
        return None
    file_systems = {(d.total_bytes, d.usable_bytes) for d in online}
    used = sum(info.size for d in online for info in d.replica_infos.values())
    return used + sum(usable for _, usable in file_systems)


def _sent(
    grown: Mapping[TopicPartition, int], before: Mapping[str, TopicBytes], after: Mapping[str, TopicBytes]
) -> dict[TopicPartition, int]:
    """Return the bytes that partitions have sent, from those of their topics."""
    growth: Counter[str] = Counter()
    partitions: Counter[str] = Counter()
    for key, size in grown.items():
        growth[key.topic] += size
        partitions[key.topic] += 1
    sent = {}
    for key, size in grown.items():
        total = max(0, after.get(key.topic, 0) - before.get(key.topic, 0))
        whole = growth[key.topic]
        sent[key] = int(total * size / whole) if whole else int(total / partitions[key.topic])
    return sent
