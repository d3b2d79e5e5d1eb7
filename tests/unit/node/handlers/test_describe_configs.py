"""A node's description of the settings of topics, of itself and of all nodes."""

import asyncio
from dataclasses import replace

import pytest

from tidelog.v1 import log_service_pb2 as log_pb
from tidelog_foundation.config import TopicConfig, describe
from tidelog_foundation.config.providers import resolve_settings
from tidelog_foundation.errors import ErrorCode
from tidelog_foundation.requests.configs import (
    ConfigResourceName,
    ConfigResourceType,
    ConfigSource,
    DescribeConfigsRequest,
    DescribeConfigsResource,
)
from tidelog_foundation.requests.topics import DescribeTopicsRequest
from tidelog_node import handlers
from tidelog_node.server.config import NodeConfig
from tidelog_node.server.dynamic_config import DynamicNodeConfig
from tidelog_quorum.metadata.records import ConfigRecord

TOPIC, BROKER = ConfigResourceType.TOPIC, ConfigResourceType.BROKER
ON_TOPIC = ConfigSource.DYNAMIC_TOPIC_CONFIG
ON_NODE = ConfigSource.DYNAMIC_BROKER_CONFIG
ON_ALL = ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG
IN_FILE = ConfigSource.STATIC_BROKER_CONFIG
DEFAULT = ConfigSource.DEFAULT_CONFIG


async def ask(node, kind, name, *names, synonyms=True, documentation=False):
    resource = DescribeConfigsResource(resource=ConfigResourceName(type=kind, name=name), names=tuple(names))
    request = DescribeConfigsRequest(
        resources=(resource,), include_synonyms=synonyms, include_documentation=documentation
    )
    response = await handlers.describe_configs(node.context, request)
    return response.resources[0]


async def one(node, kind, name, key):
    """Return (value, source, [(synonym, value, source), ...]) of one setting."""
    result = await ask(node, kind, name, key)
    [config] = result.configs
    value = config.value
    return value, config.source, [(s.name, s.value, s.source) for s in config.synonyms]


async def change(cluster, *settings):
    """Write settings as (type, resource, key, value) and let the node take them over as its process does."""
    await cluster.controller.change(*(ConfigRecord(*s) for s in settings))
    for node in cluster.nodes.values():
        node.context.settings.follow(cluster.controller.image)


def test_a_topics_setting_is_described_with_all_layers_below_it(cluster_of):
    async def run():
        async with cluster_of(1) as cluster:
            node = cluster.nodes[1]
            await cluster.create_topic(replicas=(1,))
            await change(
                cluster,
                (BROKER, "", "log.retention.ms", "20"),
                (BROKER, "1", "log.retention.ms", "30"),
                (BROKER, "2", "log.retention.ms", "40"),
            )
            below = [
                ("log.retention.ms", "30", ON_NODE),
                ("log.retention.ms", "20", ON_ALL),
                ("log.retention.hours", "168", DEFAULT),
            ]
            assert await one(node, TOPIC, "t", "retention.ms") == ("30", ON_NODE, below)
            await change(cluster, (TOPIC, "t", "retention.ms", "10"))
            first = ("retention.ms", "10", ON_TOPIC)
            assert await one(node, TOPIC, "t", "retention.ms") == ("10", ON_TOPIC, [first, *below])
            assert await one(node, TOPIC, "t", "leader.replication.throttled.replicas") == ("", DEFAULT, [])

    asyncio.run(run())


@pytest.mark.parametrize("key", ["retention.ms", "segment.ms", "segment.jitter.ms", "flush.ms"])
def test_a_topics_default_without_a_nodes_setting_of_the_same_unit_has_no_synonym(cluster_of, key):
    async def run():
        async with cluster_of(1) as cluster:
            await cluster.create_topic(replicas=(1,))
            default = next(i.default_text for i in describe(TopicConfig) if i.key == key)
            assert await one(cluster.nodes[1], TOPIC, "t", key) == (default, DEFAULT, [])

    asyncio.run(run())


def test_every_setting_of_a_topic_and_of_the_node_is_described(cluster_of):
    async def run():
        async with cluster_of(1) as cluster:
            await cluster.create_topic(replicas=(1,))
            found = await ask(cluster.nodes[1], TOPIC, "t", documentation=True)
            assert [c.name for c in found.configs] == [i.key for i in describe(TopicConfig)]
            assert not any(c.is_read_only for c in found.configs)
            found = await ask(cluster.nodes[1], BROKER, "1", documentation=True)
            infos = {i.key: i for i in describe(NodeConfig)}
            assert {c.name for c in found.configs} == infos.keys()
            for config in found.configs:
                info = infos[config.name]
                assert (config.is_read_only, config.type) == (not info.dynamic, info.config_type)
                assert config.documentation == info.doc
            plain = await ask(cluster.nodes[1], BROKER, "1", synonyms=False)
            assert not any(c.synonyms or c.documentation for c in plain.configs)

    asyncio.run(run())


def test_the_nodes_settings_say_whether_file_or_run_time_set_them(cluster_of):
    async def run():
        async with cluster_of(1) as cluster:
            node = cluster.nodes[1]
            assert await one(node, BROKER, "1", "node.id") == ("1", IN_FILE, [("node.id", "1", IN_FILE)])
            assert await one(node, BROKER, "1", "log.retention.ms") == (None, DEFAULT, [])
            rate = ("leader.replication.throttled.rate", str(2**63 - 1), DEFAULT)
            assert await one(node, BROKER, "1", rate[0]) == (rate[1], DEFAULT, [rate])
            await change(cluster, (BROKER, "1", rate[0], "5"), (BROKER, "", "log.retention.ms", "20"))
            assert await one(node, BROKER, "1", rate[0]) == ("5", ON_NODE, [(rate[0], "5", ON_NODE), rate])
            hours = ("log.retention.hours", "168", DEFAULT)
            assert await one(node, BROKER, "1", hours[0]) == ("168", DEFAULT, [hours])
            value, source, _ = await one(node, BROKER, "1", "log.retention.ms")
            assert (value, source) == ("20", ON_ALL)

    asyncio.run(run())


def test_of_all_nodes_only_what_is_set_is_described(cluster_of):
    async def run():
        async with cluster_of(1) as cluster:
            node = cluster.nodes[1]
            assert not (await ask(node, BROKER, "")).configs
            await change(cluster, (BROKER, "", "log.cleaner.threads", "2"))
            [config] = (await ask(node, BROKER, "")).configs
            assert (config.name, config.value, config.source) == ("log.cleaner.threads", "2", ON_ALL)
            assert not (await ask(node, BROKER, "", "log.retention.ms")).configs

    asyncio.run(run())


def test_settings_that_nodes_do_not_have_are_described_as_kafka_does(cluster_of):
    async def run():
        async with cluster_of(1) as cluster:
            node = cluster.nodes[1]
            await change(
                cluster,
                (BROKER, "1", "my.key", "secret"),
                (BROKER, "", "my.key", "s"),
                (BROKER, "1", "num.io.threads", "7"),
                (BROKER, "1", "listener.name.a.max.connections", "9"),
            )
            [limit] = (await ask(node, BROKER, "1", "listener.name.a.max.connections", documentation=True)).configs
            assert (limit.value, limit.is_sensitive, limit.is_read_only, limit.type) == ("9", False, False, "INT")
            assert limit.documentation == "max.connections of one listener."
            [mine] = (await ask(node, BROKER, "1", "my.key", documentation=True)).configs
            assert (mine.source, mine.is_sensitive, mine.is_read_only, mine.type) == (ON_NODE, True, True, "UNKNOWN")
            assert mine.value is None
            assert "has no effect" in mine.documentation
            assert [(s.name, s.source, s.value) for s in mine.synonyms] == [
                ("my.key", ON_NODE, None),
                ("my.key", ON_ALL, None),
            ]
            [kafkas] = (await ask(node, BROKER, "1", "num.io.threads")).configs
            assert (kafkas.value, kafkas.is_sensitive, kafkas.is_read_only, kafkas.type) == ("7", False, False, "INT")
            [everywhere] = (await ask(node, BROKER, "")).configs
            assert (everywhere.name, everywhere.source, everywhere.value) == ("my.key", ON_ALL, None)
            assert not (await ask(node, BROKER, "", "num.io.threads")).configs

    asyncio.run(run())


@pytest.mark.parametrize(
    ("kind", "name", "code"),
    [
        (TOPIC, "x", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (TOPIC, "a/b", ErrorCode.INVALID_TOPIC_EXCEPTION),
        (BROKER, "2", ErrorCode.INVALID_REQUEST),
        (BROKER, "one", ErrorCode.INVALID_REQUEST),
        (0, "t", ErrorCode.INVALID_REQUEST),
    ],
)
def test_what_the_node_does_not_know_has_its_own_error(cluster_of, kind, name, code):
    async def run():
        async with cluster_of(1) as cluster:
            result = await ask(cluster.nodes[1], kind, name)
            assert (result.error.code, len(result.configs)) == (code, 0)

    asyncio.run(run())


def test_partitions_take_over_what_the_nodes_defaults_become(cluster_of):
    async def run():
        async with cluster_of(1) as cluster:
            node = cluster.nodes[1]
            await cluster.create_topic(replicas=(1,))
            await cluster.controller.change(ConfigRecord(TOPIC, "t", "segment.ms", "77"))
            node.registry.change_defaults(TopicConfig(segment_bytes=1_000, segment_ms=5))
            await change(cluster, (BROKER, "", "log.segment.bytes", "1000"))
            config = cluster.partition(1).log.config
            assert (config.segment_bytes, config.segment_ms) == (1_000, 77)

    asyncio.run(run())


def test_a_resource_that_is_named_again_is_described_once(cluster_of):
    async def run():
        async with cluster_of(1) as cluster:
            resource = DescribeConfigsResource(resource=ConfigResourceName(type=BROKER, name="1"))
            request = DescribeConfigsRequest(resources=tuple([resource] * 100_000))
            response = await handlers.describe_configs(cluster.nodes[1].context, request)
            assert len(response.resources) == 1

    asyncio.run(run())


def test_a_topic_that_is_named_again_is_described_once(cluster_of):
    async def run():
        async with cluster_of(1) as cluster:
            context = cluster.nodes[1].context
            await cluster.create_topic(replicas=(1,))
            named = ["t", "u"] * 50_000
            described = await handlers.describe_topics(context, DescribeTopicsRequest(topic_names=tuple(named)))
            assert [d.topic.name for d in described.topics] == ["t", "u"]
            known = await handlers.get_metadata(context, log_pb.GetMetadataRequest(topics=named))
            assert [t.name for t in known.topics] == ["t", "u"]

    asyncio.run(run())


@pytest.mark.parametrize("key", ["broker.rack", "log.retention.hours"])
def test_value_from_a_config_provider_is_described_as_sensitive_and_without_the_value(cluster_of, monkeypatch, key):
    monkeypatch.setenv("CANARY", "4711")

    async def run():
        async with cluster_of(1) as cluster:
            node = cluster.nodes[1]
            given = resolve_settings({**node.context.settings.file, key: "${env:CANARY}"})
            node.context = replace(node.context, settings=DynamicNodeConfig(given))
            [config] = (await ask(node, BROKER, "1", key)).configs
            assert (config.value, config.source, config.is_sensitive) == (None, IN_FILE, True)
            assert (config.synonyms[0].value, config.synonyms[0].source) == (None, IN_FILE)
            await cluster.create_topic(replicas=(1,))
            for resource in ((BROKER, "1"), (TOPIC, "t")):
                assert "4711" not in repr(await ask(node, *resource))

    asyncio.run(run())
