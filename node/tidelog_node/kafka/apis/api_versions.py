"""ApiVersions: the APIs and features of this node (KIP-35, KIP-511, KIP-584)."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import ClassVar, Final

from tidelog_foundation.config.endpoints import GRPC_OF, format_address
from tidelog_foundation.errors import ErrorCode
from tidelog_node.kafka.protocol.api_keys import ApiKey
from tidelog_node.kafka.protocol.codec import decode, encode
from tidelog_node.kafka.protocol.messages import api_versions as wire
from tidelog_node.kafka.protocol.writer import Writer
from tidelog_node.kafka.served import Api, Body, KafkaNode, Request
from tidelog_quorum.metadata.features import SUPPORTED_FEATURES
from tidelog_quorum.metadata.image import MetadataImage

_SOFTWARE: Final = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")
"""The allowed names of client software (KIP-511; ApiVersionsRequest.SOFTWARE_NAME_VERSION_PATTERN)."""
_NAMES_SOFTWARE: Final = 3
_KNOWS_LEVEL_ZERO: Final = 4
"""The first version whose readers accept a feature that begins at level 0 (KAFKA-17492)."""
_ADVERTISED_FROM: Final = {ApiKey.PRODUCE: 0}
"""librdkafka assumes that a node without Produce 0 supports no compression (KAFKA-18659)."""


class ApiVersionsApi:
    """ApiVersions, answered at once.

    ``all_apis`` returns the listed APIs; answers are cached until the metadata changes.
    """

    key: ClassVar[ApiKey] = ApiKey.API_VERSIONS
    versions: ClassVar[tuple[int, int]] = wire.ApiVersionsRequest.VERSIONS
    flexible: ClassVar[int] = wire.ApiVersionsRequest.FLEXIBLE
    overlaps: ClassVar[bool] = False

    def __init__(self, all_apis: Callable[[], Mapping[ApiKey, Api]]) -> None:
        self._all_apis = all_apis
        self._kept: dict[int, tuple[MetadataImage, Body]] = {}

    def begin(self, node: KafkaNode, request: Request) -> Body:
        """Return the response, with INVALID_REQUEST for an invalid client name or version."""
        version = request.caller.version
        asked = decode(wire.ApiVersionsRequest, request.reader, version)
        if version >= _NAMES_SOFTWARE and not _is_valid(asked):
            return _encoded(wire.ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST.code), version)
        if version >= _NAMES_SOFTWARE:
            software = request.caller.software
            software.name, software.version = asked.client_software_name, asked.client_software_version
        image = node.context.metadata.image
        if asked.asks_grpc_listener:
            answer = self._response(image, version)
            return _encoded(
                replace(answer, grpc_listener=_grpc_listener(node, image, request.caller.listener)), version
            )
        throttle_time_ms = 0 if request.usage is None else request.usage.answer()
        if throttle_time_ms:
            return _encoded(replace(self._response(image, version), throttle_time_ms=throttle_time_ms), version)
        kept = self._kept.get(version)
        if kept is None or kept[0] is not image:
            kept = self._kept[version] = (image, _encoded(self._response(image, version), version))
        return kept[1]

    def _response(self, image: MetadataImage, version: int) -> wire.ApiVersionsResponse:
        return wire.ApiVersionsResponse(
            api_keys=[
                wire.ApiVersion(key, _ADVERTISED_FROM.get(key, api.versions[0]), api.versions[1])
                for key, api in sorted(self._all_apis().items())
            ],
            supported_features=[
                wire.SupportedFeature(name, known.min_level, known.max_level)
                for name, known in sorted(SUPPORTED_FEATURES.items())
                if known.min_level > 0 or version >= _KNOWS_LEVEL_ZERO
            ],
            finalized_features_epoch=image.offset,
            finalized_features=[
                wire.FinalizedFeature(name, level, level)
                for name, level in sorted(image.feature_levels.items())
                if level
            ],
        )


def unsupported_version() -> Body:
    """Return a response of version 0 to an unsupported version of ApiVersions, with the supported range."""
    served = wire.ApiVersion(ApiKey.API_VERSIONS, *wire.ApiVersionsRequest.VERSIONS)
    return _encoded(wire.ApiVersionsResponse(ErrorCode.UNSUPPORTED_VERSION.code, [served]), 0)


def _is_valid(asked: wire.ApiVersionsRequest) -> bool:
    return all(map(_SOFTWARE.fullmatch, (asked.client_software_name, asked.client_software_version)))


def _grpc_listener(node: KafkaNode, image: MetadataImage, asked: str) -> str:
    """Return the registered gRPC address of this node, which may have restarted on other ports, or an empty string.

    Of several gRPC listeners, it is the one that is as secure as the Kafka listener ``asked``.
    """
    broker = image.brokers.get(node.context.broker_id)
    if broker is None:
        return ""
    protocols = {x.name: x.security_protocol for x in broker.listeners}
    wanted = GRPC_OF.get(protocols.get(asked, ""))
    name = next((name for name, protocol in protocols.items() if protocol == wanted), None)
    endpoint = broker.grpc_endpoint(name)
    return format_address(endpoint.host, endpoint.port)


def _encoded(response: wire.ApiVersionsResponse, version: int) -> Body:
    writer = Writer()
    encode(response, writer, version)
    return writer.chunks()
