"""The features that this version knows, with their levels, and what they switch (KIP-584).

Every process registers with the ranges that it knows; a level of the cluster is in the range of all.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from tidelog_quorum.metadata.image import MetadataImage
from tidelog_quorum.metadata.records import FeatureRange

METADATA_VERSION = "metadata.version"
"""The records of the metadata log that may be written; always at 1 or above in a cluster that has begun."""

ELIGIBLE_LEADER_REPLICAS_VERSION = "eligible.leader.replicas.version"
"""At 1 the controller keeps eligible leader replicas (KIP-966)."""

SUPPORTED_FEATURES: Mapping[str, FeatureRange] = MappingProxyType(
    {
        METADATA_VERSION: FeatureRange(METADATA_VERSION, 1, 1),
        ELIGIBLE_LEADER_REPLICAS_VERSION: FeatureRange(ELIGIBLE_LEADER_REPLICAS_VERSION, 0, 1),
    }
)
"""The range of each feature that this version knows."""


def uses_elr(image: MetadataImage) -> bool:
    """Return whether the cluster keeps eligible leader replicas."""
    return image.feature_levels.get(ELIGIBLE_LEADER_REPLICAS_VERSION, 0) >= 1
