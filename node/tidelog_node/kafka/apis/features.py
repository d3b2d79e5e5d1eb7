"""UpdateFeatures, forwarded to the leading controller. Either all levels change or none."""

from __future__ import annotations

from tidelog.v1 import admin_service_pb2 as pb
from tidelog_foundation.errors import ErrorCode, TidelogError, error_for
from tidelog_node import handlers
from tidelog_node.kafka.protocol.messages.features import (
    FeatureUpdateKey,
    UpdatableFeatureResult,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)
from tidelog_node.kafka.served import Api, Caller, KafkaNode, MessageApi

_UPGRADE_TYPES = {
    1: pb.FEATURE_UPGRADE_TYPE_UPGRADE,
    2: pb.FEATURE_UPGRADE_TYPE_SAFE_DOWNGRADE,
    3: pb.FEATURE_UPGRADE_TYPE_UNSAFE_DOWNGRADE,
}


async def update_features(node: KafkaNode, request: UpdateFeaturesRequest, caller: Caller) -> UpdateFeaturesResponse:
    """Change feature levels. Before version 2 each feature also has the common error."""
    code, text = 0, None
    try:
        call = pb.UpdateFeaturesRequest(
            updates=[_update(key, caller.version) for key in request.feature_updates],
            validate_only=request.validate_only,
            timeout_ms=request.timeout_ms,
        )
        await handlers.update_features(node.context, call)
    except TidelogError as error:
        code, text = error.code.code, error.message
    results = [UpdatableFeatureResult(key.feature, code, text) for key in request.feature_updates]
    return UpdateFeaturesResponse(error_code=code, error_message=text, results=results)


def _update(key: FeatureUpdateKey, version: int) -> pb.FeatureUpdate:
    if version == 0:
        kind = pb.FEATURE_UPGRADE_TYPE_SAFE_DOWNGRADE if key.allow_downgrade else pb.FEATURE_UPGRADE_TYPE_UPGRADE
        return pb.FeatureUpdate(name=key.feature, level=key.max_version_level, upgrade_type=kind)
    if key.upgrade_type not in _UPGRADE_TYPES:
        text = f"feature {key.feature!r}: unknown upgrade type {key.upgrade_type}, expected 1, 2 or 3"
        raise error_for(ErrorCode.INVALID_UPDATE_VERSION, text)
    kind = _UPGRADE_TYPES[key.upgrade_type]
    return pb.FeatureUpdate(name=key.feature, level=key.max_version_level, upgrade_type=kind)


APIS: tuple[Api, ...] = (MessageApi(UpdateFeaturesRequest, update_features),)
