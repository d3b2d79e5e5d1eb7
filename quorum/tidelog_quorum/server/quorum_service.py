"""The gRPC service of the quorum's administrators: it checks requests for the Raft engine."""

from __future__ import annotations

from collections.abc import Iterable

from tidelog.v1 import quorum_service_pb2 as pb
from tidelog_foundation.config.endpoints import format_address
from tidelog_foundation.errors import ErrorCode, error_for
from tidelog_foundation.requests.addresses import Endpoint
from tidelog_foundation.requests.quorum import (
    AddRaftVoterRequest,
    AddRaftVoterResponse,
    BrokerProgress,
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    QuorumReplica,
    RemoveRaftVoterRequest,
    RemoveRaftVoterResponse,
    TakeSnapshotRequest,
    TakeSnapshotResponse,
    TransferLeadershipRequest,
    TransferLeadershipResponse,
    UpdateRaftVoterRequest,
    UpdateRaftVoterResponse,
)
from tidelog_foundation.transport.services import Call, Caller, Service
from tidelog_quorum import controller
from tidelog_quorum.raft.core.voters import Voter
from tidelog_quorum.raft.protocol import QuorumDescription, RaftEngine, ReplicaDescription
from tidelog_quorum.server.calls import leader_details
from tidelog_quorum.server.quorum_controller import QuorumController

_DIRECTORY_ID_SIZE = 16
_DEFAULT_TIMEOUT_MS = 10_000


def quorum_service(cluster_id: str, engine: RaftEngine, quorum: QuorumController) -> Service:
    """Return the service. Only the leader answers, with one exception; errors are those of KIP-595 and KIP-853."""
    calls = _Calls(cluster_id, engine, quorum)
    return Service(
        pb.DESCRIPTOR.services_by_name["QuorumService"],
        {
            "DescribeQuorum": Call(calls.describe, DescribeQuorumRequest, DescribeQuorumResponse),
            "AddRaftVoter": Call(calls.add_voter, AddRaftVoterRequest, AddRaftVoterResponse),
            "RemoveRaftVoter": Call(calls.remove_voter, RemoveRaftVoterRequest, RemoveRaftVoterResponse),
            "UpdateRaftVoter": Call(calls.update_voter, UpdateRaftVoterRequest, UpdateRaftVoterResponse),
            "TransferLeadership": Call(calls.transfer, TransferLeadershipRequest, TransferLeadershipResponse),
            "TakeSnapshot": Call(calls.take_snapshot, TakeSnapshotRequest, TakeSnapshotResponse),
        },
        leader_details(quorum),
    )


class _Calls:
    """The calls to the Raft engine. Each waits for its commit as long as the request permits."""

    def __init__(self, cluster_id: str, engine: RaftEngine, quorum: QuorumController) -> None:
        self._cluster_id = cluster_id
        self._engine = engine
        self._quorum = quorum

    async def describe(self, request: DescribeQuorumRequest, _: Caller) -> DescribeQuorumResponse:
        """Describe the quorum."""
        # A replaced leader that does not know it yet must not describe the past.
        await self._engine.read_barrier()
        return _description(self._cluster_id, self._engine.describe(), self._quorum.broker_progress())

    async def add_voter(self, request: AddRaftVoterRequest, _: Caller) -> AddRaftVoterResponse:
        """Make a controller a voter."""
        await self._engine.add_voter(_voter(request), request.timeout_ms or _DEFAULT_TIMEOUT_MS)
        return AddRaftVoterResponse()

    async def remove_voter(self, request: RemoveRaftVoterRequest, _: Caller) -> RemoveRaftVoterResponse:
        """Remove a voter."""
        _check_voter(request.voter_id, request.directory_id)
        timeout_ms = request.timeout_ms or _DEFAULT_TIMEOUT_MS
        await self._engine.remove_voter(request.voter_id, request.directory_id, timeout_ms)
        return RemoveRaftVoterResponse()

    async def update_voter(self, request: UpdateRaftVoterRequest, _: Caller) -> UpdateRaftVoterResponse:
        """Change the address of a voter."""
        timeout_ms = request.timeout_ms or _DEFAULT_TIMEOUT_MS
        await self._engine.update_voter(_voter(request), request.leader_epoch, timeout_ms)
        return UpdateRaftVoterResponse()

    async def transfer(self, request: TransferLeadershipRequest, _: Caller) -> TransferLeadershipResponse:
        """Transfer the leadership."""
        to = None if request.voter_id == -1 else request.voter_id
        if to is not None:
            _check_voter(to, b"")
        leader_id = await self._engine.transfer_leadership(to, request.timeout_ms or _DEFAULT_TIMEOUT_MS)
        return TransferLeadershipResponse(leader_id)

    async def take_snapshot(self, request: TakeSnapshotRequest, _: Caller) -> TakeSnapshotResponse:
        """Take a snapshot."""
        return TakeSnapshotResponse(*await self._engine.take_snapshot())


def _voter(request: AddRaftVoterRequest | UpdateRaftVoterRequest) -> Voter:
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


def _description(
    cluster_id: str, quorum: QuorumDescription, brokers: Iterable[controller.BrokerProgress]
) -> DescribeQuorumResponse:
    leader_id = quorum.leader.leader_id
    return DescribeQuorumResponse(
        leader_id=-1 if leader_id is None else leader_id,
        leader_epoch=quorum.leader.epoch,
        high_watermark=quorum.high_watermark,
        voters=tuple(map(_replica, quorum.voters)),
        observers=tuple(map(_replica, quorum.observers)),
        cluster_id=cluster_id,
        snapshot_offset=quorum.snapshot_offset,
        log_start_offset=quorum.log_start_offset,
        brokers=tuple(BrokerProgress(b.broker_id, b.metadata_offset, b.last_contact_age_ms) for b in brokers),
    )


def _replica(replica: ReplicaDescription) -> QuorumReplica:
    return QuorumReplica(
        replica_id=replica.replica_id,
        log_end_offset=replica.log_end_offset,
        endpoint=Endpoint(replica.host, replica.port),
        directory_id=replica.directory_id,
        last_fetch_age_ms=-1 if replica.last_fetch_age_ms is None else replica.last_fetch_age_ms,
        last_caught_up_age_ms=-1 if replica.last_caught_up_age_ms is None else replica.last_caught_up_age_ms,
    )
