"""LocalCluster's promises: quick, tidy, and no process outlives its owner."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest
from acknowledged import create_topic, read_topic, wait_for
from confluent_kafka.admin import AdminClient

from tidelog import Producer
from tidelog.testing import LocalCluster
from tidelog.testing.ports import free_ports
from tidelog_foundation.errors import ConfigError

_OWNER = textwrap.dedent("""
    import signal, time
    from tidelog.testing import LocalCluster
    # A shell starts what runs in its background with SIGINT ignored, and so would be this process.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    with LocalCluster(controllers=1, nodes=1) as cluster:
        pids = [p.pid for p in (*cluster.controllers.values(), *cluster.nodes.values())]
        cluster.nodes[1].pause()
        print(*pids, flush=True)
        # A signal that comes just before a sleep begins is seen when it ends.
        while True:
            time.sleep(0.1)
""")


def _exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return Path(f"/proc/{pid}/stat").read_text().split(")")[1].split()[0] != "Z"


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT, signal.SIGTERM])
def test_no_process_outlives_the_owner_when_it_is_killed(number: signal.Signals) -> None:
    owner = subprocess.Popen([sys.executable, "-c", _OWNER], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    assert owner.stdout is not None
    try:
        pids = [int(pid) for pid in owner.stdout.readline().split()]
        assert len(pids) == 2
        owner.send_signal(number)
        owner.wait(60)
    finally:
        owner.stdout.close()
        owner.kill()
        owner.wait()
    wait_for(lambda: not any(map(_exists, pids)), "the cluster's processes end", 10)


def test_cluster_of_three_and_three_is_ready_quickly() -> None:
    started_s = time.monotonic()
    with LocalCluster(controllers=3, nodes=3) as cluster:
        ready_s = time.monotonic() - started_s
        assert cluster.controller_leader() in cluster.controllers
    assert ready_s < 9, f"ready after {ready_s:.1f} s; 1 s on an idle machine of 2 cores"


def test_temporary_data_is_removed_and_chosen_data_is_kept(tmp_path: Path) -> None:
    with LocalCluster(controllers=1, nodes=1) as cluster:
        temporary = cluster.data_dir
        assert temporary.exists()
    assert not temporary.exists()
    with LocalCluster(controllers=1, nodes=1, data_dir=tmp_path / "kept") as cluster:
        create_topic(cluster, "kept", 1, 1)
    assert list((tmp_path / "kept").glob("node-1/data/kept-0/*.log"))


@pytest.mark.slow
def test_cluster_starts_again_with_its_data_and_with_the_ports_that_nobody_else_has_taken(tmp_path: Path) -> None:
    starts = ("first", "after a stop", "after a kill", "one controller elsewhere", "all elsewhere", "the last")
    addresses: list[list[str]] = []
    for start in starts:
        with contextlib.ExitStack() as taken:
            elsewhere = {"one controller elsewhere": 1, "all elsewhere": 5}.get(start, 0)
            for address in addresses[-1][:elsewhere] if addresses else []:
                host, port = address.split(":")
                taken.enter_context(socket.create_server((host, int(port))))
            with LocalCluster(controllers=3, nodes=1, data_dir=tmp_path) as cluster:
                handles = (*cluster.controllers.values(), *cluster.nodes.values())
                addresses.append([*(handle.address for handle in handles), cluster.nodes[1].kafka_address])
                if start == "first":
                    create_topic(cluster, "t", 1, 1)
                with Producer({"bootstrap.servers": cluster.bootstrap_servers}) as producer:
                    producer.produce("t", start)
                if start == "the last":
                    records = read_topic(cluster.bootstrap_servers, "t", 1)
                if start == "after a stop":
                    for handle in handles:
                        handle.kill()
    assert [record.value().decode() for record in records] == list(starts)
    assert addresses[0] == addresses[1] == addresses[2]
    assert [old == new for old, new in zip(addresses[2], addresses[3], strict=True)] == [False, *[True] * 4]
    assert not set(addresses[3]) & set(addresses[4])
    assert addresses[4] == addresses[5]


def test_folder_that_a_cluster_uses_is_refused_to_another_one(tmp_path: Path) -> None:
    with LocalCluster(controllers=1, nodes=0, data_dir=tmp_path) as cluster:
        with pytest.raises(ConfigError, match=f"{tmp_path} is in use by another local cluster"):
            LocalCluster(controllers=1, nodes=0, data_dir=tmp_path).__enter__()
        with pytest.raises(ConfigError, match="is of a cluster of 1 controllers, not 3"):
            LocalCluster(controllers=3, nodes=0, data_dir=tmp_path).__enter__()
        cluster.wait_ready()


def test_error_has_a_note_of_each_process_that_ended_by_itself() -> None:
    def fail() -> None:
        with LocalCluster(controllers=1, nodes=2) as cluster:
            cluster.nodes[1].kill()
            os.kill(cluster.nodes[2].pid, signal.SIGKILL)
            cluster.nodes[2].wait()
            raise ValueError("the reason")

    with pytest.raises(ValueError, match="the reason") as caught:
        fail()
    [note] = caught.value.__notes__
    assert note.startswith("node 2 ended by itself with exit code -9:\n")
    assert "Registered with broker epoch" in note


def test_unknown_configuration_is_refused_before_anything_starts() -> None:
    with pytest.raises(ConfigError, match=r"neither controllers nor nodes know the configuration replica\.lag"):
        LocalCluster(controllers=1, nodes=1, config={"replica.lag": 1}).start()


def test_nodes_have_listeners_for_clients_of_kafka_and_keep_them_over_restarts() -> None:
    [port] = free_ports(1)
    with LocalCluster(controllers=1, nodes=2, kafka_ports=[port]) as cluster:
        addresses = cluster.kafka_bootstrap_servers
        assert addresses == f"127.0.0.1:{port},{cluster.nodes[2].kafka_address}"
        assert len({h.port for h in cluster.nodes.values()} | {h.kafka_port for h in cluster.nodes.values()}) == 4
        create_topic(cluster, "t", 1, 2)
        for again in (False, True):
            if again:
                cluster.nodes[2].stop()
                cluster.nodes[2].start()
                cluster.wait_ready()
            with AdminClient({"bootstrap.servers": addresses}) as admin:
                # A node may learn of the topic later than the controller.
                wait_for(lambda: "t" in admin.list_topics(timeout=20).topics, "the topic in the nodes' metadata")
                found = admin.list_topics(timeout=20)
            assert {f"{b.host}:{b.port}" for b in found.brokers.values()} == set(addresses.split(","))
            assert sorted(found.topics["t"].partitions[0].replicas) == [1, 2]


@pytest.mark.parametrize("controllers", [1, 5])
def test_cluster_runs_with_other_numbers_of_controllers(controllers: int) -> None:
    with LocalCluster(controllers=controllers, nodes=1) as cluster:
        create_topic(cluster, "t", 2, 1)
        assert cluster.leader("t", 1) == 1
        assert cluster.leader("unknown", 0) is None


@pytest.mark.usefixtures("fresh_processes")
def test_failed_start_reports_what_the_process_said() -> None:
    cluster = LocalCluster(controllers=1, nodes=1)
    cluster.start()
    try:
        cluster.wait_ready()
        node = cluster.nodes[1]
        node.kill()
        node.properties_path.write_text("node.id=not-a-number\n")
        node.start()
        node.wait(10)
        assert "node.id" in node.log_tail()
    finally:
        cluster.close()


def test_node_whose_port_another_cluster_has_is_told_at_once_though_the_other_answers_for_it() -> None:
    with LocalCluster(controllers=1, nodes=1) as other:
        begun = time.monotonic()
        cluster = LocalCluster(controllers=1, nodes=1, node_ports=[other.nodes[1].port])
        try:
            cluster.start()
            with pytest.raises(RuntimeError, match=r"cannot listen on 127\.0\.0\.1:"):
                cluster.wait_ready()
        finally:
            cluster.close()
        assert time.monotonic() - begun < 15
