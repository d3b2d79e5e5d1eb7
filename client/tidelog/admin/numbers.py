"""Kafka's numbers, with the names from confluent-kafka's extension module."""

from __future__ import annotations

from typing import Final

from tidelog.admin.configs import AlterConfigOpType, ConfigSource
from tidelog.admin.groups import ConsumerGroupState, ConsumerGroupType
from tidelog.admin.offsets import IsolationLevel
from tidelog.admin.resources import (
    AclOperation,
    AclPermissionType,
    ResourcePatternType,
    ResourceType,
    ScramMechanism,
)

CONFIG_SOURCE_UNKNOWN_CONFIG: Final[int] = ConfigSource.UNKNOWN_CONFIG.value
CONFIG_SOURCE_DYNAMIC_TOPIC_CONFIG: Final[int] = ConfigSource.DYNAMIC_TOPIC_CONFIG.value
CONFIG_SOURCE_DYNAMIC_BROKER_CONFIG: Final[int] = ConfigSource.DYNAMIC_BROKER_CONFIG.value
CONFIG_SOURCE_DYNAMIC_DEFAULT_BROKER_CONFIG: Final[int] = ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG.value
CONFIG_SOURCE_STATIC_BROKER_CONFIG: Final[int] = ConfigSource.STATIC_BROKER_CONFIG.value
CONFIG_SOURCE_DEFAULT_CONFIG: Final[int] = ConfigSource.DEFAULT_CONFIG.value
CONFIG_SOURCE_GROUP_CONFIG: Final[int] = ConfigSource.GROUP_CONFIG.value
RESOURCE_UNKNOWN: Final[int] = ResourceType.UNKNOWN.value
RESOURCE_ANY: Final[int] = ResourceType.ANY.value
RESOURCE_TOPIC: Final[int] = ResourceType.TOPIC.value
RESOURCE_GROUP: Final[int] = ResourceType.GROUP.value
RESOURCE_BROKER: Final[int] = ResourceType.BROKER.value
RESOURCE_TRANSACTIONAL_ID: Final[int] = ResourceType.TRANSACTIONAL_ID.value
RESOURCE_PATTERN_UNKNOWN: Final[int] = ResourcePatternType.UNKNOWN.value
RESOURCE_PATTERN_ANY: Final[int] = ResourcePatternType.ANY.value
RESOURCE_PATTERN_MATCH: Final[int] = ResourcePatternType.MATCH.value
RESOURCE_PATTERN_LITERAL: Final[int] = ResourcePatternType.LITERAL.value
RESOURCE_PATTERN_PREFIXED: Final[int] = ResourcePatternType.PREFIXED.value
ACL_OPERATION_UNKNOWN: Final[int] = AclOperation.UNKNOWN.value
ACL_OPERATION_ANY: Final[int] = AclOperation.ANY.value
ACL_OPERATION_ALL: Final[int] = AclOperation.ALL.value
ACL_OPERATION_READ: Final[int] = AclOperation.READ.value
ACL_OPERATION_WRITE: Final[int] = AclOperation.WRITE.value
ACL_OPERATION_CREATE: Final[int] = AclOperation.CREATE.value
ACL_OPERATION_DELETE: Final[int] = AclOperation.DELETE.value
ACL_OPERATION_ALTER: Final[int] = AclOperation.ALTER.value
ACL_OPERATION_DESCRIBE: Final[int] = AclOperation.DESCRIBE.value
ACL_OPERATION_CLUSTER_ACTION: Final[int] = AclOperation.CLUSTER_ACTION.value
ACL_OPERATION_DESCRIBE_CONFIGS: Final[int] = AclOperation.DESCRIBE_CONFIGS.value
ACL_OPERATION_ALTER_CONFIGS: Final[int] = AclOperation.ALTER_CONFIGS.value
ACL_OPERATION_IDEMPOTENT_WRITE: Final[int] = AclOperation.IDEMPOTENT_WRITE.value
ACL_PERMISSION_TYPE_UNKNOWN: Final[int] = AclPermissionType.UNKNOWN.value
ACL_PERMISSION_TYPE_ANY: Final[int] = AclPermissionType.ANY.value
ACL_PERMISSION_TYPE_DENY: Final[int] = AclPermissionType.DENY.value
ACL_PERMISSION_TYPE_ALLOW: Final[int] = AclPermissionType.ALLOW.value
ALTER_CONFIG_OP_TYPE_SET: Final[int] = AlterConfigOpType.SET.value
ALTER_CONFIG_OP_TYPE_DELETE: Final[int] = AlterConfigOpType.DELETE.value
ALTER_CONFIG_OP_TYPE_APPEND: Final[int] = AlterConfigOpType.APPEND.value
ALTER_CONFIG_OP_TYPE_SUBTRACT: Final[int] = AlterConfigOpType.SUBTRACT.value
CONSUMER_GROUP_STATE_UNKNOWN: Final[int] = ConsumerGroupState.UNKNOWN.value
CONSUMER_GROUP_STATE_PREPARING_REBALANCE: Final[int] = ConsumerGroupState.PREPARING_REBALANCING.value
CONSUMER_GROUP_STATE_COMPLETING_REBALANCE: Final[int] = ConsumerGroupState.COMPLETING_REBALANCING.value
CONSUMER_GROUP_STATE_STABLE: Final[int] = ConsumerGroupState.STABLE.value
CONSUMER_GROUP_STATE_DEAD: Final[int] = ConsumerGroupState.DEAD.value
CONSUMER_GROUP_STATE_EMPTY: Final[int] = ConsumerGroupState.EMPTY.value
CONSUMER_GROUP_TYPE_UNKNOWN: Final[int] = ConsumerGroupType.UNKNOWN.value
CONSUMER_GROUP_TYPE_CONSUMER: Final[int] = ConsumerGroupType.CONSUMER.value
CONSUMER_GROUP_TYPE_CLASSIC: Final[int] = ConsumerGroupType.CLASSIC.value
ISOLATION_LEVEL_READ_UNCOMMITTED: Final[int] = IsolationLevel.READ_UNCOMMITTED.value
ISOLATION_LEVEL_READ_COMMITTED: Final[int] = IsolationLevel.READ_COMMITTED.value
SCRAM_MECHANISM_UNKNOWN: Final[int] = ScramMechanism.UNKNOWN.value
SCRAM_MECHANISM_SHA_256: Final[int] = ScramMechanism.SCRAM_SHA_256.value
SCRAM_MECHANISM_SHA_512: Final[int] = ScramMechanism.SCRAM_SHA_512.value
ELECTION_TYPE_PREFERRED: Final = 0
ELECTION_TYPE_UNCLEAN: Final = 1
OFFSET_SPEC_EARLIEST: Final = -2
OFFSET_SPEC_LATEST: Final = -1
OFFSET_SPEC_MAX_TIMESTAMP: Final = -3
