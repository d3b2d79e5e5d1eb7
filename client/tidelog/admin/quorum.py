"""Administers the quorum of the controllers, with the names of Kafka's Admin (KIP-836, KIP-853, KIP-919)."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar

import grpc.aio

from tidelog.cluster import ClusterClient, Lifetime
from tidelog.cluster.addresses import parse_bootstrap_servers
from tidelog.config import at_least, parse_config, setting
from tidelog.config.endpoints import format_address
from tidelog.errors import ErrorCode, TidelogError, error_for
from tidelog.transport import error_from_rpc, open_channel, run_sync
from tidelog.transport.status import trailing_value
from tidelog.v1 import admin_service_pb2, common_pb2
from tidelog.v1 import quorum_service_pb2 as pb
from tidelog.v1.quorum_service_pb2_grpc import QuorumServiceStub

if TYPE_CHECKING:
    from tidelog.v1.quorum_service_pb2_grpc import QuorumServiceAsyncStub

T = TypeVar("T")

_READ_ATTEMPT_S = 3.0
_PAUSE_S = 0.1
_ANSWER_SLACK_S = 1.0
"""The leader is let say itself that the time of a change is over: it knows what became of it."""
_TRY_ANOTHER = (ErrorCode.NOT_CONTROLLER, ErrorCode._TRANSPORT)


@dataclass(frozen=True, slots=True)
class QuorumReplicaState:
    """A controller that has the metadata log, as the leader sees it; times are milliseconds since 1970, None for never.

    ``directory_id`` tells its log from one that began anew under the same id; empty while it is not known.
    """

    replica_id: int
    directory_id: bytes
    log_end_offset: int
    last_fetch_timestamp: int | None
    last_caught_up_timestamp: int | None
    host: str
    port: int


@dataclass(frozen=True, slots=True)
class QuorumInfo:
    """The quorum; ``high_watermark`` is the last committed offset, ``snapshot_offset`` -1 without a snapshot."""

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
    """A snapshot of one controller: the last offset in it, and the first that is still in the log."""

    snapshot_offset: int
    log_start_offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class QuorumAdminConfig:
    """Where the quorum is: one of the two ``bootstrap`` keys must be set.

    Raises:
        ValueError: none or both are; :func:`~tidelog.config.parse_config` makes it a ConfigError.
    """

    bootstrap_servers: tuple[str, ...] = setting((), doc="Nodes to ask for the controllers, as host:port,host:port.")
    bootstrap_controllers: tuple[str, ...] = setting(
        (), doc="Controllers to ask instead of nodes, as host:port,host:port."
    )
    client_id: str = setting("tidelog", doc="Names this client to the controllers.")
    request_timeout_ms: int = setting(30_000, doc="How long an operation may take.", check=at_least(1))

    def __post_init__(self) -> None:
        if bool(self.bootstrap_servers) == bool(self.bootstrap_controllers):
            raise ValueError("one of bootstrap.servers and bootstrap.controllers must be set, and not both")
        parse_bootstrap_servers(self.bootstrap_servers or self.bootstrap_controllers)


class QuorumAdmin:
    """Administers the quorum; may be used from any thread. Close it, or use it as a context manager.

    Timeouts are in seconds, None takes request.timeout.ms. A change that times out may still come into force.
    """

    def __init__(self, config: Mapping[str, Any]) -> None:
        """Read the settings (:class:`QuorumAdminConfig`).

        Raises:
            KafkaException: INVALID_CONFIG.
        """
        self._config = parse_config(QuorumAdminConfig, config)
        self._quorum = _Quorum(self._config)
        self._lifetime = Lifetime(self, "quorum admin client", self._quorum.close)

    def __enter__(self) -> QuorumAdmin:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def describe_metadata_quorum(self, *, request_timeout: float | None = None) -> QuorumInfo:
        """Ask the leader for the state of the quorum.

        Raises:
            KafkaException: REQUEST_TIMED_OUT, no controller that leads answered; or no node did.
        """
        return self._run(self._quorum.describe, request_timeout)

    def add_raft_voter(
        self,
        voter_id: int,
        voter_directory_id: bytes,
        host: str,
        port: int,
        *,
        request_timeout: float | None = None,
    ) -> None:
        """Give a controller that follows the log a vote; empty ``voter_directory_id``: whichever log it has.

        Raises:
            KafkaException: DUPLICATE_VOTER, VOTER_NOT_FOUND, INVALID_VOTER_KEY, INVALID_REQUEST (another change is
                under way), REQUEST_TIMED_OUT (it did not catch up in time), UNSUPPORTED_VERSION.
        """
        request = pb.AddRaftVoterRequest(
            voter_id=voter_id,
            directory_id=voter_directory_id,
            endpoint=common_pb2.Endpoint(host=host, port=port),
        )

        async def add(timeout_s: float) -> None:
            request.timeout_ms = int(timeout_s * 1000)
            await self._quorum.change(lambda s, t: s.AddRaftVoter(request, timeout=t), timeout_s, _ADDED)

        self._run(add, request_timeout)

    def remove_raft_voter(
        self, voter_id: int, voter_directory_id: bytes = b"", *, request_timeout: float | None = None
    ) -> None:
        """Take a controller's vote, also the leader's; empty ``voter_directory_id`` matches any.

        Raises:
            KafkaException: VOTER_NOT_FOUND, INVALID_REQUEST (the last voter, or another change is under way),
                REQUEST_TIMED_OUT, UNSUPPORTED_VERSION.
        """
        request = pb.RemoveRaftVoterRequest(voter_id=voter_id, directory_id=voter_directory_id)

        async def remove(timeout_s: float) -> None:
            request.timeout_ms = int(timeout_s * 1000)
            await self._quorum.change(lambda s, t: s.RemoveRaftVoter(request, timeout=t), timeout_s, _REMOVED)

        self._run(remove, request_timeout)

    def transfer_leadership(self, voter_id: int | None = None, *, request_timeout: float | None = None) -> int:
        """Let another voter lead, None: the one that has most of the log; returns which leads then.

        Raises:
            KafkaException: VOTER_NOT_FOUND, INVALID_REQUEST (there is no other voter), REQUEST_TIMED_OUT (it leads on).
        """
        request = pb.TransferLeadershipRequest(voter_id=-1 if voter_id is None else voter_id)

        async def transfer(timeout_s: float) -> int:
            request.timeout_ms = int(timeout_s * 1000)
            response = await self._quorum.change(lambda s, t: s.TransferLeadership(request, timeout=t), timeout_s)
            assert response is not None
            return response.leader_id

        return self._run(transfer, request_timeout)

    def take_snapshot(self, controller_id: int | None = None, *, request_timeout: float | None = None) -> SnapshotInfo:
        """Let a controller (None: the leader) take a snapshot of its state and drop the log before it.

        Raises:
            KafkaException: VOTER_NOT_FOUND, no such controller follows the log; SNAPSHOT_NOT_FOUND, there is nothing
                to snapshot yet; KAFKA_STORAGE_ERROR.
        """

        async def take(timeout_s: float) -> SnapshotInfo:
            response = await self._quorum.take_snapshot(controller_id, timeout_s)
            return SnapshotInfo(response.snapshot_offset, response.log_start_offset)

        return self._run(take, request_timeout)

    def close(self) -> None:
        """Close the connections. A second call does nothing."""
        if not self._lifetime.is_over:
            self._lifetime.end()
            self._lifetime.stop()

    def _run(self, operation: Callable[[float], Awaitable[T]], request_timeout: float | None) -> T:
        self._lifetime.check()
        timeout_s = self._config.request_timeout_ms / 1000 if request_timeout is None else request_timeout

        async def run() -> T:
            return await operation(timeout_s)

        return run_sync(run())


_ADDED = ErrorCode.DUPLICATE_VOTER
_REMOVED = ErrorCode.VOTER_NOT_FOUND


class _Quorum:
    """The calls; on the network thread. Finds the controllers and, among them, the leader."""

    def __init__(self, config: QuorumAdminConfig) -> None:
        self._client_id = config.client_id
        servers = config.bootstrap_servers
        self._nodes = ClusterClient(servers, client_id=config.client_id) if servers else None
        self._bootstrap = list(config.bootstrap_controllers)
        self._controllers: list[str] = []
        self._leader: str | None = None
        self._channels: dict[str, grpc.aio.Channel] = {}

    async def close(self) -> None:
        channels, self._channels = list(self._channels.values()), {}
        await asyncio.gather(*(channel.close() for channel in channels))
        if self._nodes is not None:
            await self._nodes.close()

    async def describe(self, timeout_s: float) -> QuorumInfo:
        """Ask one controller after the other until the leader answers."""
        deadline = time.monotonic() + timeout_s
        reason = "no time was left"
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
                error = self._note_failure(rpc_error, address)
                if error.code not in (*_TRY_ANOTHER, ErrorCode.REQUEST_TIMED_OUT):
                    raise error from rpc_error
                reason = f"{address}: {error.message}"
                attempt += 1
                if attempt % len(self._controllers) == 0:
                    await asyncio.sleep(min(_PAUSE_S, remaining_s))
            else:
                return self._take(response, address)
        raise error_for(
            ErrorCode.REQUEST_TIMED_OUT, f"no leading controller answered within {timeout_s:g} s ({reason})"
        )

    async def change(
        self,
        call: Callable[[QuorumServiceAsyncStub, float], Awaitable[T]],
        timeout_s: float,
        done: ErrorCode | None = None,
    ) -> T | None:
        """Ask the leader for a change; again when it ceased to lead, whereupon ``done`` means that it had been made."""
        deadline = time.monotonic() + timeout_s
        attempt = 0
        lost = ""
        while True:
            # Who leads is asked first: a controller that is paused must not take the time of the change.
            try:
                await self.describe(max(0.0, deadline - time.monotonic()))
            except TidelogError as failure:
                raise error_for(failure.code, failure.message + lost) from failure
            assert self._leader is not None
            address = self._leader
            try:
                return await call(self._stub(address), max(0.0, deadline - time.monotonic()) + _ANSWER_SLACK_S)
            except grpc.aio.AioRpcError as rpc_error:
                error = self._note_failure(rpc_error, address)
                if attempt and error.code is done:
                    return None
                if error.code not in _TRY_ANOTHER:
                    raise error from rpc_error
                lost = f"; the change may have been made before, by the leader at {address}: {error.message}"
            attempt += 1

    async def take_snapshot(self, controller_id: int | None, timeout_s: float) -> pb.TakeSnapshotResponse:
        """Ask one controller, which need not lead."""
        quorum = await self.describe(timeout_s)
        wanted = quorum.leader_id if controller_id is None else controller_id
        replica = next((r for r in (*quorum.voters, *quorum.observers) if r.replica_id == wanted), None)
        if replica is None:
            known = sorted(r.replica_id for r in (*quorum.voters, *quorum.observers))
            raise error_for(ErrorCode.VOTER_NOT_FOUND, f"controller {wanted} is none of {known}")
        address = format_address(replica.host, replica.port)
        try:
            return await self._stub(address).TakeSnapshot(pb.TakeSnapshotRequest(), timeout=timeout_s)
        except grpc.aio.AioRpcError as rpc_error:
            error = error_from_rpc(rpc_error)
            raise error_for(error.code, f"controller {wanted} at {address}: {error.message}") from rpc_error

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
            raise error_for(ErrorCode.REQUEST_TIMED_OUT, "the node that answered knows no controller")
        return list(addresses.values())

    def _note_failure(self, rpc_error: grpc.aio.AioRpcError, address: str) -> TidelogError:
        error = error_from_rpc(rpc_error)
        hint = trailing_value(rpc_error, "tidelog-leader-endpoint")
        self._leader = hint if error.code is ErrorCode.NOT_CONTROLLER and hint != address else None
        return error

    def _take(self, response: pb.DescribeQuorumResponse, address: str) -> QuorumInfo:
        self._leader = address
        quorum = _quorum_info(response)
        # Later questions go to who has a vote then, also when those that were named first are gone.
        voters = [format_address(v.host, v.port) for v in quorum.voters]
        self._controllers = [*voters, *(a for a in self._bootstrap if a not in voters)]
        return quorum

    def _stub(self, address: str) -> QuorumServiceAsyncStub:
        if address not in self._channels:
            self._channels[address] = open_channel(address, self._client_id)
        return QuorumServiceStub(self._channels[address])


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
    )
