"""The connection to the cluster of a resource: its address, and the login of the operator in a secured cluster."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Callable
from typing import Any, TypeVar

from tidelog_foundation.errors import TidelogError
from tidelog_operator.certificates import CA, COMBINED, KeyPair, key_pair
from tidelog_operator.cluster_client import PASSING, ClusterClient, ClusterClients
from tidelog_operator.conditions import Refusal
from tidelog_operator.kubernetes import Kubernetes
from tidelog_operator.resources import ClusterSpec, parse_cluster
from tidelog_operator.settings import addresses

T = TypeVar("T")

PASSWORD = "password"
_ADMIN = "admin"
_CLIENT_ID = "tidelog-operator"
_BOOTSTRAP = 3
"""Controllers that are asked for the others; those beyond come and go."""


class Connections:
    """The connections of the operator, one per cluster."""

    def __init__(self, kubernetes: Kubernetes) -> None:
        self._kubernetes = kubernetes
        self._clients = ClusterClients()

    async def of_cluster(self, name: str) -> ClusterClient:
        """Return the connection to the cluster of the resource ``Tidelog`` with this name.

        Raises:
            Refusal: there is no such resource, or a Secret of it is missing.
        """
        resource = await self._kubernetes.get("Tidelog", name)
        if resource is None:
            raise Refusal(
                "ClusterNotFound", f"there is no Tidelog {name} in the namespace {self._kubernetes.namespace}"
            )
        return await self.of_spec(parse_cluster(resource))

    async def of_spec(self, spec: ClusterSpec) -> ClusterClient:
        """Return the connection to a cluster.

        Raises:
            Refusal: a Secret is missing, or lacks a key.
        """
        settings: dict[str, Any] = {"bootstrap.servers": spec.bootstrap_servers, "client.id": _CLIENT_ID}
        controllers: dict[str, Any] | None = None
        if spec.security is not None:
            node = await self.key_pair(spec.security.node_secret)
            admin = await self.secret(spec.security.admin_secret, (PASSWORD,))
            settings |= {
                "security.protocol": "sasl_ssl",
                "sasl.mechanism": "SCRAM-SHA-512",
                "sasl.username": _ADMIN,
                "sasl.password": admin[PASSWORD],
                "ssl.ca.pem": node.ca,
            }
            # Controllers know certificates alone; a node is a super user.
            controllers = {
                "bootstrap.controllers": ",".join(addresses(spec, min(spec.controllers.replicas, _BOOTSTRAP))),
                "client.id": _CLIENT_ID,
                "security.protocol": "ssl",
                "ssl.ca.pem": node.ca,
                "ssl.certificate.pem": node.chain,
                "ssl.key.pem": node.key,
            }
        return await asyncio.to_thread(self._clients.get, spec.name, settings, controllers)

    async def key_pair(self, name: str) -> KeyPair:
        """Return the key and certificates of a TLS Secret.

        Raises:
            Refusal: there is no such Secret, or it has neither layout.
        """
        found = key_pair(await self.secret(name, (CA,)))
        if found is None:
            text = f"the Secret {name} has no {COMBINED} with a key and a certificate, and no tls.key and tls.crt"
            raise Refusal("SecretNotFound", text)
        return found

    async def has_cluster(self, name: str) -> bool:
        """Return whether there is a resource ``Tidelog`` with this name that is not being deleted."""
        resource = await self._kubernetes.get("Tidelog", name)
        return resource is not None and "deletionTimestamp" not in resource["metadata"]

    async def ask(self, name: str, call: Callable[[], T]) -> T:
        """Make a blocking call to the cluster with this name, and return its result.

        Raises:
            Refusal: the cluster refuses what is asked.
            TidelogError: the cluster does not answer. Its connection is closed, and a later call opens another one.
        """
        try:
            return await asyncio.to_thread(call)
        except TidelogError as error:
            if error.code in PASSING:
                await self.forget(name)
                raise
            raise Refusal("ClusterRefused", f"{error.code.name}: {error.message}") from error

    async def secret(self, name: str, keys: tuple[str, ...]) -> dict[str, str]:
        """Return the values of a Secret as text.

        Raises:
            Refusal: there is no such Secret, or it lacks one of the keys.
        """
        found = await self._kubernetes.get("Secret", name)
        if found is None:
            raise Refusal("SecretNotFound", f"there is no Secret {name}, which needs {' and '.join(keys)}")
        values = {key: base64.b64decode(text).decode() for key, text in (found.get("data") or {}).items()}
        missing = [key for key in keys if not values.get(key)]
        if missing:
            raise Refusal("SecretNotFound", f"the Secret {name} has no {' and no '.join(missing)}")
        return values

    async def forget(self, name: str) -> None:
        """Close the connection to a cluster that is deleted, or that does not answer."""
        await asyncio.to_thread(self._clients.forget, name)

    async def close(self) -> None:
        """Close all connections."""
        await asyncio.to_thread(self._clients.close)
