"""Tidelog's own clients on a node in memory whose gRPC listener requires a login with PLAIN."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from tidelog import Consumer, KafkaError, KafkaException, Producer
from tidelog.admin import AdminClient, NewTopic
from tidelog.aio import AIOProducer
from tidelog.testing import FakeCluster

DEADLINE_S = 20
JAAS = "org.apache.kafka.common.security.plain.PlainLoginModule required user_alice=a-secret user_bob=b-secret;"
SECURED = {
    "listener.security.protocol.map": "GRPC:GRPC_SASL_PLAINTEXT,PLAINTEXT:PLAINTEXT,CONTROLLER:GRPC",
    "controller.listener.names": "CONTROLLER",
    "sasl.enabled.mechanisms": "PLAIN",
    "listener.name.grpc.plain.sasl.jaas.config": JAAS,
    "connection.failed.authentication.delay.ms": "1",
}


@pytest.fixture(scope="module")
def secured() -> Iterator[FakeCluster]:
    with FakeCluster(node_config=SECURED) as cluster:
        with AdminClient(settings_of(cluster)) as admin:
            admin.create_topics([NewTopic("t", 1)])["t"].result(DEADLINE_S)
        yield cluster


def settings_of(cluster: FakeCluster, **changes: Any) -> dict[str, Any]:
    given = {
        "bootstrap.servers": cluster.bootstrap_servers,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanisms": "PLAIN",
        "sasl.username": "alice",
        "sasl.password": "a-secret",
    }
    return {k: v for k, v in (given | {k.replace("_", "."): v for k, v in changes.items()}).items() if v is not None}


@pytest.mark.parametrize("servers", ["bootstrap_servers", "kafka_bootstrap_servers"])
def test_clients_produce_and_consume_after_a_login(secured: FakeCluster, servers: str) -> None:
    settings = settings_of(secured, bootstrap_servers=getattr(secured, servers))
    with Producer(settings) as producer:
        producer.produce("t", b"value")
        assert producer.flush(DEADLINE_S) == 0
    with Consumer(settings | {"group.id": "g", "auto.offset.reset": "earliest"}) as consumer:
        consumer.subscribe(["t"])
        message = consumer.poll(DEADLINE_S)
        assert message is not None
        assert message.value() == b"value"


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        pytest.param({"sasl_password": "wrong"}, "Invalid username or password", id="password"),
        pytest.param(
            {"security_protocol": None, "sasl_mechanisms": None, "sasl_username": None, "sasl_password": None},
            "listener GRPC requires a login with SASL: PLAIN",
            id="no login",
        ),
        pytest.param({"sasl_mechanisms": "SCRAM-SHA-256"}, "must be one of PLAIN", id="mechanism"),
    ],
)
def test_client_whose_login_is_refused_says_so_at_once(
    secured: FakeCluster, changes: dict[str, Any], text: str
) -> None:
    settings = settings_of(secured, **changes)
    with AdminClient(settings) as admin, pytest.raises(KafkaException, match=text) as raised:
        admin.list_topics(timeout=DEADLINE_S)
    assert raised.value.args[0].code() == KafkaError._AUTHENTICATION


@pytest.mark.parametrize("idempotence", [True, False])
def test_producer_whose_login_is_refused_fails_its_records_and_tells_the_application(
    secured: FakeCluster, idempotence: bool
) -> None:
    errors: list[KafkaError] = []
    reports: list[KafkaError | None] = []
    settings = settings_of(secured, sasl_password="wrong", error_cb=errors.append, enable_idempotence=idempotence)
    settings = {("error_cb" if key == "error.cb" else key): value for key, value in settings.items()}
    with Producer(settings) as producer:
        producer.produce("t", b"x", on_delivery=lambda error, _: reports.append(error))
        assert producer.flush(DEADLINE_S) == 0
        producer.poll(0)
    assert [error is not None for error in reports] == [True]
    assert [error.code() for error in errors][:1] == [KafkaError._AUTHENTICATION]
    assert errors[0].fatal()


def test_consumer_whose_login_is_refused_tells_the_application(secured: FakeCluster) -> None:
    with Consumer(settings_of(secured, sasl_password="wrong", group_id="other")) as consumer:
        consumer.subscribe(["t"])
        message = consumer.poll(DEADLINE_S)
        assert message is not None
        assert message.error().code() == KafkaError._AUTHENTICATION


def test_clients_log_in_again_at_a_restarted_node(secured: FakeCluster) -> None:
    with Producer(settings_of(secured)) as producer:
        producer.produce("t", b"before")
        assert producer.flush(DEADLINE_S) == 0
        secured.stop()
        secured.start()
        producer.produce("t", b"after")
        assert producer.flush(DEADLINE_S) == 0
    assert [record.value for record in secured.records("t")][-2:] == [b"before", b"after"]


def test_clients_for_asyncio_produce_after_a_login_and_learn_of_a_refused_one(secured: FakeCluster) -> None:
    async def main() -> None:
        async with AIOProducer(settings_of(secured)) as producer:
            message = await (await producer.produce("t", b"of asyncio"))
            assert message.value() == b"of asyncio"
        async with AIOProducer(settings_of(secured, sasl_password="wrong")) as producer:
            with pytest.raises(KafkaException) as refused:
                await (await producer.produce("t", b"x"))
            assert "Authentication failed" in str(refused.value)

    asyncio.run(asyncio.wait_for(main(), DEADLINE_S))


def test_token_of_oauth_cb_is_presented_and_its_failure_is_the_reason(secured: FakeCluster) -> None:
    asked: list[str] = []

    def fail(config: str) -> object:
        asked.append(config)
        raise RuntimeError("no provider")

    settings = settings_of(secured, sasl_mechanisms="OAUTHBEARER", sasl_username=None, sasl_password=None)
    settings |= {"oauth_cb": fail, "sasl.oauthbearer.config": "scope=x"}
    with AdminClient(settings) as admin, pytest.raises(KafkaException, match="oauth_cb failed: RuntimeError") as raised:
        admin.list_topics(timeout=DEADLINE_S)
    assert raised.value.args[0].code() == KafkaError._AUTHENTICATION
    assert asked == ["scope=x"]
