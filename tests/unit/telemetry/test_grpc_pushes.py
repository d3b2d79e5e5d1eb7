"""Metrics that a client of gRPC pushes to a node, by the rules of KIP-714 and with its errors."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import cramjam
import grpc
import pytest
from opentelemetry.proto.metrics.v1.metrics_pb2 import MetricsData
from support.scrapes import MONITORED, node_port, scrape

from tidelog import AdminClient
from tidelog.admin import AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType
from tidelog.testing import FakeCluster
from tidelog.v1 import log_service_pb2 as pb
from tidelog.v1.log_service_pb2_grpc import LogServiceStub
from tidelog_foundation.errors import ErrorCode
from tidelog_foundation.transport import error_from_rpc

pytestmark = pytest.mark.costly
DEADLINE_S = 30.0
ZSTD = 4


@pytest.fixture(scope="module")
def cluster() -> Iterator[FakeCluster]:
    with FakeCluster(node_config=MONITORED | {"telemetry.max.bytes": 2_000}) as running:
        match = "client_id=pusher,client_software_name=toy,client_source_port=[1-9][0-9]*"
        settings = {"metrics": "app.", "interval.ms": "3600000", "match": match}
        changes = [
            ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET) for key, value in settings.items()
        ]
        resource = ConfigResource(ResourceType.CLIENT_METRICS, "s", incremental_configs=changes)
        with AdminClient({"bootstrap.servers": running.bootstrap_servers}) as admin:
            admin.incremental_alter_configs([resource])[resource].result(DEADLINE_S)
        yield running


@pytest.fixture
def stub(cluster: FakeCluster) -> Iterator[Any]:
    options = [("grpc.primary_user_agent", "pusher")]
    with grpc.insecure_channel(cluster.bootstrap_servers, options) as channel:
        yield LogServiceStub(channel)


def asked(stub: Any, software: str = "toy") -> pb.GetTelemetrySubscriptionsResponse:
    request = pb.GetTelemetrySubscriptionsRequest(client_software_name=software, client_software_version="1.0")
    response: pb.GetTelemetrySubscriptionsResponse = stub.GetTelemetrySubscriptions(request, timeout=DEADLINE_S)
    return response


def metrics(value: int = 3) -> bytes:
    data = MetricsData()
    metric = data.resource_metrics.add().scope_metrics.add().metrics.add(name="app.calls")
    metric.sum.is_monotonic, metric.sum.aggregation_temporality = True, 1
    metric.sum.data_points.add(as_int=value)
    return data.SerializeToString()


def push(stub: Any, subscribed: pb.GetTelemetrySubscriptionsResponse, content: bytes, **fields: Any) -> ErrorCode:
    request = {
        "client_instance_id": subscribed.client_instance_id,
        "subscription_id": subscribed.subscription_id,
        "metrics": content,
        "client_software_name": "toy",
        "client_software_version": "1.0",
    } | fields
    try:
        stub.PushTelemetry(pb.PushTelemetryRequest(**request), timeout=DEADLINE_S)
    except grpc.RpcError as error:
        return error_from_rpc(error).code
    return ErrorCode.NONE


def test_client_gets_its_subscriptions_and_pushes(cluster: FakeCluster, stub: Any) -> None:
    subscribed = asked(stub)
    assert len(subscribed.client_instance_id) == 16
    assert list(subscribed.requested_metrics) == ["app."]
    assert (subscribed.push_interval_ms, subscribed.telemetry_max_bytes) == (3_600_000, 2_000)
    assert subscribed.delta_temporality
    assert subscribed.accepted_compression_types[0] == ZSTD
    packed = bytes(cramjam.zstd.compress(metrics()))
    assert push(stub, subscribed, packed, compression_type=ZSTD) is ErrorCode.NONE
    # The interval is not over, but a client that closes may push its last values.
    assert push(stub, subscribed, metrics(2)) is ErrorCode.THROTTLING_QUOTA_EXCEEDED
    assert push(stub, subscribed, metrics(2), terminating=True) is ErrorCode.NONE
    assert push(stub, subscribed, metrics(2), terminating=True) is ErrorCode.INVALID_REQUEST
    labels = {"client_id": "pusher", "metric": "app.calls"}
    assert scrape(node_port(cluster)).value("tidelog_client_metric_total", **labels) == 5


def test_subscription_of_another_software_does_not_apply(stub: Any) -> None:
    assert not asked(stub, "other").requested_metrics


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"client_instance_id": b""}, ErrorCode.INVALID_REQUEST),
        ({"client_instance_id": b"short"}, ErrorCode.INVALID_REQUEST),
        ({"subscription_id": 7}, ErrorCode.UNKNOWN_SUBSCRIPTION_ID),
        ({"compression_type": 9}, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
        ({"metrics": bytes(2_001)}, ErrorCode.TELEMETRY_TOO_LARGE),
        ({"metrics": b"\xff\xff"}, ErrorCode.INVALID_RECORD),
    ],
)
def test_push_is_refused_with_the_errors_of_the_kip(stub: Any, fields: dict[str, Any], code: ErrorCode) -> None:
    assert push(stub, asked(stub), metrics(), **fields) is code
