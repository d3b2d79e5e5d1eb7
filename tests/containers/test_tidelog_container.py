"""``TidelogContainer``, used as a project with testcontainers uses it."""

from __future__ import annotations

from collections.abc import Iterator

import confluent_kafka
import docker
import pytest
from testcontainers.core.exceptions import ContainerStartException
from testcontainers.core.network import Network

import tidelog
from tidelog.testing.containers import TidelogContainer

ALIAS = "tidelog"
_TIMEOUT_S = 60.0
pytestmark = pytest.mark.timeout(900)


@pytest.fixture(scope="module")
def server(image: str, network: Network) -> Iterator[TidelogContainer]:
    container = TidelogContainer(image).with_network(network).with_network_aliases(ALIAS)
    with container.with_config({"message.max.bytes": 10_000}) as started:
        yield started


def _create_topic(server: TidelogContainer, name: str) -> None:
    with tidelog.AdminClient({"bootstrap.servers": server.get_tidelog_bootstrap_server()}) as admin:
        admin.create_topics([tidelog.NewTopic(name, 1, 1)])[name].result(_TIMEOUT_S)


def test_clients_of_tidelog_produce_and_consume(server: TidelogContainer) -> None:
    _create_topic(server, "own-clients")
    settings = {"bootstrap.servers": server.get_tidelog_bootstrap_server()}
    with tidelog.Producer(settings) as producer:
        producer.produce("own-clients", b"hello")
        assert producer.flush(_TIMEOUT_S) == 0
    with tidelog.Consumer({**settings, "group.id": "readers", "auto.offset.reset": "earliest"}) as consumer:
        consumer.subscribe(["own-clients"])
        message = consumer.poll(_TIMEOUT_S)
    assert message is not None
    assert (message.error(), message.value()) == (None, b"hello")


def test_clients_of_kafka_produce_and_consume(server: TidelogContainer) -> None:
    _create_topic(server, "kafkas-clients")
    settings = {"bootstrap.servers": server.get_bootstrap_server()}
    producer = confluent_kafka.Producer({**settings, "enable.metrics.push": False})
    producer.produce("kafkas-clients", b"hello")
    assert producer.flush(_TIMEOUT_S) == 0
    reader = {"group.id": "kafkas-readers", "auto.offset.reset": "earliest", "enable.metrics.push": False}
    consumer = confluent_kafka.Consumer({**settings, **reader})
    try:
        consumer.subscribe(["kafkas-clients"])
        message = consumer.poll(_TIMEOUT_S)
    finally:
        consumer.close()
    assert message is not None
    assert (message.error(), message.value()) == (None, b"hello")


def test_settings_reach_the_server(server: TidelogContainer) -> None:
    _create_topic(server, "small-records")
    reports: list[object] = []
    with tidelog.Producer({"bootstrap.servers": server.get_tidelog_bootstrap_server()}) as producer:
        producer.produce("small-records", bytes(20_000), on_delivery=lambda error, _: reports.append(error))
        assert producer.flush(_TIMEOUT_S) == 0
    [error] = reports
    assert isinstance(error, tidelog.KafkaError)
    assert error.code() == tidelog.KafkaError.MSG_SIZE_TOO_LARGE


def test_other_containers_of_the_network_connect_by_the_alias(
    server: TidelogContainer, image: str, network: Network
) -> None:
    address = server.get_network_tidelog_bootstrap_server()
    assert address.startswith(f"{ALIAS}:")
    client = docker.from_env()
    try:
        command = ["tidelog", "topic", "list", "--bootstrap-servers", address]
        listed = client.containers.run(image, command, network=network.name, remove=True)
    finally:
        client.close()
    assert b"TOPIC" in listed


def test_server_that_ends_is_an_error_with_its_log_and_leaves_no_container(image: str) -> None:
    container = TidelogContainer(image).with_config({"no.such.key": 1})
    with pytest.raises(ContainerStartException, match=r'exit code 2; it logged last:\n.*"no.such.key"'):
        container.start()
    assert _is_gone(container)


def test_server_that_is_not_ready_in_time_is_an_error_with_its_log(image: str) -> None:
    container = TidelogContainer(image)
    with pytest.raises(TimeoutError, match=r"was not ready after 0 s: .*; it logged"):
        container.start(timeout_s=0)
    assert _is_gone(container)


def test_settings_that_follow_from_the_ports_are_refused(image: str) -> None:
    container = TidelogContainer(image)
    try:
        with pytest.raises(ValueError, match=r"TidelogContainer sets listeners, node\.id itself"):
            container.with_config({"listeners": "PLAINTEXT://:9092", "node.id": 2})
    finally:
        container.stop()


def test_default_image_has_the_version_of_the_package() -> None:
    container = TidelogContainer()
    try:
        assert container.image == f"tidelog:{tidelog.__version__}"
    finally:
        container.stop()


def _is_gone(container: TidelogContainer) -> bool:
    client = docker.from_env()
    try:
        own = container.get_wrapped_container().id
        return own not in {each.id for each in client.containers.list(all=True)}
    finally:
        client.close()
