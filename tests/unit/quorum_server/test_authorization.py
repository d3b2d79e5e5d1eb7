"""A controller's guard: who may call it, before and after it knows the ACLs."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from tidelog_foundation.authorization.standard_authorizer import STANDARD_AUTHORIZER
from tidelog_foundation.config import parse_config
from tidelog_foundation.errors import TidelogError
from tidelog_foundation.requests.acls import (
    CLUSTER_NAME,
    AclBinding,
    AclOperation,
    AclPermissionType,
    PatternType,
    ResourceType,
)
from tidelog_foundation.security import Principal
from tidelog_foundation.transport.services import Caller
from tidelog_quorum.metadata.image import MetadataImage
from tidelog_quorum.metadata.records import AccessControlEntryRecord
from tidelog_quorum.raft.protocol import LeaderAndEpoch
from tidelog_quorum.server.authorization import ControllerGuard, controller_guards
from tidelog_quorum.server.config import QuorumConfig
from tidelog_quorum.server.quorum_controller import QuorumController

NODES = AclBinding(
    ResourceType.CLUSTER,
    CLUSTER_NAME,
    PatternType.LITERAL,
    "User:node",
    "*",
    AclOperation.CLUSTER_ACTION,
    AclPermissionType.ALLOW,
)


def guard_with(**settings: str) -> ControllerGuard:
    own = {
        "node.id": "1",
        "cluster.id": "c",
        "listeners": "GRPC://127.0.0.1:9093",
        "controller.quorum.voters": "1@127.0.0.1:9093",
        "metadata.log.dir": "/memory",
        "authorizer.class.name": STANDARD_AUTHORIZER,
        **{key.replace("_", "."): value for key, value in settings.items()},
    }
    [guard] = controller_guards(parse_config(QuorumConfig, own)).values()
    return guard


def admit(guard: ControllerGuard, user: str) -> str:
    """Return the error of a stream of a user, empty if it may be opened."""
    rpc: Any = SimpleNamespace(peer=lambda: "ipv4:10.0.0.1:5", invocation_metadata=lambda: ())
    try:
        guard.admit("FollowMetadata", Caller(rpc, Principal("User", user)))
    except TidelogError as error:
        return error.code.name
    return ""


def controller_at(image: MetadataImage, epoch: int) -> QuorumController:
    parts = SimpleNamespace(controller=SimpleNamespace(committed=image), leader=LeaderAndEpoch(2, epoch, False))
    return cast(QuorumController, parts)


@pytest.mark.parametrize("everyone", ["false", "true"])
def test_controller_without_acls_accepts_super_users_alone(everyone: str) -> None:
    guard = guard_with(super_users="User:root", allow_everyone_if_no_acl_found=everyone)
    assert [admit(guard, "root"), admit(guard, "node")] == ["", "NOT_CONTROLLER"]
    old = MetadataImage().apply(1, 4, [])
    guard.follow(controller_at(old, epoch=5))
    assert [admit(guard, "root"), admit(guard, "node")] == ["", "NOT_CONTROLLER"]


def test_controller_with_acls_decides_by_them() -> None:
    guard = guard_with(super_users="User:root")
    record = AccessControlEntryRecord(bytes(16), NODES)
    guard.follow(controller_at(MetadataImage().apply(1, 5, [record]), epoch=5))
    assert [admit(guard, user) for user in ("root", "node", "alice")] == ["", "", "CLUSTER_AUTHORIZATION_FAILED"]
    guard.follow(controller_at(MetadataImage().apply(1, 5, [record]), epoch=6))
    assert admit(guard, "node") == ""
