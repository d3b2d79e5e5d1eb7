"""One controller's process: builds the parts, serves until SIGTERM or SIGINT, and stops in order."""

from __future__ import annotations

import asyncio
import logging
import tempfile
import time
import uuid
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType

import grpc.aio
from grpc_health.v1 import health_pb2

from tidelog_foundation.config.connections import ConnectionLimits
from tidelog_foundation.config.endpoints import NamedListener
from tidelog_foundation.config.process import stop_signals, ungrouped
from tidelog_foundation.errors import ConfigError
from tidelog_foundation.ids import TopicId
from tidelog_foundation.logs.slow_requests import SlowRequests
from tidelog_foundation.monitoring.monitor import Monitor
from tidelog_foundation.otel.export import Export, open_export
from tidelog_foundation.otel.request_traces import RequestTraces
from tidelog_foundation.requests.quorum import DescribeQuorumResponse
from tidelog_foundation.security.certificate_store import CertificateStore, watch_certificates
from tidelog_foundation.transport.budget import ByteBudget
from tidelog_foundation.transport.call_times import CallTimes
from tidelog_foundation.transport.channels import bind_port
from tidelog_foundation.transport.grpc_connections import GrpcConnections, limited_server_options
from tidelog_foundation.transport.health import HealthPort
from tidelog_foundation.transport.health_service import HealthService
from tidelog_foundation.transport.intake import MAX_CALLS, Charge, Intake
from tidelog_foundation.transport.services import add_servicer
from tidelog_foundation.waiting import watch_waits
from tidelog_quorum.controller.feed import VotersAnnounced
from tidelog_quorum.controller.state_machine import Controller
from tidelog_quorum.metadata.records import MetadataRecord
from tidelog_quorum.raft.network.links import MAX_FRAME_BYTES
from tidelog_quorum.raft.protocol import RaftEngine
from tidelog_quorum.raft.storage.private_folder import make_private_folder, private_umask
from tidelog_quorum.server.authorization import ControllerGuard, controller_guards
from tidelog_quorum.server.bootstrap_file import read_bootstrap_records
from tidelog_quorum.server.broker_connections import BrokerConnections
from tidelog_quorum.server.config import QuorumConfig
from tidelog_quorum.server.controller_metrics import ControllerMetrics
from tidelog_quorum.server.engines import RaftServer, build_engine
from tidelog_quorum.server.leader_calls import LeaderCalls
from tidelog_quorum.server.metadata_feed import MetadataFeed
from tidelog_quorum.server.quorum_controller import QuorumController
from tidelog_quorum.server.readiness import ControllerReadiness
from tidelog_quorum.server.security import QuorumSecurity, ServedListener
from tidelog_quorum.server.services import admin_service, controller_service, quorum_service
from tidelog_quorum.server.token_expiry import watch_expired_tokens

logger = logging.getLogger(__name__)
_STOP_GRACE_S = 0.2
_TOKEN_CHECK_INTERVAL_MS = 3_600_000
_QUEUED_REQUEST_BYTES = 64 * 1024**2
"""The total size of large requests in progress; those that wait may take a quarter of it."""


async def serve(config: QuorumConfig, properties: Mapping[str, str] = MappingProxyType({})) -> None:
    """Run a controller until it receives a stop signal. ``properties`` has the prefixed keys of its listeners.

    Raises:
        ConfigError: a port is in use, or the folder cannot be written.
        TidelogError: KAFKA_STORAGE_ERROR, the disk failed or is full; or the metadata log is damaged.
    """
    stop = asyncio.Event()
    for number in stop_signals():
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    attributes = {"service.instance.id": str(config.node_id), "tidelog.cluster.id": config.cluster_id}
    export = await asyncio.to_thread(open_export, "tidelog-controller", attributes)
    with private_umask():
        await open_controller(config, properties, None if export is None else export.traces, export).run(stop)


def open_controller(
    config: QuorumConfig,
    properties: Mapping[str, str],
    traces: RequestTraces | None = None,
    export: Export | None = None,
) -> ControllerServer:
    """Return a controller with its ports and its folder, ready to run. The caller has the process's umask private.

    ``traces`` are those of its requests, and ``export`` exports its metrics.

    Raises:
        ConfigError: a port is in use, or the folder cannot be written.
    """
    security = QuorumSecurity(config, properties)
    limits = config.connection_limits(properties)
    calls = limited_calls(config, limits)
    servers = {x.name: _bind(x, security.listeners[x.name], config, limits) for x in config.controller_listeners.bound}
    _check_writable(config.metadata_log_dir)
    guards = controller_guards(config)
    raft_servers = [
        RaftServer(each, calls.limited(name, security.listeners[name].identify), guards.get(name))
        for name, each in servers.items()
    ]
    engine = build_engine(config, raft_servers, security.to_controllers)
    first_records = read_bootstrap_records(Path(config.metadata_log_dir))
    return ControllerServer(config, servers, engine, security, guards, first_records, calls, traces, export)


def limited_calls(config: QuorumConfig, limits: ConnectionLimits) -> GrpcConnections:
    """Return the calls of a controller's listeners, of which clients take none from other controllers and nodes."""
    return GrpcConnections(limits, time.monotonic, config.protected_listener, exempts_addresses=True)


def controller_options(
    config: QuorumConfig, limits: ConnectionLimits, listener: NamedListener
) -> list[tuple[str, int | str]]:
    """Return the options of the server of a listener."""
    return limited_server_options(MAX_FRAME_BYTES, limits, listener.name, config.protected_listener)


def _bind(
    listener: NamedListener, security: ServedListener, config: QuorumConfig, limits: ConnectionLimits
) -> grpc.aio.Server:
    options = controller_options(config, limits, listener)
    server = grpc.aio.server(options=options, maximum_concurrent_rpcs=MAX_CALLS)
    bind_port(server, listener.host, listener.port, security.credentials)
    return server


class ControllerServer:
    """The parts of one controller, connected. ``run`` starts, serves and stops it, once."""

    def __init__(
        self,
        config: QuorumConfig,
        servers: Mapping[str, grpc.aio.Server],
        engine: RaftEngine,
        security: QuorumSecurity | None = None,
        guards: Mapping[str, ControllerGuard] = MappingProxyType({}),
        first_records: Iterable[MetadataRecord] = (),
        calls: GrpcConnections | None = None,
        traces: RequestTraces | None = None,
        export: Export | None = None,
    ) -> None:
        """``servers`` and ``guards`` are those of the listeners, by name.

        ``security`` and the limits of ``calls`` are by default ``config``'s.
        """
        self._config = config
        self._security = security = security or QuorumSecurity(config, {})
        self._certificates = [*security.certificates, *security.monitoring_certificates.values()]
        self._servers = servers
        self._engine = engine
        feed = MetadataFeed()
        feed.step(VotersAnnounced(config.voters))
        controller = Controller(config, RandomTopicIds(), first_records)
        self.quorum = QuorumController(controller, engine, feed, config.broker_session_timeout_ms, _monotonic_ms)
        self._connections = BrokerConnections(self.quorum, _monotonic_ms)
        intake = Intake(Charge(ByteBudget(_QUEUED_REQUEST_BYTES)))
        security.follow(lambda: self.quorum.controller.committed.scram_credentials)
        self._guards = guards
        self._limited = calls or limited_calls(config, config.connection_limits({}))
        self._calls = CallTimes(SlowRequests(config.logging_slow_request_ms), traces)
        readiness = ControllerReadiness(config.node_id, controller, engine, _monotonic_ms)
        self.readiness = readiness
        self._health = HealthService(readiness)
        for name in servers:
            self._add_services(name, feed, intake)
        self._health_port = HealthPort(config.health_listener, self._health)
        listener = config.controller_listeners.bound[0].name
        self._leader_calls = LeaderCalls(config.node_id, self.quorum, listener, security.to_controllers)
        self.describe_stop = self._leader_calls.describe_own_stop
        self.monitor = Monitor(config, security.monitoring_certificates, readiness, self.describe_stop, export)
        metrics = ControllerMetrics(controller, engine, self.quorum.commits, self._describe)
        self.state_families = metrics.families
        """The metrics of the quorum and the cluster."""
        self.monitor.add(security.families, metrics.families, self._calls.families, self._limited.families)
        for guard in list(guards.values())[:1]:
            # All guards count together.
            self.monitor.add(guard.decisions.families)

    async def run(self, stop: asyncio.Event) -> None:
        """Serve until ``stop`` is set.

        Raises:
            TidelogError: KAFKA_STORAGE_ERROR, the disk failed or is full; or the metadata log is damaged.
        """
        await self.start()
        try:
            await self.run_until(stop)
        finally:
            await self.stop()

    async def start(self) -> None:
        """Load the log and serve.

        Raises:
            TidelogError: see :meth:`run`.
        """
        await self.monitor.start()
        self._security.start()
        for guard in list(self._guards.values())[:1]:
            # All guards have the same authorizer.
            await guard.start()
        await self._engine.start(self.quorum)
        for server in self._servers.values():
            await server.start()
        await self._health_port.start()
        listeners = self._config.controller_listeners.bound
        logger.info("controller %s serves on %s", self._config.node_id, ", ".join(map(str, listeners)))

    async def run_until(self, stop: asyncio.Event) -> None:
        """Expire sessions and watch the engine until ``stop`` is set. Raises what ended either, in a group."""
        interval_ms = self._config.delegation_token_expiry_check_interval_ms
        connections, certificates = self._connections, self._certificates
        await _run_until(stop, self.quorum, self._engine, connections, self._health, certificates, interval_ms)

    async def stop(self) -> None:
        """Hand the leadership over and end every connection."""
        # The engine first: a leader hands over, for which the others must still reach this controller, and callers
        # still learn the leader from it.
        await self._engine.stop()
        await asyncio.gather(*(server.stop(_STOP_GRACE_S) for server in self._servers.values()))
        await self._health_port.stop()
        await self.monitor.stop()
        await self._leader_calls.close()
        self._security.stop()
        logger.info("controller %s has stopped", self._config.node_id)

    def _describe(self) -> DescribeQuorumResponse:
        """Return the quorum with the progress of the nodes, as the leader sees it."""
        return replace(self._engine.describe(), brokers=tuple(self.quorum.broker_progress()))

    def _add_services(self, listener: str, feed: MetadataFeed, intake: Intake) -> None:
        """Serve the callers of one listener, which reach the other controllers at that of the same name."""
        server, security = self._servers[listener], self._security.listeners[listener]
        identify = self._limited.limited(listener, security.identify)
        guard = self._guards.get(listener)
        if guard is not None:
            guard.follow(self.quorum)
        cluster_id, quorum = self._config.cluster_id, self.quorum
        for service in (
            controller_service(cluster_id, quorum, feed, self._connections, listener),
            admin_service(cluster_id, quorum, listener, self._config.node_id, [Path(self._config.metadata_log_dir)]),
            quorum_service(cluster_id, self._engine, quorum, listener),
        ):
            service.add_to(server, intake, identify, guard, times=self._calls)
        security.add_to(server)
        # Callers that have not logged in must not send messages; the controller as a whole is the only service.
        of_all = None if security.has_logins else intake
        add_servicer(server, of_all, health_pb2.DESCRIPTOR.services_by_name["Health"], self._health)


async def _run_until(
    stop: asyncio.Event,
    quorum: QuorumController,
    engine: RaftEngine,
    connections: BrokerConnections,
    health: HealthService,
    certificates: Sequence[CertificateStore] = (),
    token_check_interval_ms: int = _TOKEN_CHECK_INTERVAL_MS,
) -> None:
    with ungrouped():
        async with asyncio.TaskGroup() as tasks:
            expiry = tasks.create_task(quorum.run(), name="expire-sessions")
            removal = watch_expired_tokens(quorum, token_check_interval_ms)
            tokens = tasks.create_task(removal, name="expired-tokens")
            examiner = tasks.create_task(connections.run(), name="broken-connections")
            failure = tasks.create_task(engine.wait_failed(), name="raft-failure")
            leaderless = watch_waits("a leader of the quorum", lambda: _leaderless(engine))
            watch = tasks.create_task(leaderless, name="leader-watch")
            renewal = tasks.create_task(watch_certificates(certificates), name="certificates")
            checks = tasks.create_task(health.run(), name="health")
            await stop.wait()
            checks.cancel()
            renewal.cancel()
            expiry.cancel()
            tokens.cancel()
            examiner.cancel()
            failure.cancel()
            watch.cancel()


def _leaderless(engine: RaftEngine) -> Mapping[Hashable, str]:
    """Return a controller's report while it knows no leader."""
    leader = engine.leader
    if leader.leader_id is not None:
        return {}
    return {"leader": f"none is elected in epoch {leader.epoch}; most of the voters must run and reach each other"}


def _check_writable(path: str) -> None:
    directory = Path(path)
    try:
        make_private_folder(directory)
        with tempfile.TemporaryFile(dir=directory):
            pass
    except OSError as error:
        raise ConfigError(f"cannot write to metadata.log.dir {path}: {error.strerror}") from error


class RandomTopicIds:
    """The ids of new topics: random UUIDs."""

    def __iter__(self) -> RandomTopicIds:
        """Return the iterator itself."""
        return self

    def __next__(self) -> TopicId:
        """Return an id that no other topic has."""
        return TopicId(uuid.uuid4().bytes)


def _monotonic_ms() -> int:
    return time.monotonic_ns() // 1_000_000
