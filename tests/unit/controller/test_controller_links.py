"""Cluster links and mirror topics on the controller: states, epochs, producer ids, and the bounds of requests."""

from __future__ import annotations

import pytest

from tidelog_foundation.errors import ErrorCode, TidelogError
from tidelog_foundation.ids import LeaderEpoch, LinkId, TopicId
from tidelog_foundation.link_settings import MAX_LINKS
from tidelog_foundation.requests.brokers import AllocateProducerIdsRequest
from tidelog_foundation.requests.configs import (
    ConfigOperation,
    ConfigOperationType,
    ConfigResourceChange,
    ConfigResourceName,
    ConfigResourceType,
    IncrementalAlterConfigsRequest,
)
from tidelog_foundation.requests.features import FeatureUpdate, FeatureUpgradeType, UpdateFeaturesRequest
from tidelog_foundation.requests.links import (
    AlterClusterLinkRequest,
    AlterMirrorTopicsRequest,
    CreateClusterLinkRequest,
    CreateMirrorTopicRequest,
    DeleteClusterLinkRequest,
    DescribeMirrorTopicsRequest,
    LinkSetting,
    ListClusterLinksRequest,
    MirrorOperation,
    MirrorPartitionReport,
    MirrorSettingsReport,
    MirrorState,
    ReportMirrorPartitionsRequest,
    ReportMirrorSettingsRequest,
)
from tidelog_foundation.requests.topics import CreatePartitionsRequest, DeleteTopicsRequest, NewPartitions
from tidelog_quorum.metadata.features import CLUSTER_LINKS_VERSION, METADATA_VERSION
from tidelog_quorum.metadata.image import MetadataImage
from tidelog_quorum.metadata.link_description import describe_mirror_topics, list_cluster_links

SETTINGS = (LinkSetting("bootstrap.servers", "source:9092"),)
TOPIC_ID = TopicId(b"of the source...")
PASSWORD = LinkSetting(
    "sasl.jaas.config",
    'org.apache.kafka.common.security.plain.PlainLoginModule required username="u" password="hush";',
)


@pytest.fixture
def driver(new_driver):
    driver = new_driver(replication_factor=2)
    driver.set_levels({METADATA_VERSION: CLUSTER_LINKS_VERSION})
    driver.up(1, 2)
    return driver


def handle(driver, request):
    return driver.do(driver.controller.handle, request)


def create_link(driver, name="link", number=1, settings=SETTINGS, source="c2"):
    return handle(driver, CreateClusterLinkRequest(name, settings, LinkId(number.to_bytes(4) + bytes(12)), source))


def create_mirror(driver, topic="t", topic_id=TOPIC_ID, partitions=2, **fields):
    return handle(driver, CreateMirrorTopicRequest("link", topic, -1, topic_id, partitions, **fields))


@pytest.fixture
def mirrored(driver):
    create_link(driver)
    create_mirror(driver)
    return driver


def alter(driver, operation, *topics):
    results = handle(driver, AlterMirrorTopicsRequest(operation, topics or ("t",))).topics
    return {r.topic: r.error and (r.error.code, r.error.message) for r in results}


def state(driver, topic_id=TOPIC_ID):
    return driver.image.mirror_topics[topic_id].state


def report(driver, index=0, least=0, is_drained=False, leader_epoch=None, broker_id=None, count=0):
    partition = driver.partition("t", index)
    sender = partition.leader if broker_id is None else broker_id
    epoch = partition.leader_epoch if leader_epoch is None else LeaderEpoch(leader_epoch)
    item = MirrorPartitionReport(TOPIC_ID, index, epoch, LeaderEpoch(least), is_drained, count)
    broker_epoch = driver.image.brokers[sender].broker_epoch
    handle(driver, ReportMirrorPartitionsRequest(sender, broker_epoch, (item,)))


def error_of(call, *arguments, **fields):
    with pytest.raises(TidelogError) as raised:
        call(*arguments, **fields)
    return raised.value.code, raised.value.message


def test_mirror_topic_has_the_name_id_and_partitions_of_its_source(driver) -> None:
    create_link(driver)
    create_mirror(driver, settings=(LinkSetting("cleanup.policy", "compact"),))
    topic = driver.image.topics["t"]
    assert (topic.topic_id, len(topic.partitions), state(driver)) == (TOPIC_ID, 2, MirrorState.ACTIVE)
    assert all(p.is_mirror and len(p.replicas) == 2 for p in topic.partitions.values())
    assert driver.image.config_of_topic("t") == {"cleanup.policy": "compact"}
    create_mirror(driver)
    code, text = error_of(create_mirror, driver, topic="other")
    assert (code, "'t' has the id" in text) == (ErrorCode.TOPIC_ALREADY_EXISTS, True)


def test_image_with_links_round_trips_and_a_mirror_ends_with_its_topic(mirrored) -> None:
    alter(mirrored, MirrorOperation.PAUSE)
    image = mirrored.image
    copy = MetadataImage().apply(image.offset, image.epoch, image.to_records())
    assert (copy.cluster_links, copy.mirror_topics, copy.topics) == (
        image.cluster_links,
        image.mirror_topics,
        image.topics,
    )
    handle(mirrored, DeleteTopicsRequest(topic_names=("t",)))
    assert not mirrored.image.mirror_topics
    handle(mirrored, DeleteClusterLinkRequest("link"))
    assert not mirrored.image.cluster_links


@pytest.mark.parametrize(
    ("operations", "end"),
    [
        ((MirrorOperation.PAUSE,), MirrorState.PAUSED),
        ((MirrorOperation.PAUSE, MirrorOperation.RESUME), MirrorState.ACTIVE),
        ((MirrorOperation.PAUSE, MirrorOperation.PROMOTE), MirrorState.PENDING_STOPPED),
        ((MirrorOperation.PROMOTE, MirrorOperation.PROMOTE), MirrorState.PENDING_STOPPED),
        ((MirrorOperation.PROMOTE, MirrorOperation.FAIL), MirrorState.FAILED),
        ((MirrorOperation.FAIL, MirrorOperation.RESUME), MirrorState.ACTIVE),
        ((MirrorOperation.FAIL, MirrorOperation.FAILOVER), MirrorState.STOPPED),
    ],
)
def test_operations_change_the_state(mirrored, operations, end) -> None:
    for operation in operations:
        assert alter(mirrored, operation) == {"t": None}
    assert state(mirrored) is end


@pytest.mark.parametrize(
    ("before", "operation"),
    [
        (MirrorOperation.PROMOTE, MirrorOperation.PAUSE),
        (MirrorOperation.FAILOVER, MirrorOperation.PROMOTE),
        (MirrorOperation.FAILOVER, MirrorOperation.RESUME),
        (MirrorOperation.FAIL, MirrorOperation.PROMOTE),
    ],
)
def test_operations_in_other_states_are_refused_by_name(mirrored, before, operation) -> None:
    alter(mirrored, before)
    code, text = alter(mirrored, operation)["t"]
    assert code is ErrorCode.INVALID_REQUEST
    assert state(mirrored).name in text


def test_leader_epoch_rises_to_that_of_the_source_and_beyond_it_at_the_end(mirrored) -> None:
    report(mirrored, least=50)
    raised = mirrored.partition()
    assert (raised.leader_epoch, raised.partition_epoch, raised.is_mirror) == (50, 50, True)
    report(mirrored, least=50, leader_epoch=0)
    report(mirrored, least=70, broker_id=3 - raised.leader)
    report(mirrored, least=40)
    assert mirrored.partition().leader_epoch == 50
    alter(mirrored, MirrorOperation.FAILOVER)
    stopped = [mirrored.partition(index=i) for i in range(2)]
    assert [(p.leader_epoch, p.is_mirror, p.mirror_end_epoch) for p in stopped] == [(51, False, 51), (1, False, 1)]
    assert stopped[0].leader == raised.leader


def test_promotion_ends_when_the_leaders_of_all_partitions_have_reported_in_their_present_epochs(mirrored) -> None:
    report(mirrored, index=0, is_drained=True)
    alter(mirrored, MirrorOperation.PROMOTE)
    report(mirrored, index=1, is_drained=True)
    assert state(mirrored) is MirrorState.PENDING_STOPPED
    report(mirrored, index=0, is_drained=True)
    assert state(mirrored) is MirrorState.STOPPED
    assert not any(mirrored.partition(index=i).is_mirror for i in range(2))


def test_report_of_a_former_epoch_does_not_end_a_promotion(mirrored) -> None:
    alter(mirrored, MirrorOperation.PROMOTE)
    report(mirrored, index=0, is_drained=True)
    report(mirrored, index=0, least=9)
    report(mirrored, index=1, is_drained=True)
    assert state(mirrored) is MirrorState.PENDING_STOPPED
    report(mirrored, index=0, least=9, is_drained=True)
    assert state(mirrored) is MirrorState.STOPPED


def test_new_controller_needs_all_reports_again(mirrored) -> None:
    alter(mirrored, MirrorOperation.PROMOTE)
    report(mirrored, index=0, is_drained=True)
    mirrored.lead()
    mirrored.heartbeat(1)
    mirrored.heartbeat(2)
    report(mirrored, index=1, is_drained=True)
    assert state(mirrored) is MirrorState.PENDING_STOPPED


def test_mirror_gets_partitions_with_its_source_alone(mirrored) -> None:
    request = CreatePartitionsRequest(topics=(NewPartitions("t", 5),))
    [result] = handle(mirrored, request).topics
    assert result.error.code is ErrorCode.INVALID_REQUEST
    alter(mirrored, MirrorOperation.PROMOTE)
    report(mirrored, index=1, is_drained=True, count=9)
    report(mirrored, index=0, is_drained=True, count=3)
    assert (len(mirrored.image.topics["t"].partitions), mirrored.partition(index=2).is_mirror) == (3, True)
    assert state(mirrored) is MirrorState.PENDING_STOPPED


def test_link_moves_producer_ids_into_a_range_of_their_own(driver) -> None:
    def allocated():
        request = AllocateProducerIdsRequest(1, driver.image.brokers[1].broker_epoch)
        return handle(driver, request).producer_id_start

    first = allocated()
    create_link(driver, number=7)
    of_link = allocated()
    create_link(driver, "second", number=5)
    assert (first >> 40, of_link >> 40, allocated() >> 40) == (0, 7, 8)


def test_links_are_limited_unique_and_not_to_the_same_cluster(driver) -> None:
    create_link(driver)
    create_link(driver)
    assert error_of(create_link, driver, number=2)[0] is ErrorCode.DUPLICATE_RESOURCE
    code, text = error_of(create_link, driver, "own", 2, source="c1")
    assert (code, "this cluster itself" in text) == (ErrorCode.INVALID_REQUEST, True)
    assert error_of(create_link, driver, "a b", 2)[0] is ErrorCode.INVALID_REQUEST
    for number in range(2, MAX_LINKS + 1):
        create_link(driver, f"link-{number}", number)
    code, text = error_of(create_link, driver, "more", 1_000)
    assert (code, str(MAX_LINKS) in text) == (ErrorCode.POLICY_VIOLATION, True)


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({}, "bootstrap.servers"),
        ({"bootstrap.servers": "a:1", "ssl.truststore.location": "/etc/passwd"}, "unknown configuration"),
        ({"bootstrap.servers": "a:1", "security.protocol": "TLS"}, "security.protocol"),
        ({"bootstrap.servers": "a:1", "security.protocol": "SASL_PLAINTEXT"}, "sasl.jaas.config"),
        ({"bootstrap.servers": "a:1", "sasl.jaas.config": PASSWORD.value}, "no effect"),
        ({"bootstrap.servers": "a:1", "consumer.offset.group.filters": "*"}, "is not JSON"),
    ],
)
def test_invalid_settings_of_a_link_are_refused_without_their_secrets(driver, settings, text) -> None:
    given = tuple(LinkSetting(n, v) for n, v in settings.items())
    code, message = error_of(create_link, driver, settings=given)
    assert code is ErrorCode.INVALID_CONFIG
    assert text in message
    assert "hush" not in message


def test_descriptions_hide_secrets_and_count_mirrors(driver) -> None:
    settings = (*SETTINGS, PASSWORD, LinkSetting("security.protocol", "SASL_PLAINTEXT"))
    create_link(driver, settings=settings)
    create_mirror(driver)
    [found] = list_cluster_links(driver.image, ListClusterLinksRequest()).links
    values = {s.name: s.value for s in found.settings}
    assert (values["sasl.jaas.config"], values["bootstrap.servers"]) == ("[hidden]", "source:9092")
    assert "hush" not in repr(driver.image.cluster_links)
    assert found.mirror_topics == 1
    [mirror] = describe_mirror_topics(driver.image, DescribeMirrorTopicsRequest("link")).topics
    assert (mirror.topic, mirror.state, mirror.num_partitions) == ("t", MirrorState.ACTIVE, 2)
    assert error_of(describe_mirror_topics, driver.image, DescribeMirrorTopicsRequest("x"))[0] is (
        ErrorCode.RESOURCE_NOT_FOUND
    )


def test_altered_link_leads_to_the_same_cluster(mirrored) -> None:
    changed = LinkSetting("bootstrap.servers", "other:9092")
    handle(mirrored, AlterClusterLinkRequest("link", (changed,), source_cluster_id="c2"))
    [link] = mirrored.image.cluster_links.values()
    assert link.values == {"bootstrap.servers": "other:9092"}
    request = AlterClusterLinkRequest("link", SETTINGS, source_cluster_id="c3")
    assert error_of(handle, mirrored, request)[0] is ErrorCode.INVALID_REQUEST


def test_link_with_mirrors_is_not_deleted_and_stopped_topics_outlive_it(mirrored) -> None:
    code, text = error_of(handle, mirrored, DeleteClusterLinkRequest("link"))
    assert (code, "'t'" in text) == (ErrorCode.INVALID_REQUEST, True)
    update = FeatureUpdate(METADATA_VERSION, CLUSTER_LINKS_VERSION - 1, FeatureUpgradeType.SAFE_DOWNGRADE)
    assert error_of(handle, mirrored, UpdateFeaturesRequest((update,)))[0] is ErrorCode.FEATURE_UPDATE_FAILED
    alter(mirrored, MirrorOperation.FAILOVER)
    handle(mirrored, DeleteClusterLinkRequest("link"))
    assert not mirrored.image.mirror_topics
    assert "t" in mirrored.image.topics


def test_links_need_their_level_of_the_metadata_version(driver) -> None:
    driver.set_levels({METADATA_VERSION: CLUSTER_LINKS_VERSION - 1})
    assert error_of(create_link, driver)[0] is ErrorCode.UNSUPPORTED_VERSION


def report_settings(driver, topic_id=TOPIC_ID, leader_epoch=None, times=1, **settings):
    partition = driver.partition("t", 0)
    epoch = partition.leader_epoch if leader_epoch is None else LeaderEpoch(leader_epoch)
    values = tuple(LinkSetting(name.replace("_", "."), value) for name, value in settings.items())
    reports = (MirrorSettingsReport(topic_id, epoch, values),) * times
    broker_epoch = driver.image.brokers[partition.leader].broker_epoch
    response = handle(driver, ReportMirrorSettingsRequest(partition.leader, broker_epoch, reports))
    return {r.topic: r.error and r.error.code for r in response.topics}


def test_settings_of_a_mirror_follow_its_source_except_those_of_each_cluster(driver) -> None:
    create_link(driver)
    create_mirror(driver, settings=(LinkSetting("cleanup.policy", "compact"), LinkSetting("retention.ms", "5000")))
    own = IncrementalAlterConfigsRequest(
        (
            ConfigResourceChange(
                ConfigResourceName(ConfigResourceType.TOPIC, "t"),
                (ConfigOperation("min.insync.replicas", ConfigOperationType.SET, "2"),),
            ),
        )
    )
    handle(driver, own)
    wanted = {"retention_ms": "7000", "segment_bytes": "1048576"}
    assert report_settings(driver, min_insync_replicas="1", **wanted) == {"t": None}
    expected = {"retention.ms": "7000", "segment.bytes": "1048576", "min.insync.replicas": "2"}
    assert driver.image.config_of_topic("t") == expected
    offset = driver.image.offset
    assert report_settings(driver, **wanted) == {}
    assert driver.image.offset == offset
    # A value that this cluster refuses changes nothing of the topic.
    assert report_settings(driver, retention_ms="8000", cleanup_policy="shred") == {"t": ErrorCode.INVALID_CONFIG}
    assert driver.image.config_of_topic("t") == expected


def test_settings_come_from_the_present_leader_of_a_mirror_alone(mirrored) -> None:
    epoch = mirrored.partition("t", 0).leader_epoch
    assert report_settings(mirrored, leader_epoch=epoch + 1, retention_ms="1") == {}
    assert report_settings(mirrored, topic_id=TopicId(b"unknown........."), retention_ms="1") == {}
    code, text = error_of(report_settings, mirrored, times=2)
    assert (code, "twice or more than 100" in text) == (ErrorCode.INVALID_REQUEST, True)
    alter(mirrored, MirrorOperation.FAILOVER)
    assert report_settings(mirrored, leader_epoch=epoch, retention_ms="1") == {}
    assert report_settings(mirrored, retention_ms="1") == {}
    assert not mirrored.image.config_of_topic("t")
