"""The quorum's admin client and its command, against controllers that a test scripts."""

from __future__ import annotations

import base64
import contextlib
import json
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import EntryPoint, EntryPoints
from typing import Any

import grpc
import pytest
from typer.testing import CliRunner, Result

from tidelog.admin import QuorumAdmin, QuorumReplicaState, SnapshotInfo
from tidelog.testing.ports import free_ports
from tidelog.v1 import common_pb2
from tidelog.v1 import quorum_service_pb2 as pb
from tidelog.v1.quorum_service_pb2_grpc import QuorumServiceServicer, add_QuorumServiceServicer_to_server
from tidelog_cli import extensions
from tidelog_cli.commands import app
from tidelog_foundation.errors import ConfigError, ErrorCode, TidelogError

DIRECTORY = bytes(range(16))


class ScriptedController(QuorumServiceServicer):
    """One controller; ``script`` answers each call: a message, or an error code with its leader's address or None."""

    def __init__(self, controller_id: int, address: str) -> None:
        self.id = controller_id
        self.address = address
        self.calls: list[Any] = []
        self.script: Callable[[Any], Any] = lambda request: (ErrorCode.NOT_CONTROLLER, None)

    def DescribeQuorum(self, request: Any, context: Any) -> Any:
        return self._answer(request, context)

    def AddRaftVoter(self, request: Any, context: Any) -> Any:
        return self._answer(request, context)

    def RemoveRaftVoter(self, request: Any, context: Any) -> Any:
        return self._answer(request, context)

    def TransferLeadership(self, request: Any, context: Any) -> Any:
        return self._answer(request, context)

    def TakeSnapshot(self, request: Any, context: Any) -> Any:
        return self._answer(request, context)

    def _answer(self, request: Any, context: Any) -> Any:
        self.calls.append(request)
        answer = self.script(request)
        if not isinstance(answer, tuple):
            return answer
        code, hint = answer
        metadata = [("tidelog-error-code", str(code.code))] + ([("tidelog-leader-endpoint", hint)] if hint else [])
        context.set_trailing_metadata(metadata)
        return context.abort(grpc.StatusCode[code.grpc_status], f"no: {code.name}")


@pytest.fixture
def controllers() -> Iterator[list[ScriptedController]]:
    with contextlib.ExitStack() as stack:
        scripted = []
        for index, port in enumerate(free_ports(2), 1):
            pool = stack.enter_context(ThreadPoolExecutor(2))
            server = grpc.server(pool)
            controller = ScriptedController(index, f"127.0.0.1:{port}")
            add_QuorumServiceServicer_to_server(controller, server)
            server.add_insecure_port(controller.address)
            server.start()
            stack.callback(lambda s=server: s.stop(0).wait())
            scripted.append(controller)
        yield scripted


@pytest.fixture
def admin(controllers: list[ScriptedController]) -> Iterator[QuorumAdmin]:
    with QuorumAdmin({"bootstrap.controllers": ",".join(c.address for c in controllers)}) as client:
        yield client


def quorum_of(controllers: list[ScriptedController], leader_id: int = 2) -> pb.DescribeQuorumResponse:
    voters = [
        pb.QuorumReplica(
            replica_id=c.id,
            log_end_offset=10 * c.id,
            endpoint=_endpoint(c.address),
            directory_id=DIRECTORY if c.id == leader_id else b"",
            last_fetch_age_ms=0 if c.id == leader_id else 250,
            last_caught_up_age_ms=0 if c.id == leader_id else -1,
        )
        for c in controllers
    ]
    return pb.DescribeQuorumResponse(
        leader_id=leader_id, leader_epoch=3, high_watermark=10, voters=voters, cluster_id="c1", snapshot_offset=-1
    )


def _endpoint(address: str) -> common_pb2.Endpoint:
    host, _, port = address.rpartition(":")
    return common_pb2.Endpoint(host=host, port=int(port))


def lead(controllers: list[ScriptedController], **answers: Any) -> ScriptedController:
    """Let the second controller lead: the first one names it, and it answers as told."""
    first, second = controllers
    first.script = lambda request: (ErrorCode.NOT_CONTROLLER, second.address)

    def answer(request: Any) -> Any:
        kind = type(request).__name__.removesuffix("Request")
        return answers[kind] if kind in answers else quorum_of(controllers)

    second.script = answer
    return second


def test_admin_follows_the_hint_to_the_leader(controllers: list[ScriptedController], admin: QuorumAdmin) -> None:
    lead(controllers)
    quorum = admin.describe_metadata_quorum(request_timeout=5)
    assert (quorum.cluster_id, quorum.leader_id, quorum.leader_epoch, quorum.high_watermark) == ("c1", 2, 3, 10)
    follower, leader = quorum.voters
    assert isinstance(follower, QuorumReplicaState)
    assert follower.last_caught_up_timestamp is None
    assert leader.last_fetch_timestamp - follower.last_fetch_timestamp == 250  # type: ignore[operator]
    assert (follower.directory_id, leader.directory_id) == (b"", DIRECTORY)
    assert [len(c.calls) for c in controllers] == [1, 1]


def test_admin_passes_over_a_controller_that_is_gone_and_says_so_in_the_end(
    controllers: list[ScriptedController], admin: QuorumAdmin
) -> None:
    [port] = free_ports(1)
    lead(controllers)
    with QuorumAdmin({"bootstrap.controllers": f"127.0.0.1:{port},{controllers[0].address}"}) as client:
        assert client.describe_metadata_quorum(request_timeout=5).leader_id == 2
    with QuorumAdmin({"bootstrap.controllers": f"127.0.0.1:{port}"}) as client:
        with pytest.raises(TidelogError, match=f"no leading controller answered within 0.5 s .*{port}") as failed:
            client.describe_metadata_quorum(request_timeout=0.5)
        assert failed.value.code is ErrorCode.REQUEST_TIMED_OUT


def test_admin_asks_the_new_leader_again_and_takes_what_it_did_before_as_done(
    controllers: list[ScriptedController], admin: QuorumAdmin
) -> None:
    leader = lead(controllers)
    answers = iter([(ErrorCode.NOT_CONTROLLER, None), (ErrorCode.DUPLICATE_VOTER, None)])
    describe = leader.script
    leader.script = lambda r: next(answers) if isinstance(r, pb.AddRaftVoterRequest) else describe(r)
    admin.add_raft_voter(4, DIRECTORY, "h", 9, request_timeout=5)
    asked = [c for c in leader.calls if isinstance(c, pb.AddRaftVoterRequest)]
    assert [(r.voter_id, r.directory_id, *((e.host, e.port, e.name) for e in r.endpoints)) for r in asked] == [
        (4, DIRECTORY, ("h", 9, "")),
        (4, DIRECTORY, ("h", 9, "")),
    ]
    leader.script = lambda r: (
        (ErrorCode.DUPLICATE_VOTER, None) if isinstance(r, pb.AddRaftVoterRequest) else describe(r)
    )
    with pytest.raises(TidelogError, match="DUPLICATE_VOTER"):
        admin.add_raft_voter(4, DIRECTORY, "h", 9, request_timeout=5)


def test_admin_says_that_a_change_may_have_been_made_when_no_leader_follows_the_one_that_lost_it(
    controllers: list[ScriptedController], admin: QuorumAdmin
) -> None:
    leader = lead(controllers)

    def lose(request: Any) -> Any:
        if isinstance(request, pb.RemoveRaftVoterRequest):
            leader.script = controllers[0].script = lambda _: (ErrorCode.NOT_CONTROLLER, None)
            return ErrorCode.NOT_CONTROLLER, None
        return quorum_of(controllers)

    leader.script = lose
    with pytest.raises(TidelogError, match=f"may have been made before, by the leader at {leader.address}") as caught:
        admin.remove_raft_voter(1, request_timeout=1)
    assert caught.value.code is ErrorCode.REQUEST_TIMED_OUT


def test_admin_changes_and_snapshots(controllers: list[ScriptedController], admin: QuorumAdmin) -> None:
    leader = lead(
        controllers,
        RemoveRaftVoter=pb.RemoveRaftVoterResponse(),
        TransferLeadership=pb.TransferLeadershipResponse(leader_id=1),
        TakeSnapshot=pb.TakeSnapshotResponse(snapshot_offset=9, log_start_offset=2),
    )
    admin.remove_raft_voter(1, request_timeout=5)
    assert admin.transfer_leadership(request_timeout=5) == 1
    assert admin.take_snapshot(request_timeout=5) == SnapshotInfo(9, 2)
    assert [c.voter_id for c in leader.calls if isinstance(c, pb.TransferLeadershipRequest)] == [-1]
    with pytest.raises(TidelogError, match=r"controller 9 does not follow the log; known controllers: \[1, 2\]"):
        admin.take_snapshot(9, request_timeout=5)


@pytest.mark.parametrize("config", [{}, {"bootstrap.servers": "h:1", "bootstrap.controllers": "h:1"}])
def test_admin_wants_one_kind_of_bootstrap_address(config: dict[str, str]) -> None:
    with pytest.raises(ConfigError, match=r"one of bootstrap.servers and bootstrap.controllers"):
        QuorumAdmin(config)
    with pytest.raises(ConfigError, match="must be host:port"):
        QuorumAdmin({"bootstrap.controllers": "h"})


def invoke(controllers: list[ScriptedController], *args: str) -> Result:
    addresses = ",".join(c.address for c in controllers)
    return CliRunner().invoke(app, ["quorum", *args, "--bootstrap-controller", addresses, "--timeout", "3"])


def test_command_shows_the_lag_and_unknown_directories(controllers: list[ScriptedController]) -> None:
    lead(controllers)
    status = invoke(controllers, "describe").stdout
    assert "MaxFollowerLag:         10\n" in status
    assert "MaxFollowerLagTimeMs:   -1\n" in status
    text = base64.urlsafe_b64encode(DIRECTORY).decode().rstrip("=")
    assert text in status
    rows = [line.split() for line in invoke(controllers, "describe", "--replication").stdout.splitlines()[1:]]
    assert [(r[0], r[1], r[2], r[3], r[-1]) for r in rows] == [
        ("2", text, "20", "0", "Leader"),
        ("1", "-", "10", "10", "Follower"),
    ]
    human = invoke(controllers, "describe", "--replication", "--human-readable").stdout
    assert "never" in human
    assert " ms ago" in human


def test_command_shows_the_listeners_of_a_controller_with_several(controllers: list[ScriptedController]) -> None:
    leader, described = lead(controllers), quorum_of(controllers)
    named = {"OPEN": 1, "TLS": 2}
    described.voters[1].endpoints.extend(
        common_pb2.ControllerEndpoint(host="::1", port=port, name=name) for name, port in named.items()
    )
    leader.script = lambda _: described
    assert "OPEN://[::1]:1,TLS://[::1]:2" in invoke(controllers, "describe").stdout
    [_, voter] = json.loads(invoke(controllers, "describe", "--json").stdout)["voters"]
    assert voter["endpoints"] == [{"name": name, "host": "::1", "port": port} for name, port in named.items()]


def test_command_ends_with_one_line_for_an_error(controllers: list[ScriptedController]) -> None:
    lead(controllers, RemoveRaftVoter=(ErrorCode.VOTER_NOT_FOUND, None))
    result = invoke(controllers, "remove-voter", "9")
    assert (result.exit_code, result.stderr) == (1, "tidelog: error: no: VOTER_NOT_FOUND [VOTER_NOT_FOUND]\n")


@pytest.mark.parametrize(
    "args",
    [
        ("remove-voter", "1", "--directory-id", "short"),
        ("add-voter", "4", "--endpoint", "nowhere"),
        ("transfer", "x"),
    ],
)
def test_command_refuses_what_it_cannot_read(controllers: list[ScriptedController], args: tuple[str, ...]) -> None:
    result = invoke(controllers, *args)
    assert result.exit_code == 2
    assert all(c.calls == [] for c in controllers)


def test_command_finds_dump_in_the_quorums_part_and_says_what_to_install_without_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def with_points(*points: EntryPoint) -> Result:
        monkeypatch.setattr(extensions, "_entry_points", lambda group: EntryPoints(points).select(group=group))
        return CliRunner().invoke(app, ["quorum", "dump", "--help"] if points else ["quorum", "dump", "x"])

    point = EntryPoint("dump", "tidelog_cli.tools.quorum_dump:app", "tidelog.quorum.commands")
    assert "FILE.checkpoint" in with_points(point).stdout
    absent = with_points()
    assert absent.stderr == "tidelog: error: tidelog_quorum is not installed: pip install 'tidelog[quorum]'\n"
    assert absent.exit_code == 1
