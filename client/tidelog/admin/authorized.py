"""The operations that descriptions list as authorized: all of a kind, as in Kafka without an authorizer."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from tidelog.admin.resources import AclOperation
from tidelog_foundation.errors import TidelogError

K = TypeVar("K")

TOPIC_OPERATIONS = (
    AclOperation.READ,
    AclOperation.WRITE,
    AclOperation.CREATE,
    AclOperation.DELETE,
    AclOperation.ALTER,
    AclOperation.DESCRIBE,
    AclOperation.DESCRIBE_CONFIGS,
    AclOperation.ALTER_CONFIGS,
)
GROUP_OPERATIONS = (
    AclOperation.READ,
    AclOperation.DELETE,
    AclOperation.DESCRIBE,
    AclOperation.DESCRIBE_CONFIGS,
    AclOperation.ALTER_CONFIGS,
)
CLUSTER_OPERATIONS = (
    AclOperation.CREATE,
    AclOperation.ALTER,
    AclOperation.DESCRIBE,
    AclOperation.CLUSTER_ACTION,
    AclOperation.DESCRIBE_CONFIGS,
    AclOperation.ALTER_CONFIGS,
    AclOperation.IDEMPOTENT_WRITE,
)


def with_operations(found: Mapping[K, Any], operations: Sequence[AclOperation]) -> dict[K, Any]:
    """Return the descriptions with ``authorized_operations`` set; errors stay unchanged."""
    return {
        key: what
        if isinstance(what, TidelogError)
        else dataclasses.replace(what, authorized_operations=list(operations))
        for key, what in found.items()
    }
