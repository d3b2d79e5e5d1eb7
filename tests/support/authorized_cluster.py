"""A cluster in memory with an authorizer, whose gRPC clients are the users that their ``client.id`` names."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import MappingProxyType
from typing import Any

import pytest

from tidelog import AdminClient
from tidelog.admin import AclBinding
from tidelog.testing import FakeCluster
from tidelog_foundation.authorization.standard_authorizer import STANDARD_AUTHORIZER
from tidelog_foundation.security import Principal
from tidelog_foundation.transport.services import Caller, RpcContext
from tidelog_node.server import grpc_services
from tidelog_testing import fake_cluster

DEADLINE_S = 10
ROOT = "root"
AUTHORIZED: Mapping[str, str] = {
    "authorizer.class.name": STANDARD_AUTHORIZER,
    # The node and Kafka's clients are anonymous.
    "super.users": f"User:{ROOT};User:ANONYMOUS",
}


@contextmanager
def authorized_cluster(
    settings: Mapping[str, str] | None = None, *, named: bool = True, node: Mapping[str, str] = MappingProxyType({})
) -> Iterator[FakeCluster]:
    """Run a cluster with the settings of an authorizer on both servers. If not ``named``, everybody is anonymous.

    ``node`` has further settings of the node alone.
    """
    own = {**AUTHORIZED, **(settings or {})}
    with pytest.MonkeyPatch.context() as patch:
        if named:
            patch.setattr(grpc_services, "callers_of", lambda _: _named_user)
        patch.setattr(
            fake_cluster,
            "Settings",
            lambda controller, node: _SETTINGS({**controller, **own}, {**node, **own}),
        )
        with FakeCluster(auto_create_topics=True, node_config=node) as running:
            yield running


def settings_of(cluster: FakeCluster, user: str, **own: Any) -> dict[str, Any]:
    """Return the settings of a client of a user."""
    settings = {"bootstrap.servers": cluster.bootstrap_servers, "client.id": user}
    return settings | {key.replace("_", "."): value for key, value in own.items()}


def allow(cluster: FakeCluster, user: str, kind: str, name: str, *operations: str, permission: str = "ALLOW") -> None:
    """Create ACLs as the super user."""
    acls = [AclBinding(kind, name, "LITERAL", f"User:{user}", "*", op, permission) for op in operations]
    with AdminClient(settings_of(cluster, ROOT)) as admin:
        for future in admin.create_acls(acls).values():
            future.result(DEADLINE_S)


def _named_user(rpc: RpcContext) -> Principal:
    return Principal("User", Caller(rpc).client_id)


_SETTINGS = fake_cluster.Settings
