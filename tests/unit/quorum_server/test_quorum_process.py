"""The real process: configuration errors, a crash that loses nothing, a controlled stop."""

from __future__ import annotations

import contextlib
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from tidelog.v1 import admin_service_pb2 as admin
from tidelog.v1 import common_pb2, quorum_service_pb2
from tidelog.v1 import controller_service_pb2 as pb
from tidelog.v1.admin_service_pb2_grpc import AdminServiceStub
from tidelog.v1.controller_service_pb2_grpc import ControllerServiceStub
from tidelog.v1.quorum_service_pb2_grpc import QuorumServiceStub
from tidelog_quorum.metadata.codec import decode_batch
from tidelog_quorum.metadata.records import PartitionRecord

pytestmark = pytest.mark.costly


class Server:
    """One controller that is the whole quorum."""

    def __init__(self, directory: Path) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port: int = probe.getsockname()[1]
        self.log = directory / "log"
        self.properties = directory / "server.properties"
        self.settings = {
            "node.id": "1",
            "cluster.id": "c1",
            "listeners": f"GRPC://127.0.0.1:{self.port}",
            "controller.quorum.voters": f"1@127.0.0.1:{self.port}",
            "metadata.log.dir": str(directory / "data"),
            "controller.quorum.election.timeout.ms": "300",
            "broker.session.timeout.ms": "60000",
        }
        self.process: subprocess.Popen[bytes] | None = None

    def command(self, **replaced: str | None) -> list[str]:
        settings = self.settings | {k.replace("_", "."): v for k, v in replaced.items()}  # type: ignore[operator]
        self.properties.write_text("".join(f"{k}={v}\n" for k, v in settings.items() if v is not None))
        return [sys.executable, "-m", "tidelog_quorum", str(self.properties)]

    def start(self) -> None:
        with self.log.open("ab") as log:
            # The umask must not give others access to the keys of users.
            self.process = subprocess.Popen(self.command(), stderr=log, umask=0)
        self.wait_until_leading()

    def end(self, number: signal.Signals) -> int:
        assert self.process is not None
        self.process.send_signal(number)
        return self.process.wait(10)

    def wait_until_leading(self) -> None:
        deadline = time.monotonic() + 15
        while time.monotonic() < deadline:
            assert self.process is not None
            assert self.process.poll() is None, self.log.read_text()
            with contextlib.suppress(grpc.RpcError), self.channel() as channel:
                AdminServiceStub(channel).ListTopics(admin.ListTopicsRequest(), timeout=1, wait_for_ready=True)
                return
        pytest.fail(self.log.read_text())

    def channel(self) -> grpc.Channel:
        return grpc.insecure_channel(f"127.0.0.1:{self.port}", options=[("grpc.enable_http_proxy", 0)])


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    server = Server(tmp_path)
    yield server
    if server.process is not None and server.process.poll() is None:
        server.process.kill()
        server.process.wait()


def create_topic(channel: grpc.Channel, name: str, features: list[common_pb2.FeatureRange]) -> bytes:
    register = pb.RegisterBrokerRequest(
        broker_id=1,
        cluster_id="c1",
        incarnation_id=bytes(16),
        endpoint=common_pb2.Endpoint(host="127.0.0.1", port=1),
        features=features,
    )
    controller = ControllerServiceStub(channel)
    epoch = controller.RegisterBroker(register, timeout=5).broker_epoch
    heartbeat = pb.BrokerHeartbeatRequest(broker_id=1, broker_epoch=epoch, current_metadata_offset=epoch)
    assert not controller.BrokerHeartbeat(heartbeat, timeout=5).is_fenced
    topic = admin.CreatableTopic(name=name, num_partitions=3, replication_factor=1)
    created = AdminServiceStub(channel).CreateTopics(admin.CreateTopicsRequest(topics=[topic]), timeout=5)
    assert not created.topics[0].HasField("error")
    return created.topics[0].topic_id


def test_process_keeps_an_acknowledged_topic_over_a_kill(
    server: Server, features: list[common_pb2.FeatureRange]
) -> None:
    server.start()
    with server.channel() as channel:
        topic_id = create_topic(channel, "flights", features)
    server.end(signal.SIGKILL)
    server.start()
    with server.channel() as channel:
        topics = AdminServiceStub(channel).ListTopics(admin.ListTopicsRequest(), timeout=5).topics
        assert [(t.name, t.topic_id) for t in topics] == [("flights", topic_id)]
        stream = ControllerServiceStub(channel).FollowMetadata(
            pb.FollowMetadataRequest(cluster_id="c1", observer_id=1), timeout=5
        )
        snapshot = next(stream)
        assert snapshot.snapshot_begin
        records = decode_batch(snapshot.entries[0].batch)
        assert sum(isinstance(r, PartitionRecord) for r in records) == 3
        stream.cancel()


def test_process_keeps_others_out_of_its_folder_whatever_the_umask(server: Server) -> None:
    folder = Path(server.settings["metadata.log.dir"])
    folder.mkdir(mode=0o777)
    folder.chmod(0o777)
    (folder / "of-an-earlier-version").touch(0o644)
    server.start()
    with server.channel() as channel:
        QuorumServiceStub(channel).TakeSnapshot(quorum_service_pb2.TakeSnapshotRequest(), timeout=5)
    found = [folder, *folder.rglob("*")]
    assert any(path.suffix == ".checkpoint" for path in found)
    assert {(path.is_dir(), oct(path.stat().st_mode & 0o777)) for path in found} == {(True, "0o700"), (False, "0o600")}


def test_process_serves_health_and_stops_when_told_to(server: Server) -> None:
    server.start()
    with server.channel() as channel:
        health, request = health_pb2_grpc.HealthStub(channel), health_pb2.HealthCheckRequest()
        deadline = time.monotonic() + 20
        while health.Check(request, timeout=5).status != health_pb2.HealthCheckResponse.SERVING:
            assert time.monotonic() < deadline, "the controller leads and is ready"
            time.sleep(0.02)
        # An observer that never goes away must not hold up the stop.
        stream = ControllerServiceStub(channel).FollowMetadata(
            pb.FollowMetadataRequest(cluster_id="c1", observer_id=1), timeout=20
        )
        next(stream)
        assert server.end(signal.SIGTERM) == 0
    assert "Traceback" not in server.log.read_text()


@pytest.mark.parametrize(
    ("replaced", "text"),
    [
        ({"node_id": None}, 'missing required configuration "node.id"'),
        ({"node_id": "x"}, "invalid value 'x' for configuration \"node.id\""),
        ({"node_id": "2"}, "node.id 2 is not in controller.quorum.voters"),
        ({"cluster_ids": "c"}, 'unknown configuration "cluster.ids"; did you mean "cluster.id"?'),
        ({"listeners": "HTTP://127.0.0.1:1"}, "no security protocol is defined for listener HTTP"),
        ({"listeners": "GRPC://192.0.2.1:1"}, "cannot listen on 192.0.2.1:1: Cannot assign requested address"),
        ({"advertised_listeners": "GRPC://127.0.0.1:1"}, "has another address of GRPC than that of voter 1"),
        ({"controller_quorum_voters": "1@h"}, "must be host:port"),
        ({"controller_quorum_heartbeat_interval_ms": "299"}, "heartbeat interval of 299 ms"),
        ({"metadata_log_dir": "/dev/null/data"}, "cannot write to metadata.log.dir /dev/null/data: Not a directory"),
        ({"broker_session_timeout_ms": "0"}, "must be at least 1"),
    ],
)
def test_process_ends_with_2_and_one_line_for_a_bad_configuration(
    server: Server, replaced: dict[str, str | None], text: str
) -> None:
    ended = subprocess.run(server.command(**replaced), capture_output=True, text=True, timeout=20)
    assert ended.returncode == 2, ended.stderr
    assert len(ended.stderr.splitlines()) == 1, ended.stderr
    assert text in ended.stderr


def test_process_ends_with_2_and_one_line_when_the_port_is_in_use(server: Server) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", server.port))
        other.listen()
        ended = subprocess.run(server.command(), capture_output=True, text=True, timeout=20)
    assert ended.returncode == 2
    assert ended.stderr.splitlines() == [
        f"tidelog-quorum: cannot listen on 127.0.0.1:{server.port}: Address already in use"
    ]
