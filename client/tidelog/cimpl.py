"""The names of confluent-kafka's extension module, for programs that import them from it.

The members of an enumeration are also numbers here: ``ACL_OPERATION_READ`` is ``AclOperation.READ.value``.
"""

from tidelog import *  # noqa: F403
from tidelog import admin
from tidelog.admin import *  # noqa: F403
from tidelog.admin import ConsumerGroupState, ScramMechanism

_ENUMERATIONS = {
    "ACL_OPERATION": admin.AclOperation,
    "ACL_PERMISSION_TYPE": admin.AclPermissionType,
    "ALTER_CONFIG_OP_TYPE": admin.AlterConfigOpType,
    "CONSUMER_GROUP_STATE": ConsumerGroupState,
    "CONSUMER_GROUP_TYPE": admin.ConsumerGroupType,
    "ISOLATION_LEVEL": admin.IsolationLevel,
    "RESOURCE_PATTERN": admin.ResourcePatternType,
}
_NUMBERS: dict[str, int] = {
    **{f"{prefix}_{member.name}": member.value for prefix, kind in _ENUMERATIONS.items() for member in kind},
    "CONSUMER_GROUP_STATE_PREPARING_REBALANCE": ConsumerGroupState.PREPARING_REBALANCING.value,
    "CONSUMER_GROUP_STATE_COMPLETING_REBALANCE": ConsumerGroupState.COMPLETING_REBALANCING.value,
    "ELECTION_TYPE_PREFERRED": 0,
    "ELECTION_TYPE_UNCLEAN": 1,
    "OFFSET_SPEC_EARLIEST": -2,
    "OFFSET_SPEC_LATEST": -1,
    "OFFSET_SPEC_MAX_TIMESTAMP": -3,
    "SCRAM_MECHANISM_UNKNOWN": ScramMechanism.UNKNOWN.value,
    "SCRAM_MECHANISM_SHA_256": ScramMechanism.SCRAM_SHA_256.value,
    "SCRAM_MECHANISM_SHA_512": ScramMechanism.SCRAM_SHA_512.value,
}


def __getattr__(name: str) -> int:
    if name not in _NUMBERS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return _NUMBERS[name]
