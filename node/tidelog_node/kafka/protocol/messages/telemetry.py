"""The metrics of clients: GetTelemetrySubscriptions and PushTelemetry (KIP-714)."""

from __future__ import annotations

from tidelog_node.kafka.protocol.api_keys import ApiKey
from tidelog_node.kafka.protocol.fields import (
    STRING,
    Kind,
    Message,
    array,
    boolean,
    data,
    int8,
    int16,
    int32,
    uuid,
)


class GetTelemetrySubscriptionsRequest(Message, api=ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, versions=(0, 0), flexible=0):
    """A request for the metrics to push. A client without an instance id sends zeros."""

    client_instance_id: bytes = uuid()


class GetTelemetrySubscriptionsResponse(Message, answers=GetTelemetrySubscriptionsRequest):
    """The metrics to push, by prefixes of their names, and the interval; nothing is pushed without metrics."""

    throttle_time_ms: int = int32()
    error_code: int = int16()
    client_instance_id: bytes = uuid()
    subscription_id: int = int32()
    accepted_compression_types: list[int] = array(Kind.INT8)
    push_interval_ms: int = int32()
    telemetry_max_bytes: int = int32()
    delta_temporality: bool = boolean()
    requested_metrics: list[str] = array(STRING)


class PushTelemetryRequest(Message, api=ApiKey.PUSH_TELEMETRY, versions=(0, 0), flexible=0):
    """The metrics of a client, OpenTelemetry's MetricsData; ``terminating`` with its last push."""

    client_instance_id: bytes = uuid()
    subscription_id: int = int32()
    terminating: bool = boolean()
    compression_type: int = int8()
    metrics: bytes = data()


class PushTelemetryResponse(Message, answers=PushTelemetryRequest):
    """The outcome of a push."""

    throttle_time_ms: int = int32()
    error_code: int = int16()
