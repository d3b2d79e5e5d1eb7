"""ApiVersions: the APIs and features of a node (KIP-35, KIP-511, KIP-584).

Tag 10000 is an extension of Tidelog. A Tidelog client that was given a Kafka listener's address uses it to ask for the
node's gRPC address. Other clients neither send it nor receive an answer to it; a server that does not know the tag
skips it.
"""

from __future__ import annotations

from typing import Final

from tidelog_node.kafka.protocol.api_keys import ApiKey
from tidelog_node.kafka.protocol.fields import Message, Structure, array, boolean, int16, int32, int64, string

GRPC_LISTENER_TAG: Final = 10_000


class ApiVersionsRequest(Message, api=ApiKey.API_VERSIONS, versions=(0, 4), flexible=3):
    """The client's software, and whether it asks for the node's gRPC address."""

    client_software_name: str = string(since=3)
    client_software_version: str = string(since=3)
    asks_grpc_listener: bool = boolean(tag=GRPC_LISTENER_TAG, since=3)


class ApiVersion(Structure):
    """The versions of one API."""

    api_key: int = int16()
    min_version: int = int16()
    max_version: int = int16()


class SupportedFeature(Structure):
    """The levels of a feature that the node's software supports."""

    name: str = string()
    min_version: int = int16()
    max_version: int = int16()


class FinalizedFeature(Structure):
    """The level of a feature that the cluster uses."""

    name: str = string()
    max_version_level: int = int16()
    min_version_level: int = int16()


class ApiVersionsResponse(Message, answers=ApiVersionsRequest):
    """The APIs and features of the node. The header always has version 0, so that every client can read it.

    ``grpc_listener`` is the advertised ``host:port``, empty while the node is not registered, or None for a client that
    did not ask.
    """

    error_code: int = int16()
    api_keys: list[ApiVersion] = array(ApiVersion)
    throttle_time_ms: int = int32(since=1)
    supported_features: list[SupportedFeature] = array(SupportedFeature, tag=0, since=3)
    finalized_features_epoch: int = int64(default=-1, tag=1, since=3)
    finalized_features: list[FinalizedFeature] = array(FinalizedFeature, tag=2, since=3)
    zk_migration_ready: bool = boolean(tag=3, since=3)
    grpc_listener: str | None = string(default=None, nullable=3, tag=GRPC_LISTENER_TAG, since=3)
