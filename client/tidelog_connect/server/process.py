"""The process of a worker: its parts, its threads, and its listener."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

import httpx2
import uvicorn
from starlette.requests import Request
from starlette.responses import Response

from tidelog.release import version
from tidelog_connect.connectors.registry import Registry
from tidelog_connect.herder.errors import RequestError
from tidelog_connect.rest.application import FORWARDED, application
from tidelog_connect.server.checkpoints import Checkpoints
from tidelog_connect.server.membership import Membership
from tidelog_connect.server.settings import WorkerSettings
from tidelog_connect.server.sink_run import SinkRun
from tidelog_connect.server.source_run import SourceRun
from tidelog_connect.server.spark_queries import SparkQueries
from tidelog_connect.server.topic_storage import TopicStorage
from tidelog_connect.server.worker import Worker
from tidelog_foundation.errors import ErrorCode, error_for

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

logger = logging.getLogger(__name__)

_STEP_S = 0.5
_FORWARD_TIMEOUT_S = 90.0
_MAX_CONNECTIONS = 256
_SPARK_DEFAULTS = {"spark.scheduler.mode": "FAIR", "spark.sql.caseSensitive": "true"}
"""Connectors share the executors fairly, and names of fields may differ by their case only."""
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
        registry = Registry.installed(version(), settings.converters)
        config = settings.worker
        self._storage = TopicStorage(settings, self._forget_checkpoint)
        queries = SparkQueries(
            registry,
            self._session,
            partial(SourceRun, settings=settings, storage=self._storage),
            partial(SinkRun, settings=settings, storage=self._storage),
            lambda: self.worker.wake.set(),
        )
        self.worker = Worker(
            config.worker_id,
            config.url,
            registry,
            self._storage,
            queries,
            max_connectors=config.max_connectors,
            version=version(),
        )
        self._server = uvicorn.Server(self._uvicorn_config())

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

    def _follow_group(self, membership: Membership) -> None:
        try:
            while not self._stopping.is_set():
                membership.step(_STEP_S)
                self._session.check()
        except BaseException as error:  # noqa: BLE001 - `run` raises it on the main thread
            self._failure = error
            self.stop()

    def _uvicorn_config(self) -> uvicorn.Config:
        config = self._settings.worker
        app = application(self.worker, self.worker.loggers, config.rest_max_request_bytes, forward)
        return uvicorn.Config(
            app,
            host=config.host,
            port=config.port,
            access_log=False,
            log_config=None,
            server_header=False,
            limit_concurrency=_MAX_CONNECTIONS,
        )

    def _warn_of_exposure(self) -> None:
        config = self._settings.worker
        if config.host not in _LOOPBACK:
            logger.warning(
                "the REST API listens on %s without encryption and authentication, as Kafka Connect's does by default: "
                "whoever reaches it can read all configurations with their passwords",
                config.listeners,
            )

    def _forget_checkpoint(self, name: str) -> None:
        Checkpoints(self._session(), self._settings).forget(name)


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


async def forward(url: str, request: Request, body: bytes) -> Response:
    """Send a request to the leader, and return its response.

    Raises:
        RequestError: 500, the leader does not answer.
    """
    target = f"{url}{request.url.path}"
    query = f"?{request.url.query}" if request.url.query else ""
    headers = {FORWARDED: "1", "Content-Type": "application/json"}
    try:
        async with httpx2.AsyncClient(timeout=_FORWARD_TIMEOUT_S, trust_env=False) as client:
            found = await client.request(request.method, target + query, content=body, headers=headers)
    except httpx2.HTTPError as error:
        raise RequestError(500, f"IO Error trying to forward REST request to {url}: {error}") from error
    kept = {name: found.headers[name] for name in ("content-type", "location") if name in found.headers}
    return Response(found.content, found.status_code, kept)
