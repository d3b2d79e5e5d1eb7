"""UpdateFeatures, forwarded to the leading controller. Either all levels change or none."""

from __future__ import annotations

from tidelog_foundation.errors import ErrorCode, TidelogError, error_for
from tidelog_foundation.requests import features as requests
from tidelog_foundation.requests.features import FeatureUpgradeType
from tidelog_node import handlers
from tidelog_node.kafka.protocol.messages import features as wire
from tidelog_node.kafka.served import Api, Caller, KafkaNode, MessageApi

_UPGRADE_TYPES = {
    1: FeatureUpgradeType.UPGRADE,
    2: FeatureUpgradeType.SAFE_DOWNGRADE,
    3: FeatureUpgradeType.UNSAFE_DOWNGRADE,
}


async def update_features(
    node: KafkaNode, request: wire.UpdateFeaturesRequest, caller: Caller
) -> wire.UpdateFeaturesResponse:
    """Change feature levels. Before version 2 each feature also has the common error."""
    code, text = 0, None
    try:
        updates = tuple(_update(key, caller.version) for key in request.feature_updates)
        call = requests.UpdateFeaturesRequest(updates, request.validate_only, request.timeout_ms)
        await handlers.forward(node.context, call)
    except TidelogError as error:
        code, text = error.code.code, error.message
    results = [wire.UpdatableFeatureResult(key.feature, code, text) for key in request.feature_updates]
    return wire.UpdateFeaturesResponse(error_code=code, error_message=text, results=results)


def _update(key: wire.FeatureUpdateKey, version: int) -> requests.FeatureUpdate:
    if version == 0:
        kind = FeatureUpgradeType.SAFE_DOWNGRADE if key.allow_downgrade else FeatureUpgradeType.UPGRADE
        return requests.FeatureUpdate(key.feature, key.max_version_level, kind)
    if key.upgrade_type not in _UPGRADE_TYPES:
        text = f"feature {key.feature!r}: unknown upgrade type {key.upgrade_type}, expected 1, 2 or 3"
        raise error_for(ErrorCode.INVALID_UPDATE_VERSION, text)
    kind = _UPGRADE_TYPES[key.upgrade_type]
    return requests.FeatureUpdate(key.feature, key.max_version_level, kind)


APIS: tuple[Api, ...] = (MessageApi(wire.UpdateFeaturesRequest, update_features),)
