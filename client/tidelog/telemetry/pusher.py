"""The task that pushes a client's metrics (KIP-714). ``telemetry.session`` decides what it sends, and when.

It disturbs the client as little as possible: it opens no connection, uses a connected node and stays with it, and
logs its failures at DEBUG. Without a subscription, a client sends one request per push interval, at most one in five
minutes with the default.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import random
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from tidelog.cluster.client import ClusterClient
from tidelog.cluster.connections import Connection
from tidelog.cluster.tasks import TaskSet
from tidelog.release import version
from tidelog.telemetry.otlp import metrics_data
from tidelog.telemetry.points import Ledger, Point
from tidelog.telemetry.session import (
    DEFAULT_INTERVAL_MS,
    Accepted,
    Ask,
    Closing,
    Event,
    Push,
    Refused,
    Subscribed,
    Subscription,
    TelemetrySession,
    TimePassed,
    Unanswered,
)
from tidelog.v1 import log_service_pb2 as pb
from tidelog_foundation.errors import OUTAGES, UNREACHABLE, ErrorCode, TidelogError, error_for
from tidelog_foundation.transport.loop import monotonic_ms, step_when_due

logger = logging.getLogger(__name__)

_SOFTWARE: Final = "tidelog"
_TIMEOUT_S: Final = 5.0
"""The longest wait for an answer: a node that is paused must not keep the telemetry."""
_LAST_PUSH_S: Final = 0.5
"""The longest wait for the answer to the terminating push, by which the close of a client may take longer."""
_RETRY_MS: Final = 1_000
_NO_ANSWER: Final = UNREACHABLE | OUTAGES | {ErrorCode.REQUEST_TIMED_OUT}

Collect = Callable[[str, float], Iterable[Point]]
"""``collect(prefix, now_ms)`` returns the present values of the metrics of one kind of client."""


class TelemetryPusher:
    """The telemetry of one client, on the network thread from :meth:`start` to :meth:`stop`."""

    def __init__(
        self,
        kind: str,
        cluster: ClusterClient,
        collect: Collect = lambda _prefix, _now_ms: (),
        labels: Callable[[], Mapping[str, str | None]] = dict,
    ) -> None:
        """Create it for a kind of client, as in the metrics' names ("producer").

        ``labels`` returns the labels of the client, as KIP-714 names them; None for those without a value.
        """
        self._prefix = f"org.apache.kafka.{kind}"
        self._cluster = cluster
        self._collect = collect
        self._labels = labels
        self._session = TelemetrySession(random.Random().random)
        self._ledger = Ledger(time.time_ns())
        self._address: str | None = None
        self._awake = asyncio.Event()
        self._known = asyncio.Event()
        self._tasks = TaskSet()

    def start(self) -> None:
        """Start the task."""
        self._cluster.measures.on_connect = self._awake.set
        self._tasks.start(step_when_due(self._step, self._awake, _RETRY_MS, "a client's telemetry"), "telemetry")

    async def stop(self) -> None:
        """Push a last time if a subscription asks for metrics, and end."""
        last = self._session.step(Closing(), monotonic_ms())
        await self._tasks.cancel()
        self._known.set()
        if last is not None and self._find_node() is not None:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_LAST_PUSH_S):
                    await self._carry_out(last)

    async def instance_id(self, timeout_ms: float) -> bytes:
        """Return the id that a node has given to this client, after waiting for it if necessary.

        Raises:
            TidelogError: _TIMED_OUT, or another error of a cluster that cannot be reached; the error of a node that
                takes no metrics; _DESTROY if the client is closed.
        """
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                if self._find_node() is None:
                    await self._cluster.refresh((), timeout_ms=timeout_ms)
                await self._known.wait()
        except TimeoutError:
            text = f"no node has given the client an instance id within {timeout_ms:g} ms"
            raise error_for(ErrorCode._TIMED_OUT, text) from None
        if self._session.subscription is None:
            raise self._session.disabled_by or error_for(ErrorCode._DESTROY, "the client is closed")
        return self._session.subscription.client_instance_id

    def _step(self) -> float | None:
        if self._find_node() is None:
            # A connection wakes the task.
            return None
        request = self._session.step(TimePassed(), monotonic_ms())
        if request is not None:
            self._tasks.start(self._carry_out(request), "telemetry-request")
        return self._session.next_deadline_ms

    def _find_node(self) -> str | None:
        self._address = self._cluster.measures.least_loaded(self._address)
        return self._address

    async def _carry_out(self, request: Ask | Push) -> None:
        event: Event
        try:
            event = await (self._ask(request) if isinstance(request, Ask) else self._push(request))
        except TidelogError as error:
            logger.debug("The node at %s did not take the client's telemetry: %s", self._address, error)
            event = Unanswered() if error.code in _NO_ANSWER else Refused(error)
        except Exception:
            logger.exception("the telemetry of a client failed")
            event = Unanswered()
        self._session.step(event, monotonic_ms())
        if self._session.subscription is not None or self._session.disabled_by is not None:
            self._known.set()
        self._awake.set()

    async def _ask(self, ask: Ask) -> Subscribed:
        request = pb.GetTelemetrySubscriptionsRequest(
            client_instance_id=ask.client_instance_id,
            client_software_name=_SOFTWARE,
            client_software_version=await _read_version(),
        )
        found = await self._connection().call(lambda c: c.log.GetTelemetrySubscriptions(request, timeout=_TIMEOUT_S))
        return Subscribed(
            Subscription(
                found.client_instance_id,
                found.subscription_id,
                found.push_interval_ms if found.push_interval_ms > 0 else DEFAULT_INTERVAL_MS,
                tuple(found.requested_metrics),
                tuple(found.accepted_compression_types),
                found.delta_temporality,
                found.telemetry_max_bytes,
            )
        )

    async def _push(self, push: Push) -> Accepted:
        # Most clients have no subscription, and need not load the codecs.
        from tidelog_foundation.records.compression import CODECS, compress

        subscription = push.subscription
        compression = next((known for known in subscription.compressions if 0 < known < len(CODECS)), 0)
        request = pb.PushTelemetryRequest(
            client_instance_id=subscription.client_instance_id,
            subscription_id=subscription.subscription_id,
            terminating=push.is_terminating,
            compression_type=compression,
            metrics=compress(CODECS[compression], self._payload(subscription), None),
            client_software_name=_SOFTWARE,
            client_software_version=_version(),
        )
        try:
            await self._connection().call(lambda c: c.log.PushTelemetry(request, timeout=_TIMEOUT_S))
        except TidelogError as error:
            if error.code not in _NO_ANSWER:
                self._ledger.take_back()
            raise
        finally:
            self._ledger.settle()
        return Accepted()

    def _payload(self, subscription: Subscription) -> bytes:
        now_ms, now_ns = monotonic_ms(), time.time_ns()
        node_ids = {broker.address: int(node_id) for node_id, broker in self._cluster.metadata.brokers.items()}
        found = (
            *self._collect(self._prefix, now_ms),
            *self._cluster.measures.points(self._prefix, now_ms, node_ids),
        )
        selected = [point for point in found if subscription.selects(point.name)]
        is_delta = subscription.is_delta
        points = self._ledger.draw(selected, now_ns, is_delta=is_delta)
        labels = {name: value for name, value in self._labels().items() if value}
        return metrics_data(points, labels, now_ns, subscription.max_bytes, is_delta=is_delta)

    def _connection(self) -> Connection:
        assert self._address is not None
        return self._cluster.connection_to(self._address)


async def _read_version() -> str:
    """Return the version of the SDK, read on another thread.

    Raises:
        TidelogError: _DESTROY, the interpreter ends and starts no threads any more.
    """
    try:
        return await asyncio.to_thread(_version)
    except RuntimeError as error:
        raise error_for(ErrorCode._DESTROY, f"the client's telemetry ends: {error}") from error


@functools.cache
def _version() -> str:
    """Return the version of the SDK, which is read from a file once per process."""
    return version()
