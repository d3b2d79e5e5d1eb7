"""Tidelog's own clients on a node in memory whose gRPC listener requires a login with PLAIN."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from acknowledged import wait_for

from tidelog import Consumer, KafkaError, KafkaException, Producer, TopicPartition
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
def test_producer_whose_login_is_refused_tells_the_application_and_names_the_cause_of_the_timeout(
    secured: FakeCluster, idempotence: bool
) -> None:
    errors: list[KafkaError] = []
    reports: list[KafkaError | None] = []
    settings = settings_of(secured, sasl_password="wrong", enable_idempotence=idempotence, message_timeout_ms=600)
    with Producer(settings | {"error_cb": errors.append}) as producer:
        producer.produce("t", b"x", on_delivery=lambda error, _: reports.append(error))
        assert producer.flush(DEADLINE_S) == 0
        producer.poll(0)
    [report] = reports
    assert report is not None
    assert report.code() == KafkaError._MSG_TIMED_OUT
    assert "Invalid username or password" in report.str()
    assert {error.code() for error in errors} == {KafkaError._AUTHENTICATION}
    assert not errors[0].fatal()


def test_client_whose_credentials_are_replaced_goes_on(secured: FakeCluster) -> None:
    with (
        Producer(settings_of(secured, sasl_password="wrong")) as producer,
        Consumer(settings_of(secured, sasl_password="wrong", group_id="late", auto_offset_reset="latest")) as consumer,
    ):
        refused: list[KafkaError] = []
        with Producer(settings_of(secured, sasl_password="wrong") | {"error_cb": refused.append}) as watched:
            watched.produce("t", b"first")
            producer.produce("t", b"second")
            consumer.assign([TopicPartition("t", 0, 0)])
            wait_for(lambda: bool(watched.poll(0.01) or refused), "the refusal", DEADLINE_S)
            for client in (watched, producer, consumer):
                client.set_sasl_credentials("alice", "a-secret")
            assert watched.flush(DEADLINE_S) == producer.flush(DEADLINE_S) == 0
        found: list[bytes | None] = []

        def has_all() -> bool:
            message = consumer.poll(0.1)
            if message is not None and not message.error():
                found.append(message.value())
            return {b"first", b"second"} <= set(found)

        wait_for(has_all, "the records", DEADLINE_S)


@pytest.mark.parametrize(
    ("credentials", "mechanism"), [(("", "x"), "PLAIN"), (("alice", ""), "PLAIN"), (("alice", "x"), "OAUTHBEARER")]
)
def test_credentials_that_no_login_can_use_are_refused(
    secured: FakeCluster, credentials: tuple[str, str], mechanism: str
) -> None:
    settings = settings_of(secured)
    if mechanism == "OAUTHBEARER":
        settings = settings_of(secured, sasl_mechanisms=mechanism, sasl_username=None, sasl_password=None)
        settings["oauth_cb"] = lambda _: ("token", 0.0)
    with AdminClient(settings) as admin, pytest.raises(KafkaException) as refused:
        admin.set_sasl_credentials(*credentials)
    assert refused.value.args[0].code() == KafkaError._INVALID_ARG


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
        settings = settings_of(secured, sasl_password="wrong", message_timeout_ms=600)
        async with AIOProducer(settings) as producer:
            with pytest.raises(KafkaException) as refused:
                await (await producer.produce("t", b"x"))
            assert "Authentication failed" in str(refused.value)
            await producer.set_sasl_credentials("alice", "a-secret")
            await wait_delivered(producer)

    async def wait_delivered(producer: AIOProducer) -> None:
        # A busy machine may take longer for the login than the timeout of a message, which is short here.
        while True:
            try:
                message = await (await producer.produce("t", b"y"))
            except KafkaException as error:
                if error.args[0].code() != KafkaError._MSG_TIMED_OUT:
                    raise
            else:
                assert message.value() == b"y"
                return

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
