"""Access rules, credentials and errors of an admin client: the names are there, the refusals are clear."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

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


def test_scram_credentials_are_refused(admin: AdminClient) -> None:
    credential = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096)
    changes = [
        UserScramCredentialUpsertion("u", credential, b"secret"),
        UserScramCredentialDeletion("v", ScramMechanism.SCRAM_SHA_512),
    ]
    altered = admin.alter_user_scram_credentials(changes)
    described = admin.describe_user_scram_credentials(["u"])
    refusals = [*altered.values(), described["u"], admin.describe_user_scram_credentials()]
    assert altered.keys() == {"u", "v"}
    assert {_refusal(future).code() for future in refusals} == {KafkaError.UNSUPPORTED_VERSION}
    assert "no authentication yet" in _refusal(altered["u"]).str()


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
