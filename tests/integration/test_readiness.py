"""Processes are ready when they can do their part, over HTTP and gRPC alike."""

from __future__ import annotations

import itertools
import json
import threading
import time
from collections.abc import Iterator

import grpc
import pytest
from acknowledged import wait_for
from grpc_health.v1 import health_pb2, health_pb2_grpc
from support.scrapes import ask

from tidelog import Producer
from tidelog.admin import AdminClient, NewTopic
from tidelog.testing import LocalCluster
from tidelog.testing.process import ProcessHandle

pytestmark = pytest.mark.costly
SESSION_MS = 1_500


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    config = {"broker.session.timeout.ms": SESSION_MS, "broker.heartbeat.interval.ms": 300}
    with LocalCluster(3, 2, config=config, metrics=True) as cluster:
        yield cluster


def is_ready(process: ProcessHandle) -> bool:
    try:
        return ask(f"http://{process.metrics_address}/readyz")[0] == 200
    except OSError:
        return False  # it starts


def failed_checks(process: ProcessHandle) -> dict[str, str]:
    report = json.loads(ask(f"http://{process.metrics_address}/healthz")[2])
    return {check["name"]: check["detail"] for check in report["checks"] if not check["ok"]}


def grpc_status(process: ProcessHandle, service: str) -> str:
    with grpc.insecure_channel(process.address) as channel:
        answer = health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest(service=service), timeout=5)
    return str(health_pb2.HealthCheckResponse.ServingStatus.Name(answer.status))


def wait_all_ready(cluster: LocalCluster) -> None:
    for process in (*cluster.controllers.values(), *cluster.nodes.values()):
        wait_for(lambda process=process: is_ready(process), f"{process.name} is ready")


def test_restarted_node_is_ready_once_it_is_in_sync(cluster: LocalCluster) -> None:
    wait_all_ready(cluster)
    node = cluster.nodes[2]
    with AdminClient(cluster.client_settings()) as admin:
        admin.create_topics([NewTopic("t", 3, 2, config={"min.insync.replicas": "1"})])["t"].result(20)
        node.kill()
        with Producer({**cluster.client_settings(), "acks": "all"}) as producer:
            for number in range(3_000):
                producer.produce("t", b"x" * 1_000, partition=number % 3)
            producer.flush(20)
        node.start()
        wait_for(lambda: is_ready(node), "the node is ready")
        topic = admin.describe_topics(["t"])["t"].result(20)
        assert all(2 in {member.id for member in partition.isr} for partition in topic.partitions)


def test_rolling_restart_costs_no_write_and_none_takes_long(cluster: LocalCluster) -> None:
    wait_all_ready(cluster)
    with AdminClient(cluster.client_settings()) as admin:
        admin.create_topics([NewTopic("rolled", 4, 2, config={"min.insync.replicas": "1"})])["rolled"].result(20)
    durations: list[float] = []
    failures: list[str] = []
    done = threading.Event()

    def write() -> None:
        with Producer({**cluster.client_settings(), "acks": "all", "linger.ms": "0"}) as producer:
            for number in itertools.count():
                if done.is_set():
                    break

                def report(error: object, _: object, begun: float = time.monotonic()) -> None:
                    durations.append(time.monotonic() - begun)
                    if error is not None:
                        failures.append(str(error))

                producer.produce("rolled", b"x", partition=number % 4, on_delivery=report)
                producer.poll(0.02)
            producer.flush(30)

    writer = threading.Thread(target=write, daemon=True)
    writer.start()
    wait_for(lambda: len(durations) > 10, "the first writes")
    for node in cluster.nodes.values():
        assert ask(f"http://{node.metrics_address}/safe-to-stop?wait=30&unreplicated=ignore")[0] == 200
        assert node.stop() == 0
        node.start()
        wait_for(lambda node=node: is_ready(node), f"{node.name} is ready")
    done.set()
    writer.join(40)
    assert failures == []
    # The bound is generous, since the machine of a test is busy; benchmarks/rolling_restart.py has the real one.
    assert max(durations) < 10


def test_processes_without_a_quorum_are_live_but_not_ready(cluster: LocalCluster) -> None:
    wait_all_ready(cluster)
    lone, *others = cluster.controllers.values()
    for controller in others:
        controller.kill()
    wait_for(lambda: "leader" in failed_checks(lone), "the lone controller has no leader")
    assert grpc_status(lone, "") == "NOT_SERVING"
    for node in cluster.nodes.values():
        wait_for(lambda node=node: "controllers" in failed_checks(node), f"{node.name} misses the controllers")
        assert (grpc_status(node, ""), grpc_status(node, "liveness")) == ("NOT_SERVING", "SERVING")
        assert ask(f"http://{node.metrics_address}/livez")[0] == 200
    for controller in others:
        controller.start()
    wait_all_ready(cluster)
    assert grpc_status(lone, "") == "SERVING"


def test_paused_node_is_neither_live_nor_ready(cluster: LocalCluster) -> None:
    wait_all_ready(cluster)
    node = cluster.nodes[1]
    node.pause()
    with pytest.raises(TimeoutError):
        ask(f"http://{node.metrics_address}/livez", timeout_s=0.5)
    node.resume()
    wait_for(lambda: is_ready(node), "the node is ready again")
