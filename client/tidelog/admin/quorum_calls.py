"""Calls to the controllers: the state of the quorum, and changes that its leader makes (KIP-836, KIP-853, KIP-919)."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar, cast

import grpc.aio

from tidelog.cluster import ClusterClient
from tidelog.cluster.bootstrap import with_address
from tidelog.cluster.failures import ConnectionFailures
from tidelog.cluster.security import OPEN, ClientSecurity
from tidelog.v1 import admin_service_pb2, common_pb2, controller_service_pb2
from tidelog.v1 import quorum_service_pb2 as pb
from tidelog.v1.admin_service_pb2_grpc import AdminServiceStub
from tidelog.v1.controller_service_pb2_grpc import ControllerServiceStub
from tidelog.v1.quorum_service_pb2_grpc import QuorumServiceStub
from tidelog_foundation.config.endpoints import format_address
from tidelog_foundation.errors import UNREACHABLE, ErrorCode, TidelogError, error_for
from tidelog_foundation.transport.open_channels import OpenChannels
from tidelog_foundation.transport.status import released, trailing_value
from tidelog_foundation.waiting import ReportedWait

if TYPE_CHECKING:
    from tidelog.v1.admin_service_pb2_grpc import AdminServiceAsyncStub
    from tidelog.v1.quorum_service_pb2_grpc import QuorumServiceAsyncStub

T = TypeVar("T")

_READ_ATTEMPT_S = 3.0
_PAUSE_S = 0.1
_ANSWER_SLACK_S = 1.0
"""Extra time for the leader to report a timeout itself, because it knows the outcome of the change."""
_NO_OBSERVER = -1
_TRY_ANOTHER = UNREACHABLE | {ErrorCode.NOT_CONTROLLER}


@dataclass(frozen=True, slots=True)
class RaftVoterEndpoint:
    """The address of one of a controller's listeners; ``name`` is empty until the controller has announced it."""

    name: str
    host: str
    port: int


@dataclass(frozen=True, slots=True)
class QuorumReplicaState:
    """A controller with the metadata log, as the leader sees it. Times are milliseconds since 1970, None for never.

    ``directory_id`` distinguishes its log from a new one under the same id; it is empty while unknown. ``host`` and
    ``port`` are those of the listener with the name of the one that was called; ``endpoints`` has all listeners.
    """

    replica_id: int
    directory_id: bytes
    log_end_offset: int
    last_fetch_timestamp: int | None
    last_caught_up_timestamp: int | None
    host: str
    port: int
    endpoints: tuple[RaftVoterEndpoint, ...] = ()


@dataclass(frozen=True, slots=True)
class QuorumInfo:
    """The quorum. ``high_watermark`` is the last committed offset; ``snapshot_offset`` is -1 without a snapshot."""

    cluster_id: str
    leader_id: int
    leader_epoch: int
    high_watermark: int
    voters: tuple[QuorumReplicaState, ...]
    observers: tuple[QuorumReplicaState, ...]
    snapshot_offset: int
    log_start_offset: int


@dataclass(frozen=True, slots=True)
class SnapshotInfo:
    """A controller's snapshot: the last offset in it, and the first offset in the log."""

    snapshot_offset: int
    log_start_offset: int


@dataclass(frozen=True, slots=True)
class MetadataPart:
    """A batch of the metadata log as the controllers send it: a serialized ``MetadataRecordBatch``.

    It is part of a snapshot, which replaces everything before if it ``begins_snapshot``, or of an entry, which
    continues in the next part if it ``is_continued``.
    """

    offset: int
    epoch: int
    batch: bytes
    is_continued: bool
    is_snapshot: bool
    begins_snapshot: bool


@dataclass(frozen=True, slots=True)
class MetadataEnd:
    """The last entry of the metadata that was read, and its cluster."""

    cluster_id: str
    offset: int
    epoch: int


class Quorum:
    """The calls. Finds the controllers and, among them, the leader. Runs on the network thread."""

    def __init__(
        self,
        nodes: ClusterClient | None,
        bootstrap: Iterable[str],
        client_id: str,
        security: ClientSecurity = OPEN,
    ) -> None:
        """Find the controllers through ``nodes``, which :meth:`close` closes, or at the ``bootstrap`` addresses."""
        self._nodes = nodes
        self._bootstrap = list(bootstrap)
        self._controllers: list[str] = []
        self._leader: str | None = None
        self._channels = OpenChannels(lambda address: security.open_channel(address, client_id))
        self._failures = ConnectionFailures(security.tls_context)

    async def close(self) -> None:
        """Close the channels to controllers and the connections to nodes."""
        await self._channels.close()
        if self._nodes is not None:
            await self._nodes.close()

    async def describe(self, timeout_s: float) -> QuorumInfo:
        """Ask the controllers one after another until the leader answers."""
        with ReportedWait("the leading controller to answer") as wait:
            deadline = time.monotonic() + timeout_s
            reason = "no time was left"
            code = ErrorCode.REQUEST_TIMED_OUT
            attempt = 0
            while (remaining_s := deadline - time.monotonic()) > 0:
                if not self._controllers:
                    self._controllers = await self._find_controllers(remaining_s)
                address = self._leader or self._controllers[attempt % len(self._controllers)]
                try:
                    response = await self._stub(address).DescribeQuorum(
                        pb.DescribeQuorumRequest(), timeout=min(_READ_ATTEMPT_S, remaining_s)
                    )
                except grpc.aio.AioRpcError as rpc_error:
                    error = await self._note_failure(rpc_error, address)
                    if error.code not in (*_TRY_ANOTHER, ErrorCode._RESOLVE, ErrorCode.REQUEST_TIMED_OUT):
                        raise error from released(rpc_error)
                    code = error.code if error.code is ErrorCode._SSL else ErrorCode.REQUEST_TIMED_OUT
                    reason = with_address(address, error.message)
                    wait.note(reason)
                    attempt += 1
                    if attempt % len(self._controllers) == 0:
                        await asyncio.sleep(min(_PAUSE_S, remaining_s))
                else:
                    return self._take(response, address)
            raise error_for(code, f"no leading controller answered within {timeout_s:g} s ({reason})")

    async def change(
        self,
        call: Callable[[QuorumServiceAsyncStub, float], Awaitable[T]],
        timeout_s: float,
        done: ErrorCode | None = None,
    ) -> T | None:
        """Ask the leader for a change, and ask again if it lost the leadership. On a retry, ``done`` means success."""
        with ReportedWait("the leading controller to make a change") as wait:
            deadline = time.monotonic() + timeout_s
            attempt = 0
            lost = ""
            while True:
                # Find the leader first, so that a paused controller does not use up the time for the change.
                try:
                    await self.describe(max(0.0, deadline - time.monotonic()))
                except TidelogError as failure:
                    raise error_for(failure.code, failure.message + lost) from failure
                assert self._leader is not None
                address = self._leader
                try:
                    return await call(self._stub(address), max(0.0, deadline - time.monotonic()) + _ANSWER_SLACK_S)
                except grpc.aio.AioRpcError as rpc_error:
                    error = await self._note_failure(rpc_error, address)
                    if attempt and error.code is done:
                        return None
                    if error.code not in _TRY_ANOTHER:
                        raise error from released(rpc_error)
                    wait.note(error)
                    text = with_address(address, error.message)
                    lost = f"; the change may have been made before, by the leader at {text}"
                attempt += 1

    async def add_voter(self, voter_id: int, voter_directory_id: bytes, host: str, port: int, timeout_s: float) -> None:
        """Make a controller a voter."""
        request = pb.AddRaftVoterRequest(
            voter_id=voter_id,
            directory_id=voter_directory_id,
            endpoints=[common_pb2.ControllerEndpoint(host=host, port=port)],
            timeout_ms=int(timeout_s * 1000),
        )
        await self.change(lambda s, t: s.AddRaftVoter(request, timeout=t), timeout_s, ErrorCode.DUPLICATE_VOTER)

    async def remove_voter(self, voter_id: int, voter_directory_id: bytes, timeout_s: float) -> None:
        """Remove a voter."""
        request = pb.RemoveRaftVoterRequest(
            voter_id=voter_id, directory_id=voter_directory_id, timeout_ms=int(timeout_s * 1000)
        )
        await self.change(lambda s, t: s.RemoveRaftVoter(request, timeout=t), timeout_s, ErrorCode.VOTER_NOT_FOUND)

    async def update_voter(
        self, voter_id: int, voter_directory_id: bytes, host: str, port: int, timeout_s: float
    ) -> None:
        """Replace a voter's addresses by one. A repeated call has no further effect."""
        request = pb.UpdateRaftVoterRequest(
            voter_id=voter_id,
            directory_id=voter_directory_id,
            endpoints=[common_pb2.ControllerEndpoint(host=host, port=port)],
            timeout_ms=int(timeout_s * 1000),
        )
        await self.change(lambda s, t: s.UpdateRaftVoter(request, timeout=t), timeout_s)

    async def take_snapshot(self, controller_id: int | None, timeout_s: float) -> pb.TakeSnapshotResponse:
        """Ask one controller, not necessarily the leader, for a snapshot."""
        return await self._ask_one(
            controller_id,
            lambda channel, t: QuorumServiceStub(channel).TakeSnapshot(pb.TakeSnapshotRequest(), timeout=t),
            timeout_s,
        )

    async def ask_admin(
        self, controller_id: int, call: Callable[[AdminServiceAsyncStub, float], Awaitable[T]], timeout_s: float
    ) -> T:
        """Call the administrators' service of one controller, not necessarily the leader."""
        return await self._ask_one(
            controller_id, lambda channel, t: call(cast(Any, AdminServiceStub(channel)), t), timeout_s
        )

    async def _ask_one(
        self, controller_id: int | None, call: Callable[[grpc.aio.Channel, float], Awaitable[T]], timeout_s: float
    ) -> T:
        """Call one controller, by default the leader, whose address the leader knows."""
        quorum = await self.describe(timeout_s)
        wanted = quorum.leader_id if controller_id is None else controller_id
        replica = next((r for r in (*quorum.voters, *quorum.observers) if r.replica_id == wanted), None)
        if replica is None:
            known = sorted(r.replica_id for r in (*quorum.voters, *quorum.observers))
            raise error_for(
                ErrorCode.VOTER_NOT_FOUND, f"controller {wanted} does not follow the log; known controllers: {known}"
            )
        address = format_address(replica.host, replica.port)
        try:
            return await call(self._channels.get(address), timeout_s)
        except grpc.aio.AioRpcError as rpc_error:
            error = await self._failures.error_of(address, rpc_error)
            text = f"controller {wanted} at {with_address(address, error.message)}"
            raise error_for(error.code, text) from released(rpc_error)

    async def read_metadata(self, receive: Callable[[MetadataPart], None], timeout_s: float) -> MetadataEnd:
        """Pass the metadata up to the present to ``receive``. The leader may be silent for ``timeout_s``."""
        # The leader confirms that it leads: its high watermark covers every change that was acknowledged before.
        quorum = await self.describe(timeout_s)
        assert self._leader is not None
        address = self._leader
        request = controller_service_pb2.FollowMetadataRequest(
            cluster_id=quorum.cluster_id, observer_id=_NO_OBSERVER, from_offset=0
        )
        call = ControllerServiceStub(self._channels.get(address)).FollowMetadata(request)
        reader = _MetadataReader(receive)
        try:
            while reader.end[0] < quorum.high_watermark:
                async with asyncio.timeout(timeout_s):
                    response = await call.read()
                if not isinstance(response, controller_service_pb2.FollowMetadataResponse):
                    raise error_for(ErrorCode._TRANSPORT, f"the controller at {address} ended the stream of metadata")
                reader.take(response)
        except TimeoutError:
            text = f"the controller at {address} sent no metadata for {timeout_s:g} s"
            raise error_for(ErrorCode.REQUEST_TIMED_OUT, text) from None
        except grpc.aio.AioRpcError as rpc_error:
            error = await self._failures.error_of(address, rpc_error)
            raise error_for(error.code, with_address(address, error.message)) from released(rpc_error)
        finally:
            call.cancel()
        return MetadataEnd(quorum.cluster_id, *reader.end)

    async def _find_controllers(self, timeout_s: float) -> list[str]:
        if self._nodes is None:
            return self._bootstrap
        request = admin_service_pb2.DescribeClusterRequest()
        response = await self._nodes.ask_any(
            lambda c, t: c.admin.DescribeCluster(request, timeout=t),
            timeout_ms=timeout_s * 1000,
            attempt_ms=_READ_ATTEMPT_S * 1000,
        )
        addresses = {v.voter_id: format_address(v.endpoint.host, v.endpoint.port) for v in response.voters}
        self._leader = addresses.get(response.controller_id)
        if not addresses:
            raise error_for(ErrorCode.REQUEST_TIMED_OUT, "the node has not found any controller")
        return list(addresses.values())

    async def _note_failure(self, rpc_error: grpc.aio.AioRpcError, address: str) -> TidelogError:
        error = await self._failures.error_of(address, rpc_error)
        hint = trailing_value(rpc_error, "tidelog-leader-endpoint")
        self._leader = hint if error.code is ErrorCode.NOT_CONTROLLER and hint != address else None
        return error

    def _take(self, response: pb.DescribeQuorumResponse, address: str) -> QuorumInfo:
        self._leader = address
        quorum = _quorum_info(response)
        # Later calls go to the current voters, even if the first addresses are gone.
        voters = [format_address(v.host, v.port) for v in quorum.voters]
        self._controllers = [*voters, *(a for a in self._bootstrap if a not in voters)]
        return quorum

    def _stub(self, address: str) -> QuorumServiceAsyncStub:
        return QuorumServiceStub(self._channels.get(address))


class _MetadataReader:
    """Turns the responses of one stream into parts. ``end`` is the offset and epoch of the last whole entry."""

    def __init__(self, receive: Callable[[MetadataPart], None]) -> None:
        self._receive = receive
        self._is_snapshot = False
        self.end = (-1, -1)

    def take(self, response: controller_service_pb2.FollowMetadataResponse) -> None:
        begins = response.snapshot_begin
        self._is_snapshot = self._is_snapshot or begins
        for entry in response.entries:
            part = MetadataPart(entry.offset, entry.epoch, entry.batch, entry.is_continued, self._is_snapshot, begins)
            self._receive(part)
            begins = False
            if not entry.is_continued and not self._is_snapshot:
                self.end = entry.offset, entry.epoch
        if response.snapshot_end:
            self._is_snapshot = False
            self.end = response.entries[-1].offset, response.entries[-1].epoch


def _quorum_info(response: pb.DescribeQuorumResponse) -> QuorumInfo:
    now_ms = int(time.time() * 1000)
    return QuorumInfo(
        response.cluster_id,
        response.leader_id,
        response.leader_epoch,
        response.high_watermark,
        tuple(_replica(r, now_ms) for r in response.voters),
        tuple(_replica(r, now_ms) for r in response.observers),
        response.snapshot_offset,
        response.log_start_offset,
    )


def _replica(message: pb.QuorumReplica, now_ms: int) -> QuorumReplicaState:
    def time_of(age_ms: int) -> int | None:
        return None if age_ms < 0 else now_ms - age_ms

    return QuorumReplicaState(
        message.replica_id,
        message.directory_id,
        message.log_end_offset,
        time_of(message.last_fetch_age_ms),
        time_of(message.last_caught_up_age_ms),
        message.endpoint.host,
        message.endpoint.port,
        tuple(RaftVoterEndpoint(e.name, e.host, e.port) for e in message.endpoints),
    )
