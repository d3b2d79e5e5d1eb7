"""The names of confluent-kafka's extension module, for programs that import them from it."""

from typing import Final

from tidelog.admin import (
    CONFIG_SOURCE_DEFAULT_CONFIG,
    CONFIG_SOURCE_DYNAMIC_BROKER_CONFIG,
    CONFIG_SOURCE_DYNAMIC_DEFAULT_BROKER_CONFIG,
    CONFIG_SOURCE_DYNAMIC_TOPIC_CONFIG,
    CONFIG_SOURCE_GROUP_CONFIG,
    CONFIG_SOURCE_STATIC_BROKER_CONFIG,
    CONFIG_SOURCE_UNKNOWN_CONFIG,
    RESOURCE_ANY,
    RESOURCE_BROKER,
    RESOURCE_GROUP,
    RESOURCE_TOPIC,
    RESOURCE_TRANSACTIONAL_ID,
    RESOURCE_UNKNOWN,
    AclOperation,
    AclPermissionType,
    AlterConfigOpType,
    ConsumerGroupState,
    ConsumerGroupType,
    IsolationLevel,
    NewPartitions,
    NewTopic,
    ResourcePatternType,
    ScramMechanism,
)
from tidelog.consumer import Consumer
from tidelog.message import (
    OFFSET_BEGINNING,
    OFFSET_END,
    OFFSET_INVALID,
    OFFSET_STORED,
    TIMESTAMP_CREATE_TIME,
    TIMESTAMP_LOG_APPEND_TIME,
    TIMESTAMP_NOT_AVAILABLE,
    Message,
    TopicPartition,
)
from tidelog.producer import Producer
from tidelog.producer.partitions import consistent, fnv1a, murmur2
from tidelog.release import libversion, version
from tidelog.uuid import Uuid
from tidelog_foundation.errors import KafkaError, KafkaException

__all__ = [
    "ACL_OPERATION_ALL",
    "ACL_OPERATION_ALTER",
    "ACL_OPERATION_ALTER_CONFIGS",
    "ACL_OPERATION_ANY",
    "ACL_OPERATION_CLUSTER_ACTION",
    "ACL_OPERATION_CREATE",
    "ACL_OPERATION_DELETE",
    "ACL_OPERATION_DESCRIBE",
    "ACL_OPERATION_DESCRIBE_CONFIGS",
    "ACL_OPERATION_IDEMPOTENT_WRITE",
    "ACL_OPERATION_READ",
    "ACL_OPERATION_UNKNOWN",
    "ACL_OPERATION_WRITE",
    "ACL_PERMISSION_TYPE_ALLOW",
    "ACL_PERMISSION_TYPE_ANY",
    "ACL_PERMISSION_TYPE_DENY",
    "ACL_PERMISSION_TYPE_UNKNOWN",
    "ALTER_CONFIG_OP_TYPE_APPEND",
    "ALTER_CONFIG_OP_TYPE_DELETE",
    "ALTER_CONFIG_OP_TYPE_SET",
    "ALTER_CONFIG_OP_TYPE_SUBTRACT",
    "CONFIG_SOURCE_DEFAULT_CONFIG",
    "CONFIG_SOURCE_DYNAMIC_BROKER_CONFIG",
    "CONFIG_SOURCE_DYNAMIC_DEFAULT_BROKER_CONFIG",
    "CONFIG_SOURCE_DYNAMIC_TOPIC_CONFIG",
    "CONFIG_SOURCE_GROUP_CONFIG",
    "CONFIG_SOURCE_STATIC_BROKER_CONFIG",
    "CONFIG_SOURCE_UNKNOWN_CONFIG",
    "CONSUMER_GROUP_STATE_COMPLETING_REBALANCE",
    "CONSUMER_GROUP_STATE_DEAD",
    "CONSUMER_GROUP_STATE_EMPTY",
    "CONSUMER_GROUP_STATE_PREPARING_REBALANCE",
    "CONSUMER_GROUP_STATE_STABLE",
    "CONSUMER_GROUP_STATE_UNKNOWN",
    "CONSUMER_GROUP_TYPE_CLASSIC",
    "CONSUMER_GROUP_TYPE_CONSUMER",
    "CONSUMER_GROUP_TYPE_UNKNOWN",
    "ELECTION_TYPE_PREFERRED",
    "ELECTION_TYPE_UNCLEAN",
    "ISOLATION_LEVEL_READ_COMMITTED",
    "ISOLATION_LEVEL_READ_UNCOMMITTED",
    "OFFSET_BEGINNING",
    "OFFSET_END",
    "OFFSET_INVALID",
    "OFFSET_SPEC_EARLIEST",
    "OFFSET_SPEC_LATEST",
    "OFFSET_SPEC_MAX_TIMESTAMP",
    "OFFSET_STORED",
    "RESOURCE_ANY",
    "RESOURCE_BROKER",
    "RESOURCE_GROUP",
    "RESOURCE_PATTERN_ANY",
    "RESOURCE_PATTERN_LITERAL",
    "RESOURCE_PATTERN_MATCH",
    "RESOURCE_PATTERN_PREFIXED",
    "RESOURCE_PATTERN_UNKNOWN",
    "RESOURCE_TOPIC",
    "RESOURCE_TRANSACTIONAL_ID",
    "RESOURCE_UNKNOWN",
    "SCRAM_MECHANISM_SHA_256",
    "SCRAM_MECHANISM_SHA_512",
    "SCRAM_MECHANISM_UNKNOWN",
    "TIMESTAMP_CREATE_TIME",
    "TIMESTAMP_LOG_APPEND_TIME",
    "TIMESTAMP_NOT_AVAILABLE",
    "Consumer",
    "KafkaError",
    "KafkaException",
    "Message",
    "NewPartitions",
    "NewTopic",
    "Producer",
    "TopicPartition",
    "Uuid",
    "consistent",
    "fnv1a",
    "libversion",
    "murmur2",
    "version",
]

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
ELECTION_TYPE_PREFERRED: Final = 0
ELECTION_TYPE_UNCLEAN: Final = 1
OFFSET_SPEC_EARLIEST: Final = -2
OFFSET_SPEC_LATEST: Final = -1
OFFSET_SPEC_MAX_TIMESTAMP: Final = -3
SCRAM_MECHANISM_SHA_256: Final[int] = ScramMechanism.SCRAM_SHA_256.value
SCRAM_MECHANISM_SHA_512: Final[int] = ScramMechanism.SCRAM_SHA_512.value
