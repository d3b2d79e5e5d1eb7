"""The admin client's settings, partitions and features: names, shapes and requests as confluent-kafka's."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tidelog import AdminClient, KafkaException, NewTopic
from tidelog.admin import AlterConfigOpType, ConfigEntry, ConfigResource, ConfigSource, NewPartitions, ResourceType
from tidelog.testing import FakeCluster
from tidelog_foundation.errors import ErrorCode


@pytest.fixture
def admin() -> Iterator[AdminClient]:
    with FakeCluster() as cluster, AdminClient({"bootstrap.servers": cluster.bootstrap_servers}) as client:
        client.create_topics([NewTopic("t", 1)])["t"].result(10)
        yield client


@pytest.mark.parametrize("given", [ResourceType.TOPIC, ConfigResource.Type.TOPIC, "topic", "TOPIC", 2])
def test_a_resource_is_what_it_names(given: ResourceType | str | int) -> None:
    resource = ConfigResource(given, "t", set_config={"retention.ms": "1"})
    assert resource == ConfigResource("topic", "t")
    assert hash(resource) == hash(ConfigResource("topic", "t"))
    assert resource != ConfigResource("topic", "u")
    assert resource != ConfigResource("broker", "t")
    assert (resource.restype, resource.restype_int, resource.name) == (ResourceType.TOPIC, 2, "t")
    assert sorted([ConfigResource("broker", "1"), resource])[0] is resource


def test_set_config_is_kept_or_replaced() -> None:
    resource = ConfigResource("topic", "t")
    resource.set_config("a", "1")
    resource.set_config("a", "2", overwrite=False)
    assert resource.set_config_dict == {"a": "1"}
    resource.set_config("a", "2")
    assert resource.set_config_dict == {"a": "2"}


def test_set_config_and_incremental_configs_are_one_change(admin: AdminClient) -> None:
    resource = ConfigResource("topic", "t", set_config={"retention.ms": "7"})
    append = ConfigEntry("cleanup.policy", "compact", incremental_operation=AlterConfigOpType.APPEND)
    resource.add_incremental_config(append)
    admin.incremental_alter_configs([resource])[resource].result(10)
    found = admin.describe_configs([resource])[resource].result(10)
    assert (str(found["retention.ms"]), str(found["cleanup.policy"])) == (
        'retention.ms="7"',
        'cleanup.policy="delete,compact"',
    )
    assert found["retention.ms"].source is ConfigSource.DYNAMIC_TOPIC_CONFIG


def test_a_change_without_an_operation_is_refused_before_it_is_sent(admin: AdminClient) -> None:
    resource = ConfigResource("topic", "t", incremental_configs=[ConfigEntry("retention.ms", "1")])
    with pytest.raises(KafkaException, match=r"retention\.ms has no incremental_operation"):
        admin.incremental_alter_configs([resource])


@pytest.mark.parametrize(("name", "code"), [("7", "BROKER_ID_NOT_REGISTERED"), ("one", "_INVALID_ARG")])
def test_the_settings_of_a_node_that_there_is_not_are_refused(admin: AdminClient, name: str, code: str) -> None:
    resource = ConfigResource("broker", name)
    with pytest.raises(KafkaException, match=code):
        admin.describe_configs([resource])[resource].result(10)


def test_a_resource_that_is_named_twice_is_described_once(admin: AdminClient) -> None:
    resources = [ConfigResource("topic", "t"), ConfigResource("topic", "t")]
    futures = admin.describe_configs(resources)
    assert list(futures) == resources[:1]
    assert "retention.ms" in futures[resources[0]].result(10)


@pytest.mark.parametrize("count", [2**40, "many"])
def test_new_partitions_that_a_request_cannot_carry_are_refused(admin: AdminClient, count: object) -> None:
    with pytest.raises(KafkaException) as caught:
        admin.create_partitions([NewPartitions("t", count)])  # type: ignore[arg-type]
    assert caught.value.code is ErrorCode._INVALID_ARG
