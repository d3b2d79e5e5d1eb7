"""QuorumService over a real connection: what it asks of the engine, and the engine's errors as statuses."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import grpc
import grpc.aio
import pytest

from tidelog.v1 import common_pb2
from tidelog.v1 import quorum_service_pb2 as pb
from tidelog.v1.quorum_service_pb2_grpc import QuorumServiceStub
from tidelog_foundation.errors import ErrorCode, TidelogError, error_for
from tidelog_foundation.ids import BrokerId
from tidelog_foundation.requests.addresses import ControllerEndpoint, Endpoint
from tidelog_foundation.requests.quorum import BrokerProgress, DescribeQuorumResponse, QuorumReplica
from tidelog_foundation.transport import error_from_rpc, open_channel, server_options
from tidelog_foundation.transport.budget import ByteBudget
from tidelog_foundation.transport.channels import bind_port
from tidelog_foundation.transport.intake import Charge, Intake
from tidelog_foundation.transport.status import trailing_value
from tidelog_quorum.raft.core.voters import Voter, VoterSet
from tidelog_quorum.raft.protocol import LeaderAndEpoch
from tidelog_quorum.server.services import quorum_service

DIRECTORY = b"d" * 16


class ScriptedEngine:
    """Leads, notes what it is asked, and fails with ``failure`` when that is set."""

    def __init__(self) -> None:
        self.asked: list[tuple[Any, ...]] = []
        self.failure: TidelogError | None = None

    async def read_barrier(self) -> int:
        self._do("barrier")
        return 9

    def describe(self) -> DescribeQuorumResponse:
        voters = (
            QuorumReplica(1, 9, Endpoint("a", 1), DIRECTORY, 0, 0),
            QuorumReplica(2, 0, Endpoint("b", 2), b"", -1, -1),
        )
        endpoints = ControllerEndpoint("o", 3, "OPEN"), ControllerEndpoint("o", 4, "TLS")
        observers = (QuorumReplica(7, 5, Endpoint("o", 3), DIRECTORY, 40, 1500, endpoints),)
        return DescribeQuorumResponse(1, 3, 8, voters, observers, snapshot_offset=-1, log_start_offset=1)

    async def add_voter(self, voter: Voter, timeout_ms: int) -> None:
        self._do("add", voter, timeout_ms)

    async def remove_voter(self, voter_id: int, directory_id: bytes, timeout_ms: int) -> None:
        self._do("remove", voter_id, directory_id, timeout_ms)

    async def update_voter(self, voter: Voter, leader_epoch: int | None, timeout_ms: int) -> None:
        self._do("update", voter, leader_epoch, timeout_ms)

    async def transfer_leadership(self, to: int | None, timeout_ms: int) -> int:
        self._do("transfer", to, timeout_ms)
        return 2 if to is None else to

    async def take_snapshot(self) -> tuple[int, int]:
        self._do("snapshot")
        return 8, 3

    def _do(self, *what: Any) -> None:
        self.asked.append(what)
        if self.failure is not None:
            raise self.failure


class KnownQuorum:
    """The part of the controller that the answers need: the leader and its address."""

    leader = LeaderAndEpoch(2, 3, False)
    voters = VoterSet([Voter.at(1, "a", 1), Voter.at(2, "b", 2)])

    def broker_progress(self) -> list[BrokerProgress]:
        return [BrokerProgress(BrokerId(4), 7, 250)]


Test = Callable[[Any, ScriptedEngine], Awaitable[None]]


def serve(test: Test, listener: str = "OPEN") -> None:
    async def run() -> None:
        server, engine = grpc.aio.server(options=server_options()), ScriptedEngine()
        port = bind_port(server, "127.0.0.1", 0)
        quorum: Any = KnownQuorum()
        raft: Any = engine
        quorum_service("c1", raft, quorum, listener).add_to(server, Intake(Charge(ByteBudget(1 << 20))))
        await server.start()
        try:
            async with open_channel(f"127.0.0.1:{port}") as channel, asyncio.timeout(10):
                await test(QuorumServiceStub(channel), engine)
        finally:
            await server.stop(0)

    asyncio.run(run())


async def failure(call: Awaitable[object]) -> tuple[TidelogError, grpc.aio.AioRpcError]:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call
    return error_from_rpc(caught.value), caught.value


def test_quorum_service_describes_after_a_read_barrier() -> None:
    async def test(stub: Any, engine: ScriptedEngine) -> None:
        quorum = await stub.DescribeQuorum(pb.DescribeQuorumRequest())
        assert engine.asked == [("barrier",)]
        assert (quorum.cluster_id, quorum.leader_id, quorum.leader_epoch, quorum.high_watermark) == ("c1", 1, 3, 8)
        assert (quorum.snapshot_offset, quorum.log_start_offset) == (-1, 1)
        ages = [(v.replica_id, v.last_fetch_age_ms, v.last_caught_up_age_ms) for v in quorum.voters]
        assert ages == [(1, 0, 0), (2, -1, -1)]
        [broker] = quorum.brokers
        assert (broker.broker_id, broker.metadata_offset, broker.last_heartbeat_age_ms) == (4, 7, 250)
        [observer] = quorum.observers
        assert (observer.replica_id, observer.endpoint.host, observer.endpoint.port) == (7, "o", 3)
        assert (observer.directory_id, observer.log_end_offset, observer.last_caught_up_age_ms) == (DIRECTORY, 5, 1500)

    serve(test)


@pytest.mark.parametrize(("listener", "address"), [("OPEN", ("o", 3)), ("TLS", ("o", 4)), ("OTHER", ("", 0))])
def test_quorum_service_describes_the_addresses_of_the_listener_that_is_called(
    listener: str, address: tuple[str, int]
) -> None:
    async def test(stub: Any, _: ScriptedEngine) -> None:
        [observer] = (await stub.DescribeQuorum(pb.DescribeQuorumRequest())).observers
        assert (observer.endpoint.host, observer.endpoint.port) == address
        assert [(e.name, e.host, e.port) for e in observer.endpoints] == [("OPEN", "o", 3), ("TLS", "o", 4)]

    serve(test, listener)


def test_quorum_service_passes_changes_on() -> None:
    async def test(stub: Any, engine: ScriptedEngine) -> None:
        endpoints = [common_pb2.ControllerEndpoint(host="h", port=9)]
        await stub.AddRaftVoter(pb.AddRaftVoterRequest(voter_id=4, directory_id=DIRECTORY, endpoints=endpoints))
        await stub.RemoveRaftVoter(pb.RemoveRaftVoterRequest(voter_id=0, timeout_ms=77))
        update = pb.UpdateRaftVoterRequest(voter_id=4, directory_id=DIRECTORY, endpoints=endpoints)
        await stub.UpdateRaftVoter(update)
        update.leader_epoch, update.timeout_ms = 0, 5
        await stub.UpdateRaftVoter(update)
        named = await stub.TransferLeadership(pb.TransferLeadershipRequest(voter_id=1))
        chosen = await stub.TransferLeadership(pb.TransferLeadershipRequest(voter_id=-1, timeout_ms=5))
        snapshot = await stub.TakeSnapshot(pb.TakeSnapshotRequest())
        assert engine.asked == [
            ("add", Voter.at(4, "h", 9, DIRECTORY), 10_000),
            ("remove", 0, b"", 77),
            ("update", Voter.at(4, "h", 9, DIRECTORY), None, 10_000),
            ("update", Voter.at(4, "h", 9, DIRECTORY), 0, 5),
            ("transfer", 1, 10_000),
            ("transfer", None, 5),
            ("snapshot",),
        ]
        assert (named.leader_id, chosen.leader_id) == (1, 2)
        assert (snapshot.snapshot_offset, snapshot.log_start_offset) == (8, 3)

    serve(test)


def _endpoint(name: str, port: int = 1) -> common_pb2.ControllerEndpoint:
    return common_pb2.ControllerEndpoint(host="h", port=port, name=name)


@pytest.mark.parametrize(
    ("method", "request_"),
    [
        ("AddRaftVoter", pb.AddRaftVoterRequest(voter_id=4)),
        (
            "AddRaftVoter",
            pb.AddRaftVoterRequest(voter_id=4, endpoints=[_endpoint("", 70_000)]),
        ),
        (
            "AddRaftVoter",
            pb.AddRaftVoterRequest(voter_id=-1, endpoints=[_endpoint("")]),
        ),
        ("AddRaftVoter", pb.AddRaftVoterRequest(voter_id=4, endpoints=[_endpoint("a"), _endpoint("a")])),
        ("AddRaftVoter", pb.AddRaftVoterRequest(voter_id=4, endpoints=[_endpoint(f"L{i}") for i in range(9)])),
        ("AddRaftVoter", pb.AddRaftVoterRequest(voter_id=4, endpoints=[_endpoint("x" * 10_000)])),
        ("UpdateRaftVoter", pb.UpdateRaftVoterRequest(voter_id=4)),
        ("RemoveRaftVoter", pb.RemoveRaftVoterRequest(voter_id=1, directory_id=b"short")),
        ("TransferLeadership", pb.TransferLeadershipRequest(voter_id=-2)),
    ],
)
def test_quorum_service_refuses_requests_of_a_wrong_form(method: str, request_: Any) -> None:
    async def test(stub: Any, engine: ScriptedEngine) -> None:
        error, _ = await failure(getattr(stub, method)(request_))
        assert error.code is ErrorCode.INVALID_REQUEST
        assert engine.asked == []

    serve(test)


@pytest.mark.parametrize(
    "code",
    [ErrorCode.DUPLICATE_VOTER, ErrorCode.VOTER_NOT_FOUND, ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NOT_CONTROLLER],
)
def test_quorum_service_gives_the_engines_errors_and_names_the_leader(code: ErrorCode) -> None:
    async def test(stub: Any, engine: ScriptedEngine) -> None:
        engine.failure = error_for(code, "because of 7")
        for call in (
            stub.RemoveRaftVoter(pb.RemoveRaftVoterRequest(voter_id=1)),
            stub.DescribeQuorum(pb.DescribeQuorumRequest()),
            stub.TakeSnapshot(pb.TakeSnapshotRequest()),
        ):
            error, rpc_error = await failure(call)
            assert (error.code, error.message) == (code, "because of 7")
            hint = "b:2" if code is ErrorCode.NOT_CONTROLLER else None
            assert trailing_value(rpc_error, "tidelog-leader-endpoint") == hint

    serve(test)


def test_a_long_text_of_an_error_is_cut_so_that_it_arrives() -> None:
    async def test(stub: Any, engine: ScriptedEngine) -> None:
        engine.failure = error_for(ErrorCode.INVALID_REQUEST, "f\u00fcr " * 100_000)
        error, _ = await failure(stub.TakeSnapshot(pb.TakeSnapshotRequest()))
        assert error.code is ErrorCode.INVALID_REQUEST
        assert error.message.startswith("f\u00fcr f\u00fcr ")

    serve(test)
