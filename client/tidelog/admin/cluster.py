"""Operations on the cluster as a whole, and on its features (KIP-584), with the names of Kafka's Java client."""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Mapping
from dataclasses import dataclass

from tidelog.admin.operations import Future, Operations, Outcomes
from tidelog.admin.resources import CLUSTER_OPERATIONS, authorized_operations
from tidelog.admin.topics import DescribeClusterResult
from tidelog.v1 import admin_service_pb2 as pb
from tidelog_foundation.requests import stop_safety


@dataclass(frozen=True, slots=True)
class StopObstacle(stop_safety.StopObstacle):
    """A partition that needs the node, or the quorum that needs the controller; then ``topic`` is empty."""


@dataclass(frozen=True, slots=True)
class StopSafety(stop_safety.DescribeStopSafetyResponse):
    """The obstacles to stopping a process, at most 100 by name."""


class UpgradeType(enum.Enum):
    """The permitted change of a level: a rise, or a fall without or with loss of metadata."""

    UPGRADE = pb.FEATURE_UPGRADE_TYPE_UPGRADE
    SAFE_DOWNGRADE = pb.FEATURE_UPGRADE_TYPE_SAFE_DOWNGRADE
    UNSAFE_DOWNGRADE = pb.FEATURE_UPGRADE_TYPE_UNSAFE_DOWNGRADE


@dataclass(frozen=True, slots=True)
class FeatureUpdate:
    """The new level of a feature; 0 disables it."""

    max_version_level: int
    upgrade_type: UpgradeType = UpgradeType.UPGRADE


@dataclass(frozen=True, slots=True)
class SupportedVersionRange:
    """The levels of a feature that every process of the cluster supports, both bounds included."""

    min_version: int
    max_version: int


@dataclass(frozen=True, slots=True)
class FeatureMetadata:
    """The finalized levels (without features at level 0) as of a metadata offset, and the supported ones."""

    finalized_features: dict[str, int]
    finalized_features_epoch: int
    supported_features: dict[str, SupportedVersionRange]


class ClusterAdmin(Operations):
    """Operations on the cluster as a whole, and on its features."""

    def describe_cluster(
        self, *, include_authorized_operations: bool = False, request_timeout: float | None = None
    ) -> Future[DescribeClusterResult]:
        """Describe the cluster: its id, the active controller, nodes and voters.

        ``include_authorized_operations`` adds the operations that the client may perform.
        """

        async def describe() -> DescribeClusterResult:
            request = pb.DescribeClusterRequest(include_authorized_operations=include_authorized_operations)
            response = await self._ask(lambda c, t: c.admin.DescribeCluster(request, timeout=t), request_timeout)
            operations = authorized_operations(response, CLUSTER_OPERATIONS) if include_authorized_operations else None
            return dataclasses.replace(DescribeClusterResult.from_proto(response), authorized_operations=operations)

        return self._future(describe())

    def unregister_broker(self, broker_id: int, *, request_timeout: float | None = None) -> Future[None]:
        """Remove the registration of a fenced node that will not return (KIP-631); named as in Kafka's Java client.

        The future fails with KafkaException if the controller refuses, for example with BROKER_ID_NOT_REGISTERED.
        """

        async def unregister() -> None:
            request = pb.UnregisterBrokerRequest(broker_id=broker_id)
            await self._change(lambda c, t: c.admin.UnregisterBroker(request, timeout=t), request_timeout)

        return self._future(unregister())

    def describe_stop_safety(
        self, process_id: int, *, is_controller: bool = False, request_timeout: float | None = None
    ) -> Future[StopSafety]:
        """Describe what stands against stopping a node, or a controller with ``is_controller``.

        The future fails with KafkaException: BROKER_ID_NOT_REGISTERED or VOTER_NOT_FOUND if there is no such process.
        """

        async def describe() -> StopSafety:
            request = pb.DescribeStopSafetyRequest(process_id=process_id, is_controller=is_controller)
            answer = await self._ask(lambda c, t: c.admin.DescribeStopSafety(request, timeout=t), request_timeout)
            obstacles = (
                StopObstacle(o.kind, o.topic, o.partition, tuple(o.in_sync), o.required) for o in answer.obstacles
            )
            counts = (stop_safety.StopObstacleCount(each.kind, each.count) for each in answer.counts)
            return StopSafety(tuple(obstacles), tuple(counts))

        return self._future(describe())

    def describe_features(self, *, request_timeout: float | None = None) -> Future[FeatureMetadata]:
        """Describe the features. ``request_timeout`` is in seconds (default: request.timeout.ms)."""

        async def describe() -> FeatureMetadata:
            request = pb.DescribeFeaturesRequest()
            response = await self._ask(lambda c, t: c.admin.DescribeFeatures(request, timeout=t), request_timeout)
            return FeatureMetadata(
                {f.name: f.finalized_level for f in response.features if f.finalized_level},
                response.finalized_epoch,
                {f.name: SupportedVersionRange(f.min_level, f.max_level) for f in response.features},
            )

        return self._future(describe())

    def update_features(
        self,
        feature_updates: Mapping[str, FeatureUpdate],
        *,
        validate_only: bool = False,
        operation_timeout: float = 30,
        request_timeout: float | None = None,
    ) -> dict[str, Future[None]]:
        """Change the levels of features, all or none: all futures have the same outcome.

        They fail with KafkaException: INVALID_UPDATE_VERSION for a level that is not permitted, FEATURE_UPDATE_FAILED
        if a downgrade is not safe now.
        """
        request = pb.UpdateFeaturesRequest(
            updates=[
                pb.FeatureUpdate(name=name, level=update.max_version_level, upgrade_type=update.upgrade_type.value)
                for name, update in feature_updates.items()
            ],
            validate_only=validate_only,
            timeout_ms=int(operation_timeout * 1000),
        )

        async def update() -> Outcomes[str, None]:
            await self._change(lambda c, t: c.admin.UpdateFeatures(request, timeout=t), request_timeout)
            return dict.fromkeys(feature_updates)

        return self._futures(list(feature_updates), update())
