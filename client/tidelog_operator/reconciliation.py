"""The loop that reconciles one resource: when something happens to it, and from time to time.

A loop is a daemon of kopf, so it ends when its resource is deleted. It reads the resource anew at each turn.
"""

from __future__ import annotations

import asyncio
import datetime
import logging
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable
from typing import Protocol

import aiohttp
from kubernetes_asyncio.client import ApiException

from tidelog_foundation.errors import TidelogError
from tidelog_operator.conditions import Outcome, Refusal, status_of
from tidelog_operator.kubernetes import Kubernetes, Object
from tidelog_operator.metrics import OperatorMetrics

_LOG = logging.getLogger(__name__)
_RETRY_S = 5.0

Reconcile = Callable[[Object], Awaitable[Outcome]]


class Stopped(Protocol):
    """The signal of kopf that ends a daemon."""

    async def wait(self) -> object:
        """Wait for the signal."""

    def __bool__(self) -> bool: ...


class WakeUps:
    """Signals to loops that something has happened to their resource, by kind and name. For one event loop."""

    def __init__(self) -> None:
        self._events: defaultdict[tuple[str, str], asyncio.Event] = defaultdict(asyncio.Event)

    def set(self, kind: str, name: str) -> None:
        """Wake the loop of a resource, if there is one."""
        if (kind, name) in self._events:
            self._events[kind, name].set()

    async def wait(self, kind: str, name: str, timeout_s: float) -> None:
        """Wait until the resource's loop is woken, or for the timeout."""
        event = self._events[kind, name]
        try:
            await asyncio.wait_for(event.wait(), timeout_s)
        except TimeoutError:
            return
        event.clear()

    def forget(self, kind: str, name: str) -> None:
        """Drop the signal of a resource whose loop has ended."""
        self._events.pop((kind, name), None)


async def reconcile_once(
    kubernetes: Kubernetes, metrics: OperatorMetrics, kind: str, name: str, reconcile: Reconcile
) -> float | None:
    """Reconcile a resource and write its status; return the seconds until the next time, or None if it is gone."""
    resource = await kubernetes.get(kind, name)
    if resource is None or "deletionTimestamp" in resource["metadata"]:
        return None
    begin_ns = time.perf_counter_ns()
    outcome = await _outcome(kind, name, reconcile, resource)
    duration_ns = time.perf_counter_ns() - begin_ns
    metrics.reconciled(kind, name, is_ready=outcome.is_ready, reason=outcome.reason, duration_ns=duration_ns)
    now = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    before = resource.get("status") or {}
    status = status_of(outcome, before, resource["metadata"]["generation"], now)
    if status != before:
        _log_change(kind, name, before, outcome)
        await kubernetes.set_status(kind, name, status)
    return outcome.again_s


async def run_loop(
    kubernetes: Kubernetes,
    metrics: OperatorMetrics,
    wake_ups: WakeUps,
    kind: str,
    name: str,
    reconcile: Reconcile,
    stopped: Stopped,
) -> None:
    """Reconcile a resource until it is deleted or the operator stops."""
    try:
        while not stopped:
            try:
                again_s = await reconcile_once(kubernetes, metrics, kind, name, reconcile)
            except (ApiException, aiohttp.ClientError, TimeoutError) as error:
                metrics.unanswered(kind)
                _LOG.warning("%s %s: the API server did not answer as expected: %s", kind, name, _brief(error))
                again_s = _RETRY_S
            if again_s is None:
                return
            waits = [asyncio.ensure_future(wake_ups.wait(kind, name, again_s)), asyncio.ensure_future(stopped.wait())]
            try:
                await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for each in waits:
                    each.cancel()
    finally:
        wake_ups.forget(kind, name)
        metrics.forget(kind, name)


async def _outcome(kind: str, name: str, reconcile: Reconcile, resource: Object) -> Outcome:
    try:
        return await reconcile(resource)
    except Refusal as refusal:
        return Outcome(False, refusal.reason, refusal.message)
    except TidelogError as error:
        return Outcome(False, "ClusterError", f"{error.code.name}: {error.message}", again_s=_RETRY_S)
    except (ApiException, aiohttp.ClientError, TimeoutError) as error:
        return Outcome(False, "KubernetesError", _brief(error), again_s=_RETRY_S)
    except Exception as error:  # noqa: BLE001
        # The outermost loop of a resource: a mistake of the operator stops neither it nor the others.
        _LOG.exception("%s %s", kind, name)
        return Outcome(False, "InternalError", f"{type(error).__name__}: {error}")


def _brief(error: Exception) -> str:
    if isinstance(error, ApiException):
        return f"{error.status} {error.reason}: {str(error.body or '')[:500]}"
    return f"{type(error).__name__}: {error}"


def _log_change(kind: str, name: str, before: Object, outcome: Outcome) -> None:
    old: Object = next((c for c in before.get("conditions", ()) if c["type"] == "Ready"), {})
    if (old.get("reason"), old.get("message")) != (outcome.reason, outcome.message):
        _LOG.info("%s %s: %s: %s", kind, name, outcome.reason, outcome.message)
