"""Kafka's resource types and pattern types, with confluent-kafka's names."""

from __future__ import annotations

import enum


class _Ordered(enum.Enum):
    """An enumeration ordered by the numbers of Kafka's protocol."""

    def __lt__(self, other: object) -> bool:
        if not isinstance(other, _Ordered) or type(other) is not type(self):
            return NotImplemented
        return bool(self.value < other.value)


class ResourceType(_Ordered):
    """A kind of resource with settings or ACLs. No call accepts TRANSACTIONAL_ID yet."""

    UNKNOWN = 0
    ANY = 1
    TOPIC = 2
    GROUP = 3
    BROKER = 4
    TRANSACTIONAL_ID = 5


class ResourcePatternType(_Ordered):
    """The kind of pattern with which an ACL names resources (KIP-290); ANY and MATCH are for filters."""

    UNKNOWN = 0
    ANY = 1
    MATCH = 2
    LITERAL = 3
    PREFIXED = 4


class AclOperation(_Ordered):
    """The operation of an ACL; ANY is for filters."""

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
