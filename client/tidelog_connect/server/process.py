"""The process of a worker: its parts, its threads, and its listener."""

from __future__ import annotations

import logging
import threading
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING

from tidelog.release import version
from tidelog_connect.connectors.registry import Registry
from tidelog_connect.metrics import ConnectCounts
from tidelog_connect.rest.application import Access, CountedRequests, Part, application
from tidelog_connect.rest.basic_authentication import Users
from tidelog_connect.rest.forwarding import Forwarder
from tidelog_connect.rest.listening import Endpoint, RestServer
from tidelog_connect.server.checkpoints import Checkpoints
from tidelog_connect.server.membership import Membership
from tidelog_connect.server.settings import WorkerSettings
from tidelog_connect.server.sink_run import SinkRun
from tidelog_connect.server.source_run import SourceRun
from tidelog_connect.server.spark_queries import SparkQueries
from tidelog_connect.server.topic_storage import TopicStorage
from tidelog_connect.server.worker import Worker
from tidelog_foundation.errors import ErrorCode, error_for
from tidelog_foundation.monitoring.checks import Check
from tidelog_foundation.monitoring.monitor import Monitor
from tidelog_foundation.requests.stop_safety import DescribeStopSafetyResponse
from tidelog_foundation.security.certificate_store import CertificateStore, client_contexts
from tidelog_foundation.security.metrics import certificate_families
from tidelog_foundation.security.ssl_settings import REQUIRED

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from starlette.types import ASGIApp

logger = logging.getLogger(__name__)

_STEP_S = 0.5
_SPARK_DEFAULTS = {
    # A JVM that lacks memory would lose threads, and its queries would wait forever. The garbage of whole batches costs
    # the parallel collector less CPU time than the concurrent one.
    "spark.driver.defaultJavaOptions": "-XX:+ExitOnOutOfMemoryError -XX:+UseParallelGC",
    "spark.scheduler.mode": "FAIR",
    "spark.sql.caseSensitive": "true",
    "spark.sql.execution.arrow.localRelationThreshold": "0",
}
"""Connectors share the executors fairly, names of fields may differ by their case only, and a batch of Arrow data is
converted by tasks: the driver would interpret the expressions of a small one row by row, in three times the time."""
_LOOPBACK = ("127.0.0.1", "::1", "localhost")


class ConnectServer:
    """A worker with all its parts. `run` serves until SIGTERM, SIGINT or `stop`.

    ``session`` creates the Spark session of the queries, once a connector needs one. It is the caller's to stop.
    """

    def __init__(self, settings: WorkerSettings, session: Callable[[], SparkSession]) -> None:
        self._settings = settings
        self._session = SharedSession(session)
        self._stopping = threading.Event()
        self._failure: BaseException | None = None
        self._monitor: Monitor | None = None
        registry = Registry.installed(version(), settings.converters)
        config = settings.worker
        self._counts = ConnectCounts()
        self._storage = TopicStorage(settings, self._forget_checkpoint)
        queries = SparkQueries(
            registry,
            self._session,
            partial(SourceRun, settings=settings, storage=self._storage),
            partial(SinkRun, settings=settings, storage=self._storage),
            lambda: self.worker.wake.set(),
            self._counts,
        )
        self.worker = Worker(
            config.worker_id,
            config.url,
            registry,
            self._storage,
            queries,
            max_connectors=config.max_connectors,
            version=version(),
            counts=self._counts,
        )
        endpoints = self._endpoints()
        self._monitoring = {
            each.name: CertificateStore(each.name, settings.monitoring[each.name].ssl)
            for each in config.monitoring_listeners
            if each.has_tls
        }
        certificates = [each.certificates for each in endpoints if each.certificates is not None]
        self._certificates = [*{each.name: each for each in certificates}.values(), *self._monitoring.values()]
        self._server = RestServer(endpoints, self._certificates, self._monitored)

    def run(self) -> None:
        """Serve until a signal or `stop`.

        Raises:
            TidelogError: the cluster does not answer at the start.
        """
        self._warn_of_exposure()
        membership = Membership(self._settings, self.worker, self._storage)
        thread = threading.Thread(target=self._follow_group, args=(membership,), name="connect-group")
        thread.start()
        try:
            self._server.run()
        finally:
            self._stopping.set()
            self.worker.wake.set()
            thread.join()
            membership.close()
            self._storage.close()
        if self._failure is not None:
            raise self._failure

    def stop(self) -> None:
        """Let `run` return."""
        self._server.should_exit = True

    @property
    def is_listening(self) -> bool:
        """True once the REST API answers."""
        return self._server.started

    @property
    def monitoring_ports(self) -> Mapping[str, int]:
        """The bound ports of the monitoring port by listener name, none before the start."""
        return {} if self._monitor is None else self._monitor.ports

    @asynccontextmanager
    async def _monitored(self) -> AsyncIterator[None]:
        """Serve metrics and health while the context is open."""
        self._monitor = Monitor(self._settings.worker, self._monitoring, self._checks, _describe_stop)
        # The worker's lock may be taken for as long as a write lasts.
        self._monitor.add_blocking(self.worker.families)
        self._monitor.add(lambda: certificate_families(self._certificates))
        await self._monitor.start()
        try:
            yield
        finally:
            await self._monitor.stop()

    def _checks(self) -> list[Check]:
        is_healthy, message = self.worker.health()
        return [Check("group", is_healthy, "" if is_healthy else message)]

    def _follow_group(self, membership: Membership) -> None:
        try:
            while not self._stopping.is_set():
                membership.step(_STEP_S)
                self._session.check()
        except BaseException as error:  # noqa: BLE001 - `run` raises it on the main thread
            self._failure = error
            self.stop()

    def _endpoints(self) -> list[Endpoint]:
        """Return the addresses of the REST API with their applications.

        Raises:
            ConfigError: The certificates or the users' file are not valid.
        """
        settings, config = self._settings, self._settings.worker
        tls, admin_tls = settings.tls, settings.admin_tls
        certificates = None if tls is None else CertificateStore("https", tls)
        of_admin = certificates if admin_tls is tls or admin_tls is None else CertificateStore("admin", admin_tls)
        file = config.rest_basic_auth_credentials_file
        users = None if file is None else Users.read(file)
        access = Access(users, config.allowed_origins, config.allowed_methods, config.header_rules)
        forward = Forwarder(self.worker.session_key, client_contexts(certificates))

        def served(part: Part) -> ASGIApp:
            loggers, limit = self.worker.loggers, config.rest_max_request_bytes
            return CountedRequests(
                application(self.worker, loggers, limit, forward, access, part), self._counts.requested
            )

        admin_addresses = settings.admin_addresses
        main = served(Part.ALL if admin_addresses is None else Part.WITHOUT_ADMIN)
        found = [Endpoint(each, main, certificates if each.has_tls else None) for each in config.addresses]
        if admin_addresses:
            admin = served(Part.ADMIN)
            found += [Endpoint(each, admin, of_admin if each.has_tls else None) for each in admin_addresses]
        return found

    def _warn_of_exposure(self) -> None:
        config = self._settings.worker
        is_encrypted = all(each.has_tls for each in config.addresses)
        is_closed = bool(config.rest_extension_classes) or (
            self._settings.tls is not None and self._settings.tls.ssl_client_auth == REQUIRED
        )
        if all(each.host in _LOOPBACK for each in config.addresses) or (is_encrypted and is_closed):
            return
        missing = [
            text for text, is_there in (("encryption", is_encrypted), ("authentication", is_closed)) if not is_there
        ]
        logger.warning(
            "the REST API listens on %s without %s, as Kafka Connect's does by default: whoever reaches it can read "
            "all configurations with their passwords",
            ", ".join(config.listeners),
            " and ".join(missing),
        )

    def _forget_checkpoint(self, name: str) -> None:
        Checkpoints(self._session(), self._settings).forget(name)


async def _describe_stop() -> DescribeStopSafetyResponse:
    """A worker can always stop: another one takes over."""
    return DescribeStopSafetyResponse()


class SharedSession:
    """A Spark session that is created at its first use."""

    def __init__(self, create: Callable[[], SparkSession]) -> None:
        self._create = create
        self._lock = threading.Lock()
        self._created: SparkSession | None = None

    def __call__(self) -> SparkSession:
        """Return the session."""
        with self._lock:
            if self._created is None:
                self._created = self._create()
            return self._created

    def check(self) -> None:
        """Check that the JVM of the session lives: without it, no connector could ever run again on this worker.

        Raises:
            TidelogError: it has ended.
        """
        if self._created is None:
            return
        process = getattr(self._created.sparkContext._gateway, "proc", None)
        if process is not None and process.poll() is not None:
            raise error_for(
                ErrorCode._FAIL,
                f"Spark's driver has ended with exit status {process.returncode}: the worker ends, so that another one "
                "takes over, or a supervisor starts it again",
            )


def spark_session(settings: WorkerSettings) -> SparkSession:
    """Return a new Spark session with the worker's settings, whose queries share the executors fairly."""
    from tidelog_spark.local_session import session

    given = dict(settings.spark)
    master = given.pop("spark.master", None)
    return session("tidelog-connect", master, {**_SPARK_DEFAULTS, **given})
