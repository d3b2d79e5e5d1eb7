"""The handlers of kopf: one loop per resource, signals when objects of a cluster change, the end of the operator."""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, cast

import kopf

from tidelog_operator.cluster_reconciler import ClusterReconciler
from tidelog_operator.connections import Connections
from tidelog_operator.kubernetes import Kubernetes
from tidelog_operator.manifests import INSTANCE, MANAGED_BY, MANAGER, Sources
from tidelog_operator.metrics import OperatorMetrics
from tidelog_operator.metrics_port import MetricsPort
from tidelog_operator.rebalance_reconciler import RebalanceReconciler
from tidelog_operator.reconciliation import Reconcile, Stopped, WakeUps, run_loop
from tidelog_operator.resources import GROUP, VERSION
from tidelog_operator.topic_reconciler import TopicReconciler
from tidelog_operator.user_reconciler import UserReconciler

_RETRY_S = 10.0
_WATCHED = ("pods", "statefulsets", "services", "configmaps", "poddisruptionbudgets", "networkpolicies")


class Handlers:
    """The handlers of one namespace, which `register` adds to a registry of kopf."""

    def __init__(
        self,
        namespace: str,
        sources: Sources,
        image: str,
        metrics_address: tuple[str, int] | None,
        rack_account: str | None,
    ) -> None:
        self._metrics = OperatorMetrics()
        self._port = None if metrics_address is None else MetricsPort(self._metrics, *metrics_address)
        self._kubernetes = Kubernetes(namespace)
        self._connections = Connections(self._kubernetes)
        self._wake_ups = WakeUps()
        clusters = ClusterReconciler(self._kubernetes, self._connections, sources, image, self._metrics, rack_account)
        self._topics = TopicReconciler(self._kubernetes, self._connections)
        self._users = UserReconciler(self._kubernetes, self._connections)
        rebalances = RebalanceReconciler(self._kubernetes, self._connections)
        self._reconcilers: dict[str, tuple[str, Reconcile]] = {
            "Tidelog": ("tidelogs", clusters.reconcile),
            "TidelogTopic": ("tidelogtopics", self._topics.reconcile),
            "TidelogRebalance": ("tidelogrebalances", rebalances.reconcile),
            "TidelogUser": ("tidelogusers", self._users.reconcile),
        }

    def register(self, registry: kopf.OperatorRegistry) -> None:
        """Add the handlers."""
        kopf.on.login(registry=registry)(_login)
        kopf.on.startup(registry=registry)(self._start)
        kopf.on.cleanup(registry=registry)(self._stop)
        for kind, (plural, reconcile) in self._reconcilers.items():
            selector = (GROUP, VERSION, plural)
            loop = functools.partial(self._loop, kind=kind, reconcile=reconcile)
            kopf.daemon(*selector, registry=registry, id=plural, cancellation_timeout=1.0)(loop)
            changed = functools.partial(self._changed, kind=kind)
            kopf.on.event(*selector, registry=registry, id=f"{plural}-changed")(changed)
        for plural, delete in (("tidelogtopics", self._topics.delete), ("tidelogusers", self._users.delete)):
            deleted = functools.partial(_deleted, delete=delete)
            kopf.on.delete(GROUP, VERSION, plural, registry=registry, id=f"{plural}-deleted")(deleted)
        for plural in _WATCHED:
            kopf.on.event(plural, registry=registry, id=plural, labels={INSTANCE: kopf.PRESENT})(self._child_changed)

    async def _start(self, settings: kopf.OperatorSettings, **_: object) -> None:
        settings.persistence.finalizer = f"{GROUP}/operator"
        settings.persistence.progress_storage = kopf.AnnotationsProgressStorage(prefix=GROUP)
        settings.persistence.diffbase_storage = kopf.AnnotationsDiffBaseStorage(prefix=GROUP)
        settings.posting.enabled = False
        settings.scanning.disabled = True
        await self._kubernetes.__aenter__()
        if self._port is not None:
            await self._port.open()

    async def _stop(self, **_: object) -> None:
        if self._port is not None:
            await self._port.close()
        await self._connections.close()
        await self._kubernetes.__aexit__()

    async def _loop(
        self, *, kind: str, reconcile: Reconcile, name: str | None, stopped: kopf.DaemonStopped, **_: object
    ) -> None:
        assert name is not None, "resources have names"
        await run_loop(self._kubernetes, self._metrics, self._wake_ups, kind, name, reconcile, cast("Stopped", stopped))
        if kind == "Tidelog":
            await self._connections.forget(name)

    async def _changed(self, *, kind: str, name: str | None, **_: object) -> None:
        assert name is not None, "resources have names"
        self._wake_ups.set(kind, name)

    async def _child_changed(self, *, labels: Mapping[str, str], **_: Any) -> None:
        if labels.get(MANAGED_BY, MANAGER) == MANAGER:
            self._wake_ups.set("Tidelog", labels[INSTANCE])


async def _deleted(
    *, body: Mapping[str, Any], delete: Callable[[dict[str, Any]], Awaitable[bool]], **_: object
) -> None:
    if not await delete(dict(body)):
        raise kopf.TemporaryError("the cluster does not answer", delay=_RETRY_S)


def _login(**arguments: Any) -> kopf.ConnectionInfo | None:
    """Log in with the pod's service account, or with the kubeconfig of a developer."""
    return kopf.login_with_service_account(**arguments) or kopf.login_with_kubeconfig(**arguments)
