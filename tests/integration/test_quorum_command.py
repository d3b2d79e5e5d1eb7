"""``tidelog quorum`` on real controllers: what it shows, what it changes, and what becomes of a wiped controller."""

from __future__ import annotations

import json
import shutil
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from acknowledged import wait_for
from kafka_requests import framed
from quorum_load import Controllers
from typer.testing import CliRunner, Result

from tidelog.admin.quorum import QuorumAdmin
from tidelog.testing import LocalCluster
from tidelog_cli.commands import app
from tidelog_cli.tools.quorum_dump import app as dump_app
from tidelog_foundation.errors import ErrorCode
from tidelog_node.kafka.protocol.codec import decode, encode
from tidelog_node.kafka.protocol.fields import Message
from tidelog_node.kafka.protocol.headers import read_response_header, write_request_header
from tidelog_node.kafka.protocol.messages.quorum import (
    AddRaftVoterRequest,
    AddRaftVoterResponse,
    KRaftVersionFeature,
    QuorumListener,
    RemoveRaftVoterRequest,
    RemoveRaftVoterResponse,
    UpdateRaftVoterRequest,
    UpdateRaftVoterResponse,
)
from tidelog_node.kafka.protocol.reader import Reader
from tidelog_node.kafka.protocol.writer import Writer

Run = Callable[..., str]


@pytest.fixture
def quorum(tmp_path: Path) -> Iterator[LocalCluster]:
    config = {"controller.quorum.election.timeout.ms": 300, "broker.session.timeout.ms": 600_000}
    with LocalCluster(controllers=3, nodes=0, data_dir=tmp_path, config=config) as running:
        yield running


@pytest.fixture
def invoke(quorum: LocalCluster) -> Callable[..., Result]:
    def run(*args: str) -> Result:
        addresses = ",".join(c.address for c in quorum.controllers.values())
        return CliRunner().invoke(app, ["quorum", *args, "--bootstrap-controller", addresses])

    return run


@pytest.fixture
def run(invoke: Callable[..., Result]) -> Run:
    def succeed(*args: str) -> str:
        result = invoke(*args)
        assert result.exit_code == 0, result.output
        return result.stdout

    return succeed


def ask(
    connection: socket.socket,
    request: Message,
    answer: type[AddRaftVoterResponse] | type[RemoveRaftVoterResponse] | type[UpdateRaftVoterResponse],
) -> int:
    """Send a request in version 0 and return the answer's error code."""
    writer = Writer()
    write_request_header(writer, int(request.API_KEY), 0, 1, "test", is_flexible=True)
    encode(request, writer, 0)
    connection.sendall(framed(b"".join(writer.chunks())))
    with connection.makefile("rb") as stream:
        reader = Reader(stream.read(int.from_bytes(stream.read(4), "big")))
    read_response_header(reader, has_tags=True)
    return decode(answer, reader, 0).error_code


def voters_of(run: Run) -> list[int]:
    return [v["replica_id"] for v in json.loads(run("describe", "--json"))["voters"]]


def observers_of(run: Run) -> list[int]:
    return [o["replica_id"] for o in json.loads(run("describe", "--json"))["observers"]]


def test_quorum_describe_prints_what_kafka_metadata_quorum_prints(quorum: LocalCluster, run: Run) -> None:
    status, _, table = run("describe").partition("\n\n")
    lines = dict(line.split(":", 1) for line in status.splitlines())
    assert list(lines) == [
        "ClusterId",
        "LeaderId",
        "LeaderEpoch",
        "HighWatermark",
        "MaxFollowerLag",
        "MaxFollowerLagTimeMs",
    ]
    assert lines["ClusterId"].strip() == quorum.cluster_id
    assert int(lines["LeaderId"]) in (1, 2, 3)
    rows = [line.split() for line in table.splitlines()]
    assert rows[0] == ["NodeId", "Address", "DirectoryId", "Status"]
    assert {row[1] for row in rows[1:]} == {c.address for c in quorum.controllers.values()}
    assert [row[3] for row in rows[1:]] == ["Leader", "Follower", "Follower"]

    wait_for(lambda: " - " not in run("describe", "--replication"), "every directory id")
    header, *rows = run("describe", "--replication").splitlines()
    assert header.split() == [
        "NodeId",
        "DirectoryId",
        "LogEndOffset",
        "Lag",
        "LastFetchTimestamp",
        "LastCaughtUpTimestamp",
        "Status",
    ]
    assert [row.split()[-1] for row in rows] == ["Leader", "Follower", "Follower"]
    assert len({row.index(row.split()[-1]) for row in rows} | {header.index("Status")}) == 1


def test_quorum_adds_a_voter_that_can_lead_and_removes_it(
    quorum: LocalCluster, run: Run, invoke: Callable[..., Result]
) -> None:
    missing = invoke("add-voter", "4")
    assert (missing.exit_code, "no controller 4 follows the log" in missing.stderr) == (1, True)
    quorum.add_controller()
    wait_for(lambda: observers_of(run) == [4], "the observer")
    assert "controller 4 at" in run("add-voter", "4")
    assert voters_of(run) == [1, 2, 3, 4]
    assert invoke("add-voter", "4").stderr.endswith("[DUPLICATE_VOTER]\n")
    assert run("transfer", "4") == "controller 4 is the leader\n"
    assert run("remove-voter", "4") == "controller 4 is no longer a voter\n"
    wait_for(lambda: voters_of(run) == [1, 2, 3], "the voters without it")
    away = next(i for i in (1, 2, 3) if i != json.loads(run("describe", "--json"))["leader_id"])
    quorum.controllers[away].kill()
    move = ("update-voter", str(away), "--endpoint", "127.0.0.1:1")
    wait_for(lambda: invoke(*move).exit_code == 0, "the voter to count as away")
    assert run(*move) == f"the address of controller {away} is 127.0.0.1:1\n"
    assert {v["port"] for v in json.loads(run("describe", "--json"))["voters"] if v["replica_id"] == away} == {1}
    quorum.controllers[away].start()
    wait_for(lambda: f" {quorum.controllers[away].address} " in run("describe"), "it to announce its address")
    wait_for(lambda: observers_of(run) == [4], "it to follow on")
    assert invoke("remove-voter", "4").stderr.endswith("[VOTER_NOT_FOUND]\n")
    assert quorum.failures == []


def test_voter_is_added_moved_and_removed_over_kafkas_protocol(tmp_path: Path) -> None:
    with LocalCluster(controllers=1, nodes=1, data_dir=tmp_path) as cluster:
        observer = cluster.add_controller()
        cluster.wait_ready()
        listener = QuorumListener("GRPC", observer.host, observer.port)
        add = AddRaftVoterRequest(cluster.cluster_id, 20_000, 2, bytes(16), [listener])
        with socket.create_connection((cluster.nodes[1].host, cluster.nodes[1].kafka_port)) as connection:
            assert ask(connection, add, AddRaftVoterResponse) == 0
            with QuorumAdmin({"bootstrap.servers": cluster.bootstrap_servers}) as admin:
                quorum = admin.describe_metadata_quorum()
            assert [v.replica_id for v in quorum.voters] == [1, 2]
            assert ask(connection, add, AddRaftVoterResponse) == ErrorCode.DUPLICATE_VOTER.code
            feature, directory_id = KRaftVersionFeature(0, 1), quorum.voters[1].directory_id
            epoch, update = quorum.leader_epoch, UpdateRaftVoterRequest
            same = update(cluster.cluster_id, epoch, 2, directory_id, [listener], feature)
            assert ask(connection, same, UpdateRaftVoterResponse) == 0
            fenced = update(cluster.cluster_id, epoch - 1, 2, directory_id, [listener], feature)
            assert ask(connection, fenced, UpdateRaftVoterResponse) == ErrorCode.FENCED_LEADER_EPOCH.code
            elsewhere = [QuorumListener("GRPC", "127.0.0.1", 1)]
            wrong = update(cluster.cluster_id, epoch, 2, directory_id, elsewhere, feature)
            assert ask(connection, wrong, UpdateRaftVoterResponse) == ErrorCode.INVALID_REQUEST.code, "it runs"
            removal = RemoveRaftVoterRequest(cluster.cluster_id, 2, bytes(16))
            assert ask(connection, removal, RemoveRaftVoterResponse) == 0


def test_quorum_command_asks_a_node_for_the_controllers(tmp_path: Path) -> None:
    with LocalCluster(controllers=1, nodes=1, data_dir=tmp_path) as cluster:
        args = ["quorum", "describe", "--bootstrap-server", cluster.bootstrap_servers]
        result = CliRunner().invoke(app, args)
        assert result.exit_code == 0, result.output
        assert "LeaderId:               1" in result.stdout


def test_quorum_takes_snapshots_that_dump_shows_and_a_restart_begins_with(quorum: LocalCluster, run: Run) -> None:
    controllers = Controllers(c.address for c in quorum.controllers.values())
    controllers.register_broker()
    controllers.create_topics("flights", "orders")
    header, *rows = run("snapshot").splitlines()
    assert header.split() == ["CONTROLLER", "SNAPSHOT", "OFFSET", "LOG", "START", "OFFSET"]
    assert [row.split()[0] for row in rows] == ["1", "2", "3"]
    follower = next(i for i in quorum.controllers if i != controllers.leader())
    handle = quorum.controllers[follower]
    data = handle.directory / "data"

    running = CliRunner().invoke(dump_app, [str(data)])
    assert (running.exit_code, "a controller runs on" in str(running.exception)) == (1, True)
    assert handle.stop() == 0
    log = CliRunner().invoke(dump_app, [str(data)]).stdout
    assert "TOPIC_RECORD name=flights" in log
    assert "snapshot: 0" in log
    [snapshot] = data.glob("*.checkpoint")
    shown = CliRunner().invoke(dump_app, [str(snapshot), "--json"]).stdout.splitlines()
    names = [r["name"] for line in shown[1:] for r in json.loads(line)["records"] if r["type"] == "TOPIC_RECORD"]
    assert sorted(names) == ["flights", "orders"]

    handle.start()
    wait_for(lambda: run("describe", "--replication").count(" 0 ") >= 3, "it to catch up")
    assert set(controllers.topics()) == {"flights", "orders"}
    controllers.close()


def test_quorum_refuses_a_wiped_voter_until_it_was_removed_and_added_again(
    quorum: LocalCluster, run: Run, invoke: Callable[..., Result]
) -> None:
    wait_for(lambda: " - " not in run("describe", "--replication"), "every directory id")
    controllers = Controllers(c.address for c in quorum.controllers.values())
    wait_for(lambda: controllers.leader() is not None, "a leader")
    wiped = next(i for i in quorum.controllers if i != controllers.leader())
    handle = quorum.controllers[wiped]
    handle.kill()
    shutil.rmtree(handle.directory / "data")
    handle.start()
    wait_for(lambda: "directory" in handle.log_path.read_text(), "the others to refuse it")
    assert controllers.leader_of(handle.address) is None
    before = next(v for v in json.loads(run("describe", "--json"))["voters"] if v["replica_id"] == wiped)

    run("remove-voter", str(wiped))
    wait_for(lambda: observers_of(run) == [wiped], "it to follow without a vote")
    run("add-voter", str(wiped))
    wait_for(lambda: voters_of(run) == [1, 2, 3], "three voters")
    after = next(v for v in json.loads(run("describe", "--json"))["voters"] if v["replica_id"] == wiped)
    assert after["directory_id"] != before["directory_id"]
    assert run("transfer", str(wiped)) == f"controller {wiped} is the leader\n"
    controllers.close()


def test_quorum_hands_the_leadership_over_when_the_leader_is_told_to_stop(quorum: LocalCluster) -> None:
    controllers = Controllers(c.address for c in quorum.controllers.values())
    wait_for(lambda: controllers.leader() is not None, "a leader")
    leader = controllers.leader()
    assert leader is not None
    stopped = quorum.controllers[leader]
    others = Controllers(c.address for i, c in quorum.controllers.items() if i != leader)
    assert stopped.stop() == 0
    # No election timeout passes: the heir led before the process had ended.
    assert {others.leader_of(address) for address in others.addresses} <= set(quorum.controllers) - {leader}
    controllers.close()
    others.close()
