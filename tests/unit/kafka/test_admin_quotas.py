"""DescribeClientQuotas and AlterClientQuotas in all versions, against a controller's core."""

from __future__ import annotations

import pytest
from kafka_admin import AdminNode, name_of, versions_of

from tidelog_foundation.errors import ErrorCode, error_for
from tidelog_node.kafka.protocol.messages.quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    QuotaAlterationData,
    QuotaComponent,
    QuotaEntityData,
    QuotaOpData,
)
from tidelog_quorum.controller.result import Result
from tidelog_quorum.metadata.features import METADATA_VERSION, SECURITY_VERSION
from tidelog_quorum.metadata.records import FeatureLevelRecord

EXACT, DEFAULT, ANY = 0, 1, 2


@pytest.fixture
def node():
    made = AdminNode(1)
    level = FeatureLevelRecord(METADATA_VERSION, SECURITY_VERSION)
    made.controller.do(lambda *_: Result([level], None), None)
    return made


def alteration(names, *ops):
    entity = [QuotaEntityData(kind, name) for kind, name in names.items()]
    return QuotaAlterationData(entity, [QuotaOpData(*op) for op in ops])


def alter(node, *alterations, version=1, validate_only=False):
    request = AlterClientQuotasRequest(list(alterations), validate_only)
    response = node.ask(request, version, AlterClientQuotasResponse)
    return [
        ({e.entity_type: e.entity_name for e in r.entity}, name_of(r.error_code), r.error_message)
        for r in response.entries
    ]


def describe(node, *components, strict=False, version=1):
    request = DescribeClientQuotasRequest([QuotaComponent(*each) for each in components], strict)
    response = node.ask(request, version, DescribeClientQuotasResponse)
    assert (response.error_code, response.error_message) == (0, None)
    return {
        tuple((e.entity_type, e.entity_name) for e in entry.entity): {v.key: v.value for v in entry.values}
        for entry in response.entries
    }


@pytest.mark.parametrize("version", versions_of(AlterClientQuotasRequest))
def test_quotas_are_set_described_and_removed(node, version) -> None:
    both = {"client-id": None, "user": "alice"}
    done = alter(
        node,
        alteration({"user": "alice"}, ("producer_byte_rate", 1024.0), ("request_percentage", 12.5)),
        alteration(both, ("consumer_byte_rate", 5.0)),
        version=version,
    )
    assert done == [({"user": "alice"}, None, None), (both, None, None)]
    assert describe(node, ("user", EXACT, "alice"), version=version) == {
        (("user", "alice"),): {"producer_byte_rate": 1024, "request_percentage": 12.5},
        (("client-id", None), ("user", "alice")): {"consumer_byte_rate": 5},
    }
    assert list(describe(node, ("user", ANY, None), ("client-id", DEFAULT, None), version=version)) == [
        tuple(both.items())
    ]
    alter(node, alteration(both, ("consumer_byte_rate", 0.0, True)), version=version)
    assert list(describe(node, version=version)) == [(("user", "alice"),)]


def test_alter_client_quotas_refuses_an_invalid_entity_alone_and_the_last_name_of_a_type_counts(node) -> None:
    twice = QuotaAlterationData(
        [QuotaEntityData("user", "a"), QuotaEntityData("user", "b")], [QuotaOpData("producer_byte_rate", 7.0)]
    )
    [refused, done] = alter(node, alteration({"user": ""}, ("producer_byte_rate", 1.0)), twice)
    assert refused == ({"user": ""}, "INVALID_REQUEST", "Empty user not supported")
    assert done == ({"user": "b"}, None, None)


def test_alter_client_quotas_writes_nothing_when_it_only_validates(node) -> None:
    done = alter(node, alteration({"user": "a"}, ("producer_byte_rate", 1.0)), validate_only=True)
    assert done == [({"user": "a"}, None, None)]
    assert describe(node) == {}


def test_an_error_of_the_controllers_is_that_of_every_entity(node) -> None:
    node.controller.failure = error_for(ErrorCode.REQUEST_TIMED_OUT, "no controller answered")
    done = alter(node, alteration({"user": "a"}), alteration({"client-id": "b"}))
    assert [each[1:] for each in done] == [("REQUEST_TIMED_OUT", "no controller answered")] * 2


def test_describe_client_quotas_answers_an_invalid_filter_with_null_entries(node) -> None:
    request = DescribeClientQuotasRequest([QuotaComponent("group", ANY, None)])
    response = node.ask(request, 1, DescribeClientQuotasResponse)
    assert (name_of(response.error_code), response.entries) == ("UNSUPPORTED_VERSION", None)
