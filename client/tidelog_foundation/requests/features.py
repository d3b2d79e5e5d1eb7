"""Features of the cluster and their levels (KIP-584)."""

from __future__ import annotations

from enum import IntEnum

from tidelog_foundation.dataclass import dataclass
from tidelog_foundation.requests.request import Request


class FeatureUpgradeType(IntEnum):
    """The permitted direction of a change. UNSPECIFIED means UPGRADE."""

    UNSPECIFIED = 0
    UPGRADE = 1
    SAFE_DOWNGRADE = 2
    UNSAFE_DOWNGRADE = 3


@dataclass(frozen=True, slots=True)
class FeatureRange:
    """The levels of a feature that a process supports, both bounds included."""

    name: str
    min_level: int
    max_level: int


@dataclass(frozen=True, slots=True)
class FeatureDescription:
    """The levels that every process of the cluster supports, and the level in use, 0 for none."""

    name: str
    min_level: int
    max_level: int
    finalized_level: int


@dataclass(frozen=True, slots=True)
class DescribeFeaturesResponse:
    """The features. ``finalized_epoch`` is the metadata offset of these levels."""

    features: tuple[FeatureDescription, ...] = ()
    finalized_epoch: int = 0


@dataclass(frozen=True, slots=True)
class DescribeFeaturesRequest(Request[DescribeFeaturesResponse]):
    """A request for the features."""


@dataclass(frozen=True, slots=True)
class FeatureUpdate:
    """A new level of one feature."""

    name: str
    level: int
    upgrade_type: FeatureUpgradeType = FeatureUpgradeType.UNSPECIFIED


@dataclass(frozen=True, slots=True)
class UpdateFeaturesResponse:
    """The success of an UpdateFeaturesRequest."""


@dataclass(frozen=True, slots=True)
class UpdateFeaturesRequest(Request[UpdateFeaturesResponse]):
    """A request to change levels, all or none."""

    updates: tuple[FeatureUpdate, ...] = ()
    validate_only: bool = False
    timeout_ms: int = 0
