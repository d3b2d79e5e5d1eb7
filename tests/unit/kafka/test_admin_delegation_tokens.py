"""The APIs of delegation tokens in all versions, against a controller's core."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest
from kafka_admin import AdminNode, name_of, versions_of

from tidelog_foundation.sasl.sessions import Session
from tidelog_foundation.sasl.token_hmacs import token_hmac
from tidelog_foundation.security import ANONYMOUS, Principal
from tidelog_foundation.transport.services import Caller as GrpcCaller
from tidelog_node.kafka.apis.delegation_tokens import create_delegation_token
from tidelog_node.kafka.protocol.messages.delegation_tokens import (
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
    ExpireDelegationTokenRequest,
    ExpireDelegationTokenResponse,
    PrincipalData,
    RenewDelegationTokenRequest,
    RenewDelegationTokenResponse,
)
from tidelog_node.kafka.served import Caller
from tidelog_node.shards.events import ClientIdentity
from tidelog_quorum.controller.result import Result
from tidelog_quorum.metadata.features import METADATA_VERSION, SECURITY_VERSION
from tidelog_quorum.metadata.records import FeatureLevelRecord

HOUR = 3_600_000
DAY = 24 * HOUR


def node_with(**config):
    made = AdminNode(1, **config)
    level = FeatureLevelRecord(METADATA_VERSION, SECURITY_VERSION)
    made.controller.do(lambda *_: Result([level], None), None)
    made.principal = Principal("User", "alice")
    return made


@pytest.fixture
def node():
    return node_with(delegation_token_secret_key="key")


def create(node, version=3, owner=None, renewers=(), lifetime_ms=-1):
    owner_type = None if owner is None else "User"
    renewers = [PrincipalData("User", name) for name in renewers]
    request = CreateDelegationTokenRequest(owner_type, owner, renewers, lifetime_ms)
    return node.ask(request, version, CreateDelegationTokenResponse)


def describe(node, *owners, version=3, everything=False):
    wanted = None if everything else [PrincipalData("User", name) for name in owners]
    response = node.ask(DescribeDelegationTokenRequest(wanted), version, DescribeDelegationTokenResponse)
    assert response.error_code == 0
    return response.tokens


@pytest.mark.parametrize("version", versions_of(CreateDelegationTokenRequest))
def test_token_is_created_and_described(node, version) -> None:
    made = create(node, version, renewers=("bob",))
    assert (made.error_code, made.principal_type, made.principal_name) == (0, "User", "alice")
    assert made.token_requester_principal_name == ("alice" if version >= 3 else "")
    assert (made.issue_timestamp_ms, made.expiry_timestamp_ms, made.max_timestamp_ms) == (0, DAY, 7 * DAY)
    assert bytes(made.hmac) == token_hmac("key", made.token_id)
    for found in (describe(node, "alice", version=version), describe(node, "bob"), describe(node, everything=True)):
        [token] = found
        assert (token.token_id, bytes(token.hmac), token.principal_name) == (made.token_id, bytes(made.hmac), "alice")
        assert [renewer.principal_name for renewer in token.renewers] == ["bob"]
    assert describe(node, "eve") == describe(node) == []


def test_token_of_another_owner_names_both(node) -> None:
    made = create(node, owner="bob")
    assert (made.principal_name, made.token_requester_principal_name) == ("bob", "alice")


@pytest.mark.parametrize("version", versions_of(RenewDelegationTokenRequest))
def test_token_is_renewed_and_expired(node, version) -> None:
    hmac = bytes(create(node).hmac)
    renewed = node.ask(RenewDelegationTokenRequest(hmac, HOUR), version, RenewDelegationTokenResponse)
    assert (renewed.error_code, renewed.expiry_timestamp_ms) == (0, HOUR)
    later = node.ask(ExpireDelegationTokenRequest(hmac, 2 * HOUR), version, ExpireDelegationTokenResponse)
    assert (later.error_code, later.expiry_timestamp_ms) == (0, 2 * HOUR)
    now = node.ask(ExpireDelegationTokenRequest(hmac, -1), version, ExpireDelegationTokenResponse)
    assert (now.error_code, now.expiry_timestamp_ms) == (0, 0)
    gone = node.ask(RenewDelegationTokenRequest(hmac, HOUR), version, RenewDelegationTokenResponse)
    assert (name_of(gone.error_code), gone.expiry_timestamp_ms) == ("DELEGATION_TOKEN_NOT_FOUND", 0)
    assert describe(node, everything=True) == []


def test_tokens_are_refused_to_an_anonymous_caller(node) -> None:
    hmac = bytes(create(node).hmac)
    node.principal = ANONYMOUS
    made = create(node)
    assert (name_of(made.error_code), made.max_timestamp_ms) == ("DELEGATION_TOKEN_REQUEST_NOT_ALLOWED", -1)
    for request, response in (
        (RenewDelegationTokenRequest(hmac, HOUR), RenewDelegationTokenResponse),
        (ExpireDelegationTokenRequest(hmac, -1), ExpireDelegationTokenResponse),
        (DescribeDelegationTokenRequest(None), DescribeDelegationTokenResponse),
    ):
        assert name_of(node.ask(request, 2, response).error_code) == "DELEGATION_TOKEN_REQUEST_NOT_ALLOWED"


def test_tokens_are_disabled_without_a_secret_key() -> None:
    node = node_with()
    made = create(node)
    assert (name_of(made.error_code), made.principal_name) == ("DELEGATION_TOKEN_AUTH_DISABLED", "alice")
    request = DescribeDelegationTokenRequest(None)
    described = node.ask(request, 3, DescribeDelegationTokenResponse)
    assert name_of(described.error_code) == "DELEGATION_TOKEN_AUTH_DISABLED"


def test_hmac_is_not_in_the_repr_of_messages(node) -> None:
    made = create(node)
    for message in (made, *describe(node, everything=True), RenewDelegationTokenRequest(made.hmac, 1)):
        assert str(bytes(made.hmac))[2:10] not in repr(message)


def test_tokens_are_refused_to_a_caller_that_has_logged_in_with_one_on_either_protocol(node) -> None:
    alice = node.principal
    session = Session(b"", alice, is_token=True, host="h", expires_at_ms=None, used_at_ms=0)
    assert GrpcCaller(cast(Any, None), session).has_token
    assert not GrpcCaller(cast(Any, None), alice).has_token
    caller = Caller("SASL_SSL", ClientIdentity("test", "h"), 3, alice, has_token=True)
    request = CreateDelegationTokenRequest(None, None, [], -1)
    refused = asyncio.run(create_delegation_token(node.node, request, caller))
    assert name_of(refused.error_code) == "DELEGATION_TOKEN_REQUEST_NOT_ALLOWED"
    assert describe(node, everything=True) == []
