"""DescribeAcls, CreateAcls and DeleteAcls in all versions, against a controller's core."""

from __future__ import annotations

import dataclasses

import pytest
from kafka_admin import AdminNode, name_of, versions_of

from tidelog_foundation.errors import ErrorCode, error_for
from tidelog_node.kafka.protocol.messages.acls import (
    AclCreation,
    CreateAclsRequest,
    CreateAclsResponse,
    DeleteAclsFilter,
    DeleteAclsRequest,
    DeleteAclsResponse,
    DescribeAclsRequest,
    DescribeAclsResponse,
)
from tidelog_node.kafka.served import CloseConnection
from tidelog_quorum.controller.result import Result
from tidelog_quorum.metadata.features import ACLS_VERSION, METADATA_VERSION
from tidelog_quorum.metadata.records import FeatureLevelRecord

ANY, TOPIC, CLUSTER = 1, 2, 4
LITERAL, PREFIXED = 3, 4
READ, WRITE = 3, 4
DENY, ALLOW = 2, 3
READ_T = AclCreation(TOPIC, "t", LITERAL, "User:a", "*", READ, ALLOW)
WRITE_T = AclCreation(TOPIC, "t", LITERAL, "User:b", "10.0.0.1", WRITE, DENY)
READ_PREFIX = AclCreation(TOPIC, "t", PREFIXED, "User:a", "*", READ, ALLOW)
ALL = (ANY, None, ANY, None, None, ANY, ANY)


@pytest.fixture
def node():
    made = AdminNode(1)
    level = FeatureLevelRecord(METADATA_VERSION, ACLS_VERSION)
    made.controller.do(lambda *_: Result([level], None), None)
    context = dataclasses.replace(made.node.context, has_authorizer=True)
    made.node = dataclasses.replace(made.node, context=context)
    return made


def create(node, *acls, version=3):
    response = node.ask(CreateAclsRequest(list(acls)), version, CreateAclsResponse)
    return [(name_of(r.error_code), r.error_message) for r in response.results]


def describe(node, *parts, version=3):
    response = node.ask(DescribeAclsRequest(*(parts or ALL)), version, DescribeAclsResponse)
    assert (response.error_code, response.error_message) == (0, None)
    return {
        (r.resource_type, r.resource_name, r.pattern_type): [
            (a.principal, a.host, a.operation, a.permission_type) for a in r.acls
        ]
        for r in response.resources
    }


@pytest.mark.parametrize("version", versions_of(CreateAclsRequest))
def test_acls_are_created_described_by_pattern_and_deleted(node, version) -> None:
    assert create(node, READ_T, WRITE_T, READ_PREFIX, version=version) == [(None, None)] * 3
    assert describe(node, version=version) == {
        (TOPIC, "t", LITERAL): [("User:a", "*", READ, ALLOW), ("User:b", "10.0.0.1", WRITE, DENY)],
        (TOPIC, "t", PREFIXED): [("User:a", "*", READ, ALLOW)],
    }
    filters = [DeleteAclsFilter(ANY, None, LITERAL, None, None, ANY, ANY), DeleteAclsFilter(CLUSTER, *ALL[1:])]
    response = node.ask(DeleteAclsRequest(filters), version, DeleteAclsResponse)
    deleted, none = response.filter_results
    assert (deleted.error_code, deleted.error_message, none.matching_acls) == (0, None, [])
    assert [(a.resource_name, a.principal, a.operation, a.error_code) for a in deleted.matching_acls] == [
        ("t", "User:a", READ, 0),
        ("t", "User:b", WRITE, 0),
    ]
    assert list(describe(node)) == [(TOPIC, "t", PREFIXED)]


def test_create_acls_refuses_an_invalid_acl_alone(node) -> None:
    nobody = dataclasses.replace(READ_T, principal="nobody")
    [created, (code, text)] = create(node, READ_T, nobody)
    assert created == (None, None)
    assert code == "INVALID_REQUEST"
    assert "no colon is present" in text


def test_acls_without_an_authorizer_are_disabled() -> None:
    node = AdminNode(1)
    text = "No Authorizer is configured."
    assert create(node, READ_T, READ_T) == [("SECURITY_DISABLED", text)] * 2
    [result] = node.ask(DeleteAclsRequest([DeleteAclsFilter(*ALL)]), 3, DeleteAclsResponse).filter_results
    assert (name_of(result.error_code), result.error_message) == ("SECURITY_DISABLED", text)
    described = node.ask(DescribeAclsRequest(*ALL), 3, DescribeAclsResponse)
    assert name_of(described.error_code) == "SECURITY_DISABLED"
    assert described.error_message == "No Authorizer is configured on the broker"


def test_an_error_of_the_controllers_is_that_of_every_acl(node) -> None:
    node.controller.failure = error_for(ErrorCode.REQUEST_TIMED_OUT, "no controller answered")
    assert create(node, READ_T, WRITE_T) == [("REQUEST_TIMED_OUT", "no controller answered")] * 2


def test_unknown_elements_end_the_connection_as_in_kafka(node) -> None:
    with pytest.raises(CloseConnection, match="unknown elements"):
        create(node, dataclasses.replace(READ_T, operation=0))
    with pytest.raises(CloseConnection, match="unknown elements"):
        node.ask(DeleteAclsRequest([DeleteAclsFilter(0, *ALL[1:])]), 3, DeleteAclsResponse)
    with pytest.raises(CloseConnection, match="unknown elements"):
        describe(node, *ALL[:-1], 0)


@pytest.mark.parametrize("number", [99, -1])
def test_numbers_without_a_member_are_invalid_or_match_nothing(node, number) -> None:
    [_, (code, text)] = create(node, READ_T, dataclasses.replace(READ_T, operation=number))
    assert (code, text) == ("INVALID_REQUEST", "Invalid operation UNKNOWN")
    [result] = node.ask(DeleteAclsRequest([DeleteAclsFilter(number, *ALL[1:])]), 3, DeleteAclsResponse).filter_results
    assert (name_of(result.error_code), result.error_message) == ("INVALID_REQUEST", "Unknown patternFilter.")
    assert describe(node, *ALL[:-1], number) == {}
