"""The features of the cluster with their levels (KIP-584), and the first records of a new cluster.

Rules for a change, which applies to a whole request or not at all:

- this controller and every registered broker must support the level; a broker without a range supports level 0 only;
- a lower level needs a downgrade, a higher one an upgrade; ``metadata.version`` never falls below 1;
- enabling eligible leader replicas writes the cluster-wide ``min.insync.replicas`` that they need and removes those of
  single brokers (KIP-966); disabling them drops them, and is safe only while no partition depends on them;
- ``metadata.version`` cannot fall below the level of ACLs, credentials, client quotas, subscriptions to client metrics
  or cluster links while there are any.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from tidelog_foundation.config import TopicConfig
from tidelog_foundation.errors import ErrorCode, TidelogError, error_for
from tidelog_foundation.requests import features as requests
from tidelog_foundation.requests.configs import ConfigResourceType
from tidelog_quorum.controller.configs import with_rule_changes
from tidelog_quorum.controller.result import Result
from tidelog_quorum.controller.state import ControllerState
from tidelog_quorum.metadata.features import (
    ACLS_VERSION,
    CLIENT_METRICS_VERSION,
    CLUSTER_LINKS_VERSION,
    ELIGIBLE_LEADER_REPLICAS_VERSION,
    METADATA_VERSION,
    SECURITY_VERSION,
    SUPPORTED_FEATURES,
)
from tidelog_quorum.metadata.image import MetadataImage
from tidelog_quorum.metadata.records import ConfigRecord, FeatureLevelRecord, MetadataRecord
from tidelog_quorum.metadata.topic_config import MIN_INSYNC_REPLICAS, broker_settings

_UPGRADE = requests.FeatureUpgradeType.UPGRADE
_UNSAFE = requests.FeatureUpgradeType.UNSAFE_DOWNGRADE
_KINDS = (_UPGRADE, requests.FeatureUpgradeType.SAFE_DOWNGRADE, _UNSAFE)


def bootstrap(image: MetadataImage, own: TopicConfig, first: Iterable[MetadataRecord] = ()) -> Result[None]:
    """Return the first records of a cluster without ``metadata.version``; none if the cluster has one.

    A new cluster starts with all features at their highest levels, and with the records ``first``. A cluster that has
    brokers already comes from a version without features, and gets the lowest levels.
    """
    if METADATA_VERSION in image.feature_levels:
        return Result([], None)
    metadata = SUPPORTED_FEATURES[METADATA_VERSION]
    if image.brokers:
        return Result([FeatureLevelRecord(METADATA_VERSION, metadata.min_level)], None)
    levels = (FeatureLevelRecord(name, known.max_level) for name, known in SUPPORTED_FEATURES.items())
    return Result([*levels, *_elr_settings(image, own), *first], None)


def describe_features(
    image: MetadataImage, request: requests.DescribeFeaturesRequest
) -> requests.DescribeFeaturesResponse:
    """Describe the features that every process of the cluster supports, with the levels in use."""
    described = []
    for name in SUPPORTED_FEATURES:
        ranges = [feature_range for _, feature_range in _ranges(image, name)]
        described.append(
            requests.FeatureDescription(
                name=name,
                min_level=max(r.min_level for r in ranges),
                max_level=min(r.max_level for r in ranges),
                finalized_level=image.feature_levels.get(name, 0),
            )
        )
    return requests.DescribeFeaturesResponse(features=tuple(described), finalized_epoch=image.offset)


def update_features(
    state: ControllerState, request: requests.UpdateFeaturesRequest, now_ms: int
) -> Result[requests.UpdateFeaturesResponse]:
    """Change levels, all or none.

    Raises:
        TidelogError: INVALID_REQUEST, no update or a feature twice; INVALID_UPDATE_VERSION, an invalid level;
            FEATURE_UPDATE_FAILED, a downgrade that is not safe now; POLICY_VIOLATION, too many changes in one step.
    """
    counts = Counter(u.name for u in request.updates)
    if not counts:
        raise error_for(ErrorCode.INVALID_REQUEST, "no feature is named")
    for name, count in counts.items():
        if count > 1:
            raise error_for(ErrorCode.INVALID_REQUEST, f"feature {name!r} is named {count} times")
    image, own = state.latest, state.own
    records: list[MetadataRecord] = []
    for update in request.updates:
        _check(image, update)
        records += _records(image, own, update)
    result = with_rule_changes(image, own, records, requests.UpdateFeaturesResponse())
    return Result([], result.response) if request.validate_only else result


def _check(image: MetadataImage, update: requests.FeatureUpdate) -> None:
    kind, present = update.upgrade_type or _UPGRADE, image.feature_levels.get(update.name, 0)
    if update.name not in SUPPORTED_FEATURES:
        raise _invalid(update, f"this version knows no such feature, but {', '.join(SUPPORTED_FEATURES)}")
    if kind not in _KINDS:
        raise _invalid(update, f"{kind} is not a type of change")
    for who, known in _ranges(image, update.name):
        if not known.min_level <= update.level <= known.max_level:
            raise _invalid(update, f"{who} knows {known.min_level} to {known.max_level}")
    if update.level < present and kind == _UPGRADE:
        raise _invalid(update, f"it has {present}, so this is a downgrade and must be requested as one")
    if update.level > present and kind != _UPGRADE:
        raise _invalid(update, f"it has {present}, so this is not a downgrade")


def _records(image: MetadataImage, own: TopicConfig, update: requests.FeatureUpdate) -> Iterator[MetadataRecord]:
    present = image.feature_levels.get(update.name, 0)
    if update.level == present:
        return
    if update.name == ELIGIBLE_LEADER_REPLICAS_VERSION:
        if update.level > present:
            yield from _elr_settings(image, own)
        elif update.upgrade_type != _UNSAFE:
            _check_independent_of_elr(image)
    if update.name == METADATA_VERSION:
        _check_records(image, update.level)
    yield FeatureLevelRecord(update.name, update.level)


def _elr_settings(image: MetadataImage, own: TopicConfig) -> Iterator[MetadataRecord]:
    if MIN_INSYNC_REPLICAS not in broker_settings(image):
        value = str(own.min_insync_replicas)
        yield ConfigRecord(ConfigResourceType.BROKER, "", MIN_INSYNC_REPLICAS, value)
    for resource, settings in image.configs.items():
        if resource.type is ConfigResourceType.BROKER and resource.name and MIN_INSYNC_REPLICAS in settings:
            yield ConfigRecord(resource.type, resource.name, MIN_INSYNC_REPLICAS, None)


def _check_records(image: MetadataImage, level: int) -> None:
    """Refuse a level of ``metadata.version`` without records that the image needs."""
    needed = (
        ("ACLs", ACLS_VERSION, len(image.acls)),
        ("SCRAM credentials", SECURITY_VERSION, len(image.scram_credentials)),
        ("entities with client quotas", SECURITY_VERSION, len(image.client_quotas)),
        ("delegation tokens", SECURITY_VERSION, len(image.delegation_tokens)),
        ("subscriptions to client metrics", CLIENT_METRICS_VERSION, _count_subscriptions(image)),
        ("cluster links", CLUSTER_LINKS_VERSION, len(image.cluster_links)),
    )
    for what, first_level, count in needed:
        if count and level < first_level:
            text = f"the metadata log has {count} {what}, which level {level} does not have: delete them"
            raise error_for(ErrorCode.FEATURE_UPDATE_FAILED, text)


def _count_subscriptions(image: MetadataImage) -> int:
    return sum(resource.type is ConfigResourceType.CLIENT_METRICS for resource in image.configs)


def _check_independent_of_elr(image: MetadataImage) -> None:
    for topic, index, partition in image.partitions():
        if not partition.isr:
            text = (
                f"{topic.name}-{index} has no in-sync replica, only eligible ones "
                f"{partition.eligible_leader_replicas}: bring one back first, or ask for an unsafe downgrade"
            )
            raise error_for(ErrorCode.FEATURE_UPDATE_FAILED, text)


def _ranges(image: MetadataImage, name: str) -> Iterator[tuple[str, requests.FeatureRange]]:
    yield "this controller", SUPPORTED_FEATURES[name]
    for broker in image.brokers.values():
        known = next((f for f in broker.features if f.name == name), requests.FeatureRange(name, 0, 0))
        yield f"broker {broker.broker_id}", known


def _invalid(update: requests.FeatureUpdate, reason: str) -> TidelogError:
    text = f"feature {update.name!r} cannot get level {update.level}: {reason}"
    return error_for(ErrorCode.INVALID_UPDATE_VERSION, text)
