"""Creation and deletion of ACLs: Kafka's checks, and the bounds of a request."""

from __future__ import annotations

import dataclasses

import pytest

from tidelog_foundation.errors import ErrorCode, TidelogError
from tidelog_foundation.requests.acls import (
    AclBinding,
    AclFilter,
    AclOperation,
    AclPermissionType,
    CreateAclsRequest,
    DeleteAclsRequest,
    PatternType,
    ResourceType,
)
from tidelog_foundation.requests.features import FeatureUpdate, FeatureUpgradeType, UpdateFeaturesRequest
from tidelog_quorum.controller import acls as acl_control
from tidelog_quorum.metadata.features import METADATA_VERSION

READ = AclBinding(
    ResourceType.TOPIC, "t", PatternType.LITERAL, "User:a", "*", AclOperation.READ, AclPermissionType.ALLOW
)
WRITE = dataclasses.replace(READ, operation=AclOperation.WRITE)
PREFIX = dataclasses.replace(READ, pattern_type=PatternType.PREFIXED)


@pytest.fixture
def driver(driver):
    driver.set_levels({METADATA_VERSION: 2})
    return driver


def create(driver, *acls):
    return [result.error for result in driver.do(driver.controller.handle, CreateAclsRequest(acls)).results]


def delete(driver, *filters):
    return [set(result.deleted) for result in driver.do(driver.controller.handle, DeleteAclsRequest(filters)).results]


def present(driver):
    return set(driver.image.acls.values())


def test_create_acls_writes_each_acl_once(driver) -> None:
    assert create(driver, READ, WRITE, READ) == [None, None, None]
    before = dict(driver.image.acls)
    assert create(driver, READ) == [None]
    assert dict(driver.image.acls) == before
    assert present(driver) == {READ, WRITE}


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"resource_type": ResourceType.ANY}, "Invalid resourceType ANY"),
        ({"resource_type": 99}, "Invalid resourceType UNKNOWN"),
        ({"resource_type": ResourceType.CLUSTER}, "The only valid name for the CLUSTER resource is kafka-cluster"),
        ({"resource_name": ""}, "Invalid empty resource name"),
        ({"resource_name": "x" * 1_025}, "The resource name has 1025 characters, 1024 are the limit"),
        ({"pattern_type": PatternType.MATCH}, "Invalid patternType MATCH"),
        ({"operation": AclOperation.ANY}, "Invalid operation ANY"),
        ({"permission_type": AclPermissionType.ANY}, "Invalid permissionType ANY"),
        ({"principal": "alice"}, "Could not parse principal from `alice`"),
    ],
)
def test_create_acls_refuses_an_invalid_acl_alone(driver, change, text) -> None:
    [refused, created] = create(driver, dataclasses.replace(READ, **change), WRITE)
    assert refused.code is ErrorCode.INVALID_REQUEST
    assert text in refused.message
    assert created is None
    assert present(driver) == {WRITE}


def test_create_acls_is_refused_below_the_level_that_has_them(driver) -> None:
    driver.set_levels({METADATA_VERSION: 1})
    with pytest.raises(TidelogError, match=r"ACLs need metadata\.version 2") as caught:
        create(driver, READ)
    assert caught.value.code is ErrorCode.UNSUPPORTED_VERSION


def test_create_acls_keeps_the_limit_of_the_cluster(driver, monkeypatch) -> None:
    monkeypatch.setattr(acl_control, "_MAX_ACLS", 2)
    assert create(driver, READ, WRITE) == [None, None]
    with pytest.raises(TidelogError, match="would have 3 ACLs, 2 are the limit"):
        create(driver, PREFIX)
    assert create(driver, READ) == [None]


def test_delete_acls_answers_each_filter_with_all_that_it_matches(driver) -> None:
    create(driver, READ, WRITE, PREFIX)
    exact = AclFilter(*(getattr(READ, f.name) for f in dataclasses.fields(READ)))
    found = delete(driver, exact, AclFilter(pattern_type=PatternType.LITERAL), AclFilter(principal="User:b"))
    assert found == [{READ}, {READ, WRITE}, set()]
    assert present(driver) == {PREFIX}
    assert delete(driver, exact) == [set()]


def test_delete_acls_refuses_an_unknown_filter_alone(driver) -> None:
    create(driver, READ)
    request = DeleteAclsRequest((AclFilter(resource_type=ResourceType.UNKNOWN), AclFilter(operation=77), AclFilter()))
    results = driver.do(driver.controller.handle, request).results
    assert [r.error and r.error.message for r in results] == ["Unknown patternFilter.", "Unknown entryFilter.", None]
    assert present(driver) == set()


def test_delete_acls_bounds_the_comparisons_of_several_filters(driver, monkeypatch) -> None:
    monkeypatch.setattr(acl_control, "_MAX_COMPARISONS", 3)
    create(driver, READ, WRITE)
    with pytest.raises(TidelogError, match="2 filters that leave out a part would be compared with 2 ACLs"):
        delete(driver, AclFilter(), AclFilter(host="*"))
    assert delete(driver, AclFilter()) == [{READ, WRITE}]


def test_metadata_version_cannot_fall_while_there_are_acls(driver) -> None:
    create(driver, READ)
    downgrade = UpdateFeaturesRequest((FeatureUpdate(METADATA_VERSION, 1, FeatureUpgradeType.SAFE_DOWNGRADE),))
    with pytest.raises(TidelogError, match="the metadata log has 1 ACLs"):
        driver.do(driver.controller.handle, downgrade)
    delete(driver, AclFilter())
    driver.do(driver.controller.handle, downgrade)
    assert driver.image.feature_levels[METADATA_VERSION] == 1
