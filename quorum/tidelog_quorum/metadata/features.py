"""The features that this version supports, with their levels and effects (KIP-584).

Every process registers with the ranges that it supports; a level of the cluster is in the range of all.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from tidelog_foundation.errors import ErrorCode, error_for
from tidelog_foundation.requests.features import FeatureDescription, FeatureRange
from tidelog_quorum.metadata.image import MetadataImage

METADATA_VERSION = "metadata.version"
"""The records that may be in the metadata log; always at least 1 in a bootstrapped cluster."""

ACLS_VERSION = 2
"""The first level of ``metadata.version`` with records of ACLs."""

SECURITY_VERSION = 3
"""The first level of ``metadata.version`` with records of client quotas, SCRAM credentials and delegation tokens."""

CLIENT_METRICS_VERSION = 4
"""The first level of ``metadata.version`` with settings of subscriptions to the metrics of clients."""

CLUSTER_LINKS_VERSION = 5
"""The first level of ``metadata.version`` with records of cluster links and mirror topics."""

ELIGIBLE_LEADER_REPLICAS_VERSION = "eligible.leader.replicas.version"
"""At level 1 the controller maintains eligible leader replicas (KIP-966)."""

TRANSACTION_VERSION = "transaction.version"
"""From level 1 on, transactional ids have records with tagged fields. From level 2 on, each end of a transaction raises
the producer's epoch (KIP-890)."""

SUPPORTED_FEATURES: Mapping[str, FeatureRange] = MappingProxyType(
    {
        METADATA_VERSION: FeatureRange(METADATA_VERSION, 1, CLUSTER_LINKS_VERSION),
        ELIGIBLE_LEADER_REPLICAS_VERSION: FeatureRange(ELIGIBLE_LEADER_REPLICAS_VERSION, 0, 1),
        TRANSACTION_VERSION: FeatureRange(TRANSACTION_VERSION, 0, 2),
    }
)
"""The range of each feature that this version supports."""


def own_features(levels: Mapping[str, int]) -> tuple[FeatureDescription, ...]:
    """Return the features that this version supports, each with its level in ``levels``."""
    return tuple(
        FeatureDescription(name, known.min_level, known.max_level, levels.get(name, 0))
        for name, known in SUPPORTED_FEATURES.items()
    )


def check_supported(levels: Mapping[str, int]) -> None:
    """Check that this version supports the levels of a cluster's features.

    Raises:
        TidelogError: UNSUPPORTED_VERSION, a level is not supported: records may follow that this version cannot read.
    """
    for name, level in levels.items():
        known = SUPPORTED_FEATURES.get(name)
        if known is None or not known.min_level <= level <= known.max_level:
            supported = "no such feature" if known is None else f"levels {known.min_level} to {known.max_level}"
            text = (
                f"the cluster has {name} at level {level}, this version supports {supported}: start the version that "
                "the cluster was upgraded to"
            )
            raise error_for(ErrorCode.UNSUPPORTED_VERSION, text)


def uses_elr(image: MetadataImage) -> bool:
    """Return whether the cluster maintains eligible leader replicas."""
    return image.feature_levels.get(ELIGIBLE_LEADER_REPLICAS_VERSION, 0) >= 1
