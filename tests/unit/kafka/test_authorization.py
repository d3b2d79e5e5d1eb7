"""The rules of Kafka's APIs: what is denied is answered as Kafka answers it, and the rest is done."""

from __future__ import annotations

import asyncio
import dataclasses
import itertools
import logging
from collections.abc import Awaitable

import pytest
from kafka_admin import AdminNode, name_of

from tidelog_foundation.authorization import StandardAuthorizer, StandardRules
from tidelog_foundation.errors import ErrorCode
from tidelog_foundation.requests.acls import AclBinding, AclOperation, AclPermissionType, PatternType, ResourceType
from tidelog_node.kafka.apis import metadata as metadata_api
from tidelog_node.kafka.apis.registry import all_apis
from tidelog_node.kafka.authorization import KafkaGuard
from tidelog_node.kafka.authorization.rules import RULES
from tidelog_node.kafka.protocol.api_keys import ApiKey
from tidelog_node.kafka.protocol.codec import decode, encode
from tidelog_node.kafka.protocol.messages.acls import DescribeAclsRequest, DescribeAclsResponse
from tidelog_node.kafka.protocol.messages.configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)
from tidelog_node.kafka.protocol.messages.group_offsets import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponseTopic,
)
from tidelog_node.kafka.protocol.messages.metadata import (
    DescribeClusterRequest,
    DescribeClusterResponse,
    MetadataRequest,
    MetadataResponse,
)
from tidelog_node.kafka.protocol.messages.quorum import UnregisterBrokerRequest, UnregisterBrokerResponse
from tidelog_node.kafka.protocol.messages.replicas import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ElectLeadersRequest,
    ElectLeadersResponse,
    ReassignablePartition,
    ReassignableTopic,
    TopicPartitions,
)
from tidelog_node.kafka.protocol.messages.topics import (
    CreatableTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from tidelog_node.kafka.protocol.reader import Reader
from tidelog_node.kafka.protocol.writer import Writer
from tidelog_node.kafka.served import Caller, MessageApi, Request
from tidelog_node.partitions import MetadataCache
from tidelog_node.shards.events import ClientIdentity
from tidelog_quorum.controller.result import Result
from tidelog_quorum.metadata.records import AccessControlEntryRecord

CALLER = "User:ANONYMOUS"
TOPIC, CLUSTER = ResourceType.TOPIC, ResourceType.CLUSTER
OWN = {"PRODUCE", "FETCH", "METADATA"}
"""APIs that apply their rules themselves."""


def allow(kind, name, *operations):
    return [
        AclBinding(kind, name, PatternType.LITERAL, CALLER, "*", operation, AclPermissionType.ALLOW)
        for operation in operations
    ]


def node_with(*acls, super_users=()):
    node = AdminNode(1)
    authorizer = StandardAuthorizer(StandardRules(super_users))
    records = [AccessControlEntryRecord(i.to_bytes(16, "big"), acl) for i, acl in enumerate(itertools.chain(*acls))]
    node.controller.do(lambda *_: Result(records, None), None)
    context = dataclasses.replace(node.node.context, has_authorizer=True)
    guard = KafkaGuard(authorizer, node.cache)
    node.node = dataclasses.replace(node.node, context=context, guard=guard)
    return node


def test_every_api_has_a_rule() -> None:
    assert {key.name for key in all_apis()} - OWN == {key.name for key in RULES}


def test_apis_without_a_guard_apply_their_rules_themselves() -> None:
    own = {key for key, api in all_apis().items() if not isinstance(api, MessageApi)}
    assert own == {ApiKey.PRODUCE, ApiKey.FETCH, ApiKey.METADATA, ApiKey.API_VERSIONS}


def test_operations_on_the_cluster_are_denied_and_do_nothing() -> None:
    node = node_with()
    everything = DescribeAclsRequest(1, None, 1, None, None, 1, 1)
    assert name_of(node.ask(everything, 3, DescribeAclsResponse).error_code) == "CLUSTER_AUTHORIZATION_FAILED"
    response = node.ask(UnregisterBrokerRequest(1), 0, UnregisterBrokerResponse)
    assert name_of(response.error_code) == "CLUSTER_AUTHORIZATION_FAILED"
    assert 1 in node.image.brokers


def test_denied_elections_and_reassignments_name_each_partition() -> None:
    node = node_with()
    elected = node.ask(ElectLeadersRequest(0, [TopicPartitions("t", [0, 3])], 1_000), 2, ElectLeadersResponse)
    moved = node.ask(
        AlterPartitionReassignmentsRequest(1_000, True, [ReassignableTopic("t", [ReassignablePartition(2, [1])])]),
        1,
        AlterPartitionReassignmentsResponse,
    )
    denied = ErrorCode.CLUSTER_AUTHORIZATION_FAILED.code
    found = [
        (r.topic, [(p.partition_id, p.error_code) for p in r.partition_result])
        for r in elected.replica_election_results
    ]
    assert (elected.error_code, found) == (denied, [("t", [(0, denied), (3, denied)])])
    found = [(r.name, [(p.partition_index, p.error_code) for p in r.partitions]) for r in moved.responses]
    assert (moved.error_code, found) == (denied, [("t", [(2, denied)])])


def test_a_super_user_may_do_everything() -> None:
    node = node_with(super_users=[CALLER])
    assert node.ask(DescribeAclsRequest(1, None, 1, None, None, 1, 1), 3, DescribeAclsResponse).error_code == 0


def test_settings_are_denied_one_by_one() -> None:
    node = node_with(allow(TOPIC, "seen", AclOperation.DESCRIBE_CONFIGS))
    node.create("seen")
    node.create("hidden")
    resources = [
        DescribeConfigsResource(2, "hidden"),
        DescribeConfigsResource(2, "seen"),
        DescribeConfigsResource(4, "1"),
    ]
    results = node.ask(DescribeConfigsRequest(resources), 4, DescribeConfigsResponse).results
    assert {(r.resource_name, name_of(r.error_code), bool(r.configs)) for r in results} == {
        ("seen", None, True),
        ("hidden", "TOPIC_AUTHORIZATION_FAILED", False),
        ("1", "CLUSTER_AUTHORIZATION_FAILED", False),
    }


def test_created_topics_hide_settings_that_the_caller_may_not_describe() -> None:
    node = node_with(allow(TOPIC, "new", AclOperation.CREATE))
    wanted = [CreatableTopic("new", 1, 1), CreatableTopic("denied", 1, 1)]
    created, denied = node.ask(CreateTopicsRequest(wanted), 7, CreateTopicsResponse).topics
    assert (created.name, created.error_code, created.num_partitions, created.configs) == ("new", 0, -1, [])
    assert name_of(created.topic_config_error_code) == "TOPIC_AUTHORIZATION_FAILED"
    assert (denied.name, name_of(denied.error_code)) == ("denied", "TOPIC_AUTHORIZATION_FAILED")
    assert set(node.image.topics) == {"new"}


def test_a_denied_deletion_by_id_names_the_topic_only_to_whom_may_describe_it() -> None:
    node = node_with(allow(TOPIC, "seen", AclOperation.DESCRIBE), allow(TOPIC, "gone", AclOperation.DELETE))
    ids = {name: node.create(name) for name in ("seen", "hidden", "gone")}
    states = [DeleteTopicState(None, topic_id) for topic_id in ids.values()]
    results = node.ask(DeleteTopicsRequest(states), 6, DeleteTopicsResponse).responses
    assert {(r.topic_id, r.name, name_of(r.error_code)) for r in results} == {
        (ids["seen"], "seen", "TOPIC_AUTHORIZATION_FAILED"),
        (ids["hidden"], None, "TOPIC_AUTHORIZATION_FAILED"),
        (ids["gone"], "gone", None),
    }
    assert set(node.image.topics) == {"seen", "hidden"}


def test_id_that_a_node_does_not_know_yet_deletes_no_topic_of_its_controller() -> None:
    node, behind = node_with(), MetadataCache()
    behind.publish(node.image)
    topic_id = node.create("new")
    guard = KafkaGuard(StandardAuthorizer(StandardRules()), behind)
    node.node = dataclasses.replace(node.node, guard=guard)
    request = DeleteTopicsRequest([DeleteTopicState(None, topic_id)])
    [result] = node.ask(request, 6, DeleteTopicsResponse).responses
    assert (result.name, result.topic_id, name_of(result.error_code)) == (None, topic_id, "UNKNOWN_TOPIC_ID")
    assert set(node.image.topics) == {"new"}


def test_group_that_is_named_twice_hides_the_offsets_of_denied_topics() -> None:
    node = node_with(allow(ResourceType.GROUP, "g", AclOperation.DESCRIBE), allow(TOPIC, "seen", AclOperation.DESCRIBE))

    async def handle(request: OffsetFetchRequest) -> OffsetFetchResponse:
        names = [
            ["seen", "hidden"] if group.topics is None else [topic.name for topic in group.topics]
            for group in request.groups
        ]
        return OffsetFetchResponse(
            groups=[OffsetFetchResponseGroup("g", [OffsetFetchResponseTopic(name) for name in each]) for each in names]
        )

    request = OffsetFetchRequest(
        groups=[
            OffsetFetchRequestGroup("g", topics=None),
            OffsetFetchRequestGroup("g", topics=[OffsetFetchRequestTopic("hidden", partition_indexes=[0])]),
        ]
    )
    caller = Caller("PLAINTEXT", ClientIdentity("test", "/127.0.0.1"), 9)
    response = asyncio.run(node.node.guard.answer(ApiKey.OFFSET_FETCH, request, caller, handle))
    found = [[(t.name, [name_of(p.error_code) for p in t.partitions]) for t in g.topics] for g in response.groups]
    assert found == [[("seen", [])], [("hidden", ["TOPIC_AUTHORIZATION_FAILED"])]]


def test_search_for_the_few_topics_of_a_caller_takes_turns_with_other_requests(monkeypatch) -> None:
    monkeypatch.setattr(metadata_api, "_TOPICS_AT_ONCE", 4)
    node = node_with(allow(TOPIC, "t7", AclOperation.DESCRIBE))
    for i in range(8):
        node.create(f"t{i}")
    writer = Writer()
    encode(MetadataRequest(topics=None), writer, 9)
    reader = Reader(memoryview(b"".join(writer.chunks())))
    caller = Caller("PLAINTEXT", ClientIdentity("test", "/127.0.0.1"), 9)
    answer = metadata_api.MetadataApi().begin(node.node, Request(caller, 1, reader))
    assert isinstance(answer, Awaitable)

    async def body() -> bytes:
        return b"".join(await answer)

    response = decode(MetadataResponse, Reader(memoryview(asyncio.run(body()))), 9)
    assert [topic.name for topic in response.topics] == ["t7"]


def test_denials_of_many_settings_take_turns_with_other_requests() -> None:
    guard, others = node_with().node.guard, []
    request = DescribeConfigsRequest([DescribeConfigsResource(2, f"t{i}") for i in range(2_000)])

    async def handle(permitted: DescribeConfigsRequest) -> DescribeConfigsResponse:
        assert (permitted.resources, others) == ([], [True])
        return DescribeConfigsResponse()

    async def test() -> DescribeConfigsResponse:
        asyncio.get_running_loop().call_soon(others.append, True)
        caller = Caller("PLAINTEXT", ClientIdentity("test", "/127.0.0.1"), 4)
        return await guard.answer(ApiKey.DESCRIBE_CONFIGS, request, caller, handle)

    assert len(asyncio.run(test()).results) == 2_000


def test_authorized_operations_are_those_of_the_caller() -> None:
    def operations(*acls):
        return (
            node_with(*acls).ask(DescribeClusterRequest(True), 0, DescribeClusterResponse).cluster_authorized_operations
        )

    assert operations() == 0
    assert operations(allow(CLUSTER, "kafka-cluster", AclOperation.ALTER)) == 1 << 7 | 1 << 8


def test_denials_and_administration_are_in_the_audit_log(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "tidelog.authorizer")
    node = node_with(allow(TOPIC, "new", AclOperation.CREATE))
    node.ask(CreateTopicsRequest([CreatableTopic("new", 1, 1), CreatableTopic('x"\n', 1, 1)]), 7, CreateTopicsResponse)
    assert [record.getMessage() for record in caplog.records] == [
        f'allowed principal="{CALLER}" host=127.0.0.1 client_id="test" api=CREATE_TOPICS operation=CREATE '
        'resource=TOPIC:"new"',
        f'denied principal="{CALLER}" host=127.0.0.1 client_id="test" api=CREATE_TOPICS operation=CREATE '
        r'resource=TOPIC:"x\"\n"',
    ]
