"""The authorization of gRPC calls: one rule per method, and denials that name what is denied and nothing else."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import grpc
import pytest
from acknowledged import wait_for
from authorized_cluster import DEADLINE_S, ROOT, allow, authorized_cluster, settings_of

from tidelog import (
    AdminClient,
    Consumer,
    ConsumerGroupTopicPartitions,
    KafkaError,
    KafkaException,
    Producer,
    TopicPartition,
)
from tidelog.admin import AclOperation, ConfigResource, NewPartitions, NewTopic, OffsetSpec, ResourceType
from tidelog.testing import FakeCluster
from tidelog.v1 import (
    admin_service_pb2,
    controller_service_pb2,
    group_service_pb2,
    group_service_pb2_grpc,
    log_service_pb2,
    quorum_service_pb2,
    raft_service_pb2,
    transaction_service_pb2,
)
from tidelog_node.server import authorization as node
from tidelog_quorum.server import authorization as controller


@pytest.mark.parametrize(
    ("services", "rules", "streams"),
    [
        pytest.param(
            (admin_service_pb2, group_service_pb2, log_service_pb2, transaction_service_pb2),
            node.RULES,
            node.STREAMS,
            id="node",
        ),
        pytest.param(
            (admin_service_pb2, controller_service_pb2, quorum_service_pb2, raft_service_pb2),
            controller.RULES,
            controller.STREAMS,
            id="controller",
        ),
    ],
)
def test_every_method_has_one_rule(services: tuple[Any, ...], rules: dict[str, Any], streams: dict[str, Any]) -> None:
    methods = [
        method
        for module in services
        for service in module.DESCRIPTOR.services_by_name.values()
        for method in service.methods
    ]
    assert {m.name for m in methods if m.client_streaming or m.server_streaming} == streams.keys()
    assert sorted(m.name for m in methods if not (m.client_streaming or m.server_streaming)) == sorted(rules)


@pytest.fixture(scope="module")
def cluster() -> Iterator[FakeCluster]:
    with authorized_cluster() as running:
        for name in ("open", "seen", "hidden"):
            running.create_topic(name, 2)
        allow(running, "alice", "TOPIC", "open", "READ", "WRITE")
        allow(running, "alice", "TOPIC", "seen", "DESCRIBE")
        for group in ("mine", "regex"):
            allow(running, "alice", "GROUP", group, "READ")
        yield running


def code_of(call: Callable[[], Any]) -> str:
    with pytest.raises(KafkaException) as caught:
        call()
    error: KafkaError = caught.value.args[0]
    return error.name()


@pytest.fixture
def alice(cluster: FakeCluster) -> Iterator[AdminClient]:
    with AdminClient(settings_of(cluster, "alice")) as admin:
        yield admin


def test_topics_that_a_caller_may_not_describe_do_not_exist_for_it(cluster: FakeCluster, alice: AdminClient) -> None:
    assert set(alice.list_topics(timeout=DEADLINE_S).topics) == {"open", "seen"}
    shown = alice.list_topics("hidden", timeout=DEADLINE_S).topics["hidden"]
    absent = alice.list_topics("absent", timeout=DEADLINE_S).topics["absent"]
    assert shown.error is not None
    assert absent.error is not None
    assert [shown.error.name(), absent.error.name()] == ["TOPIC_AUTHORIZATION_FAILED"] * 2
    with AdminClient(settings_of(cluster, ROOT)) as root:
        assert "absent" not in root.list_topics(timeout=DEADLINE_S).topics


def test_administration_is_denied_resource_by_resource(alice: AdminClient) -> None:
    created = alice.create_topics([NewTopic("new", 1, 1)])
    assert code_of(lambda: created["new"].result(DEADLINE_S)) == "TOPIC_AUTHORIZATION_FAILED"
    deleted = alice.delete_topics(["hidden", "seen"])
    for name in ("hidden", "seen"):
        assert code_of(lambda name=name: deleted[name].result(DEADLINE_S)) == "TOPIC_AUTHORIZATION_FAILED"
    extended = alice.create_partitions([NewPartitions("open", 3)])
    assert code_of(lambda: extended["open"].result(DEADLINE_S)) == "TOPIC_AUTHORIZATION_FAILED"
    resource = ConfigResource(ResourceType.TOPIC, "open")
    assert code_of(lambda: alice.describe_configs([resource])[resource].result(DEADLINE_S)) == (
        "TOPIC_AUTHORIZATION_FAILED"
    )
    broker = ConfigResource(ResourceType.BROKER, "1")
    assert code_of(lambda: alice.describe_configs([broker])[broker].result(DEADLINE_S)) == (
        "CLUSTER_AUTHORIZATION_FAILED"
    )


def test_produce_stream_writes_to_permitted_topics_alone(cluster: FakeCluster) -> None:
    outcomes: dict[str, str | None] = {}

    def delivered(error: KafkaError | None, message: Any) -> None:
        outcomes[message.topic()] = None if error is None else error.name()

    cluster.delete_records("open", 0, -1)
    before = cluster.end_offset("open")
    with Producer(settings_of(cluster, "alice", linger_ms=50)) as producer:
        for topic in ("open", "seen", "hidden"):
            producer.produce(topic, b"v", partition=0, on_delivery=delivered)
        producer.flush(DEADLINE_S)
    assert outcomes == {
        "open": None,
        "seen": "TOPIC_AUTHORIZATION_FAILED",
        "hidden": "TOPIC_AUTHORIZATION_FAILED",
    }
    assert cluster.end_offset("open") == before + 1
    assert cluster.end_offset("seen") == cluster.end_offset("hidden") == 0


def test_fetch_reads_permitted_topics_alone(cluster: FakeCluster) -> None:
    with Producer(settings_of(cluster, ROOT)) as producer:
        for topic in ("open", "seen"):
            producer.produce(topic, b"v", partition=1)
    with Consumer(settings_of(cluster, "alice", group_id="mine", enable_auto_commit=False)) as consumer:
        consumer.assign([TopicPartition("open", 1, 0), TopicPartition("seen", 1, 0)])
        seen = {}
        while len(seen) < 2:
            for message in consumer.consume(1, DEADLINE_S):
                error = message.error()
                seen[message.topic()] = message.value() if error is None else error.name()
    assert seen == {"open": b"v", "seen": "TOPIC_AUTHORIZATION_FAILED"}


def test_groups_are_those_of_the_caller(cluster: FakeCluster, alice: AdminClient) -> None:
    with AdminClient(settings_of(cluster, ROOT)) as root:
        for group in ("mine", "others"):
            offsets = [TopicPartition("open", 0, 1), TopicPartition("hidden", 0, 1)]
            request = [ConsumerGroupTopicPartitions(group, offsets)]
            root.alter_consumer_group_offsets(request)[group].result(DEADLINE_S)
    listed = alice.list_consumer_groups().result(DEADLINE_S)
    assert [group.group_id for group in listed.valid] == ["mine"]
    offsets = alice.list_consumer_group_offsets([ConsumerGroupTopicPartitions("mine")])["mine"].result(DEADLINE_S)
    assert [(p.topic, p.offset) for p in offsets.topic_partitions] == [("open", 1)]
    described = alice.describe_consumer_groups(["others"])["others"]
    assert code_of(lambda: described.result(DEADLINE_S)) == "GROUP_AUTHORIZATION_FAILED"
    deleted = alice.delete_consumer_groups(["mine"])["mine"]
    assert code_of(lambda: deleted.result(DEADLINE_S)) == "GROUP_AUTHORIZATION_FAILED"


def test_transactions_need_their_id(cluster: FakeCluster) -> None:
    with Producer(settings_of(cluster, "alice", transactional_id="t")) as producer:
        assert code_of(lambda: producer.init_transactions(DEADLINE_S)) == "TRANSACTIONAL_ID_AUTHORIZATION_FAILED"


def test_offsets_are_listed_of_described_topics(alice: AdminClient) -> None:
    asked = {TopicPartition(name, 0): OffsetSpec.latest() for name in ("open", "seen")}
    for future in alice.list_offsets(asked).values():
        assert future.result(DEADLINE_S).offset >= 0
    hidden = TopicPartition("hidden", 0)
    assert code_of(lambda: alice.list_offsets({hidden: OffsetSpec.latest()})[hidden].result(DEADLINE_S)) == (
        "TOPIC_AUTHORIZATION_FAILED"
    )


def test_regular_expression_finds_topics_that_the_member_may_describe(cluster: FakeCluster) -> None:
    request = group_service_pb2.ConsumerGroupHeartbeatRequest(
        group_id="regex",
        rebalance_timeout_ms=10_000,
        subscribed_topic_regex="open|seen|hidden",
        topic_partitions=group_service_pb2.MemberTopics(),
    )
    found = {}
    for user in ("alice", ROOT):
        request.member_id = user
        with grpc.insecure_channel(cluster.bootstrap_servers, [("grpc.primary_user_agent", user)]) as channel:
            stub = group_service_pb2_grpc.GroupServiceStub(channel)
            stub.FindCoordinator(group_service_pb2.FindCoordinatorRequest(group_ids=["regex"]))
            heartbeat = stub.ConsumerGroupHeartbeat

            def is_joined(heartbeat: Any = heartbeat, user: str = user) -> bool:
                found[user] = heartbeat(request)
                return not found[user].HasField("error")

            wait_for(is_joined, "the coordinator", DEADLINE_S)
            leaving = group_service_pb2.ConsumerGroupHeartbeatRequest(group_id="regex", member_id=user, member_epoch=-1)
            heartbeat(leaving)
    assert {user: len(answer.assignment.topics) for user, answer in found.items()} == {"alice": 2, ROOT: 3}


def test_described_operations_are_those_of_the_caller(cluster: FakeCluster, alice: AdminClient) -> None:
    (topic,) = alice.describe_topics(["open"], include_authorized_operations=True).values()
    assert set(topic.result(DEADLINE_S).authorized_operations or ()) == {
        AclOperation.READ,
        AclOperation.WRITE,
        AclOperation.DESCRIBE,
    }
    assert alice.describe_cluster(include_authorized_operations=True).result(DEADLINE_S).authorized_operations == []
    with AdminClient(settings_of(cluster, ROOT)) as root:
        offsets = [ConsumerGroupTopicPartitions("mine", [TopicPartition("open", 0, 1)])]
        root.alter_consumer_group_offsets(offsets)["mine"].result(DEADLINE_S)
        described = root.describe_cluster(include_authorized_operations=True).result(DEADLINE_S)
        assert AclOperation.CLUSTER_ACTION in (described.authorized_operations or ())
    (group,) = alice.describe_consumer_groups(["mine"], include_authorized_operations=True).values()
    assert group.result(DEADLINE_S).authorized_operations == [AclOperation.READ, AclOperation.DESCRIBE]
