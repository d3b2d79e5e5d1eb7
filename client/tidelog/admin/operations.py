"""The base of all admin operations: a request on the network thread, and futures for its outcomes.

The network thread queues calls of ``error_cb``, which run when the application polls.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import functools
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Generator, Hashable, Mapping, Sequence
from typing import Any, TypeVar

from tidelog.admin.quorum_calls import Quorum
from tidelog.cluster import ClusterClient, Connection, Coordinators, Lifetime
from tidelog.cluster.attempts import Outcomes as Outcomes
from tidelog.cluster.config import ClientConfig, read_settings, take_callbacks, take_logger
from tidelog.monitor import Monitor
from tidelog.telemetry.pusher import TelemetryPusher
from tidelog_foundation.config import parse_config
from tidelog_foundation.errors import INSECURE, OUTAGES, ErrorCode, KafkaError, TidelogError, error_for
from tidelog_foundation.transport import call_soon, network_loop

logger = logging.getLogger(__name__)

T = TypeVar("T")
K = TypeVar("K", bound=Hashable)

_CALLBACKS = ("error_cb", "throttle_cb", "oauth_cb")
_OBJECTS = (*_CALLBACKS, "logger")
_READ_ATTEMPT_MS = 5_000
"""The longest wait for one node's answer before the client asks the next."""


class Future(concurrent.futures.Future[T]):
    """The future outcome of one item. ``result(timeout)`` waits for it, and ``await`` does in any event loop.

    It cannot be cancelled, because the cluster may have started the operation. Cancelling the wait does not affect the
    operation.
    """

    def __await__(self) -> Generator[Any, None, T]:
        return asyncio.wrap_future(self).__await__()


class Operations:
    """A client's settings, connections and lifetime. The operations are in its subclasses."""

    def __init__(self, conf: Mapping[str, Any] | None = None, /, **settings: Any) -> None:
        """Read the settings (``tidelog.cluster.config.ClientConfig``), ``error_cb``, ``throttle_cb`` and ``logger``.

        ``AdminClient.poll()`` calls ``error_cb(KafkaError)`` after an operation that reached no node. Settings may also
        be keyword arguments, with ``_`` for dots.

        Raises:
            KafkaException: INVALID_CONFIG.
            TypeError: a callback cannot be called.
        """
        named = {key if key in _OBJECTS else key.replace("_", "."): value for key, value in settings.items()}
        given = read_settings(ClientConfig, {**(conf or {}), **named}, "A", objects=_CALLBACKS)
        callbacks = take_callbacks(given, _CALLBACKS)
        self._errors = ErrorCalls(callbacks["error_cb"])
        self._log = take_logger(given, logger)
        self._config = parse_config(ClientConfig, given)
        self._cluster = self._config.cluster_client(callbacks["oauth_cb"])
        self._cluster.failures.on_insecure = self._errors.add
        self._coordinators = Coordinators(self._cluster)
        self._quorum = Quorum(self._cluster, (), self._config.client_id, self._cluster.security)
        self._telemetry = _telemetry(self._config, self._cluster)
        self._lifetime = Lifetime(self, "admin client", functools.partial(_stop, self._telemetry, self._quorum))

    def _request_ms(self, timeout_s: float | None) -> float:
        timeout_ms = timeout_in_ms(timeout_s)
        return self._cluster.request_timeout_ms if timeout_ms is None else timeout_ms

    async def _ask(self, ask: Callable[[Connection, float], Awaitable[T]], timeout_s: float | None) -> T:
        return await self._cluster.ask_any(ask, timeout_ms=timeout_in_ms(timeout_s), attempt_ms=_READ_ATTEMPT_MS)

    async def _change(self, ask: Callable[[Connection, float], Awaitable[T]], timeout_s: float | None) -> T:
        # A change is sent once and may take long, so the client first finds a node that answers.
        await self._cluster.refresh([], timeout_ms=timeout_in_ms(timeout_s))
        return await self._cluster.ask_any(ask, timeout_ms=timeout_in_ms(timeout_s))

    async def _node(self, node_id: int, timeout_ms: float, missing: ErrorCode) -> Connection:
        """Return the connection to a node. Raise the error ``missing`` if the cluster has no such node ready."""
        await self._cluster.refresh([], timeout_ms=timeout_ms)
        if node_id not in self._cluster.metadata.brokers:
            raise error_for(missing, f"node {node_id} is not registered or not ready")
        return self._cluster.connection(node_id)

    def _future(self, ask: Coroutine[Any, Any, T]) -> Future[T]:
        async def settle() -> Outcomes[str, T]:
            return {"": await ask}

        try:
            return self._futures([""], settle())[""]
        except TidelogError:
            ask.close()
            raise

    def _futures(self, keys: Sequence[K], ask: Coroutine[Any, Any, Outcomes[K, T]]) -> dict[K, Future[T]]:
        if self._lifetime.is_over:
            ask.close()
            self._lifetime.check()
        futures: dict[K, Future[T]] = {key: Future() for key in keys}
        for future in futures.values():
            future.set_running_or_notify_cancel()
        # The caller may remove futures from the dictionary.
        asyncio.run_coroutine_threadsafe(_settle(dict(futures), ask, self._errors, self._log), network_loop())
        return futures


def _telemetry(config: ClientConfig, cluster: ClusterClient) -> TelemetryPusher | None:
    if not config.enable_metrics_push:
        return None
    telemetry = TelemetryPusher("admin.client", cluster)
    call_soon(telemetry.start)
    return telemetry


async def _stop(telemetry: TelemetryPusher | None, quorum: Quorum) -> None:
    if telemetry is not None:
        await telemetry.stop()
    await quorum.close()


def timeout_in_ms(timeout_s: float | None) -> float | None:
    """Return an operation's timeout in milliseconds; None for the client's own."""
    return None if timeout_s is None or timeout_s < 0 else timeout_s * 1000


def change_timeout_ms(timeout_s: float | None) -> int:
    """Return the timeout of a request for a change, in milliseconds; 0 for the node's own."""
    return int(timeout_in_ms(timeout_s) or 0)


async def _settle(
    futures: Mapping[K, Future[T]], ask: Coroutine[Any, Any, Outcomes[K, T]], errors: ErrorCalls, log: logging.Logger
) -> None:
    failure = error_for(ErrorCode.UNKNOWN_SERVER_ERROR, "the node's answer does not contain it")
    outcomes: Outcomes[K, T] = {}
    try:
        outcomes = await ask
    except TidelogError as error:
        failure = error
        if error.code not in INSECURE:
            errors.add(error)
    except asyncio.CancelledError:
        failure = error_for(ErrorCode._DESTROY, "the admin client was closed before the cluster answered")
    except Exception as error:
        log.exception("an operation of the admin client failed")
        failure = error_for(ErrorCode._FAIL, f"the admin client failed: {error!r}")
    for key, future in futures.items():
        outcome = outcomes.get(key, failure)
        if isinstance(outcome, BaseException):
            future.set_exception(outcome)
        else:
            future.set_result(outcome)


_MOST = 1_000
"""The most pending errors; the oldest are dropped if the application does not poll."""


class ErrorCalls:
    """A queue that the network thread fills and :meth:`serve` empties on the application's thread."""

    def __init__(self, callback: Callable[[KafkaError], object] | None) -> None:
        self._callback = callback
        self._monitor = Monitor()
        self._errors: deque[KafkaError] = deque(maxlen=_MOST)

    def add(self, error: TidelogError) -> None:
        """Queue an error that concerns the whole client: no node answered. Other errors reach the application by
        futures alone.
        """
        if self._callback is None or error.code not in OUTAGES:
            return
        with self._monitor.lock:
            self._errors.append(error.error)
            self._monitor.changed.notify_all()

    def serve(self, timeout_s: float | None) -> int:
        """Call the callback for each error and return the count; wait up to ``timeout_s`` for one (None: no limit)."""
        with self._monitor.lock:
            self._monitor.changed.wait_for(lambda: bool(self._errors), timeout_s)
            errors = list(self._errors)
            self._errors.clear()
        for error in errors:
            assert self._callback is not None
            self._callback(error)
        return len(errors)
