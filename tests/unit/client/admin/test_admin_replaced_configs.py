"""alter_configs() replaces all settings of a resource; the other calls of an administrator's program."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest

from tidelog import KafkaException, TopicCollection, TopicPartition
from tidelog._model import ConsumerGroupState, ConsumerGroupType
from tidelog.admin import AdminClient, ConfigEntry, ConfigResource, ConfigSource, NewTopic, OffsetSpec
from tidelog.testing import FakeCluster

DYNAMIC = ConfigSource.DYNAMIC_TOPIC_CONFIG


@pytest.fixture
def admin() -> Iterator[AdminClient]:
    with FakeCluster() as cluster, AdminClient({"bootstrap.servers": cluster.bootstrap_servers}) as client:
        settings = {"retention.ms": "5000", "cleanup.policy": "compact"}
        client.create_topics([NewTopic("t", 1, 1, config=settings)])["t"].result()
        yield client


def _set(admin: AdminClient, topic: str = "t") -> dict[str, str | None]:
    resource = ConfigResource("topic", topic)
    found = admin.describe_configs([resource])[resource].result()
    return {name: entry.value for name, entry in found.items() if entry.source is DYNAMIC}


def test_alter_configs_sets_what_is_named_and_resets_the_rest(admin: AdminClient) -> None:
    resource = ConfigResource("topic", "t", set_config={"retention.ms": "6000", "segment.bytes": "1048576"})
    admin.alter_configs([resource], validate_only=True)[resource].result()
    assert _set(admin) == {"retention.ms": "5000", "cleanup.policy": "compact"}
    admin.alter_configs([resource], request_timeout=10)[resource].result()
    assert _set(admin) == {"retention.ms": "6000", "segment.bytes": "1048576"}


@pytest.mark.parametrize(("kind", "missing"), [("topic", "t2"), ("broker", "77")])
def test_alter_configs_fails_for_each_resource_alone(admin: AdminClient, kind: str, missing: str) -> None:
    good = ConfigResource("topic", "t", set_config={"retention.ms": "7000"})
    bad = ConfigResource(kind, missing, set_config={"retention.ms": "7000"})
    futures = admin.alter_configs([bad, good])
    with pytest.raises(KafkaException, match=missing):
        futures[bad].result()
    futures[good].result()
    assert _set(admin) == {"retention.ms": "7000"}


def test_settings_may_be_read_and_written_back_in_callbacks(admin: AdminClient) -> None:
    done = threading.Event()
    failures: list[Any] = []
    resource = ConfigResource("topic", "t", set_config={"retention.ms": "8000"})

    def write_back(future: Any) -> None:
        for name, entry in future.result().items():
            if not entry.is_default:
                resource.set_config(name, entry.value, overwrite=False)
        admin.alter_configs([resource])[resource].add_done_callback(ended)

    def ended(future: Any) -> None:
        failures.append(future.exception())
        done.set()

    admin.describe_configs([resource])[resource].add_done_callback(write_back)
    assert done.wait(30)
    assert failures == [None]
    assert _set(admin) == {"retention.ms": "8000", "cleanup.policy": "compact", "min.insync.replicas": "1"}


def test_an_administrators_program_prints_what_it_asks_for(admin: AdminClient) -> None:
    metadata = admin.list_topics(timeout=10)
    assert [str(topic) for topic in metadata.topics.values()] == ["t"]
    assert [admin.list_groups(timeout=10), metadata.topics["t"].partitions[0].error] == [[], None]
    topic = admin.describe_topics(TopicCollection(topic_names=["t"]), request_timeout=10)["t"].result()
    assert (topic.name, topic.is_internal, len(topic.partitions), str(topic.topic_id) != "") == ("t", False, 1, True)
    groups = admin.list_consumer_groups(
        request_timeout=10, states={ConsumerGroupState.STABLE}, types={ConsumerGroupType.CLASSIC}
    ).result()
    assert (groups.valid, groups.errors) == ([], [])
    cluster = admin.describe_cluster(request_timeout=10, include_authorized_operations=False).result()
    assert cluster.cluster_id == metadata.cluster_id
    assert len(cluster.nodes) == len(metadata.brokers)
    names = TopicCollection(topic_names=["t"])
    described = admin.describe_topics(names, request_timeout=10, include_authorized_operations=True)["t"].result()
    assert {operation.name for operation in described.authorized_operations or ()} >= {"READ", "WRITE"}
    whole = admin.describe_cluster(include_authorized_operations=True).result()
    assert "CLUSTER_ACTION" in [operation.name for operation in whole.authorized_operations or ()]
    group = admin.describe_consumer_groups(["g"], include_authorized_operations=True, request_timeout=10)["g"]
    with pytest.raises(KafkaException, match="g"):
        group.result()
    resource = ConfigResource("TOPIC", "t")
    for entry in admin.describe_configs([resource])[resource].result().values():
        assert isinstance(entry, ConfigEntry)
        assert isinstance(ConfigSource(entry.source), ConfigSource)
        assert all(f"{s.name}:{ConfigSource(s.source)}" for s in iter(entry.synonyms.values()))
    where = TopicPartition("t", 0)
    assert admin.list_offsets({where: OffsetSpec.latest()}, request_timeout=30)[where].result().offset == 0
