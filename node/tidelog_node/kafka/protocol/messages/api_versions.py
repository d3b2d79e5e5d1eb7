"""ApiVersions: what a node serves (KIP-35, KIP-511, KIP-584)."""

from __future__ import annotations

from dataclasses import dataclass

from tidelog_node.kafka.protocol.api_keys import ApiKey
from tidelog_node.kafka.protocol.fields import Message, Structure, array, boolean, int16, int32, int64, string


@dataclass(slots=True)
class ApiVersionsRequest(Message):
    """Who asks."""

    API_KEY, VERSIONS, FLEXIBLE = ApiKey.API_VERSIONS, (0, 4), 3

    client_software_name: str = string(since=3)
    client_software_version: str = string(since=3)


@dataclass(slots=True)
class ApiVersion(Structure):
    """The versions of one API."""

    api_key: int = int16()
    min_version: int = int16()
    max_version: int = int16()


@dataclass(slots=True)
class SupportedFeature(Structure):
    """The levels of a feature that the node's software has."""

    name: str = string()
    min_version: int = int16()
    max_version: int = int16()


@dataclass(slots=True)
class FinalizedFeature(Structure):
    """The level of a feature that the cluster uses."""

    name: str = string()
    max_version_level: int = int16()
    min_version_level: int = int16()


@dataclass(slots=True)
class ApiVersionsResponse(Message):
    """Its header is always of version 0, so that every client can read it."""

    API_KEY, VERSIONS, FLEXIBLE = ApiKey.API_VERSIONS, (0, 4), 3

    error_code: int = int16()
    api_keys: list[ApiVersion] = array(ApiVersion)
    throttle_time_ms: int = int32(since=1)
    supported_features: list[SupportedFeature] = array(SupportedFeature, tag=0, since=3)
    finalized_features_epoch: int = int64(default=-1, tag=1, since=3)
    finalized_features: list[FinalizedFeature] = array(FinalizedFeature, tag=2, since=3)
    zk_migration_ready: bool = boolean(tag=3, since=3)
