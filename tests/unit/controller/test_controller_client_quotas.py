"""Changes and descriptions of client quotas: Kafka's checks and filters, and the bounds of a request."""

from __future__ import annotations

import math

import pytest

from tidelog_foundation.errors import ErrorCode, TidelogError
from tidelog_foundation.requests.features import FeatureUpdate, FeatureUpgradeType, UpdateFeaturesRequest
from tidelog_foundation.requests.quotas import (
    MATCH_ANY,
    MATCH_DEFAULT,
    MATCH_EXACT,
    AlterClientQuotasRequest,
    DescribeClientQuotasRequest,
    QuotaAlteration,
    QuotaEntityPart,
    QuotaFilterComponent,
    QuotaOp,
    entity_of,
)
from tidelog_quorum.controller import client_quotas as quota_control
from tidelog_quorum.metadata.description import describe_client_quotas
from tidelog_quorum.metadata.features import METADATA_VERSION

ALICE = {"user": "alice"}
BOTH = {"user": "alice", "client-id": "app"}
RATE = QuotaOp("producer_byte_rate", 1_000.0)


@pytest.fixture
def driver(driver):
    driver.set_levels({METADATA_VERSION: 3})
    return driver


def alter(driver, *changes, validate_only=False):
    """Change (entity, ops) and return the error of each entity."""
    alterations = tuple(QuotaAlteration(entity_of(names), tuple(ops)) for names, *ops in changes)
    response = driver.do(driver.controller.handle, AlterClientQuotasRequest(alterations, validate_only))
    return {result.entity: result.error and (result.error.code, result.error.message) for result in response.results}


def refusal(driver, names, *ops):
    [error] = alter(driver, (names, *ops)).values()
    assert error[0] is ErrorCode.INVALID_REQUEST
    return error[1]


def limits(driver, names):
    return dict(driver.image.client_quotas.get(entity_of(names), {}))


def test_alter_client_quotas_sets_replaces_and_removes_values(driver) -> None:
    assert alter(driver, (ALICE, RATE, QuotaOp("request_percentage", 12.5))) == {entity_of(ALICE): None}
    assert limits(driver, ALICE) == {"producer_byte_rate": 1_000, "request_percentage": 12.5}
    alter(driver, (ALICE, QuotaOp("producer_byte_rate", 2_000), QuotaOp("request_percentage", remove=True)))
    assert limits(driver, ALICE) == {"producer_byte_rate": 2_000}
    offset = driver.image.client_quotas
    alter(driver, (ALICE, QuotaOp("producer_byte_rate", 2_000), QuotaOp("consumer_byte_rate", remove=True)))
    assert driver.image.client_quotas is offset, "nothing was to be written"
    alter(driver, (ALICE, QuotaOp("producer_byte_rate", remove=True)))
    assert driver.image.client_quotas == {}


def test_alter_client_quotas_only_validates_when_asked_to(driver) -> None:
    assert alter(driver, (ALICE, RATE), validate_only=True) == {entity_of(ALICE): None}
    assert driver.image.client_quotas == {}


def test_alter_client_quotas_refuses_an_invalid_entity_alone(driver) -> None:
    errors = alter(driver, (ALICE, RATE), ({"ip": "10.0.0.1", "user": "a"}, RATE), (BOTH, RATE))
    assert [error is None for error in errors.values()] == [True, False, True]
    assert set(driver.image.client_quotas) == {entity_of(ALICE), entity_of(BOTH)}


@pytest.mark.parametrize(
    ("names", "text"),
    [
        ({}, "Invalid empty client quota entity"),
        ({"group": "g"}, "Unhandled client quota entity type: group"),
        ({"user": ""}, "Empty user not supported"),
        ({"user": "x" * 1_025}, "The name of the user has 1025 characters, 1024 are the limit"),
        ({"ip": "10.0.0.1", "client-id": None}, "Invalid quota entity combination"),
        ({"ip": "localhost"}, "localhost is not a valid IP address"),
    ],
)
def test_alter_client_quotas_names_what_is_wrong_with_an_entity(driver, names, text) -> None:
    assert text in refusal(driver, names, RATE)


@pytest.mark.parametrize(
    ("names", "op", "text"),
    [
        (ALICE, QuotaOp("connection_creation_rate", 1), "Invalid configuration key connection_creation_rate"),
        ({"ip": None}, RATE, "Invalid configuration key producer_byte_rate"),
        (ALICE, QuotaOp("producer_byte_rate", 0), "Quota producer_byte_rate must be greater than 0"),
        (ALICE, QuotaOp("producer_byte_rate", 1.5), "producer_byte_rate cannot be a fractional value."),
        (ALICE, QuotaOp("producer_byte_rate", 1e19), "Proposed value for producer_byte_rate is too large for a LONG."),
        (ALICE, QuotaOp("request_percentage", math.nan), "Quota request_percentage must be a finite number, not nan"),
        (
            {"ip": "::1"},
            QuotaOp("connection_creation_rate", 2**31),
            "Proposed value for connection_creation_rate is too large for an INT.",
        ),
    ],
)
def test_alter_client_quotas_names_what_is_wrong_with_a_value(driver, names, op, text) -> None:
    assert refusal(driver, names, op) == text
    assert driver.image.client_quotas == {}


def test_alter_client_quotas_refuses_what_is_named_twice(driver) -> None:
    text = "Ignoring duplicate entity ClientQuotaEntity(entries={user=alice})"
    assert refusal(driver, ALICE, RATE, RATE) == text
    [error] = alter(driver, (ALICE, RATE), (ALICE, RATE)).values()
    assert error == (ErrorCode.INVALID_REQUEST, text)


def test_alter_client_quotas_is_refused_below_the_level_that_has_them(driver) -> None:
    driver.set_levels({METADATA_VERSION: 2})
    with pytest.raises(TidelogError, match=r"client quotas need metadata\.version 3") as caught:
        alter(driver, (ALICE, RATE))
    assert caught.value.code is ErrorCode.UNSUPPORTED_VERSION


def test_alter_client_quotas_keeps_the_limit_of_the_cluster(driver, monkeypatch) -> None:
    monkeypatch.setattr(quota_control, "_MAX_ENTITIES", 1)
    alter(driver, (ALICE, RATE))
    with pytest.raises(TidelogError, match="would have quotas of 2 entities, 1 are the limit"):
        alter(driver, (BOTH, RATE))
    assert alter(driver, (ALICE, QuotaOp("producer_byte_rate", 5))) == {entity_of(ALICE): None}


def test_metadata_version_cannot_fall_while_there_are_client_quotas(driver) -> None:
    alter(driver, (ALICE, RATE))
    downgrade = UpdateFeaturesRequest((FeatureUpdate(METADATA_VERSION, 2, FeatureUpgradeType.SAFE_DOWNGRADE),))
    with pytest.raises(TidelogError, match="the metadata log has 1 entities with client quotas"):
        driver.do(driver.controller.handle, downgrade)
    alter(driver, (ALICE, QuotaOp(RATE.key, remove=True)))
    driver.do(driver.controller.handle, downgrade)


ENTITIES = (
    ALICE,
    {"user": None},
    {"client-id": "app"},
    {"client-id": None},
    BOTH,
    {"user": "alice", "client-id": None},
    {"user": None, "client-id": "app"},
)
ADDRESSES = ({"ip": "10.0.0.1"}, {"ip": None})


def described(driver, *components, strict=False):
    request = DescribeClientQuotasRequest(tuple(QuotaFilterComponent(*each) for each in components), strict)
    return [
        {p.entity_type: p.entity_name for p in e.entity} for e in describe_client_quotas(driver.image, request).entries
    ]


@pytest.mark.parametrize(
    ("components", "strict", "found"),
    [
        ((), False, (*ENTITIES, *ADDRESSES)),
        ((), True, ()),
        ((("user", MATCH_EXACT, "alice"),), False, (ALICE, BOTH, ENTITIES[5])),
        ((("user", MATCH_EXACT, "alice"),), True, (ALICE,)),
        ((("user", MATCH_DEFAULT),), False, (ENTITIES[1], ENTITIES[6])),
        ((("user", MATCH_ANY),), True, (ALICE, ENTITIES[1])),
        ((("user", MATCH_ANY), ("client-id", MATCH_EXACT, "app")), True, (BOTH, ENTITIES[6])),
        ((("user", MATCH_EXACT, "alice"), ("client-id", MATCH_DEFAULT)), False, (ENTITIES[5],)),
        ((("ip", MATCH_ANY),), False, ADDRESSES),
        ((("user", MATCH_EXACT, "nobody"),), False, ()),
    ],
)
def test_describe_client_quotas_returns_what_meets_all_components(driver, components, strict, found) -> None:
    alter(driver, *((names, RATE) for names in ENTITIES))
    alter(driver, *((names, QuotaOp("connection_creation_rate", 3)) for names in ADDRESSES))
    described_now = described(driver, *components, strict=strict)
    assert sorted(map(repr, map(entity_of, described_now))) == sorted(map(repr, map(entity_of, found)))


@pytest.mark.parametrize(
    ("components", "code", "text"),
    [
        ([("", MATCH_ANY)], ErrorCode.INVALID_REQUEST, "Invalid empty entity type."),
        ([("user", MATCH_ANY), ("user", MATCH_DEFAULT)], ErrorCode.INVALID_REQUEST, "cannot appear more than once"),
        ([("group", MATCH_ANY)], ErrorCode.UNSUPPORTED_VERSION, "Unsupported entity type group"),
        ([("user", MATCH_EXACT)], ErrorCode.INVALID_REQUEST, "MATCH_TYPE_EXACT, but set match string to null"),
        ([("user", MATCH_DEFAULT, "a")], ErrorCode.INVALID_REQUEST, "MATCH_TYPE_DEFAULT, but also specified"),
        ([("user", MATCH_ANY, "a")], ErrorCode.INVALID_REQUEST, "MATCH_TYPE_SPECIFIED, but also specified"),
        ([("user", 7)], ErrorCode.INVALID_REQUEST, "Unknown match type 7"),
        ([("ip", MATCH_ANY), ("user", MATCH_ANY)], ErrorCode.INVALID_REQUEST, "IP filter component should not be"),
    ],
)
def test_describe_client_quotas_refuses_an_invalid_filter(driver, components, code, text) -> None:
    with pytest.raises(TidelogError, match=text) as caught:
        described(driver, *components)
    assert caught.value.code is code


def test_an_entity_is_the_same_in_any_order_of_its_parts() -> None:
    assert entity_of({"user": "a", "client-id": None}) == (
        QuotaEntityPart("client-id", None),
        QuotaEntityPart("user", "a"),
    )
