"""An administrator's program for confluent-kafka: the calls of its adminapi.py, and what it prints of the answers."""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import pytest

from tidelog import (
    OFFSET_INVALID,
    Consumer,
    ConsumerGroupState,
    ConsumerGroupTopicPartitions,
    ElectionType,
    IsolationLevel,
    KafkaError,
    KafkaException,
    TopicCollection,
    TopicPartition,
    Uuid,
)
from tidelog._model import ConsumerGroupType
from tidelog.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)

Deployment = Any


def test_topics_are_created_grown_described_and_deleted(group_cluster: Deployment) -> None:
    a, names = group_cluster.admin, [f"made-{time.monotonic_ns()}", f"made-{time.monotonic_ns()}-too"]
    created = a.create_topics([NewTopic(name, num_partitions=3, replication_factor=1) for name in names])
    assert [created[name].result() for name in names] == [None, None]
    assert a.create_partitions([NewPartitions(names[0], 4)], validate_only=False)[names[0]].result() is None

    md = a.list_topics(timeout=10)
    assert md.cluster_id == group_cluster.cluster_id
    assert md.orig_broker_name
    node = next(iter(md.brokers.values()))
    assert str(node).endswith(f":{node.port}/{node.id}")
    assert [(str(md.topics[n]), len(md.topics[n].partitions), md.topics[n].error) for n in names] == [
        (names[0], 4, None),
        (names[1], 3, None),
    ]
    assert {(p.leader, *p.replicas, *p.isrs, p.error) for p in md.topics[names[0]].partitions.values()} == {
        (node.id, node.id, node.id, None)
    }

    found = a.describe_topics(TopicCollection(names), request_timeout=10, include_authorized_operations=True)
    topics = [found[name].result() for name in names]
    assert [(t.name, t.is_internal, len(t.partitions)) for t in topics] == [(names[0], False, 4), (names[1], False, 3)]
    assert {type(t.topic_id) for t in topics} == {Uuid}
    assert [md.topics[name].topic_id for name in names] == [t.topic_id for t in topics]
    assert [len(str(t.topic_id)) for t in topics] == [22, 22]
    assert topics[0].topic_id != topics[1].topic_id
    assert "READ" in [operation.name for operation in topics[0].authorized_operations or ()]
    partition = topics[0].partitions[3]
    assert partition.id == 3
    assert str(partition.leader).startswith(f"({node.id}) {node.host}:{node.port} ")
    assert [str(n) for n in (*partition.replicas, *partition.isr)] == [str(partition.leader)] * 2

    whole = a.describe_cluster(request_timeout=10, include_authorized_operations=True).result()
    assert (whole.cluster_id, [str(n) for n in whole.nodes]) == (md.cluster_id, [str(partition.leader)])
    assert whole.controller
    assert [operation.name for operation in whole.authorized_operations or ()]

    deleted = a.delete_topics(names, operation_timeout=30)
    assert [deleted[name].result() for name in names] == [None, None]


def _line(config: ConfigEntry) -> str:
    flags = (config.is_read_only, config.is_default, config.is_sensitive, config.is_synonym)
    synonyms = [f"{x.name}:{ConfigSource(x.source)}" for x in iter(config.synonyms.values())]
    return f"{config.name} = {config.value} {ConfigSource(config.source)} {flags} {synonyms}"


def _lines(cluster: Deployment, topic: str) -> list[str]:
    """Return what is set on the topic."""
    resource = ConfigResource("TOPIC", topic)
    ((described, future),) = cluster.admin.describe_configs([resource]).items()
    assert described == resource
    set_here = (c for c in iter(future.result().values()) if c.source is ConfigSource.DYNAMIC_TOPIC_CONFIG)
    return sorted(_line(config) for config in set_here)


def test_settings_are_described_and_altered_in_three_ways(group_cluster: Deployment) -> None:
    a, topic = group_cluster.admin, group_cluster.topic(retention_ms="5000")
    flags = "ConfigSource.DYNAMIC_TOPIC_CONFIG (False, False, False, False)"

    changes = [
        ConfigEntry("compression.type", "lz4", incremental_operation=AlterConfigOpType["SET"]),
        ConfigEntry("cleanup.policy", "compact", incremental_operation=AlterConfigOpType["APPEND"]),
        ConfigEntry("retention.ms", None, incremental_operation=AlterConfigOpType["DELETE"]),
    ]
    resource = ConfigResource("TOPIC", topic, incremental_configs=changes)
    assert [f.result() for f in a.incremental_alter_configs([resource]).values()] == [None]
    lines = _lines(group_cluster, topic)
    assert [line.split(" [")[0] for line in lines] == [
        f"cleanup.policy = delete,compact {flags}",
        f"compression.type = lz4 {flags}",
    ]
    assert "log.cleanup.policy:ConfigSource.DEFAULT_CONFIG" in lines[0]

    replaced = ConfigResource("TOPIC", topic)
    replaced.set_config("segment.bytes", "2000000")
    assert [f.result() for f in a.alter_configs([replaced]).values()] == [None]
    assert [line.split(" [")[0] for line in _lines(group_cluster, topic)] == [f"segment.bytes = 2000000 {flags}"]

    delta, ended, errors = ConfigResource("TOPIC", topic), threading.Event(), list[BaseException | None]()
    delta.set_config("retention.ms", "7000")

    def write_back(future: Future[dict[str, ConfigEntry]]) -> None:
        for name, entry in [(k, v) for k, v in future.result().items() if not v.is_default]:
            delta.set_config(name, entry.value, overwrite=False)
        a.alter_configs([delta])[delta].add_done_callback(lambda f: (errors.append(f.exception()), ended.set()))

    a.describe_configs([delta])[delta].add_done_callback(write_back)
    assert ended.wait(30)
    assert errors == [None]
    altered = {line.partition(" ")[0] for line in _lines(group_cluster, topic)}
    assert altered >= {"retention.ms", "segment.bytes"}


def _read(cluster: Deployment, topic: str, group: str, reports: list[Any]) -> Consumer:
    """Return a consumer of the group that has read three records and told its statistics."""
    settings = {
        **cluster.settings,
        "group.id": group,
        "session.timeout.ms": 6000,
        "default.topic.config": {"auto.offset.reset": "smallest"},
        "stats_cb": lambda text: reports.append(json.loads(text)),
        "statistics.interval.ms": 100,
    }
    consumer = Consumer(settings, logger=logging.getLogger("consumer"))
    assigned: list[TopicPartition] = []
    consumer.subscribe([topic], on_assign=lambda _, partitions: assigned.extend(partitions))
    values, deadline = list[Any](), time.monotonic() + 30
    while (len(values) < 3 or not reports) and time.monotonic() < deadline:
        message = consumer.poll(timeout=0.1)
        if message is not None:
            assert message.error() is None
            values.append(message.value())
    assert values == [b"0", b"1", b"2"]
    assert [(p.topic, p.partition) for p in assigned] == [(topic, 0)]
    return consumer


def test_groups_are_listed_described_moved_and_deleted(group_cluster: Deployment) -> None:
    a, topic = group_cluster.admin, group_cluster.topic()
    group = f"of-{topic}"
    group_cluster.send(topic, ["0", "1", "2"])
    reports: list[Any] = []
    consumer = _read(group_cluster, topic, group, reports)
    assert reports[0]["type"] == "consumer"

    listed = {str(g): g for g in a.list_groups(timeout=10)}[group]
    assert (len(listed.members), listed.protocol, listed.protocol_type, listed.error) == (1, "range", "consumer", None)
    described = a.describe_consumer_groups([group], include_authorized_operations=True, request_timeout=10)
    g = described[group].result()
    assert (g.group_id, g.is_simple_consumer_group, g.partition_assignor) == (group, False, "range")
    assert g.state is ConsumerGroupState.STABLE
    assert str(g.coordinator).startswith("(")
    (member,) = g.members
    (client,) = listed.members
    assert (member.member_id, member.host, member.client_id) == (client.id, client.client_host, client.client_id)
    assert member.group_instance_id is None
    assert [(p.topic, p.partition) for p in member.assignment.topic_partitions] == [(topic, 0)]
    assert "READ" in [operation.name for operation in g.authorized_operations or ()]
    consumer.close()

    empty = a.list_consumer_groups(request_timeout=10, states={ConsumerGroupState.EMPTY}, types=set()).result()
    classic = a.list_consumer_groups(request_timeout=10, states=set(), types={ConsumerGroupType.CLASSIC}).result()
    for result in (empty, classic):
        assert not result.errors
        mine = next(v for v in result.valid if v.group_id == group)
        assert (mine.is_simple_consumer_group, mine.state, mine.type) == (
            False,
            ConsumerGroupState.EMPTY,
            ConsumerGroupType.CLASSIC,
        )

    for partitions in (None, [TopicPartition(topic, 0)]):
        asked = a.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group, partitions)])
        assert _offsets(asked[group]) == [(topic, 0, 3, None)]
    moved = a.alter_consumer_group_offsets([ConsumerGroupTopicPartitions(group, [TopicPartition(topic, 0, 2)])])
    assert [o[:2] for o in _offsets(moved[group])] == [(topic, 0)]

    with Consumer({**group_cluster.settings, "group.id": group}) as reader:
        partitions = [TopicPartition(topic, p) for p in reader.list_topics(topic, timeout=10).topics[topic].partitions]
        (committed,) = reader.committed(partitions, timeout=10)
        assert committed.offset not in (OFFSET_INVALID, 3)
        assert reader.get_watermark_offsets(committed, timeout=10, cached=False) == (0, 3)
    assert a.delete_consumer_groups([group], request_timeout=10)[group].result() is None


def _offsets(future: Future[ConsumerGroupTopicPartitions]) -> list[tuple[str, int, int, KafkaError | None]]:
    return [(p.topic, p.partition, p.offset, p.error) for p in future.result().topic_partitions or ()]


def test_offsets_are_listed_records_deleted_and_leaders_elected(group_cluster: Deployment) -> None:
    a, topic = group_cluster.admin, group_cluster.topic(partitions=4)
    now_ms = time.time_ns() // 1_000_000
    with group_cluster.producer() as producer:
        for n in range(3):
            producer.produce(topic, str(n), partition=0, timestamp=now_ms + n)
    specs = {
        OffsetSpec.earliest(): 0,
        OffsetSpec.latest(): 3,
        OffsetSpec.max_timestamp(): 2,
        OffsetSpec.for_timestamp(now_ms + 1): 1,
    }
    for spec, offset in specs.items():
        asked = {TopicPartition(topic, 0): spec}
        found = a.list_offsets(asked, isolation_level=IsolationLevel["READ_COMMITTED"], request_timeout=30)
        assert [(p.topic, p.partition, f.result().offset) for p, f in found.items()] == [(topic, 0, offset)]

    deleted = a.delete_records([TopicPartition(topic, 0, 2), TopicPartition(topic, 1, -1)])
    assert [(p.offset, f.result().low_watermark) for p, f in deleted.items()] == [(2, 2), (-1, 0)]

    elected = a.elect_leaders(ElectionType["PREFERRED"], [TopicPartition(topic, 0)]).result()
    assert [(p.topic, p.partition, e.args[0].code()) for p, e in elected.items()] == [
        (topic, 0, KafkaError.ELECTION_NOT_NEEDED)  # type: ignore[attr-defined]
    ]
    assert isinstance(a.elect_leaders(ElectionType["PREFERRED"], None).result(), dict)


RULE = AclBinding(
    ResourceType["TOPIC"],
    "t",
    ResourcePatternType["LITERAL"],
    "User:x",
    "*",
    AclOperation["READ"],
    AclPermissionType["ALLOW"],
)
RULES = AclBindingFilter(
    ResourceType["TOPIC"],
    None,
    ResourcePatternType["ANY"],
    None,
    None,
    AclOperation["ANY"],
    AclPermissionType["ANY"],
)
SECURED: dict[str, Callable[[Any], list[Future[Any]]]] = {
    "create_acls": lambda a: list(a.create_acls([RULE], request_timeout=10).values()),
    "describe_acls": lambda a: [a.describe_acls(RULES, request_timeout=10)],
    "delete_acls": lambda a: list(a.delete_acls([RULES], request_timeout=10).values()),
}


@pytest.mark.parametrize("call", SECURED)
def test_operations_on_security_are_refused_with_the_reason(group_cluster: Deployment, call: str) -> None:
    if group_cluster.is_secured:
        pytest.skip("the cluster has an authorizer")
    futures = SECURED[call](group_cluster.admin)
    assert futures
    for future in futures:
        with pytest.raises(KafkaException, match="No Authorizer is configured"):
            future.result(30)


def test_scram_credentials_are_set_described_and_deleted(group_cluster: Deployment) -> None:
    a = group_cluster.admin
    sha_256, sha_512 = ScramMechanism["SCRAM_SHA_256"], ScramMechanism["SCRAM_SHA_512"]
    created = a.alter_user_scram_credentials(
        [
            UserScramCredentialUpsertion("u", ScramCredentialInfo(sha_256, 4096), b"p"),
            UserScramCredentialUpsertion("v", ScramCredentialInfo(sha_512, 8192), b"p", b"salt"),
        ]
    )
    assert {user: future.result(30) for user, future in created.items()} == {"u": None, "v": None}

    def described(user: str) -> list[tuple[ScramMechanism, int]]:
        found = a.describe_user_scram_credentials([user], request_timeout=30)[user].result(30)
        return [(info.mechanism, info.iterations) for info in found.scram_credential_infos]

    assert (described("u"), described("v")) == ([(sha_256, 4096)], [(sha_512, 8192)])
    own = {"admin", "node"} if group_cluster.is_secured else set()
    assert a.describe_user_scram_credentials().result(30).keys() - own == {"u", "v"}

    changed = a.alter_user_scram_credentials(
        [
            UserScramCredentialDeletion("u", sha_256),
            UserScramCredentialDeletion("v", sha_256),
            UserScramCredentialUpsertion("w", ScramCredentialInfo(sha_256, 100_000), b"p"),
        ]
    )
    assert changed.pop("u").result(30) is None
    refused = {user: future.exception(30).args[0].code() for user, future in changed.items()}
    assert refused == {"v": KafkaError.RESOURCE_NOT_FOUND, "w": KafkaError.UNACCEPTABLE_CREDENTIAL}
    with pytest.raises(KafkaException) as caught:
        described("u")
    assert caught.value.args[0].code() == KafkaError.RESOURCE_NOT_FOUND
