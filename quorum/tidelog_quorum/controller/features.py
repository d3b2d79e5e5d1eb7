"""The features of the cluster with their levels (KIP-584)."""

from __future__ import annotations

from tidelog.v1 import admin_service_pb2 as pb
from tidelog_quorum.metadata.image import MetadataImage


def describe_features(image: MetadataImage) -> pb.DescribeFeaturesResponse:
    """Describe the features."""
    return pb.DescribeFeaturesResponse(finalized_epoch=image.offset)
