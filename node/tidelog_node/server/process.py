"""One node: it builds the parts, serves until it is told to stop, and stops in order.

At startup it opens the logs, registers the node and applies the first image. Only
then does it serve clients and tell the controller that it has caught up. At shutdown it first moves the leaderships
away, then ends all work, closes the logs and marks the directories clean. If the last log directory fails, it also
moves the leaderships but marks nothing.
"""

from __future__ import annotations

import asyncio
import logging
import time
import uuid
from collections.abc import Coroutine, Iterable, Mapping
from types import MappingProxyType

import grpc.aio

from tidelog_foundation.authorization import AclStore
from tidelog_foundation.authorization.counted import CountedAuthorizer
from tidelog_foundation.config.process import ungrouped
from tidelog_foundation.dataclass import dataclass
from tidelog_foundation.errors import TidelogError
from tidelog_foundation.ids import BrokerEpoch, BrokerId
from tidelog_foundation.logs.slow_requests import SlowRequests
from tidelog_foundation.metrics import Source
from tidelog_foundation.monitoring.checks import Readiness, all_checks
from tidelog_foundation.monitoring.monitor import Monitor
from tidelog_foundation.monitoring.stop_safety import DescribeStop
from tidelog_foundation.otel.export import Export
from tidelog_foundation.requests.stop_safety import DescribeStopSafetyRequest, DescribeStopSafetyResponse
from tidelog_foundation.sasl.scram_users import ScramUsers
from tidelog_foundation.sasl.token_hmacs import TokenAccounts
from tidelog_foundation.security.certificate_store import CertificateStore, watch_certificates
from tidelog_foundation.security.mechanisms import Accounts
from tidelog_foundation.security.metrics import certificate_families
from tidelog_foundation.transport.budget import ByteBudget
from tidelog_foundation.transport.call_times import CallTimes
from tidelog_foundation.transport.channels import ChannelSecurity
from tidelog_foundation.transport.health import HealthPort
from tidelog_foundation.transport.health_service import HealthService
from tidelog_foundation.transport.intake import Charge, Intake
from tidelog_foundation.waiting import ReportedWait
from tidelog_node import handlers
from tidelog_node.broker.lifecycle import LifecycleTimings
from tidelog_node.coordination import GroupCoordinator, TransactionCoordinator
from tidelog_node.coordination.coordinator import CoordinatorEnvironment
from tidelog_node.coordination.metrics import CoordinatorMetrics
from tidelog_node.coordination.views import OpenView, open_rocks_view
from tidelog_node.event_loop import DecodingThread, SystemClock
from tidelog_node.groups.shard import GroupShard
from tidelog_node.handlers import NodeContext
from tidelog_node.handlers.fetch_sessions import FetchSessions
from tidelog_node.handlers.node_calls import NodeMarkerSender
from tidelog_node.handlers.requests.transactions import AddPartitionsToTxnRequest, AddPartitionsToTxnResponse
from tidelog_node.handlers.response_budget import ResponseBudget
from tidelog_node.handlers.transaction_verifier import TransactionVerifier
from tidelog_node.kafka.apis.registry import all_apis
from tidelog_node.kafka.authorization import KafkaGuard
from tidelog_node.kafka.served import KafkaNode
from tidelog_node.kafka.server.limits import RequestBudgets
from tidelog_node.kafka.server.listener import KafkaListeners
from tidelog_node.links.cluster_links import ClusterLinks
from tidelog_node.links.metrics import LinkMetrics
from tidelog_node.links.node import LinkNode
from tidelog_node.partitions import LogManager, MetadataCache, PartitionRegistry, ReplicationThrottles
from tidelog_node.partitions.cleaning import CleanerSettings, clean_logs
from tidelog_node.partitions.directories.directory_assignments import DirectoryAssignments
from tidelog_node.partitions.fetchers.fetcher_pool import FetcherPool
from tidelog_node.partitions.fetchers.leader_fetcher import LeaderFetcher
from tidelog_node.partitions.housekeeping import (
    delete_expired_segments,
    expire_producers,
    flush_logs,
    remove_deleted_files,
    watch_lag,
    write_checkpoints,
    write_log_start_offsets,
)
from tidelog_node.partitions.isr_changes import IsrChanges
from tidelog_node.partitions.measurements import Measurements
from tidelog_node.partitions.metrics import PartitionMetrics
from tidelog_node.quotas.client_quotas import ClientQuotas
from tidelog_node.quotas.connection_rates import ConnectionRates
from tidelog_node.replication import ReplicaSelector
from tidelog_node.server.between_nodes import fetcher_settings, node_calls, replica_transport
from tidelog_node.server.cleaner_job import CleanerJob
from tidelog_node.server.config import NodeConfig
from tidelog_node.server.controller_client import ControllerClient
from tidelog_node.server.dynamic_config import DynamicNodeConfig
from tidelog_node.server.grpc_connections import NodeConnections, protected_listener
from tidelog_node.server.grpc_services import GrpcServices
from tidelog_node.server.lifecycle import BrokerLifecycle, LivenessConnection
from tidelog_node.server.metadata_follower import MetadataFollower
from tidelog_node.server.metrics import add_service_metrics
from tidelog_node.server.producer_ids import ProducerIdManager
from tidelog_node.server.readiness import NodeReadiness
from tidelog_node.server.sasl import NodeSasl
from tidelog_node.server.state_metrics import StateMetrics
from tidelog_node.server.topic_creation import TopicCreation
from tidelog_node.shards.store import RecordStore
from tidelog_node.telemetry.client_telemetry import ClientTelemetry
from tidelog_quorum.metadata.image import MetadataImage

logger = logging.getLogger(__name__)

_STOP_GRACE_S = 1.0
_STOP_SAFETY_TIMEOUT_S = 4.0
_HANDOVER_AFTER_FAILURE_S = 3.0


@dataclass(frozen=True, slots=True)
class Neighbor:
    """A controller in the node's process, for which the node's port serves health checks and metrics too."""

    readiness: Readiness
    families: Source
    describe_stop: DescribeStop


@dataclass(frozen=True, slots=True)
class BoundServer:
    """The server of a gRPC listener, and the port that it will listen on."""

    server: grpc.aio.Server
    port: int


class Node:
    """The wiring of one node's parts. ``run`` is called once.

    ``servers`` has one for each gRPC listener, by its name. ``directories`` and ``open_view`` determine where the node
    stores its data. ``certificates`` has those of its listeners with TLS, which are reloaded while the node runs.
    ``neighbor`` is the controller in the same process, if there is one. ``export`` exports metrics and traces by OTLP.
    """

    def __init__(
        self,
        settings: DynamicNodeConfig,
        servers: Mapping[str, BoundServer],
        kafka: KafkaListeners,
        directories: LogManager,
        open_view: OpenView = open_rocks_view,
        certificates: Mapping[str, CertificateStore] = MappingProxyType({}),
        neighbor: Neighbor | None = None,
        export: Export | None = None,
    ) -> None:
        self._settings = settings
        self._certificates = certificates
        self._neighbor = neighbor
        self._open_view = open_view
        self._config = config = settings.current
        self._servers = servers
        self._kafka = kafka
        self._decoding = DecodingThread()
        self._directories = directories
        self._clock = SystemClock()
        self._quotas = ClientQuotas(self._clock.monotonic_ms, time.perf_counter_ns, config.quota_windows())
        self._throttles = ReplicationThrottles(self._clock)
        self._throttles.change_rates(
            config.leader_replication_throttled_rate, config.follower_replication_throttled_rate
        )
        self._broker_id = BrokerId(config.node_id)
        self._authorizer = config.new_authorizer(config.node_id)
        self._has_warned_of_acls = False
        self._decisions = None if self._authorizer is None else CountedAuthorizer(self._authorizer)
        self._cache = MetadataCache(config.inter_broker_listener.name)
        self._telemetry = ClientTelemetry(self._cache, self._clock, self._decoding, config.telemetry_limits())
        users = ScramUsers(lambda: self._cache.image.scram_credentials)
        tokens = TokenAccounts(config.delegation_token_secret_key, lambda: self._cache.image.delegation_tokens)
        self._rates = ConnectionRates(self._quotas.now_ms, self._quotas.windows)
        self._grpc = NodeConnections(settings.listener_limits, self._rates, self._quotas, protected_listener(settings))
        self._sasl = NodeSasl(settings, Accounts(users, tokens), self._grpc.admit_login)
        to_controllers = certificates.get(config.controller_listener.name)
        to_nodes = certificates.get(config.inter_broker_listener.name)
        self._controller = ControllerClient(
            config.voters, config.bootstrap, ChannelSecurity(to_controllers, self._sasl.login_to_controllers)
        )
        self._connection = LivenessConnection(self._broker_id, self._controller)
        self._producer_ids = ProducerIdManager(self._controller, self._broker_id, self._broker_epoch)
        internal = [config.offsets_topic.creatable(), config.transaction_topic.creatable()]
        numbers = config.num_partitions, config.default_replication_factor
        self._topic_creation = TopicCreation(self._controller, internal, *numbers)
        self._cleaner = CleanerJob(config, self._clean_logs)
        between_nodes = ChannelSecurity(to_nodes, self._sasl.login)
        self._transport = replica_transport(config, between_nodes)
        self._node_calls = node_calls(config, between_nodes)
        self._storage_failure: TidelogError | None = None
        self._stop = asyncio.Event()
        self.context: NodeContext | None = None
        """The context of the handlers, None before the node serves."""
        self._lifecycle = BrokerLifecycle(
            self._broker_id,
            config.cluster_id,
            config.advertised_endpoints({**{name: x.port for name, x in servers.items()}, **kafka.ports}),
            config.broker_rack or "",
            directories.ids,
            directories.previous_broker_epoch,
            LifecycleTimings(config.broker_heartbeat_interval_ms),
            self._controller,
            lambda: directories.offline_ids,
            self._clock,
            self._connection.hold,
        )
        self._watch(config, export)

    def _watch(self, config: NodeConfig, export: Export | None) -> None:
        """Create what tells others how this node is: its readiness, health and metrics."""
        self._slow = SlowRequests(config.logging_slow_request_ms)
        self._export = export
        self._traces = None if export is None else export.traces
        self._calls = CallTimes(self._slow, self._traces)
        window_ms, neighbor = config.replica_lag_time_max_ms, self._neighbor
        self.readiness = NodeReadiness(self._broker_id, self._lifecycle, self._cache, self._clock, window_ms)
        is_ready = self.readiness if neighbor is None else all_checks(neighbor.readiness, self.readiness)
        self._health = HealthService(is_ready)
        self._health_port = HealthPort(config.health_listener, self._health)
        self.monitor = Monitor(config, self._certificates, is_ready, self._describe_own_stop, self._export)
        self.monitor.add(*self._sources(), *(() if neighbor is None else (neighbor.families,)))
        self.monitor.add(StateMetrics(self._lifecycle, self._cache, self._grpc, lambda: self.context).families)

    async def run(self, stop: asyncio.Event) -> None:
        """Serve until ``stop`` is set.

        Raises:
            TidelogError: The cluster refuses the node, or the disk failed.
        """
        self._stop = stop
        await self.monitor.start()
        try:
            await self._run()
        finally:
            await self.monitor.stop()

    async def _run(self) -> None:
        defaults = self._config.topic_defaults()
        threads = self._config.num_recovery_threads_per_data_dir
        with ReportedWait("the logs of log.dirs to be loaded"):
            found = await asyncio.to_thread(self._directories.load, defaults, threads)
        self._registry = PartitionRegistry(
            self._broker_id,
            self._directories,
            found,
            defaults,
            self._config.replica_lag_time_max_ms,
            self._clock,
            self._fail_storage,
            self._config.replica_alter_log_dirs_io_max_bytes_per_second,
            Measurements(self._config.metrics_topics_max),
        )
        self._follower = MetadataFollower(
            self._broker_id,
            self._lifecycle.incarnation_id,
            self._config.cluster_id,
            self._config.voters,
            self._controller.channel,
            self._registry,
            self._cache,
            self._controller.set_voters,
            self._follow_image,
            self._config.bootstrap,
            self._lifecycle.request_heartbeat,
            self._lifecycle.note_applied,
            self._controller.error_of,
        )
        self._create_coordinators()
        self._create_links()
        limit = self._config.metrics_group_offsets_max
        add_service_metrics(
            self.monitor,
            PartitionMetrics(self._registry, self._directories),
            self._follower.snapshots,
            LinkMetrics(self._links),
            CoordinatorMetrics(self._groups, self._transactions, self._registry, limit),
        )
        self._settings.subscribe(self._change_settings)
        self._sasl.start()
        try:
            with ungrouped():
                async with asyncio.TaskGroup() as tasks:
                    await self._serve(tasks)
        finally:
            await self._close_connections()

    def _create_coordinators(self) -> None:
        self._groups = GroupCoordinator(
            self._registry,
            self._cache,
            self._topic_creation,
            lambda: [directory.path for directory in self._directories.online],
            self._new_group_shard,
            self._clock,
            self._config.offsets_topic.compression,
            self._config.offsets_commit_timeout_ms,
            lambda: self._lifecycle.has_session,
            moved_ms=self._config.group_consumer_max_heartbeat_interval_ms,
            open_view=self._open_view,
        )
        self._transactions = TransactionCoordinator(
            CoordinatorEnvironment(self._registry, self._cache, self._topic_creation, self._clock),
            lambda: [directory.path for directory in self._directories.online],
            self._config.transaction_settings(),
            self._producer_ids,
            open_view=self._open_view,
        )
        self._verifier = TransactionVerifier(
            self._broker_id, self._cache, self._coordinator_of, self._node_calls, self._add_partitions
        )

    def _create_links(self) -> None:
        node = LinkNode(
            self._broker_id,
            self._registry,
            self._cache,
            self._controller,
            self._groups,
            self._clock,
            self._node_calls,
        )
        self._links = ClusterLinks(node, self._broker_epoch, fetcher_settings(self._config))

    async def _close_connections(self) -> None:
        """Stop all listeners, and close the connections to other nodes and to controllers."""
        await self._kafka.stop(0)
        await self._stop_servers(0)
        await self._health_port.stop()
        await self._transport.close()
        await self._node_calls.close()
        await self._controller.close()
        self._sasl.stop()

    async def _serve(self, tasks: asyncio.TaskGroup) -> None:
        fetchers, background = self._start_background(tasks)
        stopped = tasks.create_task(self._stop.wait(), name="wait-for-stop")
        current = tasks.create_task(self._follower.is_current.wait(), name="wait-for-metadata")
        with ReportedWait(f"the cluster's metadata, which node {self._broker_id} needs to serve clients"):
            await asyncio.wait((stopped, current), return_when=asyncio.FIRST_COMPLETED)
        if not stopped.done():
            await self._open_listeners()
            await stopped
        current.cancel()
        if self._storage_failure is not None:
            await self._lifecycle.shut_down(_HANDOVER_AFTER_FAILURE_S)
            for task in background:
                task.cancel()
            fetchers.stop_all()
            raise self._storage_failure
        await self._shut_down(fetchers, background)

    def _fetcher_of(self, leader_id: BrokerId) -> LeaderFetcher:
        return LeaderFetcher(
            leader_id,
            lambda: (self._broker_id, self._broker_epoch()),
            self._cache.broker_address,
            self._config.cluster_id,
            self._transport,
            fetcher_settings(self._config),
            self._clock,
            self._throttles.follower,
        )

    def _start_background(self, tasks: asyncio.TaskGroup) -> tuple[FetcherPool, list[asyncio.Task[None]]]:
        config = self._config
        fetchers = FetcherPool(tasks, self._fetcher_of)
        isr_changes = IsrChanges(self._controller, self._broker_id, self._broker_epoch)
        assignments = DirectoryAssignments(self._controller, self._broker_id, self._broker_epoch, self._clock)
        self._registry.connect(fetchers, isr_changes, assignments, self._lifecycle.request_heartbeat)
        checkpoint_interval_ms = config.replica_high_watermark_checkpoint_interval_ms
        log_start_interval_ms = config.log_flush_start_offset_checkpoint_interval_ms
        jobs: dict[str, Coroutine[None, None, None]] = {
            "lifecycle": self._lifecycle.run(self._follower.note_registration),
            "controller-connection": self._connection.run(),
            "metadata-follower": self._follower.run(),
            "isr-changes": isr_changes.run(),
            "readiness": self.readiness.run(self._registry),
            "health": self._health.run(),
            "lag-watch": watch_lag(self._registry, config.replica_lag_time_max_ms),
            "log-flusher": flush_logs(self._registry, lambda: self._settings.current.flush_check_interval_ms),
            "retention": delete_expired_segments(self._registry, config.log_retention_check_interval_ms),
            "deleted-files": remove_deleted_files(
                self._registry, lambda: self._settings.current.deleted_files_check_interval_ms
            ),
            "producer-expiry": expire_producers(self._registry, config.producer_id_expiration_check_interval_ms),
            "checkpoints": write_checkpoints(self._registry, checkpoint_interval_ms),
            "log-starts": write_log_start_offsets(self._registry, log_start_interval_ms),
            "directory-assignments": assignments.run(),
            "relocations": self._registry.relocations.run(),
            "new-replicas": self._registry.folder_creation.run(),
            "full-disk-retries": self._registry.retry_full(),
            "deleted-replicas": self._registry.remove_folders(),
            "producer-ids": self._producer_ids.run(),
            "topic-creation": self._topic_creation.run(),
            "group-coordinator": self._groups.run(),
            "transaction-coordinator": self._transactions.run(),
            "transaction-verifier": self._verifier.run(),
            "cluster-links": self._links.run(),
        }
        if self._certificates:
            jobs["certificates"] = watch_certificates(self._certificates.values())
        if config.log_cleaner_enable:
            jobs["log-cleaner"] = self._cleaner.run()
        return fetchers, [tasks.create_task(job, name=name) for name, job in jobs.items()]

    async def _open_listeners(self) -> None:
        authorizer, own = self._decisions, self._authorizer
        if authorizer is not None:
            await authorizer.start()
        self.context = context = NodeContext(
            self._broker_id,
            self._config.cluster_id,
            self._config.broker_rack or "",
            self._registry,
            self._cache,
            self._controller,
            self._controller.voters,
            self._clock,
            self._config.fetch_max_bytes,
            self._throttles,
            self._settings,
            self._producer_ids,
            self._topic_creation if self._config.auto_create_topics_enable else None,
            ReplicaSelector(self._config.replica_selector_class),
            FetchSessions(self._config.max_incremental_fetch_session_cache_slots),
            ResponseBudget(self._config.queued_max_response_bytes),
            decoding=self._decoding,
            groups=self._groups,
            transactions=self._transactions,
            verifier=self._verifier,
            verification=lambda: self._settings.current.verification_settings(),
            controller_listener=self._config.controller_listener.name,
            token_key=self._config.delegation_token_secret_key,
            has_authorizer=authorizer is not None,
            acl_store=own if isinstance(own, AclStore) else None,
            quotas=self._quotas,
            telemetry=self._telemetry,
            links=self._links,
        )
        self._transactions.connect(NodeMarkerSender(context, self._node_calls))
        request_limit = self._config.queued_max_request_bytes
        budget = ByteBudget(request_limit)
        requests = RequestBudgets(budget, request_limit)
        intake = Intake(Charge(requests.others))
        services = GrpcServices(
            self._sasl, self._certificates, self._grpc, self._calls, self._health, authorizer, budget, intake
        )
        services.add_all({name: each.server for name, each in self._servers.items()}, context)
        for each in self._servers.values():
            await each.server.start()
        await self._health_port.start()
        kafka_guard = None if authorizer is None else KafkaGuard(authorizer, self._cache)
        node = KafkaNode(context, self._groups, kafka_guard)
        await self._kafka.serve(node, all_apis(), requests, self._sasl.listeners, self._rates, self._slow, self._traces)
        self._lifecycle.note_serving()
        listeners = (*self._config.grpc_listeners, *self._config.kafka_listeners)
        logger.info("Node %d serves on %s", self._broker_id, ", ".join(map(str, listeners)))

    async def _stop_servers(self, grace_s: float) -> None:
        await asyncio.gather(*(each.server.stop(grace_s) for each in self._servers.values()))

    async def _shut_down(self, fetchers: FetcherPool, background: list[asyncio.Task[None]]) -> None:
        logger.info("Node %d is stopping", self._broker_id)
        self.readiness.is_stopping = True
        await self._health.refresh()
        if self._lifecycle.is_serving:
            await self._lifecycle.shut_down(self._config.controlled_shutdown_timeout_ms / 1000, may_wait=True)
        with ReportedWait(f"node {self._broker_id} to shut down") as wait:
            await self._end_work(fetchers, background, wait)
        if self._storage_failure is not None:
            raise self._storage_failure
        self._directories.close(clean=True, broker_epoch=self._lifecycle.clean_shutdown_epoch)
        logger.info("Node %d has stopped", self._broker_id)

    async def _end_work(self, fetchers: FetcherPool, background: list[asyncio.Task[None]], wait: ReportedWait) -> None:
        wait.note("its background tasks have not ended")
        for task in background:
            task.cancel()
        await asyncio.wait(background)
        fetchers.stop_all()
        wait.note("client requests are being answered")
        await asyncio.gather(self._stop_servers(_STOP_GRACE_S), self._kafka.stop(_STOP_GRACE_S))
        self._decoding.close()
        if self.context is not None:
            self.context.cold_reads.close()
        wait.note("logs are being written to disk")
        await self._registry.close()
        await self._registry.checkpoints.write()
        await self._registry.checkpoints.write_log_start_offsets()

    def _follow_image(self, image: MetadataImage) -> None:
        """Apply the settings and quotas of an image."""
        self._settings.follow(image)
        self._quotas.follow(image.client_quotas)
        self._producer_ids.follow(image.next_producer_id)
        if image.acls and self._authorizer is None and not self._has_warned_of_acls:
            self._has_warned_of_acls = True
            logger.warning(
                "The cluster has %d ACLs, but this node has no authorizer.class.name: it lets everybody do everything, "
                "also at the controllers, which trust it",
                len(image.acls),
            )

    def _change_settings(self, config: NodeConfig) -> None:
        """Apply settings changed at run time. All other settings of the file are fixed."""
        self._registry.change_defaults(config.topic_defaults())
        self._registry.relocations.change_rate(config.replica_alter_log_dirs_io_max_bytes_per_second)
        self._throttles.change_rates(
            config.leader_replication_throttled_rate, config.follower_replication_throttled_rate
        )
        self._cleaner.change(config)
        self._kafka.change_limits(self._settings.listener_limits)
        self._grpc.change_limits(self._settings.listener_limits)

    def _clean_logs(self, settings: CleanerSettings) -> Coroutine[None, None, None]:
        return clean_logs(self._registry, self._directories, settings, self._clock, self._directories.files)

    def _coordinator_of(self, transactional_id: str) -> BrokerId | None:
        """Return the node that coordinates a transactional id, or None if there is none now."""
        try:
            return self._transactions.leader_of(transactional_id)[0]
        except TidelogError:
            return None

    async def _add_partitions(self, request: AddPartitionsToTxnRequest) -> AddPartitionsToTxnResponse:
        """Answer a partition leader of this node as its own coordinator."""
        assert self.context is not None, "a node without listeners has no produce requests"
        return await handlers.add_partitions_to_txn(self.context, request)

    def _new_group_shard(self, store: RecordStore) -> GroupShard:
        """Return the coordinator of a shard's groups. Member ids have Kafka's form."""
        settings = self._config.group_settings()
        return GroupShard(settings, store, lambda prefix: f"{prefix}-{uuid.uuid4()}", self._clock.monotonic_ms())

    def _sources(self) -> Iterable[Source]:
        """Return the sources of the metrics of parts that exist from the beginning."""
        yield lambda: certificate_families(self._certificates.values())
        yield self._sasl.families
        yield self._kafka.families
        yield self._quotas.throttled.families
        yield self._calls.families
        yield self._telemetry.families
        if self._decisions is not None:
            yield self._decisions.families

    async def _describe_own_stop(self) -> DescribeStopSafetyResponse:
        """Return what stands against stopping the process."""
        found = await self._controller.ask(DescribeStopSafetyRequest(self._broker_id), _STOP_SAFETY_TIMEOUT_S)
        if self._neighbor is None:
            return found
        other = await self._neighbor.describe_stop()
        return DescribeStopSafetyResponse(found.obstacles + other.obstacles, found.counts + other.counts)

    def _broker_epoch(self) -> BrokerEpoch:
        return self._lifecycle.broker_epoch

    def _fail_storage(self, error: TidelogError) -> None:
        if self._storage_failure is None:
            logger.critical("No log directory is online, so the node stops: %s", error)
            self._storage_failure = error
            self._stop.set()
