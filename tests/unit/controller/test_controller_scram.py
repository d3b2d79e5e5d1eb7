"""Changes and descriptions of users' SCRAM credentials: Kafka's checks, and the bounds of a request."""

from __future__ import annotations

import dataclasses

import pytest

from tidelog_foundation.errors import ErrorCode, TidelogError
from tidelog_foundation.requests.features import FeatureUpdate, FeatureUpgradeType, UpdateFeaturesRequest
from tidelog_foundation.requests.scram import (
    AlterUserScramCredentialsRequest,
    DescribeUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialInfo,
    ScramCredentialUpsertion,
)
from tidelog_foundation.sasl.scram_credentials import (
    CredentialKey,
    ScramMechanism,
    credential_of,
    salted_password,
)
from tidelog_quorum.controller import scram as scram_control
from tidelog_quorum.metadata.description import describe_user_scram_credentials
from tidelog_quorum.metadata.features import METADATA_VERSION, SECURITY_VERSION

SHA_256, SHA_512 = ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512
ALICE = ScramCredentialUpsertion("alice", SHA_256, 4_096, b"salt", salted_password(SHA_256, b"pw", b"salt", 4_096))
BOB = dataclasses.replace(ALICE, name="bob")


@pytest.fixture
def driver(driver):
    driver.set_levels({METADATA_VERSION: SECURITY_VERSION})
    return driver


def alter(driver, *upsertions, deletions=()):
    request = AlterUserScramCredentialsRequest(tuple(ScramCredentialDeletion(*d) for d in deletions), upsertions)
    results = driver.do(driver.controller.handle, request).results
    return {r.user: r.error and (r.error.code.name, r.error.message) for r in results}


def users(driver):
    return set(driver.image.scram_credentials)


def described(driver, *names):
    response = describe_user_scram_credentials(driver.image, DescribeUserScramCredentialsRequest(names))
    return [(r.user, r.error and (r.error.code.name, r.error.message), r.credential_infos) for r in response.results]


def test_credentials_are_stored_as_keys(driver) -> None:
    assert alter(driver, ALICE) == {"alice": None}
    stored = driver.image.scram_credentials[CredentialKey("alice", SHA_256)]
    assert stored == credential_of(SHA_256, ALICE.salted_password, b"salt", 4_096)
    assert ALICE.salted_password not in (stored.salt, stored.stored_key, stored.server_key)


def test_credentials_of_a_user_are_one_per_mechanism_and_replaced_by_the_next(driver) -> None:
    other = dataclasses.replace(ALICE, mechanism=SHA_512, iterations=8_192)
    alter(driver, ALICE)
    alter(driver, other)
    alter(driver, dataclasses.replace(ALICE, iterations=16_384))
    infos = (ScramCredentialInfo(SHA_256, 16_384), ScramCredentialInfo(SHA_512, 8_192))
    assert described(driver, "alice") == [("alice", None, infos)]
    assert alter(driver, deletions=[("alice", SHA_256)]) == {"alice": None}
    assert users(driver) == {CredentialKey("alice", SHA_512)}


@pytest.mark.parametrize(
    ("change", "code", "text"),
    [
        ({"name": ""}, "UNACCEPTABLE_CREDENTIAL", "Username must not be empty"),
        ({"mechanism": ScramMechanism.UNKNOWN}, "UNSUPPORTED_SASL_MECHANISM", "Unknown SCRAM mechanism"),
        ({"mechanism": 3}, "UNSUPPORTED_SASL_MECHANISM", "Unknown SCRAM mechanism"),
        ({"mechanism": 3, "iterations": 1}, "UNSUPPORTED_SASL_MECHANISM", "Unknown SCRAM mechanism"),
        ({"iterations": 4_095}, "UNACCEPTABLE_CREDENTIAL", "Too few iterations"),
        ({"iterations": 16_385}, "UNACCEPTABLE_CREDENTIAL", "Too many iterations"),
        ({"salted_password": b""}, "UNACCEPTABLE_CREDENTIAL", "The salted password must not be empty"),
        ({"name": "x" * 1_025}, "UNACCEPTABLE_CREDENTIAL", "The size of the user name is 1025, 1024 is the limit"),
        ({"salt": bytes(1_025)}, "UNACCEPTABLE_CREDENTIAL", "The size of the salt is 1025, 1024 is the limit"),
    ],
)
def test_a_credential_that_is_not_acceptable_is_refused_alone(driver, change, code, text) -> None:
    refused = dataclasses.replace(ALICE, **change)
    assert alter(driver, refused, BOB) == {refused.name: (code, text), "bob": None}
    assert users(driver) == {CredentialKey("bob", SHA_256)}


@pytest.mark.parametrize(
    ("deletion", "error"),
    [
        (("carol", SHA_256), ("RESOURCE_NOT_FOUND", "Attempt to delete a user credential that does not exist")),
        (("alice", SHA_512), ("RESOURCE_NOT_FOUND", "Attempt to delete a user credential that does not exist")),
        (("alice", 9), ("UNSUPPORTED_SASL_MECHANISM", "Unknown SCRAM mechanism")),
        (("", SHA_256), ("UNACCEPTABLE_CREDENTIAL", "Username must not be empty")),
    ],
)
def test_a_deletion_of_what_does_not_exist_is_refused_alone(driver, deletion, error) -> None:
    alter(driver, ALICE, BOB)
    assert alter(driver, deletions=[deletion, ("bob", SHA_256)]) == {deletion[0]: error, "bob": None}
    assert users(driver) == {CredentialKey("alice", SHA_256)}


def test_a_user_that_is_named_twice_is_not_changed(driver) -> None:
    twice = ("DUPLICATE_RESOURCE", "A user credential cannot be altered twice in the same request")
    other = dataclasses.replace(ALICE, mechanism=SHA_512)
    assert alter(driver, ALICE, other, BOB) == {"alice": twice, "bob": None}
    assert alter(driver, ALICE, ALICE, ALICE) == {"alice": twice}
    bob = ("bob", SHA_256)
    assert alter(driver, BOB, deletions=[bob]) == alter(driver, deletions=[bob, bob]) == {"bob": twice}
    assert users(driver) == {CredentialKey(*bob)}


def test_credentials_are_refused_below_the_level_that_has_them(driver) -> None:
    driver.set_levels({METADATA_VERSION: SECURITY_VERSION - 1})
    error = ("UNSUPPORTED_VERSION", "The current metadata.version does not support SCRAM")
    assert alter(driver, ALICE, deletions=[("bob", SHA_256)]) == {"alice": error, "bob": error}


def test_credentials_keep_the_limit_of_the_cluster(driver, monkeypatch) -> None:
    monkeypatch.setattr(scram_control, "_MAX_CREDENTIALS", 1)
    alter(driver, ALICE)
    with pytest.raises(TidelogError, match="would have 2 SCRAM credentials, 1 are the limit") as caught:
        alter(driver, BOB)
    assert caught.value.code is ErrorCode.POLICY_VIOLATION
    assert alter(driver, ALICE) == {"alice": None}


def test_credentials_are_described_without_secrets_and_ordered_by_name(driver) -> None:
    alter(driver, BOB, ALICE)
    infos = (ScramCredentialInfo(SHA_256, 4_096),)
    assert described(driver) == [("alice", None, infos), ("bob", None, infos)]
    absent = ("RESOURCE_NOT_FOUND", "Attempt to describe a user credential that does not exist: carol")
    twice = "Cannot describe SCRAM credentials for the same user twice in a single request: bob"
    assert described(driver, "carol", "bob", "bob") == [
        ("bob", ("DUPLICATE_RESOURCE", twice), ()),
        ("carol", absent, ()),
    ]


def test_metadata_version_cannot_fall_while_there_are_credentials(driver) -> None:
    alter(driver, ALICE)
    downgrade = UpdateFeaturesRequest((FeatureUpdate(METADATA_VERSION, 2, FeatureUpgradeType.SAFE_DOWNGRADE),))
    with pytest.raises(TidelogError, match="the metadata log has 1 SCRAM credentials"):
        driver.do(driver.controller.handle, downgrade)
    alter(driver, deletions=[("alice", SHA_256)])
    driver.do(driver.controller.handle, downgrade)
    assert driver.image.feature_levels[METADATA_VERSION] == 2
