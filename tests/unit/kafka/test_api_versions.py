"""A node's answer to ApiVersions."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from tidelog_foundation.errors import ErrorCode
from tidelog_foundation.ids import BrokerEpoch, BrokerId
from tidelog_foundation.requests.addresses import Endpoint
from tidelog_node.kafka.apis.api_versions import ApiVersionsApi
from tidelog_node.kafka.apis.registry import all_apis
from tidelog_node.kafka.protocol.api_keys import ApiKey
from tidelog_node.kafka.protocol.codec import decode, encode
from tidelog_node.kafka.protocol.messages.api_versions import (
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeature,
    SupportedFeature,
)
from tidelog_node.kafka.protocol.reader import Reader
from tidelog_node.kafka.protocol.writer import Writer
from tidelog_node.kafka.served import Api, Caller, KafkaNode, Request
from tidelog_node.shards.events import ClientIdentity
from tidelog_quorum.metadata.features import (
    CLUSTER_LINKS_VERSION,
    ELIGIBLE_LEADER_REPLICAS_VERSION,
    METADATA_VERSION,
    TRANSACTION_VERSION,
)
from tidelog_quorum.metadata.image import MetadataImage
from tidelog_quorum.metadata.registrations import BrokerRegistration

_IMAGE = MetadataImage(offset=42, feature_levels={METADATA_VERSION: 1, ELIGIBLE_LEADER_REPLICAS_VERSION: 0})


def ask(
    version: int, image: MetadataImage = _IMAGE, *, api: Api | None = None, name: str = "tests", asks: bool = False
) -> bytes:
    writer = Writer()
    encode(ApiVersionsRequest(name, "1.0-rc1", asks), writer, version)
    context = SimpleNamespace(broker_id=7, metadata=SimpleNamespace(image=image))
    node = cast(KafkaNode, SimpleNamespace(context=context))
    caller = Caller("PLAINTEXT", ClientIdentity("me", "/127.0.0.1"), version)
    request = Request(caller, 1, Reader(memoryview(writer.buffer)))
    body: Any = (api or ApiVersionsApi(all_apis)).begin(node, request)
    return b"".join(body)


def response(body: bytes, version: int) -> ApiVersionsResponse:
    return decode(ApiVersionsResponse, Reader(memoryview(body)), version)


@pytest.mark.parametrize("version", range(5))
def test_every_api_that_is_there_is_advertised_and_no_other(version: int) -> None:
    answer = response(ask(version), version)
    expected = {int(key): api.versions for key, api in all_apis().items()}
    assert {a.api_key: a.max_version for a in answer.api_keys} == {key: last for key, (_, last) in expected.items()}
    assert [a.api_key for a in answer.api_keys] == sorted(expected)
    for advertised in answer.api_keys:
        if advertised.api_key != ApiKey.PRODUCE:
            assert advertised.min_version == expected[advertised.api_key][0]
    assert answer.error_code == 0


def test_produce_is_advertised_from_version_0() -> None:
    toy = cast(Api, SimpleNamespace(key=ApiKey.PRODUCE, versions=(3, 12)))
    [advertised] = response(ask(3, api=ApiVersionsApi(lambda: {ApiKey.PRODUCE: toy})), 3).api_keys
    assert (advertised.min_version, advertised.max_version) == (0, 12)


def test_features_are_told_with_the_epoch_of_their_image_and_level_0_only_where_it_is_understood() -> None:
    metadata = SupportedFeature(METADATA_VERSION, 1, CLUSTER_LINKS_VERSION)
    elr = SupportedFeature(ELIGIBLE_LEADER_REPLICAS_VERSION, 0, 1)
    old, new = response(ask(3), 3), response(ask(4), 4)
    assert old.supported_features == [metadata]
    assert new.supported_features == [elr, metadata, SupportedFeature(TRANSACTION_VERSION, 0, 2)]
    assert old.finalized_features == new.finalized_features == [FinalizedFeature(METADATA_VERSION, 1, 1)]
    assert old.finalized_features_epoch == 42


def test_answer_changes_with_the_metadata() -> None:
    api = ApiVersionsApi(all_apis)
    assert response(ask(3, api=api), 3).finalized_features_epoch == 42
    assert response(ask(3, MetadataImage(offset=43), api=api), 3).finalized_features_epoch == 43


@pytest.mark.parametrize("name", ["", "-x", "a b", "x.", "ä"])
def test_client_software_that_cannot_be_is_an_invalid_request(name: str) -> None:
    answer = response(ask(3, name=name), 3)
    assert (answer.error_code, answer.api_keys) == (ErrorCode.INVALID_REQUEST.code, [])


def test_grpc_listener_is_told_to_clients_that_ask_and_to_no_other() -> None:
    registered = BrokerRegistration(BrokerId(7), BrokerEpoch(1), b"i" * 16, Endpoint("fd00::7", 9094))
    image = MetadataImage(offset=43, brokers={BrokerId(7): registered})
    assert response(ask(3, image, asks=True), 3).grpc_listener == "[fd00::7]:9094"
    assert response(ask(3, image), 3).grpc_listener is None
    assert ask(2, image, asks=True) == ask(2, image)


def test_grpc_listener_of_a_node_that_is_not_registered_is_empty() -> None:
    assert response(ask(4, asks=True), 4).grpc_listener == ""
