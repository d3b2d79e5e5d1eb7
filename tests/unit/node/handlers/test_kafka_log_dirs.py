"""DescribeLogDirs and AlterReplicaLogDirs through Kafka's protocol, of a node with real logs."""

import asyncio

import pytest
from kafka_admin import ask, name_of, versions_of

from tidelog_node.kafka.protocol.messages.log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopic,
    DescribableLogDirTopic,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
)
from tidelog_node.kafka.served import KafkaNode


async def describe(cluster, topics, version=4):
    """Return {(topic, index): size} of the node's one directory."""
    request = DescribeLogDirsRequest(topics)
    node = KafkaNode(context=cluster.nodes[1].context, groups=None)
    response = await ask(node, request, version, DescribeLogDirsResponse)
    [directory] = response.results
    assert (response.error_code, directory.error_code) == (0, 0)
    assert directory.log_dir == str(cluster.path / "node-1")
    has_space = version >= 4
    assert (directory.total_bytes > 0, directory.usable_bytes > 0) == (has_space, has_space)
    assert not any(p.is_future_key or p.offset_lag for t in directory.topics for p in t.partitions)
    return {(t.name, p.partition_index): p.partition_size for t in directory.topics for p in t.partitions}


@pytest.mark.parametrize("version", versions_of(DescribeLogDirsRequest))
def test_log_dirs_are_described_with_all_replicas_those_named_or_none(cluster_of, version):
    async def run():
        async with cluster_of(1) as cluster:
            await cluster.create_topic(replicas=(1,), partitions=2)
            await cluster.produce(1, b"v")
            everything = await describe(cluster, None, version)
            assert everything.keys() == {("t", 0), ("t", 1)}
            assert everything["t", 0] > everything["t", 1] == 0
            named = [DescribableLogDirTopic("t", [1, 7]), DescribableLogDirTopic("x", [0])]
            assert await describe(cluster, named, version) == {("t", 1): 0}
            assert await describe(cluster, [], version) == {}

    asyncio.run(run())


@pytest.mark.parametrize("version", versions_of(AlterReplicaLogDirsRequest))
def test_replicas_are_moved_or_refused_each_with_its_own_error(cluster_of, version):
    async def run():
        async with cluster_of(1) as cluster:
            await cluster.create_topic(replicas=(1,), partitions=2)
            here, elsewhere = str(cluster.path / "node-1"), "/no/such/directory"
            request = AlterReplicaLogDirsRequest(
                [
                    AlterReplicaLogDir(here, [AlterReplicaLogDirTopic("t", [0]), AlterReplicaLogDirTopic("x", [0])]),
                    AlterReplicaLogDir(elsewhere, [AlterReplicaLogDirTopic("t", [1])]),
                ]
            )
            node = KafkaNode(context=cluster.nodes[1].context, groups=None)
            response = await ask(node, request, version, AlterReplicaLogDirsResponse)
            results = {
                (t.topic_name, p.partition_index): name_of(p.error_code) for t in response.results for p in t.partitions
            }
            assert results == {("t", 0): None, ("t", 1): "LOG_DIR_NOT_FOUND", ("x", 0): "REPLICA_NOT_AVAILABLE"}

    asyncio.run(run())
