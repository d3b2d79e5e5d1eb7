"""DescribeUserScramCredentials and AlterUserScramCredentials in all versions, against a controller's core."""

from __future__ import annotations

import pytest
from kafka_admin import AdminNode, name_of, versions_of

from tidelog_foundation.errors import ErrorCode, error_for
from tidelog_foundation.sasl.scram_credentials import (
    CredentialKey,
    ScramMechanism,
    credential_of,
    salted_password,
)
from tidelog_node.kafka.protocol.messages.scram import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
    UserName,
)
from tidelog_quorum.controller.result import Result
from tidelog_quorum.metadata.features import METADATA_VERSION, SECURITY_VERSION
from tidelog_quorum.metadata.records import FeatureLevelRecord

SHA_256, SHA_512 = ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512
SALTED = salted_password(SHA_256, b"secret", b"salt", 4_096)
ALICE = ScramCredentialUpsertion("alice", SHA_256, 4_096, b"salt", SALTED)
BOB = ScramCredentialUpsertion("bob", SHA_512, 8_192, b"salt", SALTED)


@pytest.fixture
def node():
    made = AdminNode(1)
    made.controller.do(lambda *_: Result([FeatureLevelRecord(METADATA_VERSION, SECURITY_VERSION)], None), None)
    return made


def alter(node, *upsertions, deletions=(), version=0):
    request = AlterUserScramCredentialsRequest(list(deletions), list(upsertions))
    response = node.ask(request, version, AlterUserScramCredentialsResponse)
    return {r.user: (name_of(r.error_code), r.error_message) for r in response.results}


def describe(node, users, version=0):
    names = None if users is None else [UserName(user) for user in users]
    request = DescribeUserScramCredentialsRequest(names)
    response = node.ask(request, version, DescribeUserScramCredentialsResponse)
    assert (response.error_code, response.error_message) == (0, None)
    return {
        r.user: (name_of(r.error_code), r.error_message, [(i.mechanism, i.iterations) for i in r.credential_infos])
        for r in response.results
    }


@pytest.mark.parametrize("version", versions_of(AlterUserScramCredentialsRequest))
def test_scram_credentials_are_created_described_and_deleted(node, version) -> None:
    assert alter(node, ALICE, BOB, version=version) == {"alice": (None, None), "bob": (None, None)}
    both = {"alice": (None, None, [(1, 4_096)]), "bob": (None, None, [(2, 8_192)])}
    assert describe(node, None, version) == describe(node, [], version) == both
    assert alter(node, deletions=[ScramCredentialDeletion("bob", SHA_512)], version=version) == {"bob": (None, None)}
    assert dict(node.image.scram_credentials) == {
        CredentialKey("alice", SHA_256): credential_of(SHA_256, SALTED, b"salt", 4_096)
    }
    text = "Attempt to describe a user credential that does not exist: bob"
    assert describe(node, ["bob"], version) == {"bob": ("RESOURCE_NOT_FOUND", text, [])}


def test_scram_credentials_of_each_user_are_refused_alone(node) -> None:
    weak = ScramCredentialUpsertion("alice", SHA_256, 1, b"salt", SALTED)
    unknown = ScramCredentialUpsertion("carol", -1, 4_096, b"salt", SALTED)
    assert alter(node, weak, BOB, unknown) == {
        "alice": ("UNACCEPTABLE_CREDENTIAL", "Too few iterations"),
        "bob": (None, None),
        "carol": ("UNSUPPORTED_SASL_MECHANISM", "Unknown SCRAM mechanism"),
    }


def test_an_error_of_the_controllers_is_that_of_every_user(node) -> None:
    node.controller.failure = error_for(ErrorCode.REQUEST_TIMED_OUT, "no controller answered")
    error = ("REQUEST_TIMED_OUT", "no controller answered")
    assert alter(node, BOB, ALICE, ALICE) == {"alice": error, "bob": error}


def test_the_text_of_a_request_has_no_secrets() -> None:
    assert (
        repr(ALICE)
        == "ScramCredentialUpsertion(name='alice', mechanism=<ScramMechanism.SCRAM_SHA_256: 1>, iterations=4096)"
    )
