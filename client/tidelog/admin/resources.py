"""Kafka's resource types, pattern types and operations, with confluent-kafka's names.

Without an authorizer, descriptions list all operations of their kind as authorized, as in Kafka.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from typing import Any, Final, TypeVar


class _Ordered(enum.Enum):
    """An enumeration ordered by the numbers of Kafka's protocol."""

    def __lt__(self, other: object) -> bool:
        if not isinstance(other, _Ordered) or type(other) is not type(self):
            return NotImplemented
        return bool(self.value < other.value)


class ResourceType(_Ordered):
    """A kind of resource with settings or ACLs. In ACLs, BROKER is the cluster, whose only name is kafka-cluster.

    confluent-kafka does not have the last four. BROKER_LOGGER has the levels of a node's loggers (KIP-412),
    CLIENT_METRICS a subscription to the metrics of clients (KIP-714).
    """

    UNKNOWN = 0
    ANY = 1
    TOPIC = 2
    GROUP = 3
    BROKER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16


RESOURCE_UNKNOWN: Final[int] = ResourceType.UNKNOWN.value
RESOURCE_ANY: Final[int] = ResourceType.ANY.value
RESOURCE_TOPIC: Final[int] = ResourceType.TOPIC.value
RESOURCE_GROUP: Final[int] = ResourceType.GROUP.value
RESOURCE_BROKER: Final[int] = ResourceType.BROKER.value
RESOURCE_TRANSACTIONAL_ID: Final[int] = ResourceType.TRANSACTIONAL_ID.value


class ResourcePatternType(_Ordered):
    """The kind of pattern with which an ACL names resources (KIP-290); ANY and MATCH are for filters."""

    UNKNOWN = 0
    ANY = 1
    MATCH = 2
    LITERAL = 3
    PREFIXED = 4


class AclOperation(_Ordered):
    """The operation of an ACL; ANY is for filters. confluent-kafka does not have the last three."""

    UNKNOWN = 0
    ANY = 1
    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14
    TWO_PHASE_COMMIT = 15


class AclPermissionType(_Ordered):
    """The effect of an ACL: allow or deny. ANY is for filters."""

    UNKNOWN = 0
    ANY = 1
    DENY = 2
    ALLOW = 3


class ScramMechanism(_Ordered):
    """A SASL/SCRAM mechanism (KIP-84)."""

    UNKNOWN = 0
    SCRAM_SHA_256 = 1
    SCRAM_SHA_512 = 2


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


def authorized_operations(described: Any, supported: Sequence[AclOperation]) -> list[AclOperation]:
    """Return the operations of a message with the field ``authorized_operations``; all, if it does not have it."""
    if not described.HasField("authorized_operations"):
        return list(supported)
    bits: int = described.authorized_operations
    return [operation for operation in supported if bits >> operation.value & 1]
