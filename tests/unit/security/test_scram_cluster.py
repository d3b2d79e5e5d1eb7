"""Tidelog's own clients log in with SCRAM to a node in memory, as users that the cluster creates while it runs."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from tidelog import Consumer, KafkaError, KafkaException, Producer
from tidelog.admin import (
    AdminClient,
    NewTopic,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialAlteration,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)
from tidelog.aio import Producer as AsyncProducer
from tidelog.testing import FakeCluster

DEADLINE_S = 20
JAAS = "org.apache.kafka.common.security.plain.PlainLoginModule required user_admin=a-secret;"
SECURED = {
    "listener.security.protocol.map": "GRPC:GRPC_SASL_PLAINTEXT,PLAINTEXT:PLAINTEXT,CONTROLLER:GRPC",
    "controller.listener.names": "CONTROLLER",
    "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
    "listener.name.grpc.plain.sasl.jaas.config": JAAS,
    "connection.failed.authentication.delay.ms": "1",
}
MECHANISMS = {"SCRAM-SHA-256": ScramMechanism.SCRAM_SHA_256, "SCRAM-SHA-512": ScramMechanism.SCRAM_SHA_512}


@pytest.fixture(scope="module")
def secured() -> Iterator[FakeCluster]:
    with FakeCluster(node_config=SECURED) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def admin(secured: FakeCluster) -> Iterator[AdminClient]:
    with AdminClient(settings_of(secured, "PLAIN", "admin", "a-secret")) as client:
        client.create_topics([NewTopic("t", 1)])["t"].result(DEADLINE_S)
        yield client


def settings_of(cluster: FakeCluster, mechanism: str, user: str, password: str) -> dict[str, Any]:
    return {
        "bootstrap.servers": cluster.bootstrap_servers,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanisms": mechanism,
        "sasl.username": user,
        "sasl.password": password,
    }


def alter(admin: AdminClient, *alterations: UserScramCredentialAlteration) -> None:
    for future in admin.alter_user_scram_credentials(list(alterations)).values():
        future.result(DEADLINE_S)


def credential(user: str, password: str, mechanism: str = "SCRAM-SHA-512") -> UserScramCredentialUpsertion:
    return UserScramCredentialUpsertion(user, ScramCredentialInfo(MECHANISMS[mechanism], 4_096), password.encode())


def refusal(settings: dict[str, Any]) -> KafkaError:
    with AdminClient(settings) as client, pytest.raises(KafkaException) as caught:
        client.list_topics(timeout=DEADLINE_S)
    error = caught.value.args[0]
    assert isinstance(error, KafkaError)
    return error


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_clients_log_in_with_scram(secured: FakeCluster, admin: AdminClient, mechanism: str) -> None:
    alter(admin, credential("alice", "s\u00e9cret,=", mechanism))
    settings = settings_of(secured, mechanism, "alice", "s\u00e9cret,=")
    with Producer(settings) as producer:
        producer.produce("t", mechanism.encode())
        assert producer.flush(DEADLINE_S) == 0

    async def send() -> None:
        async with AsyncProducer(settings) as other:
            await (await other.produce("t", b"aio"))

    asyncio.run(send())
    with Consumer(settings | {"group.id": mechanism, "auto.offset.reset": "earliest"}) as consumer:
        consumer.subscribe(["t"])
        message = consumer.poll(DEADLINE_S)
        assert message is not None
        assert message.error() is None


def test_unknown_user_and_wrong_password_are_the_same_error(secured: FakeCluster, admin: AdminClient) -> None:
    alter(admin, credential("carol", "secret"))
    refusals = [refusal(settings_of(secured, "SCRAM-SHA-512", user, "canary")) for user in ("carol", "nobody")]
    assert {error.code() for error in refusals} == {KafkaError._AUTHENTICATION}
    assert refusals[0].str() == refusals[1].str()
    assert "canary" not in refusals[0].str()


def test_new_password_and_deletion_apply_to_the_next_login(secured: FakeCluster, admin: AdminClient) -> None:
    first, second = (settings_of(secured, "SCRAM-SHA-512", "bob", password) for password in ("first", "second"))
    alter(admin, credential("bob", "first"))
    with AdminClient(first) as connected:
        assert "t" in connected.list_topics(timeout=DEADLINE_S).topics
        alter(admin, credential("bob", "second"))
        assert refusal(first).code() == KafkaError._AUTHENTICATION
        with AdminClient(second) as client:
            assert "t" in client.list_topics(timeout=DEADLINE_S).topics
        alter(admin, UserScramCredentialDeletion("bob", ScramMechanism.SCRAM_SHA_512))
        assert refusal(second).code() == KafkaError._AUTHENTICATION
        assert "t" in connected.list_topics(timeout=DEADLINE_S).topics, "a session lasts until it is renewed"
