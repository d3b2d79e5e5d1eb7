"""Makes a user what its resource says, and removes its credential, ACLs and quotas with the resource."""

from __future__ import annotations

import base64
import dataclasses
import secrets

from tidelog_foundation.errors import TidelogError
from tidelog_operator.conditions import Outcome, Refusal
from tidelog_operator.connections import PASSWORD, Connections
from tidelog_operator.kubernetes import Kubernetes, Object
from tidelog_operator.manifests import MANAGED_BY, MANAGER
from tidelog_operator.resources import owner_reference
from tidelog_operator.user_client import change_user, read_user
from tidelog_operator.users import UserSpec, changes, parse_user

_PASSWORD_BYTES = 24


class UserReconciler:
    """Reconciles resources of the kind ``TidelogUser``."""

    def __init__(self, kubernetes: Kubernetes, connections: Connections) -> None:
        self._kubernetes = kubernetes
        self._connections = connections

    async def reconcile(self, resource: Object) -> Outcome:
        """Make the user what its resource says.

        Raises:
            Refusal: the resource asks for something that cannot be.
            TidelogError: the cluster does not answer.
        """
        spec = parse_user(resource)
        client = await self._connections.of_cluster(spec.cluster)
        password, version = await self._password(spec, resource["metadata"]["uid"])
        credential = (resource.get("status") or {}).get("credential", "")

        def apply() -> None:
            state = read_user(client.admin, spec, credential)
            change_user(client.admin, spec, changes(spec, state, version), password)

        await self._connections.ask(spec.cluster, apply)
        fields = {"username": spec.name, "principal": spec.principal, "credential": version, "secret": spec.secret}
        return Outcome(True, "Ready", f"user {spec.name} is as wanted", fields)

    async def delete(self, resource: Object) -> bool:
        """Remove the credential, ACLs and quotas of a deleted resource; return whether its finalizer can go."""
        try:
            spec = parse_user(resource)
            if not await self._connections.has_cluster(spec.cluster):
                return True
            client = await self._connections.of_cluster(spec.cluster)
            nobody = dataclasses.replace(spec, secret=None, acls=frozenset(), quotas={})

            def remove() -> None:
                change_user(client.admin, spec, changes(nobody, read_user(client.admin, spec, ""), ""), b"")

            await self._connections.ask(spec.cluster, remove)
        except Refusal:
            return True
        except TidelogError:
            return False
        return True

    async def _password(self, spec: UserSpec, uid: str) -> tuple[bytes, str]:
        """Return the password of a user and the version of its Secret, which is created if there is none."""
        if spec.secret is None:
            return b"", ""
        found = await self._kubernetes.get("Secret", spec.secret)
        if found is None:
            found = await self._kubernetes.apply(self._secret(spec, uid))
        encoded = (found.get("data") or {}).get(PASSWORD)
        if not encoded:
            raise Refusal("SecretNotFound", f"the Secret {spec.secret} has no {PASSWORD}")
        metadata = found["metadata"]
        return base64.b64decode(encoded), f"{metadata['uid']}/{metadata['resourceVersion']}"

    def _secret(self, spec: UserSpec, uid: str) -> Object:
        password = secrets.token_urlsafe(_PASSWORD_BYTES)
        module = "org.apache.kafka.common.security.scram.ScramLoginModule"
        return {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {
                "name": spec.secret,
                "labels": {MANAGED_BY: MANAGER},
                "ownerReferences": [owner_reference("TidelogUser", spec.name, uid)],
            },
            "stringData": {
                "username": spec.name,
                PASSWORD: password,
                "sasl.jaas.config": f'{module} required username="{spec.name}" password="{password}";',
            },
        }
