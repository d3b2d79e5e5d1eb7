"""The API server: server-side apply, reads and the status of the objects that the operator may touch.

The table of paths lists every kind that the operator uses; the Role of the Helm chart permits no others.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import urlencode

from kubernetes_asyncio import config
from kubernetes_asyncio.client import ApiClient, ApiException

from tidelog_operator.manifests import MANAGER
from tidelog_operator.resources import API_VERSION

_PATHS: Final = {
    "ConfigMap": ("api/v1", "configmaps"),
    "Pod": ("api/v1", "pods"),
    "Secret": ("api/v1", "secrets"),
    "Service": ("api/v1", "services"),
    "StatefulSet": ("apis/apps/v1", "statefulsets"),
    "PodDisruptionBudget": ("apis/policy/v1", "poddisruptionbudgets"),
    "NetworkPolicy": ("apis/networking.k8s.io/v1", "networkpolicies"),
    "Tidelog": (f"apis/{API_VERSION}", "tidelogs"),
    "TidelogTopic": (f"apis/{API_VERSION}", "tidelogtopics"),
    "TidelogRebalance": (f"apis/{API_VERSION}", "tidelogrebalances"),
    "TidelogUser": (f"apis/{API_VERSION}", "tidelogusers"),
}
_TIMEOUT_S = 30
_NOT_FOUND, _CONFLICT, _TOO_MANY_REQUESTS = 404, 409, 429
_MERGE = "application/merge-patch+json"
_APPLY = "application/apply-patch+yaml"

Object = dict[str, Any]


class Kubernetes:
    """The objects of one namespace. Use as an asynchronous context manager on the event loop of kopf."""

    def __init__(self, namespace: str) -> None:
        self.namespace = namespace
        self._client: Any = None

    async def __aenter__(self) -> Kubernetes:
        try:
            config.load_incluster_config()  # type: ignore[no-untyped-call]
        except config.ConfigException:
            await config.load_kube_config()
        self._client = ApiClient()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._client.close()

    async def get(self, kind: str, name: str) -> Object | None:
        """Return an object, or None if there is none."""
        try:
            return await self._call("GET", self._path(kind, name))
        except ApiException as error:
            if error.status == _NOT_FOUND:
                return None
            raise

    async def list(self, kind: str, labels: Mapping[str, str] | None = None) -> list[Object]:
        """Return the objects of a kind that have the labels."""
        selector = ",".join(f"{key}={value}" for key, value in (labels or {}).items())
        query = f"?{urlencode({'labelSelector': selector})}" if selector else ""
        items: list[Object] = (await self._call("GET", self._path(kind) + query))["items"]
        return items

    async def apply(self, manifest: Object) -> Object:
        """Create an object, or give its fields the wanted values, whoever has set them before (server-side apply)."""
        path = self._path(manifest["kind"], manifest["metadata"]["name"])
        return await self._call("PATCH", f"{path}?fieldManager={MANAGER}&force=true", manifest, _APPLY)

    async def delete(self, kind: str, name: str, uid: str) -> None:
        """Delete the object with this uid; one that is gone, or that has been replaced, is left alone."""
        try:
            await self._call("DELETE", self._path(kind, name), {"preconditions": {"uid": uid}})
        except ApiException as error:
            if error.status not in (_NOT_FOUND, _CONFLICT):
                raise

    async def evict(self, pod: str, uid: str) -> bool:
        """Evict a pod, and return whether its disruption budget permits that now."""
        eviction = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": pod, "namespace": self.namespace},
            "deleteOptions": {"preconditions": {"uid": uid}},
        }
        try:
            await self._call("POST", f"{self._path('Pod', pod)}/eviction", eviction)
        except ApiException as error:
            if error.status == _TOO_MANY_REQUESTS:
                return False
            if error.status not in (_NOT_FOUND, _CONFLICT):
                raise
        return True

    async def set_status(self, kind: str, name: str, status: Object) -> None:
        """Replace fields of the status of a custom resource; one that is gone is left alone."""
        try:
            await self._call("PATCH", f"{self._path(kind, name)}/status", {"status": status}, _MERGE)
        except ApiException as error:
            if error.status != _NOT_FOUND:
                raise

    async def annotate(self, kind: str, name: str, annotations: Mapping[str, str | None]) -> None:
        """Set annotations of an object; None removes one."""
        await self._call("PATCH", self._path(kind, name), {"metadata": {"annotations": dict(annotations)}}, _MERGE)

    def _path(self, kind: str, name: str | None = None) -> str:
        prefix, plural = _PATHS[kind]
        path = f"/{prefix}/namespaces/{self.namespace}/{plural}"
        return path if name is None else f"{path}/{name}"

    async def _call(self, method: str, path: str, body: Any = None, content_type: str = "application/json") -> Object:
        headers: dict[str, str] = {"Accept": "application/json", "Content-Type": content_type}
        await self._client.update_params_for_auth(headers, [], ["BearerToken"])
        url = self._client.configuration.host + path
        response = await self._client.rest_client.request(
            method, url, headers=headers, body=body, _request_timeout=_TIMEOUT_S
        )
        answer: Object = json.loads(response.data)
        return answer
