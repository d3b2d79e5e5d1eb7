"""ApiVersions: which APIs and features this node has (KIP-35, KIP-511, KIP-584)."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import ClassVar, Final

from tidelog_foundation.config.endpoints import format_address
from tidelog_foundation.errors import ErrorCode
from tidelog_node.kafka.protocol.api_keys import ApiKey
from tidelog_node.kafka.protocol.codec import decode, encode
from tidelog_node.kafka.protocol.messages.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeature,
    SupportedFeature,
)
from tidelog_node.kafka.protocol.writer import Writer
from tidelog_node.kafka.served import Api, Body, KafkaNode, Request
from tidelog_quorum.metadata import MetadataImage
from tidelog_quorum.metadata.features import SUPPORTED_FEATURES

_SOFTWARE: Final = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")
"""What clients may call themselves (KIP-511; ApiVersionsRequest.SOFTWARE_NAME_VERSION_PATTERN)."""
_NAMES_SOFTWARE: Final = 3
_KNOWS_LEVEL_ZERO: Final = 4
"""The first version whose readers take a feature that begins at level 0 (KAFKA-17492)."""
_ADVERTISED_FROM: Final = {ApiKey.PRODUCE: 0}
"""librdkafka takes it that a node without Produce 0 knows no compression (KAFKA-18659)."""


class ApiVersionsApi:
    """Answers at once. ``all_apis`` are those that it tells of; the answers are kept while the metadata stay."""

    key: ClassVar[ApiKey] = ApiKey.API_VERSIONS
    versions: ClassVar[tuple[int, int]] = ApiVersionsRequest.VERSIONS
    flexible: ClassVar[int] = ApiVersionsRequest.FLEXIBLE
    overlaps: ClassVar[bool] = False

    def __init__(self, all_apis: Callable[[], Mapping[ApiKey, Api]]) -> None:
        self._all_apis = all_apis
        self._kept: dict[int, tuple[MetadataImage, Body]] = {}

    def begin(self, node: KafkaNode, request: Request) -> Body:
        """Return the response; INVALID_REQUEST to a client with a name or version that cannot be."""
        version = request.caller.version
        asked = decode(ApiVersionsRequest, request.reader, version)
        if version >= _NAMES_SOFTWARE and not _is_valid(asked):
            return _encoded(ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST.code), version)
        image = node.context.metadata.image
        if asked.asks_grpc_listener:
            answer = self._response(image, version)
            return _encoded(replace(answer, grpc_listener=_grpc_listener(node, image)), version)
        kept = self._kept.get(version)
        if kept is None or kept[0] is not image:
            kept = self._kept[version] = (image, _encoded(self._response(image, version), version))
        return kept[1]

    def _response(self, image: MetadataImage, version: int) -> ApiVersionsResponse:
        return ApiVersionsResponse(
            api_keys=[_range_of(api) for _, api in sorted(self._all_apis().items())],
            supported_features=[
                SupportedFeature(name, known.min_level, known.max_level)
                for name, known in sorted(SUPPORTED_FEATURES.items())
                if known.min_level > 0 or version >= _KNOWS_LEVEL_ZERO
            ],
            finalized_features_epoch=image.offset,
            finalized_features=[
                FinalizedFeature(name, level, level) for name, level in sorted(image.feature_levels.items()) if level
            ],
        )


def unsupported_version() -> Body:
    """Return the answer to ApiVersions in a version that is not served: of version 0, with the range that is."""
    served = ApiVersion(ApiKey.API_VERSIONS, *ApiVersionsRequest.VERSIONS)
    return _encoded(ApiVersionsResponse(ErrorCode.UNSUPPORTED_VERSION.code, [served]), 0)


def _is_valid(asked: ApiVersionsRequest) -> bool:
    return all(map(_SOFTWARE.fullmatch, (asked.client_software_name, asked.client_software_version)))


def _grpc_listener(node: KafkaNode, image: MetadataImage) -> str:
    """The listeners of a broker that has restarted on other ports are known with its registration."""
    broker = image.brokers.get(node.context.broker_id)
    return "" if broker is None else format_address(broker.endpoint.host, broker.endpoint.port)


def _range_of(api: Api) -> ApiVersion:
    first, last = api.versions
    return ApiVersion(api.key, _ADVERTISED_FROM.get(api.key, first), last)


def _encoded(response: ApiVersionsResponse, version: int) -> Body:
    writer = Writer()
    encode(response, writer, version)
    return writer.chunks()
