"""The image works: one controller and one storage node in containers, and a record through them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import pytest
from testcontainers.core.container import DockerContainer
from testcontainers.core.network import Network

from tidelog import AdminClient, Consumer, Message, NewTopic, Producer, TopicPartition
from tidelog.testing.ports import free_ports

CONTROLLER_PORT, NODE_PORT = 9093, 9094
_DEADLINE_S = 60.0


pytestmark = pytest.mark.timeout(900)


@pytest.fixture(scope="module")
def controller(image: str, network: Network) -> Iterator[DockerContainer]:
    settings = {
        "listeners": f"GRPC://0.0.0.0:{CONTROLLER_PORT}",
        "metadata.log.dir": "/var/lib/tidelog/metadata",
    }
    with _container(image, network, "controller", "tidelog-quorum", settings) as started:
        yield started


@pytest.fixture(scope="module")
def address(controller: DockerContainer) -> str:
    """The address of the storage node, as the host of the tests reaches it and as the node advertises it."""
    (host_port,) = free_ports(1)
    return f"{controller.get_container_host_ip()}:{host_port}"


@pytest.fixture(scope="module")
def node(image: str, network: Network, controller: DockerContainer, address: str) -> Iterator[DockerContainer]:
    settings = {
        "listeners": f"GRPC://0.0.0.0:{NODE_PORT}",
        "advertised.listeners": f"GRPC://{address}",
        "log.dirs": "/var/lib/tidelog/logs",
    }
    container = _container(image, network, "node", "tidelog-node", settings)
    with container.with_bind_ports(NODE_PORT, int(address.rpartition(":")[2])) as started:
        yield started


@pytest.fixture(scope="module")
def bootstrap_servers(node: DockerContainer, address: str) -> str:
    settings = {"bootstrap.servers": address}
    with AdminClient(settings) as admin:
        _wait_for(lambda: len(admin.list_topics(timeout=_DEADLINE_S).brokers) == 1, "the node to serve")
    return address


def _container(image: str, network: Network, name: str, program: str, settings: dict[str, str]) -> DockerContainer:
    """A container as in deploy/k8s: nothing but the data folder and /tmp can be written."""
    shared = {
        "node.id": "1",
        "cluster.id": "containers",
        "metrics.listeners": "HTTP://0.0.0.0:9404",
        "controller.quorum.voters": f"1@controller:{CONTROLLER_PORT}",
    }
    overrides = [f"{key}={value}" for key, value in (shared | settings).items()]
    return (
        DockerContainer(image, read_only=True)
        .with_tmpfs_mount("/tmp")
        .with_tmpfs_mount("/var/lib/tidelog", "uid=10001,gid=10001")
        .with_network(network)
        .with_network_aliases(name)
        .with_command([program, "/dev/null", *(word for o in overrides for word in ("--override", o))])
    )


def test_image_runs_as_its_own_user(controller: DockerContainer) -> None:
    assert controller.exec(["id", "-u"]).output.strip() == b"10001"


def test_health_check_asks_the_controller_and_the_node(
    controller: DockerContainer, node: DockerContainer, bootstrap_servers: str
) -> None:
    for container in (controller, node):
        result = container.exec(["sh", "-c", "test \"$(tidelog-healthcheck /livez)\" = '200 OK'"])
        assert result.exit_code == 0, result.output


def test_image_holds_the_command_line(controller: DockerContainer) -> None:
    result = controller.exec(["tidelog", "--help"])
    assert result.exit_code == 0, result.output


def test_record_is_produced_and_consumed_through_containers(bootstrap_servers: str) -> None:
    settings = {"bootstrap.servers": bootstrap_servers}
    with AdminClient(settings) as admin:
        created = admin.create_topics([NewTopic("greetings", num_partitions=1, replication_factor=1)])
        created["greetings"].result(_DEADLINE_S)

    reports: list[object] = []
    with Producer(settings) as producer:
        producer.produce("greetings", value=b"hello", key=b"k", on_delivery=lambda error, _: reports.append(error))
        assert producer.flush(_DEADLINE_S) == 0
    assert reports == [None]

    with Consumer(settings) as consumer:
        consumer.assign([TopicPartition("greetings", 0, 0)])
        message = _first_message(consumer)
    assert message.error() is None
    assert (message.key(), message.value(), message.offset()) == (b"k", b"hello", 0)


def _first_message(consumer: Consumer) -> Message:
    found: list[Message] = []

    def poll() -> list[Message]:
        found.extend(message for message in [consumer.poll(1.0)] if message is not None)
        return found

    _wait_for(poll, "the record")
    return found[0]


def _wait_for(condition: Callable[[], object], what: str) -> None:
    deadline = time.monotonic() + _DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline, f"waited {_DEADLINE_S} s for {what}"
        time.sleep(0.1)
