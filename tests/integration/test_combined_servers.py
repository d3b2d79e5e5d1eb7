"""Servers that are controller and node at once (``process.roles=broker,controller``), from one file each."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from acknowledged import Load, assert_nothing_lost, read_topic, wait_for

from tidelog import AdminClient, NewTopic
from tidelog.testing.process import Place, ProcessGroup, ProcessHandle
from tidelog_foundation.errors import TidelogError

IDS = (1, 2, 3)
PARTITIONS = 3


def free_ports(count: int) -> list[int]:
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[int, ProcessHandle]]:
    group, folder = ProcessGroup(), tmp_path_factory.mktemp("combined")
    grpc, kafka, controllers = (dict(zip(IDS, free_ports(3), strict=True)) for _ in range(3))
    voters = ",".join(f"{i}@127.0.0.1:{port}" for i, port in controllers.items())
    found = {}
    try:
        for i in IDS:
            place = Place(port=grpc[i], kafka_port=kafka[i])
            found[i] = ProcessHandle(i, "tidelog_server", place, folder / str(i), group)
            found[i].configure(settings(i, voters, found[i], controllers[i], folder))
            found[i].start()
        yield found
    finally:
        group.close()


def settings(i: int, voters: str, server: ProcessHandle, controller_port: int, folder: Path) -> dict[str, object]:
    own = f"PLAINTEXT://{server.kafka_address},GRPC://{server.address}"
    return {
        "process.roles": "broker,controller",
        "node.id": i,
        "cluster.id": "combined",
        "controller.quorum.voters": voters,
        "listeners": f"{own},CONTROLLER://127.0.0.1:{controller_port}",
        "advertised.listeners": own,
        "controller.listener.names": "CONTROLLER",
        "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,GRPC:GRPC",
        "num.io.threads": 8,
        "num.partitions": 1,
        "log.dirs": folder / str(i) / "data",
        "controller.quorum.election.timeout.ms": 1_000,
        "broker.session.timeout.ms": 3_000,
        "broker.heartbeat.interval.ms": 500,
    }


def bootstrap(servers: dict[int, ProcessHandle]) -> str:
    return ",".join(server.address for server in servers.values())


def running(admin: AdminClient) -> set[int]:
    try:
        cluster = admin.describe_cluster().result(10)
    except TidelogError:
        return set()
    return {node.id for node in cluster.nodes} - cluster.fenced_ids


def active_controller(admin: AdminClient) -> int:
    controller = admin.describe_cluster().result(10).controller
    assert controller is not None
    return controller.id


@pytest.mark.slow
def test_three_combined_servers_survive_the_end_of_one_and_lose_nothing(servers: dict[int, ProcessHandle]) -> None:
    with AdminClient({"bootstrap.servers": bootstrap(servers)}) as admin:
        wait_for(lambda: running(admin) == set(IDS), "three nodes")
        new = NewTopic("orders", PARTITIONS, 3, config={"min.insync.replicas": "2"})
        admin.create_topics([new])["orders"].result(20)
        assert "have no effect here: num.io.threads" in servers[1].log_path.read_text()
        with Load(bootstrap(servers), "orders", records_per_s=300) as load:
            load.wait_for_progress(100)
            victim = active_controller(admin)
            servers[victim].kill()
            wait_for(lambda: victim not in running(admin) and len(running(admin)) == 2, "the loss to be noticed")
            load.wait_for_progress(100)
            servers[victim].start()
            wait_for(lambda: running(admin) == set(IDS), "the server's return")
            other = next(i for i in IDS if i != victim)
            assert servers[other].stop() == 0, servers[other].log_tail()
            load.wait_for_progress(100)
            servers[other].start()
            wait_for(lambda: running(admin) == set(IDS), "the second server's return")
    assert not load.failed
    assert_nothing_lost(load, read_topic(bootstrap(servers), "orders", PARTITIONS))
    for server in servers.values():
        server.terminate()
    assert {i: server.wait_or_kill(60) for i, server in servers.items()} == dict.fromkeys(IDS, 0)
    assert (servers[1].directory / "data" / "metadata").is_dir()
