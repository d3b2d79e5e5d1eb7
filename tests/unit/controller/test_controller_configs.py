"""Settings that change at run time: operations, checks, and what follows for partitions."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from example_counts import examples
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from request_values import code_of

from tidelog_foundation.config import DynamicBrokerConfig, TopicConfig, config_key, parse_config
from tidelog_foundation.config.broker import DYNAMIC_BROKER_KEYS, READ_ONLY_BROKER_KEYS, override_broker_settings
from tidelog_foundation.config.foreign import with_effect
from tidelog_foundation.errors import ErrorCode, TidelogError
from tidelog_foundation.requests.configs import (
    ConfigOperation,
    ConfigResourceChange,
    ConfigResourceName,
    ConfigResourceType,
    IncrementalAlterConfigsRequest,
)
from tidelog_foundation.requests.features import FeatureUpdate, FeatureUpgradeType, UpdateFeaturesRequest
from tidelog_node.server.config import NodeConfig
from tidelog_quorum.controller.result import Result
from tidelog_quorum.metadata.features import (
    CLIENT_METRICS_VERSION,
    ELIGIBLE_LEADER_REPLICAS_VERSION,
    METADATA_VERSION,
)
from tidelog_quorum.metadata.image import ConfigResource, MetadataImage
from tidelog_quorum.metadata.records import FeatureLevelRecord, PartitionChangeRecord
from tidelog_quorum.metadata.topic_config import (
    DEFAULT_TOPIC_CONFIG,
    broker_settings,
    cluster_topic_defaults,
    min_insync_replicas,
    topic_config,
    unclean_leader_election_enable,
)
from tidelog_quorum.server.config import QuorumConfig

TOPIC, BROKER, CLIENT_METRICS, GROUP = 2, 4, 16, 32
SET, DELETE, APPEND, SUBTRACT = 1, 2, 3, 4


def effective_topic_config(image: MetadataImage, name: str, own: TopicConfig = DEFAULT_TOPIC_CONFIG) -> TopicConfig:
    return topic_config(image, name, cluster_topic_defaults(image, own))


@pytest.fixture
def one(driver: Any) -> Any:
    driver.up(1, 2)
    driver.create("t", assignments=[[1, 2]])
    return driver


def operation(name: str, value: str = "", kind: int = SET) -> ConfigOperation:
    return ConfigOperation(name=name, value=value, type=kind)  # type: ignore[arg-type]


def change(kind: int, name: str, *operations: ConfigOperation) -> ConfigResourceChange:
    resource = ConfigResourceName(type=kind, name=name)  # type: ignore[arg-type]
    return ConfigResourceChange(resource=resource, operations=tuple(operations))


def alter_all(driver: Any, *changes: ConfigResourceChange, validate_only: bool = False) -> list[tuple[str, str, str]]:
    """Return (resource, code, message) of each result."""
    request = IncrementalAlterConfigsRequest(resources=tuple(changes), validate_only=validate_only)
    response = driver.do(driver.controller.handle, request)
    return [(r.resource.name, code_of(r.error).name, r.error.message if r.error else "") for r in response.resources]


def alter(driver: Any, kind: int, name: str, *operations: ConfigOperation) -> tuple[str, str]:
    [(_, code, message)] = alter_all(driver, change(kind, name, *operations))
    return code, message


def test_set_and_delete_change_a_topics_settings(one: Any) -> None:
    assert alter(one, TOPIC, "t", operation("retention.ms", "5"), operation("segment.ms", "7")) == ("NONE", "")
    assert one.image.config_of_topic("t") == {"retention.ms": "5", "segment.ms": "7"}
    assert alter(one, TOPIC, "t", operation("retention.ms", kind=DELETE)) == ("NONE", "")
    assert one.image.config_of_topic("t") == {"segment.ms": "7"}


def test_subscriptions_to_client_metrics_need_a_level_that_earlier_versions_refuse(driver: Any) -> None:
    interval = operation("interval.ms", "60000")
    driver.set_levels({METADATA_VERSION: CLIENT_METRICS_VERSION - 1})
    code, message = alter(driver, CLIENT_METRICS, "latency", interval)
    assert code == "UNSUPPORTED_VERSION"
    assert "subscriptions to client metrics need metadata.version 4: upgrade the feature first" in message
    driver.set_levels({METADATA_VERSION: CLIENT_METRICS_VERSION})
    assert alter(driver, CLIENT_METRICS, "latency", interval) == ("NONE", "")
    update = FeatureUpdate(METADATA_VERSION, CLIENT_METRICS_VERSION - 1, FeatureUpgradeType.SAFE_DOWNGRADE)
    with pytest.raises(TidelogError, match="the metadata log has 1 subscriptions to client metrics"):
        driver.do(driver.controller.handle, UpdateFeaturesRequest((update,)))
    assert alter(driver, CLIENT_METRICS, "latency", operation("interval.ms", kind=DELETE)) == ("NONE", "")
    driver.do(driver.controller.handle, UpdateFeaturesRequest((update,)))


def test_an_operation_without_a_type_sets(one: Any) -> None:
    assert alter(one, TOPIC, "t", operation("retention.ms", "5", 0)) == ("NONE", "")
    assert one.image.config_of_topic("t") == {"retention.ms": "5"}


def test_what_is_the_same_already_writes_nothing(one: Any) -> None:
    alter(one, TOPIC, "t", operation("retention.ms", "5"))
    entries = len(one.log)
    assert alter(one, TOPIC, "t", operation("retention.ms", "5"), operation("segment.ms", kind=DELETE)) == ("NONE", "")
    assert len(one.log) == entries


def test_append_and_subtract_change_a_list_from_its_default_on(one: Any) -> None:
    def policy(value: str, kind: int) -> str | None:
        assert alter(one, TOPIC, "t", operation("cleanup.policy", value, kind)) == ("NONE", "")
        return one.image.config_of_topic("t").get("cleanup.policy")  # type: ignore[no-any-return]

    assert policy("compact", APPEND) == "delete,compact"
    assert policy("compact, delete", APPEND) == "delete,compact"
    assert policy("delete,shred", SUBTRACT) == "compact"
    throttled = "follower.replication.throttled.replicas"
    alter(one, TOPIC, "t", operation(throttled, "0:1,0:2", APPEND))
    alter(one, TOPIC, "t", operation(throttled, "0:1", SUBTRACT))
    assert one.image.config_of_topic("t")[throttled] == "0:2"


@pytest.mark.parametrize("kind", [APPEND, SUBTRACT])
def test_only_lists_are_appended_to_and_subtracted_from(one: Any, kind: int) -> None:
    code, message = alter(one, TOPIC, "t", operation("retention.ms", "1", kind))
    assert (code, "its type is LONG, not LIST" in message) == ("INVALID_CONFIG", True)


@pytest.mark.parametrize(
    ("kind", "resource", "name", "value", "code", "text"),
    [
        (TOPIC, "t", "retention.mss", "1", "INVALID_CONFIG", 'did you mean "retention.ms"?'),
        (TOPIC, "t", "retention.ms", "x", "INVALID_CONFIG", "must be a whole number"),
        (TOPIC, "t", "retention.ms", "", "INVALID_CONFIG", "must not be empty"),
        (TOPIC, "t", "segment.bytes", "1", "INVALID_CONFIG", "must be from 14"),
        (TOPIC, "t", "min.compaction.lag.ms", str(2**63), "INVALID_CONFIG", "must fit into 64 bits"),
        (TOPIC, "t", "cleanup.policy", "shred", "INVALID_CONFIG", "must be a list of delete, compact"),
        (TOPIC, "t", "leader.replication.throttled.replicas", "1:x", "INVALID_CONFIG", "partition:broker"),
        (TOPIC, "t", "leader.replication.throttled.replicas", "*,1:1", "INVALID_CONFIG", "partition:broker"),
        (TOPIC, "x", "retention.ms", "1", "UNKNOWN_TOPIC_OR_PARTITION", "there is no topic 'x'"),
        (BROKER, "9", "log.retention.ms", "1", "BROKER_ID_NOT_REGISTERED", "there is no broker 9"),
        (BROKER, "one", "log.retention.ms", "1", "INVALID_REQUEST", "'one' is no broker id"),
        (BROKER, "01", "log.retention.ms", "1", "INVALID_REQUEST", "'01' is no broker id"),
        (BROKER, "9" * 5_000, "log.retention.ms", "1", "INVALID_REQUEST", "is no broker id"),
        (TOPIC, "t", "retention.ms", "1_000", "INVALID_CONFIG", "must be a whole number"),
        (TOPIC, "t", "retention.ms", "\u0663", "INVALID_CONFIG", "must be a whole number"),
        (TOPIC, "t", "file.delete.delay.ms", "9" * 4_000, "INVALID_CONFIG", "must fit into 64 bits"),
        (BROKER, "1", "cordoned.log.dirs", "/x", "INVALID_REQUEST", "must be * for all"),
        (BROKER, "", "cordoned.log.dirs", "*", "INVALID_REQUEST", "can be set on single brokers only"),
        (BROKER, "1", "log.dirs", "/x", "INVALID_REQUEST", "log.dirs cannot change at run time"),
        (BROKER, "", "num.partitions", "3", "INVALID_REQUEST", "num.partitions cannot change at run time"),
        (BROKER, "", "log.roll.hours", "3", "INVALID_REQUEST", "log.roll.hours cannot change at run time"),
        (BROKER, "", "log.roll.ms", "", "INVALID_REQUEST", "must not be empty"),
        (BROKER, "", "log.cleaner.threads", "1000", "INVALID_REQUEST", "below 1 MiB for each of 1000"),
        (BROKER, "", "log.cleaner.max.compaction.lag.ms", "0", "INVALID_REQUEST", "must be at least 1"),
        (BROKER, "1", "process.roles", "broker", "INVALID_REQUEST", "process.roles cannot change at run time"),
        (BROKER, "1", "ssl.keystore.location", "/x", "INVALID_REQUEST", "cannot change at run time"),
        (
            BROKER,
            "1",
            "listener.name.a.ssl.keystore.location",
            "/x",
            "INVALID_REQUEST",
            "reads changed certificates again from their files",
        ),
        (BROKER, "1", "listener.name.a.max.connections", "0", "INVALID_REQUEST", "must be from 1"),
        (BROKER, "", "listener.name.a.max.connection.creation.rate", "x", "INVALID_REQUEST", "must be a whole number"),
        (BROKER, "", "listener.name.max.connections", "5", "INVALID_REQUEST", "cannot change at run time"),
        (BROKER, "", "listener.name.a.connections.max.idle.ms", "5", "INVALID_REQUEST", "cannot change at run time"),
        (BROKER, "1", "sasl.jaas.config", "secret", "INVALID_REQUEST", "in plain text"),
        (BROKER, "", "sasl.kerberos.min.time.before.relogin", "1", "INVALID_REQUEST", "only on a single broker"),
        (BROKER, "1", "num.io.threads", "x", "INVALID_REQUEST", "must be a whole number"),
        (BROKER, "1", "num.io.threads", str(2**31), "INVALID_REQUEST", "must fit into 32 bits"),
        (BROKER, "1", "k" * 256, "1", "INVALID_REQUEST", "has 256 bytes, more than 255"),
        (BROKER, "1", "my.custom.key", "x" * 40_000, "INVALID_REQUEST", "more than 32767"),
        (3, "t", "x", "1", "INVALID_REQUEST", "neither a topic nor a broker nor a group"),
        (GROUP, "", "consumer.session.timeout.ms", "50000", "INVALID_REQUEST", "must not be empty"),
        (
            GROUP,
            "g" * 32_768,
            "consumer.session.timeout.ms",
            "50000",
            "INVALID_GROUP_ID",
            "32768 bytes, the limit is 32767",
        ),
        (GROUP, "g", "consumer.session.timeout.ms", "1", "INVALID_CONFIG", "1 is below group.consumer.min.session"),
        (GROUP, "g", "consumer.session.timeout.ms", "60001", "INVALID_CONFIG", "above group.consumer.max.session"),
        (GROUP, "g", "consumer.heartbeat.interval.ms", "4999", "INVALID_CONFIG", "below group.consumer.min.heartbeat"),
        (GROUP, "g", "consumer.heartbeat.interval.ms", "15001", "INVALID_CONFIG", "above group.consumer.max.heartbeat"),
        (GROUP, "g", "consumer.session.timeout.ms", " ", "INVALID_CONFIG", "must not be empty"),
        (GROUP, "g", "consumer.session.timeout.ms", "z", "INVALID_CONFIG", "must be a whole number"),
        (GROUP, "g", "consumer.sessions", "1", "INVALID_CONFIG", 'unknown configuration "consumer.sessions"'),
        (GROUP, "g", "share.auto.offset.reset", "earliest", "INVALID_CONFIG", "share groups (KIP-932)"),
        (GROUP, "g", "streams.num.standby.replicas", "1", "INVALID_CONFIG", "streams groups (KIP-1071)"),
    ],
)
def test_a_change_is_refused_with_the_reason(
    one: Any, kind: int, resource: str, name: str, value: str, code: str, text: str
) -> None:
    entries = len(one.log)
    found, message = alter(one, kind, resource, operation(name, value))
    assert found == code
    assert text in message
    assert len(one.log) == entries


def test_settings_of_a_group_are_within_the_controllers_limits(new_driver: Any) -> None:
    driver = new_driver(
        group_consumer_session_timeout_ms=900,
        group_consumer_min_session_timeout_ms=100,
        group_consumer_heartbeat_interval_ms=50,
        group_consumer_min_heartbeat_interval_ms=50,
    )
    session, heartbeat = "consumer.session.timeout.ms", "consumer.heartbeat.interval.ms"
    assert alter(driver, GROUP, "g", operation(session, "200"), operation(heartbeat, "60")) == ("NONE", "")
    assert driver.image.configs[ConfigResource(ConfigResourceType.GROUP, "g")] == {session: "200", heartbeat: "60"}
    code, message = alter(driver, GROUP, "g", operation(heartbeat, "200"))
    assert (code, message) == ("INVALID_CONFIG", f"{session} 200 must be greater than {heartbeat} 200")
    assert alter(driver, GROUP, "g", operation(session, kind=DELETE), operation(heartbeat, "200")) == ("NONE", "")
    image = driver.image
    assert MetadataImage().apply(image.offset, image.epoch, image.to_records()).configs == image.configs
    assert alter(driver, GROUP, "g", operation(heartbeat, kind=DELETE), operation("nope", kind=DELETE)) == ("NONE", "")
    assert not driver.image.configs


@pytest.mark.parametrize("broker", ["", "1"])
def test_settings_that_brokers_do_not_have_are_kept_beside_those_that_they_have(one: Any, broker: str) -> None:
    kept = {
        "listener.name.a.max.connections": "9",
        "my.custom.key": "v",
        "cleanup.policy": "compact",
        "num.io.threads": "7",
        "": "x",
    }
    given = {**kept, "log.retention.ms": "5"}
    assert alter(one, BROKER, broker, *(operation(k, v) for k, v in given.items())) == ("NONE", "")
    assert broker_settings(one.image, int(broker) if broker else None) == given
    assert effective_topic_config(one.image, "t").cleanup_policy == ("delete",), "a broker's key of the same name"
    assert alter(one, BROKER, broker, operation("log.retention.ms", "x"))[0] == "INVALID_REQUEST"
    assert alter(one, BROKER, broker, operation("my.custom.key", "x", APPEND))[0] == "INVALID_REQUEST"
    assert alter(one, BROKER, broker, *(operation(k, kind=DELETE) for k in given)) == ("NONE", "")
    assert not broker_settings(one.image, int(broker) if broker else None)


def test_kerberos_settings_are_kept_on_a_single_broker(one: Any) -> None:
    kept = operation("sasl.kerberos.min.time.before.relogin", "58000")
    assert alter(one, BROKER, "1", kept) == ("NONE", "")
    assert broker_settings(one.image, 1) == {kept.name: kept.value}


def test_settings_that_brokers_do_not_have_are_bounded(one: Any) -> None:
    assert alter(one, BROKER, "1", *(operation(f"k{i}", "v") for i in range(1_000))) == ("NONE", "")
    code, message = alter(one, BROKER, "1", operation("one.more", "v"))
    assert (code, "1001 settings unknown to nodes" in message) == ("POLICY_VIOLATION", True)


@pytest.mark.parametrize(("kind", "name"), [(TOPIC, "t"), (BROKER, ""), (BROKER, "1")])
@pytest.mark.parametrize("key", ["nope", "process.roles", "node.id"])
def test_a_setting_that_there_is_not_can_be_removed(one: Any, kind: int, name: str, key: str) -> None:
    assert alter(one, kind, name, operation(key, kind=DELETE)) == ("NONE", "")


def test_an_unknown_operation_is_refused(one: Any) -> None:
    assert alter(one, TOPIC, "t", operation("retention.ms", "1", 9))[0] == "INVALID_REQUEST"


def test_a_value_that_is_too_long_is_refused(one: Any) -> None:
    throttled = operation("leader.replication.throttled.replicas", "1:1," * 9_000, APPEND)
    assert alter(one, TOPIC, "t", throttled) == ("NONE", ""), "the same again counts once"
    longer = operation("leader.replication.throttled.replicas", ",".join(f"{i}:1" for i in range(9_000)))
    assert "more than 32767" in alter(one, TOPIC, "t", longer)[1]


def test_a_resource_changes_whole_or_not_at_all_and_others_do_not_suffer(one: Any) -> None:
    results = alter_all(
        one,
        change(TOPIC, "t", operation("retention.ms", "5"), operation("segment.ms", "0")),
        change(BROKER, "", operation("log.retention.ms", "7")),
    )
    assert [(name, code) for name, code, _ in results] == [("t", "INVALID_CONFIG"), ("", "NONE")]
    assert not one.image.config_of_topic("t")
    assert broker_settings(one.image) == {"log.retention.ms": "7"}


def test_a_resource_or_a_key_that_is_named_twice_is_refused(one: Any) -> None:
    twice = change(TOPIC, "t", operation("retention.ms", "5"))
    assert [code for _, code, _ in alter_all(one, twice, twice)] == ["INVALID_REQUEST"]
    assert (
        alter(one, TOPIC, "t", operation("retention.ms", "5"), operation("retention.ms", "6"))[0] == "INVALID_REQUEST"
    )
    assert not one.image.configs


def test_validate_only_changes_nothing(one: Any) -> None:
    entries = len(one.log)
    [(_, code, _)] = alter_all(one, change(TOPIC, "t", operation("retention.ms", "5")), validate_only=True)
    assert (code, len(one.log)) == ("NONE", entries)


def test_too_many_operations_are_refused(one: Any) -> None:
    operations = [operation(f"k{i}") for i in range(10_001)]
    with pytest.raises(TidelogError, match="10001 changes in one request") as caught:
        alter_all(one, change(TOPIC, "t", *operations))
    assert caught.value.code is ErrorCode.POLICY_VIOLATION


def test_the_settings_of_all_brokers_must_fit_what_is_set_on_each(one: Any) -> None:
    assert alter(one, BROKER, "2", operation("log.cleaner.min.compaction.lag.ms", "50")) == ("NONE", "")
    code, message = alter(one, BROKER, "", operation("log.cleaner.max.compaction.lag.ms", "10"))
    assert code == "INVALID_REQUEST"
    assert message.startswith("with what is set on broker 2: min.compaction.lag.ms 50 is above")
    assert alter(one, BROKER, "", operation("log.cleaner.max.compaction.lag.ms", "60")) == ("NONE", "")
    assert alter(one, BROKER, "2", operation("log.cleaner.min.compaction.lag.ms", "61"))[0] == "INVALID_REQUEST"


def test_the_resources_of_one_request_must_fit_each_other(one: Any) -> None:
    results = alter_all(
        one,
        change(BROKER, "", operation("log.cleaner.max.compaction.lag.ms", "10")),
        change(BROKER, "2", operation("log.cleaner.min.compaction.lag.ms", "50")),
        change(TOPIC, "t", operation("min.compaction.lag.ms", "60")),
    )
    assert [code for _, code, _ in results] == ["NONE", "INVALID_REQUEST", "INVALID_CONFIG"]


def test_the_controller_resolves_a_topics_settings_topic_cluster_file_default(one: Any) -> None:
    own = TopicConfig(min_insync_replicas=3, unclean_leader_election_enable=True)
    assert (min_insync_replicas(one.image, "t", own), min_insync_replicas(one.image, "t")) == (3, 1)
    assert unclean_leader_election_enable(one.image, "t", own)
    alter(one, BROKER, "", operation("min.insync.replicas", "2"), operation("unclean.leader.election.enable", "false"))
    assert min_insync_replicas(one.image, "t", own) == 2
    assert not unclean_leader_election_enable(one.image, "t", own)
    alter(one, BROKER, "", operation("log.retention.ms", "9"), operation("message.max.bytes", "77"))
    alter(one, TOPIC, "t", operation("min.insync.replicas", "1"), operation("unclean.leader.election.enable", "True"))
    found = effective_topic_config(one.image, "t", own)
    assert (found.min_insync_replicas, found.retention_ms, found.max_message_bytes) == (1, 9, 77)
    assert found.unclean_leader_election_enable
    assert unclean_leader_election_enable(one.image, "t", own)
    assert min_insync_replicas(one.image, "t", own) == 1
    assert cluster_topic_defaults(one.image, own).min_insync_replicas == 2


def use_elr(driver: Any) -> None:
    driver.append(Result([FeatureLevelRecord(ELIGIBLE_LEADER_REPLICAS_VERSION, 1)], None))
    driver.commit()


def test_with_elr_min_insync_replicas_is_the_same_for_all(one: Any) -> None:
    use_elr(one)
    setting = "min.insync.replicas"
    assert alter(one, BROKER, "", operation(setting, "2")) == ("NONE", "")
    for kind in (SET, DELETE):
        assert "cannot be set on one broker" in alter(one, BROKER, "1", operation(setting, "2", kind))[1]
    assert "cannot be removed" in alter(one, BROKER, "", operation(setting, kind=DELETE))[1]
    assert alter(one, TOPIC, "t", operation(setting, "2")) == ("NONE", "")
    assert alter(one, TOPIC, "t", operation(setting, kind=DELETE)) == ("NONE", "")


def test_without_elr_min_insync_replicas_may_differ(one: Any) -> None:
    assert alter(one, BROKER, "1", operation("min.insync.replicas", "2")) == ("NONE", "")
    assert alter(one, BROKER, "1", operation("min.insync.replicas", kind=DELETE)) == ("NONE", "")


@pytest.mark.parametrize(("kind", "name"), [(TOPIC, "t"), (BROKER, "")])
def test_fewer_min_insync_replicas_end_the_eligibility_in_the_same_entry(one: Any, kind: int, name: str) -> None:
    use_elr(one)
    alter(one, kind, name, operation("min.insync.replicas", "2"))
    topic_id = one.image.topics["t"].topic_id
    one.append(Result([PartitionChangeRecord(topic_id, 0, isr=(1,), eligible_leader_replicas=(2,))], None))
    one.commit()
    entries = len(one.log)
    alter(one, kind, name, operation("min.insync.replicas", "1"))
    assert one.partition().eligible_leader_replicas == (), "it does not have what is committed from now on"
    assert len(one.log) == entries + 1


VALUES = ("", "-1", "0", "1", "2", "50", "true", "compact", "delete", "zstd", "0.5", "*", "1:1", str(2**40))
CHANGES = st.tuples(
    st.sampled_from([(TOPIC, "t"), (BROKER, ""), (BROKER, "1"), (BROKER, "2")]),
    st.integers(1, 4),
    st.sampled_from(sorted(DYNAMIC_BROKER_KEYS))
    | st.sampled_from([config_key(f) for f in dataclasses.fields(TopicConfig)]),
    st.sampled_from(VALUES),
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=examples(60), deadline=None)
@given(st.lists(st.lists(CHANGES, min_size=1, max_size=3), min_size=1, max_size=15))
def test_whatever_is_taken_can_be_resolved_by_everybody(
    new_driver: Any, requests: list[list[tuple[tuple[int, str], int, str, str]]]
) -> None:
    driver = new_driver()
    driver.up(1, 2)
    driver.create("t", assignments=[[1, 2]])
    for request in requests:
        before = dict(driver.image.configs)
        changes = [change(*where, operation(name, value, kind)) for where, kind, name, value in request]
        results = alter_all(driver, *changes)
        assert {code for _, code, _ in results} <= {"NONE", "INVALID_CONFIG", "INVALID_REQUEST"}
        if all(code != "NONE" for _, code, _ in results):
            assert driver.image.configs == before
        effective_topic_config(driver.image, "t")
        min_insync_replicas(driver.image, "t")
        for broker_id in (1, 2):
            layers = broker_settings(driver.image), broker_settings(driver.image, broker_id)
            parse_config(DynamicBrokerConfig, override_broker_settings(*map(with_effect, layers)))
        image = driver.image
        assert MetadataImage().apply(image.offset, image.epoch, image.to_records()).configs == image.configs


def test_the_keys_that_are_read_from_files_alone_are_all_known() -> None:
    fields = [*dataclasses.fields(NodeConfig), *dataclasses.fields(QuorumConfig)]
    assert {config_key(f) for f in fields} - DYNAMIC_BROKER_KEYS == READ_ONLY_BROKER_KEYS, (
        "list the new setting in READ_ONLY_BROKER_KEYS, or declare it in DynamicBrokerConfig"
    )


def test_resources_without_operations_count_too(one: Any) -> None:
    request = IncrementalAlterConfigsRequest(resources=tuple(change(TOPIC, str(i)) for i in range(10_001)))
    with pytest.raises(TidelogError, match="10001 changes in one request") as caught:
        one.do(one.controller.handle, request)
    assert caught.value.code is ErrorCode.POLICY_VIOLATION


def test_settings_of_an_unregistered_broker_can_be_removed(one: Any) -> None:
    assert alter(one, BROKER, "2", operation("log.retention.ms", "5")) == ("NONE", "")
    one.unregister(2)
    assert alter(one, BROKER, "2", operation("log.retention.ms", kind=DELETE)) == ("NONE", "")
    assert alter(one, BROKER, "2", operation("log.retention.ms", "5"))[0] == "BROKER_ID_NOT_REGISTERED"
