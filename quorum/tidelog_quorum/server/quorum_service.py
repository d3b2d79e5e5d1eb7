"""The quorum's administration service: translates to and from the Raft engine, and validates requests."""

from __future__ import annotations

from collections.abc import Iterable

from tidelog.v1 import common_pb2
from tidelog.v1 import quorum_service_pb2 as pb
from tidelog.v1.quorum_service_pb2_grpc import QuorumServiceServicer
from tidelog_foundation.config.endpoints import format_address
from tidelog_foundation.errors import ErrorCode, error_for
from tidelog_quorum.controller import BrokerProgress
from tidelog_quorum.raft.core.voters import Voter
from tidelog_quorum.raft.protocol import QuorumDescription, RaftEngine, ReplicaDescription
from tidelog_quorum.server.quorum_controller import QuorumController
from tidelog_quorum.server.service import Responder, RpcContext

_DIRECTORY_ID_SIZE = 16
_DEFAULT_TIMEOUT_MS = 10_000


class QuorumService(QuorumServiceServicer):
    """The quorum's service. Only the leader answers, with one exception; errors are those of KIP-595 and KIP-853."""

    def __init__(self, cluster_id: str, engine: RaftEngine, quorum: QuorumController) -> None:
        self._cluster_id = cluster_id
        self._engine = engine
        self._quorum = quorum
        self._responder = Responder(quorum)

    async def DescribeQuorum(  # noqa: N802, D102
        self, request: pb.DescribeQuorumRequest, context: RpcContext
    ) -> pb.DescribeQuorumResponse:
        return await self._responder.answer(context, self._describe())

    async def AddRaftVoter(  # noqa: N802, D102
        self, request: pb.AddRaftVoterRequest, context: RpcContext
    ) -> pb.AddRaftVoterResponse:
        return await self._responder.answer(context, self._add_voter(request))

    async def RemoveRaftVoter(  # noqa: N802, D102
        self, request: pb.RemoveRaftVoterRequest, context: RpcContext
    ) -> pb.RemoveRaftVoterResponse:
        return await self._responder.answer(context, self._remove_voter(request))

    async def UpdateRaftVoter(  # noqa: N802, D102
        self, request: pb.UpdateRaftVoterRequest, context: RpcContext
    ) -> pb.UpdateRaftVoterResponse:
        return await self._responder.answer(context, self._update_voter(request))

    async def TransferLeadership(  # noqa: N802, D102
        self, request: pb.TransferLeadershipRequest, context: RpcContext
    ) -> pb.TransferLeadershipResponse:
        return await self._responder.answer(context, self._transfer_leadership(request))

    async def TakeSnapshot(  # noqa: N802, D102
        self, request: pb.TakeSnapshotRequest, context: RpcContext
    ) -> pb.TakeSnapshotResponse:
        return await self._responder.answer(context, self._take_snapshot())

    async def _describe(self) -> pb.DescribeQuorumResponse:
        # A replaced leader that does not know it yet must not describe the past.
        await self._engine.read_barrier()
        return _to_message(self._cluster_id, self._engine.describe(), self._quorum.broker_progress())

    async def _add_voter(self, request: pb.AddRaftVoterRequest) -> pb.AddRaftVoterResponse:
        await self._engine.add_voter(_voter(request), request.timeout_ms or _DEFAULT_TIMEOUT_MS)
        return pb.AddRaftVoterResponse()

    async def _remove_voter(self, request: pb.RemoveRaftVoterRequest) -> pb.RemoveRaftVoterResponse:
        _check_voter(request.voter_id, request.directory_id)
        timeout_ms = request.timeout_ms or _DEFAULT_TIMEOUT_MS
        await self._engine.remove_voter(request.voter_id, request.directory_id, timeout_ms)
        return pb.RemoveRaftVoterResponse()

    async def _update_voter(self, request: pb.UpdateRaftVoterRequest) -> pb.UpdateRaftVoterResponse:
        epoch = request.leader_epoch if request.HasField("leader_epoch") else None
        await self._engine.update_voter(_voter(request), epoch, request.timeout_ms or _DEFAULT_TIMEOUT_MS)
        return pb.UpdateRaftVoterResponse()

    async def _transfer_leadership(self, request: pb.TransferLeadershipRequest) -> pb.TransferLeadershipResponse:
        to = None if request.voter_id == -1 else request.voter_id
        if to is not None:
            _check_voter(to, b"")
        leader_id = await self._engine.transfer_leadership(to, request.timeout_ms or _DEFAULT_TIMEOUT_MS)
        return pb.TransferLeadershipResponse(leader_id=leader_id)

    async def _take_snapshot(self) -> pb.TakeSnapshotResponse:
        snapshot_offset, log_start_offset = await self._engine.take_snapshot()
        return pb.TakeSnapshotResponse(snapshot_offset=snapshot_offset, log_start_offset=log_start_offset)


def _voter(request: pb.AddRaftVoterRequest | pb.UpdateRaftVoterRequest) -> Voter:
    _check_voter(request.voter_id, request.directory_id)
    endpoint = request.endpoint
    if not endpoint.host or not 0 < endpoint.port <= 65_535:
        address = format_address(endpoint.host, endpoint.port)
        text = f'controller {request.voter_id} cannot be reached at "{address}": host and port must be given'
        raise error_for(ErrorCode.INVALID_REQUEST, text)
    return Voter(request.voter_id, endpoint.host, endpoint.port, request.directory_id)


def _check_voter(voter_id: int, directory_id: bytes) -> None:
    if voter_id < 0:
        raise error_for(ErrorCode.INVALID_REQUEST, f"{voter_id} is not a controller's id: it must be at least 0")
    if len(directory_id) not in (0, _DIRECTORY_ID_SIZE):
        text = f"the directory id of controller {voter_id} has {len(directory_id)} bytes, it must have 16 or none"
        raise error_for(ErrorCode.INVALID_REQUEST, text)


def _to_message(
    cluster_id: str, quorum: QuorumDescription, brokers: Iterable[BrokerProgress]
) -> pb.DescribeQuorumResponse:
    leader_id = quorum.leader.leader_id
    return pb.DescribeQuorumResponse(
        leader_id=-1 if leader_id is None else leader_id,
        leader_epoch=quorum.leader.epoch,
        high_watermark=quorum.high_watermark,
        voters=[_replica(r) for r in quorum.voters],
        observers=[_replica(r) for r in quorum.observers],
        cluster_id=cluster_id,
        snapshot_offset=quorum.snapshot_offset,
        log_start_offset=quorum.log_start_offset,
        brokers=[
            pb.BrokerProgress(
                broker_id=b.broker_id,
                metadata_offset=b.metadata_offset,
                last_heartbeat_age_ms=b.last_contact_age_ms,
            )
            for b in brokers
        ],
    )


def _replica(replica: ReplicaDescription) -> pb.QuorumReplica:
    return pb.QuorumReplica(
        replica_id=replica.replica_id,
        log_end_offset=replica.log_end_offset,
        endpoint=common_pb2.Endpoint(host=replica.host, port=replica.port),
        directory_id=replica.directory_id,
        last_fetch_age_ms=-1 if replica.last_fetch_age_ms is None else replica.last_fetch_age_ms,
        last_caught_up_age_ms=-1 if replica.last_caught_up_age_ms is None else replica.last_caught_up_age_ms,
    )
