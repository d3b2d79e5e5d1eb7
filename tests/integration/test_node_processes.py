"""Several nodes that one command runs behind the ports of one file."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from acknowledged import wait_for

from tidelog import Consumer, Producer, TopicPartition
from tidelog.admin import AdminClient, NewTopic
from tidelog.testing import LocalCluster
from tidelog.testing.ports import free_ports
from tidelog_foundation.config.process import load_properties

FIRST_ID, COUNT = 11, 2
IDS = set(range(FIRST_ID, FIRST_ID + COUNT))


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    with LocalCluster(controllers=1, nodes=1) as opened:
        yield opened


class Machine:
    """A machine whose nodes join the cluster."""

    def __init__(self, cluster: LocalCluster, folder: Path) -> None:
        kept = load_properties(cluster.nodes[1].properties_path)
        self.grpc_port, self.kafka_port = apart(COUNT + 1)
        properties = {
            "node.id": str(FIRST_ID),
            "listeners": f"GRPC://127.0.0.1:{self.grpc_port},PLAINTEXT://127.0.0.1:{self.kafka_port}",
            "log.dirs": str(folder / "data"),
            **{key: kept[key] for key in ("cluster.id", "controller.quorum.voters")},
            "controlled.shutdown.timeout.ms": "5000",
        }
        file = folder / "node.properties"
        file.write_text("".join(f"{key}={value}\n" for key, value in properties.items()))
        command = [sys.executable, "-m", "tidelog_node", str(file), "--processes", str(COUNT)]
        self.log = folder / "log"
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(command, stderr=log)

    @property
    def addresses(self) -> list[str]:
        """The shared addresses, of gRPC and of Kafka's protocol."""
        return [f"127.0.0.1:{self.grpc_port}", f"127.0.0.1:{self.kafka_port}"]

    def children(self) -> set[int]:
        return set(map(int, Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()))


def apart(distance: int) -> list[int]:
    while True:
        first, second = sorted(free_ports(2))
        if second - first >= distance and all(free(range(port, port + distance)) for port in (first, second)):
            return [first, second]


def free(ports: range) -> bool:
    for port in ports:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return False
    return True


@pytest.fixture
def machine(cluster: LocalCluster, tmp_path: Path) -> Iterator[Machine]:
    opened = Machine(cluster, tmp_path)
    try:
        yield opened
    finally:
        opened.process.kill()
        opened.process.wait()


@pytest.mark.slow
def test_nodes_of_a_machine_have_one_address_start_again_and_stop_together(
    cluster: LocalCluster, machine: Machine
) -> None:
    with AdminClient({"bootstrap.servers": cluster.bootstrap_servers}) as admin:
        wait_for(lambda: {node.id for node in admin.describe_cluster().result(30).nodes} >= IDS, "the nodes")
        racks = {node.id: node.rack for node in admin.describe_cluster().result(30).nodes}
        assert {racks[each] for each in IDS} == {os.uname().nodename}
        admin.create_topics([NewTopic("t", 4, 2)])["t"].result(30)
        partitions = admin.describe_topics(["t"])["t"].result(30).partitions
        assert all(1 in {replica.id for replica in p.replicas} for p in partitions), "none is on one machine alone"
    for address in machine.addresses:
        for number in range(4):  # The kernel spreads the connections over the processes.
            with Producer({"bootstrap.servers": address}) as producer:
                producer.produce("t", f"{address} {number}")
                assert producer.flush(30) == 0
    settings = {"bootstrap.servers": machine.addresses[0], "group.id": "g"}
    with Consumer(settings) as consumer:
        consumer.assign([TopicPartition("t", partition, 0) for partition in range(4)])
        assert len(consumer.consume(8, 30)) == 8

    killed = min(machine.children())
    os.kill(killed, signal.SIGKILL)
    wait_for(lambda: killed not in machine.children() and len(machine.children()) == COUNT, "the restart")
    assert "has ended with exit code -9; it starts in 1 s" in machine.log.read_text()
    wait_for(lambda: machine.log.read_text().count(" serves on ") == COUNT + 1, "the node again")

    # Another machine's file with the same ports, but other directories: they are in use.
    folder = machine.log.parent / "other"
    folder.mkdir()
    text = (machine.log.parent / "node.properties").read_text().replace("/data", "/other/data")
    (folder / "node.properties").write_text(text)
    command = [sys.executable, "-m", "tidelog_node", str(folder / "node.properties"), "--processes", str(COUNT)]
    refused = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert refused.returncode == 2
    assert "Address already in use" in refused.stderr
    assert "all nodes of this machine are stopped, because of node" in refused.stderr.splitlines()[-1]
    assert len(machine.children()) == COUNT, "the nodes that run are not disturbed"

    machine.process.terminate()
    assert machine.process.wait(30) == 0
    assert machine.log.read_text().count("has stopped") == COUNT
