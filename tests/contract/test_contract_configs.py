"""Settings of topics that are described and changed, partitions that are added, and ids of producers."""

from __future__ import annotations

from typing import Any

import pytest
from acknowledged import wait_for

from tidelog import KafkaException, TopicPartition
from tidelog.admin import AlterConfigOpType, ConfigEntry, ConfigResource, ConfigSource, NewPartitions
from tidelog.v1 import group_service_pb2 as group_pb
from tidelog.v1 import log_service_pb2 as pb
from tidelog_foundation.config import TopicConfig, describe
from tidelog_foundation.errors import ErrorCode
from tidelog_foundation.transport import run_sync

Deployment = Any
DYNAMIC, DEFAULT = ConfigSource.DYNAMIC_TOPIC_CONFIG, ConfigSource.DEFAULT_CONFIG


def resource(topic: str, *changes: ConfigEntry) -> ConfigResource:
    return ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=changes)


def entry(name: str, value: str | None = None, kind: AlterConfigOpType = AlterConfigOpType.SET) -> ConfigEntry:
    return ConfigEntry(name, value, incremental_operation=kind)


def settings(cluster: Deployment, topic: str) -> dict[str, ConfigEntry]:
    found: dict[str, ConfigEntry] = cluster.admin.describe_configs([resource(topic)])[resource(topic)].result(30)
    return found


def alter(cluster: Deployment, topic: str, *changes: ConfigEntry, **fields: Any) -> None:
    wanted = resource(topic, *changes)
    cluster.admin.incremental_alter_configs([wanted], **fields)[wanted].result(30)


def test_describe_configs_names_every_setting_of_a_topic_with_its_source(cluster: Deployment) -> None:
    topic = cluster.topic(retention_ms="5000")
    found = settings(cluster, topic)
    assert list(found) == [info.key for info in describe(TopicConfig)]
    retention, segment = found["retention.ms"], found["segment.bytes"]
    assert (retention.value, retention.source, retention.is_default) == ("5000", DYNAMIC, False)
    assert (retention.synonym_chain[0].name, retention.synonym_chain[0].value) == ("retention.ms", "5000")
    assert (segment.value, segment.source, segment.is_default) == ("1073741824", DEFAULT, True)
    assert [(s.name, s.source) for s in segment.synonym_chain] == [("log.segment.bytes", DEFAULT)]
    assert [len(found[key].synonyms) for key in ("flush.ms", "segment.ms", "segment.jitter.ms")] == [0, 0, 0]
    assert len(retention.synonyms) == 1
    assert {e.config_type for e in found.values()} == {"BOOLEAN", "STRING", "INT", "LONG", "DOUBLE", "LIST"}
    types = {name: e.config_type for name, e in found.items()}
    assert (types["segment.bytes"], types["segment.ms"], types["min.insync.replicas"]) == ("INT", "LONG", "INT")
    assert found["cleanup.policy"].config_type == "LIST"
    assert not any(e.is_read_only or e.is_sensitive for e in found.values())
    assert all(e.documentation for e in found.values())


def test_incremental_alter_configs_sets_deletes_appends_and_subtracts(cluster: Deployment) -> None:
    topic = cluster.topic(retention_ms="5000")
    alter(
        cluster,
        topic,
        entry("retention.ms", kind=AlterConfigOpType.DELETE),
        entry("segment.bytes", "2000"),
        entry("cleanup.policy", "compact", AlterConfigOpType.APPEND),
    )
    found = settings(cluster, topic)
    assert (found["retention.ms"].value, found["retention.ms"].source) == ("604800000", DEFAULT)
    assert (found["segment.bytes"].value, found["segment.bytes"].source) == ("2000", DYNAMIC)
    assert found["cleanup.policy"].value == "delete,compact"
    alter(cluster, topic, entry("cleanup.policy", "delete", AlterConfigOpType.SUBTRACT))
    assert settings(cluster, topic)["cleanup.policy"].value == "compact"
    assert cluster.admin.describe_topics([topic])[topic].result(30).config == {
        "cleanup.policy": "compact",
        "segment.bytes": "2000",
    }


def test_a_changed_setting_takes_effect_at_once(cluster: Deployment) -> None:
    topic = cluster.topic()
    cluster.send(topic, [b"x" * 3_000])
    alter(cluster, topic, entry("max.message.bytes", "1000"))
    reports: list[Any] = []
    with cluster.producer() as producer:
        producer.produce(topic, b"x" * 3_000, on_delivery=lambda error, message: reports.append(error))
        assert producer.flush(30) == 0
    assert reports[0].name() == "MESSAGE_TOO_LARGE"
    alter(cluster, topic, entry("max.message.bytes", kind=AlterConfigOpType.DELETE))
    cluster.send(topic, [b"x" * 3_000])


@pytest.mark.parametrize(
    ("change", "code", "text"),
    [
        (entry("retention.mss", "1"), "INVALID_CONFIG", 'did you mean "retention.ms"?'),
        (entry("retention.ms", "soon"), "INVALID_CONFIG", "must be a whole number"),
        (entry("segment.bytes", "1"), "INVALID_CONFIG", "must be from 14"),
        (entry("retention.ms", "1", AlterConfigOpType.APPEND), "INVALID_CONFIG", "its type is LONG, not LIST"),
    ],
    ids=lambda value: getattr(value, "name", None),
)
def test_incremental_alter_configs_says_what_is_wrong(
    cluster: Deployment, change: ConfigEntry, code: str, text: str
) -> None:
    topic = cluster.topic()
    with pytest.raises(KafkaException) as caught:
        alter(cluster, topic, entry("segment.ms", "7"), change)
    assert (caught.value.code.name, text in caught.value.message) == (code, True), caught.value
    assert cluster.admin.describe_topics([topic])[topic].result(30).config == {}, "changed in part"


def test_incremental_alter_configs_removes_a_setting_that_there_is_not(cluster: Deployment) -> None:
    topic = cluster.topic(segment_ms="7")
    alter(cluster, topic, entry("retention.mss", kind=AlterConfigOpType.DELETE))
    assert cluster.admin.describe_topics([topic])[topic].result(30).config == {"segment.ms": "7"}


def test_incremental_alter_configs_refuses_a_setting_that_is_named_twice(cluster: Deployment) -> None:
    topic = cluster.topic()
    with pytest.raises(KafkaException, match="INVALID_REQUEST"):
        alter(cluster, topic, entry("segment.ms", "7"), entry("segment.ms", "8"))


def test_incremental_alter_configs_only_validates_when_asked_to(cluster: Deployment) -> None:
    topic = cluster.topic()
    alter(cluster, topic, entry("segment.ms", "7"), validate_only=True)
    assert cluster.admin.describe_topics([topic])[topic].result(30).config == {}


def test_settings_of_an_unknown_topic_are_refused(cluster: Deployment) -> None:
    missing = resource("no-such-topic", entry("segment.ms", "7"))
    for ask in (cluster.admin.describe_configs, cluster.admin.incremental_alter_configs):
        with pytest.raises(KafkaException) as caught:
            ask([missing])[missing].result(30)
        assert caught.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def group_settings(cluster: Deployment, group: ConfigResource) -> dict[str, tuple[str, ConfigSource]]:
    found = cluster.admin.describe_configs([group])[group].result(30)
    return {name: (found_entry.value, found_entry.source) for name, found_entry in found.items()}


def test_settings_of_a_group_are_set_described_and_removed(cluster: Deployment) -> None:
    group = ConfigResource(ConfigResource.Type.GROUP, cluster.topic())
    session, heartbeat = "consumer.session.timeout.ms", "consumer.heartbeat.interval.ms"
    before = group_settings(cluster, group)
    assert (list(before), before[session][1]) == ([session, heartbeat], DEFAULT)
    group.incremental_configs = [entry(session, "50000"), entry(heartbeat, "6000")]
    cluster.admin.incremental_alter_configs([group])[group].result(30)
    changed = ConfigSource.GROUP_CONFIG
    assert group_settings(cluster, group) == {session: ("50000", changed), heartbeat: ("6000", changed)}
    group.incremental_configs = [entry(key, kind=AlterConfigOpType.DELETE) for key in (session, heartbeat)]
    cluster.admin.incremental_alter_configs([group])[group].result(30)
    assert group_settings(cluster, group) == before


@pytest.mark.parametrize(
    ("name", "key", "value", "code", "text"),
    [
        ("g", "consumer.session.timeout.ms", "1", "INVALID_CONFIG", "below group.consumer.min.session.timeout.ms"),
        ("g", "consumer.session.timeout.ms", "61000", "INVALID_CONFIG", "above group.consumer.max.session.timeout.ms"),
        ("g", "consumer.session.timeout.ms", "", "INVALID_CONFIG", "must not be empty"),
        ("g", "consumer.heartbeat.interval.ms", "x", "INVALID_CONFIG", "must be a whole number"),
        ("g", "consumer.heartbeat.interval", "1", "INVALID_CONFIG", 'did you mean "consumer.heartbeat.interval.ms"?'),
        ("g", "share.session.timeout.ms", "50000", "INVALID_CONFIG", "share groups (KIP-932) are not supported"),
        ("g", "streams.num.standby.replicas", "1", "INVALID_CONFIG", "streams groups (KIP-1071) are not supported"),
        ("", "consumer.session.timeout.ms", "50000", "INVALID_REQUEST", "must not be empty"),
    ],
)
def test_settings_of_a_group_are_refused_with_the_reason(
    cluster: Deployment, name: str, key: str, value: str, code: str, text: str
) -> None:
    group = ConfigResource(ConfigResource.Type.GROUP, name, incremental_configs=[entry(key, value)])
    with pytest.raises(KafkaException) as caught:
        cluster.admin.incremental_alter_configs([group])[group].result(30)
    assert (caught.value.code.name, text in caught.value.message) == (code, True), caught.value


def test_members_keep_to_what_is_set_on_their_group(group_cluster: Deployment) -> None:
    name, client = group_cluster.topic(), group_cluster.client
    group = ConfigResource(ConfigResource.Type.GROUP, name)

    async def beat(epoch: int) -> group_pb.ConsumerGroupHeartbeatResponse:
        request = group_pb.ConsumerGroupHeartbeatRequest(
            group_id=name,
            member_id="m",
            member_epoch=epoch,
            rebalance_timeout_ms=5_000,
            subscribed_topic_names=group_pb.SubscribedTopicNames(names=[name]),
            topic_partitions=group_pb.MemberTopics(),
        )
        metadata = await client.refresh([])
        connection = client.connection(next(iter(metadata.brokers)))
        # Has the topic of groups created.
        wanted = group_pb.FindCoordinatorRequest(group_ids=[name])
        await connection.call(lambda c: c.groups.FindCoordinator(wanted, timeout=10))
        return await connection.call(lambda c: c.groups.ConsumerGroupHeartbeat(request, timeout=10))

    def told_interval() -> int:
        answer = run_sync(beat(0), 30)
        return 0 if answer.HasField("error") else answer.heartbeat_interval_ms

    wait_for(lambda: told_interval() == 100, "the coordinator's interval")
    group.incremental_configs = [entry("consumer.heartbeat.interval.ms", "7000")]
    group_cluster.admin.incremental_alter_configs([group])[group].result(30)
    wait_for(lambda: told_interval() == 7_000, "the group's interval")
    group.incremental_configs = [entry("consumer.heartbeat.interval.ms", kind=AlterConfigOpType.DELETE)]
    group_cluster.admin.incremental_alter_configs([group])[group].result(30)
    wait_for(lambda: told_interval() == 100, "the coordinator's interval")


def test_create_partitions_adds_partitions_that_can_be_used_at_once(cluster: Deployment) -> None:
    topic = cluster.topic(2)
    cluster.send(topic, [b"old"], partition=1)
    cluster.admin.create_partitions([NewPartitions(topic, 4)])[topic].result(30)
    described = cluster.admin.describe_topics([topic])[topic].result(30)
    assert [p.id for p in described.partitions] == [0, 1, 2, 3]
    assert all(p.leader is not None for p in described.partitions)
    cluster.send(topic, [b"new"], partition=3)
    with cluster.consumer() as consumer:
        consumer.assign([TopicPartition(topic, 1, 0), TopicPartition(topic, 3, 0)])
        assert {m.value() for m in consumer.consume(2, 30)} == {b"old", b"new"}


@pytest.mark.parametrize(
    ("count", "assignment", "code"),
    [
        (2, (), "INVALID_PARTITIONS"),
        (1, (), "INVALID_PARTITIONS"),
        (4, [[1]], "INVALID_REPLICA_ASSIGNMENT"),
        (3, [[9]], "INVALID_REPLICA_ASSIGNMENT"),
        (3, [[1, 1]], "INVALID_REPLICA_ASSIGNMENT"),
    ],
)
def test_create_partitions_says_what_is_wrong(
    cluster: Deployment, count: int, assignment: list[list[int]], code: str
) -> None:
    topic = cluster.topic(2)
    with pytest.raises(KafkaException, match=code):
        cluster.admin.create_partitions([NewPartitions(topic, count, assignment)])[topic].result(30)
    assert len(cluster.admin.describe_topics([topic])[topic].result(30).partitions) == 2


def test_create_partitions_follows_an_assignment_and_only_validates_when_asked_to(cluster: Deployment) -> None:
    topic = cluster.topic()
    wanted = [NewPartitions(topic, 2, [[1]])]
    cluster.admin.create_partitions(wanted, validate_only=True)[topic].result(30)
    assert len(cluster.admin.describe_topics([topic])[topic].result(30).partitions) == 1
    cluster.admin.create_partitions(wanted)[topic].result(30)
    assert len(cluster.admin.describe_topics([topic])[topic].result(30).partitions) == 2


def test_init_producer_id_gives_each_an_id_of_its_own(cluster: Deployment) -> None:
    async def ids() -> list[tuple[int, int]]:
        metadata = await cluster.client.refresh([])
        stub = cluster.client.connection(next(iter(metadata.brokers))).log
        answers = [await stub.InitProducerId(pb.InitProducerIdRequest(), timeout=10) for _ in range(3)]
        return [(a.producer_id, a.producer_epoch) for a in answers]

    found = run_sync(ids(), 30)
    assert len(set(found)) == 3
    assert {epoch for _, epoch in found} == {0}


def test_levels_of_a_nodes_loggers_are_described_and_changed_on_that_node(cluster: Deployment) -> None:
    name = "tidelog_node.handlers"
    node = min(cluster.admin.list_topics(timeout=30).brokers)
    of_loggers = ConfigResource(ConfigResource.Type.BROKER_LOGGER, str(node))

    def level() -> Any:
        described = cluster.admin.describe_configs([of_loggers])[of_loggers].result(30)
        assert described[name].source is ConfigSource.DYNAMIC_BROKER_LOGGER_CONFIG
        return described[name].value

    def change(*changes: ConfigEntry) -> None:
        wanted = ConfigResource(ConfigResource.Type.BROKER_LOGGER, str(node), incremental_configs=changes)
        cluster.admin.incremental_alter_configs([wanted])[wanted].result(30)

    before = level()
    change(entry(name, "ERROR"))
    assert level() == "ERROR"
    change(entry(name, kind=AlterConfigOpType.DELETE))
    assert level() == before
    with pytest.raises(KafkaException) as refused:
        change(entry("no.such.logger", "DEBUG"))
    assert refused.value.args[0].code() == ErrorCode.INVALID_CONFIG.code
