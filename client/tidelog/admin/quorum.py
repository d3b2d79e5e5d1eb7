"""Administration of the controller quorum, with the names of Kafka's Admin (KIP-836, KIP-853, KIP-919)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from tidelog.admin.controller_log_levels import alter_log_levels, describe_log_levels
from tidelog.admin.operations import Future, Operations
from tidelog.admin.quorum_calls import MetadataEnd, MetadataPart, Quorum, QuorumInfo, SnapshotInfo
from tidelog.cluster import ClusterClient, Lifetime
from tidelog.cluster.bootstrap import parse_bootstrap_servers
from tidelog.cluster.security import SecurityConfig
from tidelog.v1 import quorum_service_pb2 as pb
from tidelog_foundation.config import at_least, parse_config, setting
from tidelog_foundation.config.providers import resolve_client_settings
from tidelog_foundation.transport import run_sync

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class QuorumAdminConfig(SecurityConfig):
    """The location of the quorum: exactly one of the two ``bootstrap`` keys must be set.

    Raises:
        ValueError: none or both are set; ``parse_config`` converts it to a ConfigError.
    """

    bootstrap_servers: tuple[str, ...] = setting(
        (), "Addresses of nodes, which name the controllers, as host:port,host:port."
    )
    bootstrap_controllers: tuple[str, ...] = setting(
        (), "Addresses of controllers to connect to instead of nodes, as host:port,host:port."
    )
    client_id: str = setting("tidelog", "A name for this client in its requests to the controllers.")
    request_timeout_ms: int = setting(30_000, "The timeout of an operation, in milliseconds.", at_least(1))

    def __post_init__(self) -> None:
        if bool(self.bootstrap_servers) == bool(self.bootstrap_controllers):
            raise ValueError("exactly one of bootstrap.servers and bootstrap.controllers must be set")
        if self.bootstrap_controllers:
            parse_bootstrap_servers(self.bootstrap_controllers, default_port=None)
        else:
            parse_bootstrap_servers(self.bootstrap_servers)


class QuorumAdmin:
    """Administers the quorum. Thread-safe. Close it, or use it as a context manager.

    Timeouts are in seconds; None is request.timeout.ms. A change that times out may still take effect.
    """

    def __init__(self, config: Mapping[str, Any]) -> None:
        """Create an admin client from settings (:class:`QuorumAdminConfig`).

        Raises:
            KafkaException: INVALID_CONFIG.
        """
        self._config = parse_config(QuorumAdminConfig, resolve_client_settings(config))
        self._quorum = _quorum(self._config)
        self._lifetime = Lifetime(self, "quorum admin client", self._quorum.close)

    def __enter__(self) -> QuorumAdmin:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def describe_metadata_quorum(self, *, request_timeout: float | None = None) -> QuorumInfo:
        """Return the state of the quorum, as seen by its leader.

        Raises:
            KafkaException: REQUEST_TIMED_OUT if no leading controller, or no node, answered.
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
        """Give a vote to a controller that follows the log; an empty ``voter_directory_id`` matches any log.

        Raises:
            KafkaException: DUPLICATE_VOTER, VOTER_NOT_FOUND, INVALID_VOTER_KEY, INVALID_REQUEST (another change is in
                progress), REQUEST_TIMED_OUT (it did not catch up in time), UNSUPPORTED_VERSION.
        """
        self._run(lambda t: self._quorum.add_voter(voter_id, voter_directory_id, host, port, t), request_timeout)

    def remove_raft_voter(
        self, voter_id: int, voter_directory_id: bytes = b"", *, request_timeout: float | None = None
    ) -> None:
        """Remove a controller's vote, which may be the leader's; an empty ``voter_directory_id`` matches any log.

        Raises:
            KafkaException: VOTER_NOT_FOUND, INVALID_REQUEST (the last voter, or another change is in progress),
                REQUEST_TIMED_OUT, UNSUPPORTED_VERSION.
        """
        self._run(lambda t: self._quorum.remove_voter(voter_id, voter_directory_id, t), request_timeout)

    def update_raft_voter(
        self, voter_id: int, voter_directory_id: bytes, host: str, port: int, *, request_timeout: float | None = None
    ) -> None:
        """Change the address of a voter that is down; an empty ``voter_directory_id`` matches any log.

        Raises:
            KafkaException: VOTER_NOT_FOUND, INVALID_REQUEST (it runs and announces another address), REQUEST_TIMED_OUT
                (also while another change is in progress), UNSUPPORTED_VERSION.
        """
        self._run(lambda t: self._quorum.update_voter(voter_id, voter_directory_id, host, port, t), request_timeout)

    def transfer_leadership(self, voter_id: int | None = None, *, request_timeout: float | None = None) -> int:
        """Transfer leadership to a voter, or with None to the one with the longest log; return the new leader.

        Raises:
            KafkaException: VOTER_NOT_FOUND, INVALID_REQUEST (there is no other voter), REQUEST_TIMED_OUT (the leader
                did not change).
        """
        request = pb.TransferLeadershipRequest(voter_id=-1 if voter_id is None else voter_id)

        async def transfer(timeout_s: float) -> int:
            request.timeout_ms = int(timeout_s * 1000)
            response = await self._quorum.change(lambda s, t: s.TransferLeadership(request, timeout=t), timeout_s)
            assert response is not None
            return response.leader_id

        return self._run(transfer, request_timeout)

    def take_snapshot(self, controller_id: int | None = None, *, request_timeout: float | None = None) -> SnapshotInfo:
        """Make a controller, or with None the leader, take a snapshot of its state and drop the log before it.

        Raises:
            KafkaException: VOTER_NOT_FOUND if no such controller follows the log; SNAPSHOT_NOT_FOUND if there is
                nothing to snapshot yet; KAFKA_STORAGE_ERROR.
        """

        async def take(timeout_s: float) -> SnapshotInfo:
            response = await self._quorum.take_snapshot(controller_id, timeout_s)
            return SnapshotInfo(response.snapshot_offset, response.log_start_offset)

        return self._run(take, request_timeout)

    def describe_log_levels(self, controller_id: int, *, request_timeout: float | None = None) -> dict[str, str]:
        """Return the level in effect of each logger of a controller, by name (KIP-412).

        Raises:
            KafkaException: VOTER_NOT_FOUND if no such controller follows the log; REQUEST_TIMED_OUT without a leader;
                CLUSTER_AUTHORIZATION_FAILED.
        """
        return self._run(lambda t: describe_log_levels(self._quorum, controller_id, t), request_timeout)

    def alter_log_levels(
        self, controller_id: int, levels: Mapping[str, str | None], *, request_timeout: float | None = None
    ) -> None:
        """Set the levels of loggers of a controller until it ends; None gives a logger the level of the one above it.

        Raises:
            KafkaException: As :meth:`describe_log_levels`; INVALID_CONFIG for an unknown logger or level, and then
                nothing changes.
        """
        self._run(lambda t: alter_log_levels(self._quorum, controller_id, levels, t), request_timeout)

    def read_metadata(
        self, receive: Callable[[MetadataPart], None], *, request_timeout: float | None = None
    ) -> MetadataEnd:
        """Read the whole metadata of the cluster from the leading controller, up to the present.

        ``receive`` is called on the network thread with a snapshot, part by part, and then with the entries after it.
        Needs the right CLUSTER_ACTION on the cluster, because the metadata contains credentials. The timeout is that of
        each response.

        Raises:
            KafkaException: REQUEST_TIMED_OUT if no leading controller, or no node, answered;
                CLUSTER_AUTHORIZATION_FAILED.
        """
        return self._run(lambda t: self._quorum.read_metadata(receive, t), request_timeout)

    def close(self) -> None:
        """Close the connections. A second call has no effect."""
        if not self._lifetime.is_over:
            self._lifetime.end()
            self._lifetime.stop()

    def _run(self, operation: Callable[[float], Awaitable[T]], request_timeout: float | None) -> T:
        self._lifetime.check()
        timeout_s = self._config.request_timeout_ms / 1000 if request_timeout is None else request_timeout

        async def run() -> T:
            return await operation(timeout_s)

        return run_sync(run())


class QuorumOperations(Operations):
    """The operations of :class:`QuorumAdmin` that Kafka's Admin has too. Nodes name the controllers."""

    def describe_metadata_quorum(self, *, request_timeout: float | None = None) -> Future[QuorumInfo]:
        """Describe the quorum; see :meth:`QuorumAdmin.describe_metadata_quorum`."""

        return self._future(self._quorum.describe(self._request_ms(request_timeout) / 1000))

    def add_raft_voter(
        self, voter_id: int, voter_directory_id: bytes, host: str, port: int, *, request_timeout: float | None = None
    ) -> Future[None]:
        """Make a controller a voter; see :meth:`QuorumAdmin.add_raft_voter`."""

        timeout_s = self._request_ms(request_timeout) / 1000
        return self._future(self._quorum.add_voter(voter_id, voter_directory_id, host, port, timeout_s))

    def remove_raft_voter(
        self, voter_id: int, voter_directory_id: bytes = b"", *, request_timeout: float | None = None
    ) -> Future[None]:
        """Remove a controller's vote, like :meth:`QuorumAdmin.remove_raft_voter`."""

        timeout_s = self._request_ms(request_timeout) / 1000
        return self._future(self._quorum.remove_voter(voter_id, voter_directory_id, timeout_s))

    def update_raft_voter(
        self, voter_id: int, voter_directory_id: bytes, host: str, port: int, *, request_timeout: float | None = None
    ) -> Future[None]:
        """Change a voter's address; see :meth:`QuorumAdmin.update_raft_voter`."""

        timeout_s = self._request_ms(request_timeout) / 1000
        return self._future(self._quorum.update_voter(voter_id, voter_directory_id, host, port, timeout_s))


def _quorum(config: QuorumAdminConfig) -> Quorum:
    servers = config.bootstrap_servers
    security = config.client_security()
    nodes = ClusterClient(servers, client_id=config.client_id, security=security) if servers else None
    return Quorum(nodes, config.bootstrap_controllers, config.client_id, security)
