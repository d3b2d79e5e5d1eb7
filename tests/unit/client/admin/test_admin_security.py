"""Access rules, credentials and errors of an admin client: the names are there, the refusals are clear."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import confluent_kafka.admin
import pytest

from tidelog import AdminClient, KafkaError, KafkaException
from tidelog.admin import (
    CONFIG_SOURCE_DEFAULT_CONFIG,
    AclBinding,
    AclBindingFilter,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)
from tidelog.testing import FakeCluster

RULE = AclBinding("TOPIC", "t", "LITERAL", "User:u", "*", "READ", "ALLOW")
ANY = AclBindingFilter("ANY", None, "ANY", None, None, "ANY", "ANY")


@pytest.fixture(scope="module")
def cluster() -> Iterator[FakeCluster]:
    with FakeCluster() as running:
        running.create_topic("t", 1)
        yield running


@pytest.fixture
def admin(cluster: FakeCluster) -> Iterator[AdminClient]:
    with AdminClient({"bootstrap.servers": cluster.bootstrap_servers}) as client:
        yield client


def _refusal(future: Any) -> KafkaError:
    with pytest.raises(KafkaException) as caught:
        future.result(5)
    error = caught.value.args[0]
    assert isinstance(error, KafkaError)
    return error


def test_access_rules_are_refused_as_by_a_cluster_without_an_authorizer(admin: AdminClient) -> None:
    refusals = [
        _refusal(admin.create_acls([RULE], request_timeout=10)[RULE]),
        _refusal(admin.describe_acls(ANY)),
        _refusal(admin.delete_acls([ANY])[ANY]),
    ]
    assert {error.code() for error in refusals} == {KafkaError.SECURITY_DISABLED}
    assert {error.str().partition(" on the")[0].rstrip(".") for error in refusals} == {"No Authorizer is configured"}


SHA_256 = ScramMechanism.SCRAM_SHA_256
CREDENTIAL = ScramCredentialInfo(SHA_256, 4096)
PLAIN_TEXT: Any = "secret"


@pytest.mark.parametrize(
    ("alterations", "error", "text"),
    [
        ((), TypeError, "must be a list, not tuple"),
        ([], ValueError, "at least one alteration"),
        (["u"], TypeError, "an alteration must be a UserScramCredentialUpsertion"),
        ([UserScramCredentialDeletion("", SHA_256)], ValueError, "user's name must not be empty"),
        ([UserScramCredentialDeletion("u", PLAIN_TEXT)], TypeError, "mechanism must be ScramMechanism, not str"),
        ([UserScramCredentialUpsertion("u", CREDENTIAL, PLAIN_TEXT)], TypeError, "password must be bytes, not str"),
        ([UserScramCredentialUpsertion("u", CREDENTIAL, b"")], ValueError, "password must not be empty"),
        ([UserScramCredentialUpsertion("u", CREDENTIAL, b"p", b"")], ValueError, "salt must not be empty"),
        (
            [UserScramCredentialUpsertion("u", ScramCredentialInfo(SHA_256, 0), b"p")],
            ValueError,
            "iterations must be positive, not 0",
        ),
    ],
)
def test_scram_alterations_are_checked_before_they_are_sent(
    admin: AdminClient, alterations: Any, error: type[Exception], text: str
) -> None:
    with pytest.raises(error, match=text) as caught:
        admin.alter_user_scram_credentials(alterations)
    assert "secret" not in str(caught.value)


def test_scram_descriptions_are_of_lists_of_users(admin: AdminClient) -> None:
    for users, error in (("u", TypeError), ([1], TypeError), ([""], ValueError)):
        with pytest.raises(error):
            admin.describe_user_scram_credentials(users)  # type: ignore[call-overload]


def test_scram_credentials_of_a_user_that_is_named_twice_are_refused(admin: AdminClient) -> None:
    twice: list[Any] = [UserScramCredentialUpsertion("u", CREDENTIAL, b"p")] * 2
    refusals = [
        _refusal(admin.alter_user_scram_credentials(twice)["u"]),
        _refusal(admin.describe_user_scram_credentials(["u", "u"])["u"]),
    ]
    assert {error.code() for error in refusals} == {KafkaError.DUPLICATE_RESOURCE}


def test_scram_credentials_are_those_of_confluent_kafka(admin: AdminClient, cluster: FakeCluster) -> None:
    with confluent_kafka.admin.AdminClient({"bootstrap.servers": cluster.kafka_bootstrap_servers}) as theirs:
        info = confluent_kafka.admin.ScramCredentialInfo(confluent_kafka.admin.ScramMechanism.SCRAM_SHA_512, 8192)
        created = confluent_kafka.admin.UserScramCredentialUpsertion("theirs", info, b"secret")
        assert theirs.alter_user_scram_credentials([created])["theirs"].result(30) is None
        ours = admin.describe_user_scram_credentials().result(30)["theirs"].scram_credential_infos
        again = theirs.describe_user_scram_credentials(["theirs"])["theirs"].result(30).scram_credential_infos
        for found in (ours, again):
            assert [(each.mechanism.name, each.iterations) for each in found] == [("SCRAM_SHA_512", 8192)]
        deleted = confluent_kafka.admin.UserScramCredentialDeletion("theirs", info.mechanism)
        assert theirs.alter_user_scram_credentials([deleted])["theirs"].result(30) is None
        with pytest.raises(confluent_kafka.KafkaException, match="RESOURCE_NOT_FOUND"):
            theirs.describe_user_scram_credentials(["theirs"])["theirs"].result(30)


def test_synonyms_are_by_name_and_in_order(admin: AdminClient) -> None:
    resource = ConfigResource("topic", "t", set_config={"retention.ms": "5000"})
    admin.incremental_alter_configs([resource])[resource].result()
    entry = admin.describe_configs([resource])[resource].result()["retention.ms"]
    assert entry.synonyms["retention.ms"].value == "5000"
    assert {s.name for s in entry.synonym_chain} == entry.synonyms.keys()
    assert all(s.is_synonym for s in entry.synonyms.values())
    assert (len(resource), bool(ConfigResource("topic", "t"))) == (1, True)
    assert ConfigSource(CONFIG_SOURCE_DEFAULT_CONFIG) is ConfigSource.DEFAULT_CONFIG
    given = ConfigEntry("a", "1", synonyms={"b": ConfigEntry("b", "2")})
    assert given.synonyms["b"].value == given.synonym_chain[0].value == "2"


def test_metadata_names_the_node_that_answered(admin: AdminClient, cluster: FakeCluster) -> None:
    found = admin.list_topics(timeout=10)
    broker = found.brokers[found.orig_broker_id]
    assert found.orig_broker_name == f"{broker.host}:{broker.port}/{broker.id}"


def test_an_outage_is_told_by_poll() -> None:
    errors: list[KafkaError] = []
    given = {"bootstrap.servers": "127.0.0.1:1", "error_cb": errors.append, "socket.timeout.ms": 100}
    with AdminClient(given) as admin:
        assert admin.poll(0) == 0
        _refusal(admin.describe_cluster())
        assert admin.poll(5) == 1
    assert errors[0].name() in ("_ALL_BROKERS_DOWN", "_TIMED_OUT")


def test_poll_waits_no_longer_than_it_is_told(admin: AdminClient) -> None:
    began = time.monotonic()
    assert admin.poll(0.05) == 0
    assert 0.04 < time.monotonic() - began < 5


def test_a_callback_that_cannot_be_called_is_refused() -> None:
    with pytest.raises(TypeError, match="error_cb must be callable, not int"):
        AdminClient({"bootstrap.servers": "a:1"}, error_cb=3)
