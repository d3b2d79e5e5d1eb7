"""DescribeClientQuotas and AlterClientQuotas (KIP-546)."""

from __future__ import annotations

from tidelog_node.kafka.protocol.api_keys import ApiKey
from tidelog_node.kafka.protocol.fields import Message, Structure, array, boolean, float64, int8, int16, int32, string


class QuotaComponent(Structure):
    """A condition on one type of entity."""

    entity_type: str = string()
    match_type: int = int8()
    match: str | None = string(nullable=0)


class DescribeClientQuotasRequest(Message, api=ApiKey.DESCRIBE_CLIENT_QUOTAS, versions=(0, 1), flexible=1):
    """A filter of entities."""

    components: list[QuotaComponent] = array(QuotaComponent)
    strict: bool = boolean()


class QuotaEntityData(Structure):
    """A part of an entity; a null name is the default."""

    entity_type: str = string()
    entity_name: str | None = string(nullable=0)


class QuotaValueData(Structure):
    """A limit."""

    key: str = string()
    value: float = float64()


class QuotaEntryData(Structure):
    """An entity with its limits."""

    entity: list[QuotaEntityData] = array(QuotaEntityData)
    values: list[QuotaValueData] = array(QuotaValueData)


class DescribeClientQuotasResponse(Message, answers=DescribeClientQuotasRequest):
    """The entities that match, or null with an error."""

    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable=0)
    entries: list[QuotaEntryData] | None = array(QuotaEntryData, nullable=0)


class QuotaOpData(Structure):
    """A value to set or remove."""

    key: str = string()
    value: float = float64()
    remove: bool = boolean()


class QuotaAlterationData(Structure):
    """The changes of an entity."""

    entity: list[QuotaEntityData] = array(QuotaEntityData)
    ops: list[QuotaOpData] = array(QuotaOpData)


class AlterClientQuotasRequest(Message, api=ApiKey.ALTER_CLIENT_QUOTAS, versions=(0, 1), flexible=1):
    """Changes of quotas."""

    entries: list[QuotaAlterationData] = array(QuotaAlterationData)
    validate_only: bool = boolean()


class QuotaAlterationResultData(Structure):
    """The outcome for an entity."""

    error_code: int = int16()
    error_message: str | None = string(nullable=0)
    entity: list[QuotaEntityData] = array(QuotaEntityData)


class AlterClientQuotasResponse(Message, answers=AlterClientQuotasRequest):
    """The outcome for each entity."""

    throttle_time_ms: int = int32()
    entries: list[QuotaAlterationResultData] = array(QuotaAlterationResultData)
