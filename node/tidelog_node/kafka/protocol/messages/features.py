"""UpdateFeatures (KIP-584, KIP-1022)."""

from __future__ import annotations

from tidelog_node.kafka.protocol.api_keys import ApiKey
from tidelog_node.kafka.protocol.fields import Message, Structure, array, boolean, int8, int16, int32, string


class FeatureUpdateKey(Structure):
    """A feature and its new level. ``upgrade_type`` is 1 for an upgrade, 2 and 3 for safe and unsafe downgrades."""

    feature: str = string()
    max_version_level: int = int16()
    allow_downgrade: bool = boolean(until=0)
    upgrade_type: int = int8(default=1, since=1)


class UpdateFeaturesRequest(Message, api=ApiKey.UPDATE_FEATURES, versions=(0, 2), flexible=0):
    """Changes of feature levels, applied all or none."""

    timeout_ms: int = int32(default=60_000)
    feature_updates: list[FeatureUpdateKey] = array(FeatureUpdateKey)
    validate_only: bool = boolean(since=1)


class UpdatableFeatureResult(Structure):
    """The result of one feature."""

    feature: str = string()
    error_code: int = int16()
    error_message: str | None = string(nullable=0)


class UpdateFeaturesResponse(Message, answers=UpdateFeaturesRequest):
    """The results. From version 2 on there is one error for all of them."""

    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable=0)
    results: list[UpdatableFeatureResult] = array(UpdatableFeatureResult, until=1)
