"""Descriptions and changes of settings in all versions, against a controller's core."""

import pytest
from kafka_admin import AdminNode, name_of, versions_of
from kafka_metadata import ImageNode, broker

from tidelog_foundation.errors import ErrorCode, error_for
from tidelog_foundation.requests.configs import ConfigResourceType
from tidelog_node.kafka.protocol.messages.configs import (
    AlterableConfig,
    AlterConfigsRequest,
    AlterConfigsResource,
    AlterConfigsResponse,
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
    IncrementalAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
    IncrementalAlterConfigsResponse,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)
from tidelog_quorum.controller.result import Result
from tidelog_quorum.metadata.features import CLIENT_METRICS_VERSION, METADATA_VERSION
from tidelog_quorum.metadata.records import ConfigRecord, FeatureLevelRecord

TOPIC, BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP = 2, 4, 8, 16, 32
SET, DELETE, APPEND, SUBTRACT = 0, 1, 2, 3
TIMED_OUT = error_for(ErrorCode.REQUEST_TIMED_OUT, "no controller answered")


def describe(node, kind, name, *keys, version=4, synonyms=False, documentation=False):
    resource = DescribeConfigsResource(kind, name, list(keys) or None)
    response = node.ask(DescribeConfigsRequest([resource], synonyms, documentation), version, DescribeConfigsResponse)
    [result] = response.results
    assert (result.resource_type, result.resource_name) == (kind, name)
    return result


@pytest.mark.parametrize("version", versions_of(DescribeConfigsRequest))
def test_describe_configs_of_a_topic_says_where_each_value_comes_from(version):
    node = AdminNode(1)
    node.create("t", configs={"retention.ms": "10"})
    everything = describe(node, TOPIC, "t", version=version, synonyms=True, documentation=True)
    assert (everything.error_code, everything.error_message) == (0, None)
    by_name = {c.name: c for c in everything.configs}
    assert len(by_name) > 20
    own = by_name["retention.ms"]
    assert (own.value, own.config_source, own.read_only, own.is_sensitive) == ("10", 1, False, False)
    assert [(s.name, s.value, s.source) for s in own.synonyms] == [("retention.ms", "10", 1)]
    has_more = version >= 3
    assert own.config_type == (5 if has_more else 0)
    assert bool(own.documentation) is has_more
    types = {name: by_name[name].config_type for name in ("cleanup.policy", "min.insync.replicas", "preallocate")}
    assert types == ({"cleanup.policy": 7, "min.insync.replicas": 3, "preallocate": 1} if has_more else types)


def test_describe_configs_shows_the_named_settings_alone_and_leaves_out_what_is_not_asked_for():
    node = AdminNode(1)
    node.create("t")
    [config] = describe(node, TOPIC, "t", "retention.ms", "no.such").configs
    assert (config.name, config.value, config.config_source) == ("retention.ms", str(7 * 86_400_000), 5)
    assert (config.synonyms, config.documentation) == ([], None)


def test_describe_configs_of_the_node_shows_what_is_read_only_and_what_is_set_at_run_time():
    node = AdminNode(1)
    assert alter(node, (BROKER, "", ("log.cleaner.threads", SET, "2"))) == [(BROKER, "", None)]
    node.settings.follow(node.image)
    configs = {c.name: c for c in describe(node, BROKER, "1").configs}
    assert (configs["node.id"].read_only, configs["node.id"].config_source) == (True, 4)
    threads = configs["log.cleaner.threads"]
    assert (threads.value, threads.read_only, threads.config_source) == ("2", False, 3)
    [of_all] = describe(node, BROKER, "").configs
    assert (of_all.name, of_all.value, of_all.config_source) == ("log.cleaner.threads", "2", 3)


def test_describe_configs_of_a_group_shows_what_its_coordinator_goes_by():
    node = AdminNode(1)
    configs = describe(node, GROUP, "g", synonyms=True).configs
    assert {c.name: (c.value, c.config_source, c.config_type) for c in configs} == {
        "consumer.session.timeout.ms": ("45000", 5, 3),
        "consumer.heartbeat.interval.ms": ("5000", 5, 3),
    }


def test_settings_of_a_group_are_altered_described_and_listed():
    node = AdminNode(1)
    session = "consumer.session.timeout.ms"
    assert alter(node, (GROUP, "g", (session, SET, "50000"))) == [(GROUP, "g", None)]
    [config] = describe(node, GROUP, "g", session, synonyms=True).configs
    assert (config.value, config.config_source, config.read_only, config.config_type) == ("50000", 8, False, 3)
    assert [(s.name, s.value, s.source) for s in config.synonyms] == [(session, "50000", 8)]
    assert replace(node, (GROUP, "g", {})) == [(GROUP, "g", None)]
    [config] = describe(node, GROUP, "g", session).configs
    assert (config.value, config.config_source) == ("45000", 5)


@pytest.mark.parametrize(
    ("kind", "name", "error"),
    [
        (TOPIC, "x", "UNKNOWN_TOPIC_OR_PARTITION"),
        (TOPIC, "a/b", "INVALID_TOPIC_EXCEPTION"),
        (BROKER, "2", "INVALID_REQUEST"),
        (BROKER, "one", "INVALID_REQUEST"),
        (GROUP, "", "INVALID_REQUEST"),
        (BROKER_LOGGER, "2", "INVALID_REQUEST"),
        (CLIENT_METRICS, "", "INVALID_REQUEST"),
        (0, "x", "INVALID_REQUEST"),
        (-7, "x", "INVALID_REQUEST"),
    ],
)
def test_describe_configs_answers_with_an_error_for_what_the_node_does_not_know(kind, name, error):
    result = describe(AdminNode(1), kind, name)
    assert (name_of(result.error_code), result.configs) == (error, [])
    assert result.error_message


def list_resources(node, *kinds, version=1, listener="PLAINTEXT"):
    """Return (error, [(type, name), ...])."""
    response = node.ask(ListConfigResourcesRequest(list(kinds)), version, ListConfigResourcesResponse, listener)
    return name_of(response.error_code), [(r.resource_type, r.resource_name) for r in response.config_resources]


def node_with_topics():
    node = ImageNode(broker(1, "PLAINTEXT"), broker(2, "PLAINTEXT", "INTERNAL", fenced=True), broker(3, "INTERNAL"))
    node.add_topic("a", [1])
    node.add_topic("b", [1])
    return node


def test_list_config_resources_lists_the_brokers_with_the_listener_and_the_topics():
    node = node_with_topics()
    brokers, topics = [(BROKER, "1"), (BROKER, "2")], [(TOPIC, "a"), (TOPIC, "b")]
    loggers = [(BROKER_LOGGER, "1"), (BROKER_LOGGER, "2")]
    assert list_resources(node) == (None, loggers + brokers + topics)
    assert list_resources(node, TOPIC, BROKER, TOPIC) == (None, brokers + topics)
    assert list_resources(node, TOPIC) == (None, topics)
    assert list_resources(node, BROKER) == (None, brokers)
    assert list_resources(node, BROKER, listener="INTERNAL") == (None, [(BROKER, "2"), (BROKER, "3")])
    assert list_resources(node, BROKER_LOGGER) == (None, loggers)
    assert list_resources(node, GROUP, CLIENT_METRICS) == (None, [])


def test_list_config_resources_lists_the_groups_on_which_something_is_set():
    node = node_with_topics()
    records = [ConfigRecord(ConfigResourceType.GROUP, name, "consumer.session.timeout.ms", "50000") for name in "gh"]
    node.add(*records)
    groups = [(GROUP, "g"), (GROUP, "h")]
    assert list_resources(node, GROUP) == (None, groups)
    assert list_resources(node)[1][-2:] == groups


def test_list_config_resources_lists_client_metrics_alone_in_version_0():
    assert list_resources(node_with_topics(), version=0) == (None, [])


@pytest.mark.parametrize("kind", [-1, 0, 1, 3, 64])
def test_list_config_resources_refuses_all_for_a_type_that_there_is_not(kind):
    assert list_resources(node_with_topics(), TOPIC, kind) == ("UNSUPPORTED_VERSION", [])


def alter(node, *resources, version=1, validate_only=False):
    """Change (type, name, (key, operation, value), ...); returns [(type, name, error)]."""
    wanted = [
        IncrementalAlterConfigsResource(kind, name, [IncrementalAlterableConfig(*c) for c in changes])
        for kind, name, *changes in resources
    ]
    request = IncrementalAlterConfigsRequest(wanted, validate_only)
    return shown(node.ask(request, version, IncrementalAlterConfigsResponse))


def replace(node, *resources, version=2, validate_only=False):
    """Replace all settings of (type, name, {key: value}); returns [(type, name, error)]."""
    wanted = [
        AlterConfigsResource(kind, name, [AlterableConfig(*c) for c in settings.items()])
        for kind, name, settings in resources
    ]
    return shown(node.ask(AlterConfigsRequest(wanted, validate_only), version, AlterConfigsResponse))


def shown(response):
    assert all((r.error_message is None) is (r.error_code == 0) for r in response.responses)
    return [(r.resource_type, r.resource_name, name_of(r.error_code)) for r in response.responses]


@pytest.mark.parametrize("version", versions_of(IncrementalAlterConfigsRequest))
def test_incremental_alter_configs_sets_removes_appends_and_subtracts(version):
    node = AdminNode(1)
    node.create("t", configs={"retention.ms": "10", "segment.ms": "20"})
    changes = [
        ("segment.ms", SET, "30"),
        ("retention.ms", DELETE, None),
        ("cleanup.policy", APPEND, "compact"),
    ]
    assert alter(node, (TOPIC, "t", *changes), version=version) == [(TOPIC, "t", None)]
    assert node.image.config_of_topic("t") == {"segment.ms": "30", "cleanup.policy": "delete,compact"}
    assert alter(node, (TOPIC, "t", ("cleanup.policy", SUBTRACT, "delete")), version=version) == [(TOPIC, "t", None)]
    assert node.image.config_of_topic("t")["cleanup.policy"] == "compact"


def test_incremental_alter_configs_refuses_a_resource_with_its_own_error():
    node = AdminNode(1)
    for name in ("good", "null", "operation", "value", "list", "twice"):
        node.create(name)
    answer = alter(
        node,
        (TOPIC, "good", ("segment.ms", SET, "30")),
        (TOPIC, "null", ("segment.ms", SET, None)),
        (TOPIC, "operation", ("segment.ms", 4, "1")),
        (TOPIC, "value", ("segment.ms", SET, "soon")),
        (TOPIC, "list", ("segment.ms", APPEND, "1")),
        (TOPIC, "twice", ("segment.ms", SET, "1")),
        (TOPIC, "twice", ("segment.ms", SET, None)),
        (TOPIC, "missing", ("segment.ms", SET, "1")),
        (TOPIC, "a/b", ("segment.ms", SET, "1")),
        (BROKER, "1", ("node.id", SET, "2")),
        (BROKER, "9", ("log.cleaner.threads", SET, "2")),
        (BROKER_LOGGER, "1", ("no.such.logger", SET, "DEBUG")),
        (BROKER_LOGGER, "2", ("root", SET, "DEBUG")),
        (GROUP, "g", ("consumer.session.timeout.ms", SET, "5")),
        (GROUP, "", ("consumer.session.timeout.ms", SET, "50000")),
    )
    assert {(kind, name): error for kind, name, error in answer} == {
        (TOPIC, "good"): None,
        (TOPIC, "null"): "INVALID_REQUEST",
        (TOPIC, "operation"): "INVALID_REQUEST",
        (TOPIC, "value"): "INVALID_CONFIG",
        (TOPIC, "list"): "INVALID_CONFIG",
        (TOPIC, "twice"): "INVALID_REQUEST",
        (TOPIC, "missing"): "UNKNOWN_TOPIC_OR_PARTITION",
        (TOPIC, "a/b"): "INVALID_TOPIC_EXCEPTION",
        (BROKER, "1"): "INVALID_REQUEST",
        (BROKER, "9"): "BROKER_ID_NOT_REGISTERED",
        (BROKER_LOGGER, "1"): "INVALID_CONFIG",
        (BROKER_LOGGER, "2"): "INVALID_REQUEST",
        (GROUP, "g"): "INVALID_CONFIG",
        (GROUP, ""): "INVALID_REQUEST",
    }
    assert len(answer) == 14
    assert [node.image.config_of_topic(name) for name in ("good", "twice")] == [{"segment.ms": "30"}, {}]


@pytest.mark.parametrize("version", versions_of(AlterConfigsRequest))
def test_alter_configs_replaces_all_settings_of_a_resource(version):
    node = AdminNode(1)
    node.create("t", configs={"retention.ms": "10", "segment.ms": "20"})
    node.create("u", configs={"retention.ms": "10"})
    wanted = [(TOPIC, "t", {"segment.ms": "30", "retention.bytes": "5"}), (TOPIC, "u", {})]
    assert replace(node, *wanted, version=version) == [(TOPIC, "t", None), (TOPIC, "u", None)]
    assert node.image.config_of_topic("t") == {"segment.ms": "30", "retention.bytes": "5"}
    assert node.image.config_of_topic("u") == {}


def test_alter_configs_refuses_a_resource_with_its_own_error_and_leaves_it_as_it_is():
    node = AdminNode(1)
    for name in ("null", "value"):
        node.create(name, configs={"retention.ms": "10"})
    answer = replace(
        node,
        (TOPIC, "null", {"segment.ms": None}),
        (TOPIC, "value", {"segment.ms": "soon"}),
        (TOPIC, "missing", {}),
        (CLIENT_METRICS, "", {}),
    )
    assert answer == [
        (TOPIC, "null", "INVALID_REQUEST"),
        (TOPIC, "value", "INVALID_CONFIG"),
        (TOPIC, "missing", "UNKNOWN_TOPIC_OR_PARTITION"),
        (CLIENT_METRICS, "", "INVALID_REQUEST"),
    ]
    assert node.image.config_of_topic("null") == node.image.config_of_topic("value") == {"retention.ms": "10"}


def test_settings_that_are_only_validated_stay_as_they_are():
    node = AdminNode(1)
    node.create("t", configs={"retention.ms": "10"})
    assert replace(node, (TOPIC, "t", {"segment.ms": "30"}), validate_only=True) == [(TOPIC, "t", None)]
    assert alter(node, (TOPIC, "t", ("retention.ms", DELETE, None)), validate_only=True) == [(TOPIC, "t", None)]
    assert replace(node, (TOPIC, "t", {"segment.ms": "x"}), validate_only=True) == [(TOPIC, "t", "INVALID_CONFIG")]
    assert node.image.config_of_topic("t") == {"retention.ms": "10"}


def test_a_change_of_settings_that_fails_whole_is_the_error_of_each_resource():
    node = AdminNode(1)
    node.controller.failure = TIMED_OUT
    both = [(TOPIC, "a", "REQUEST_TIMED_OUT"), (BROKER, "1", "REQUEST_TIMED_OUT")]
    assert replace(node, (TOPIC, "a", {}), (BROKER, "1", {})) == both
    assert alter(node, (TOPIC, "a"), (BROKER, "1")) == both


def test_subscriptions_to_client_metrics_are_listed_while_they_have_settings():
    node = AdminNode(1)
    level = FeatureLevelRecord(METADATA_VERSION, CLIENT_METRICS_VERSION)
    node.controller.do(lambda *_: Result([level], None), None)

    def listed():
        response = node.ask(ListConfigResourcesRequest(), 0, ListConfigResourcesResponse)
        return [resource.resource_name for resource in response.config_resources]

    assert alter(node, (CLIENT_METRICS, "m", ("interval.ms", SET, "5000"))) == [(CLIENT_METRICS, "m", None)]
    assert listed() == ["m"]
    assert alter(node, (CLIENT_METRICS, "m", ("metrics", APPEND, "a."))) == [(CLIENT_METRICS, "m", None)]
    by_name = {c.name: (c.value, c.config_source, c.config_type) for c in describe(node, CLIENT_METRICS, "m").configs}
    assert by_name == {"interval.ms": ("5000", 7, 3), "metrics": ("a.", 7, 7), "match": ("", 5, 7)}
    for name in ("interval.ms", "metrics"):
        alter(node, (CLIENT_METRICS, "m", (name, DELETE, None)))
    assert listed() == []
