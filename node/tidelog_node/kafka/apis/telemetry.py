"""The APIs of client metrics: GetTelemetrySubscriptions and PushTelemetry (KIP-714)."""

from __future__ import annotations

from tidelog_foundation.errors import ErrorCode, TidelogError
from tidelog_node.kafka.apis.errors import code_of
from tidelog_node.kafka.protocol.messages import telemetry as wire
from tidelog_node.kafka.served import Api, Caller, KafkaNode, MessageApi
from tidelog_node.telemetry.client_telemetry import COMPRESSIONS, ClientOrigin


async def get_telemetry_subscriptions(
    node: KafkaNode, request: wire.GetTelemetrySubscriptionsRequest, caller: Caller
) -> wire.GetTelemetrySubscriptionsResponse:
    """Return the subscriptions that apply to a client, with its instance id."""
    telemetry = node.context.telemetry
    if telemetry is None:
        return wire.GetTelemetrySubscriptionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION.code)
    try:
        instance_id, subscribed = telemetry.subscriptions_of(request.client_instance_id, _origin(caller))
    except TidelogError as error:
        return wire.GetTelemetrySubscriptionsResponse(error_code=code_of(error))
    return wire.GetTelemetrySubscriptionsResponse(
        client_instance_id=instance_id,
        subscription_id=subscribed.subscription_id,
        accepted_compression_types=list(COMPRESSIONS),
        push_interval_ms=subscribed.interval_ms,
        telemetry_max_bytes=telemetry.max_bytes,
        delta_temporality=True,
        requested_metrics=list(subscribed.metrics),
    )


async def push_telemetry(
    node: KafkaNode, request: wire.PushTelemetryRequest, caller: Caller
) -> wire.PushTelemetryResponse:
    """Take the metrics of a client."""
    telemetry = node.context.telemetry
    if telemetry is None:
        return wire.PushTelemetryResponse(error_code=ErrorCode.UNSUPPORTED_VERSION.code)
    try:
        await telemetry.push(
            request.client_instance_id,
            request.subscription_id,
            _origin(caller),
            request.compression_type,
            bytes(request.metrics),
            is_terminating=request.terminating,
        )
    except TidelogError as error:
        return wire.PushTelemetryResponse(error_code=code_of(error))
    return wire.PushTelemetryResponse()


def _origin(caller: Caller) -> ClientOrigin:
    return ClientOrigin(caller.client.client_id, caller.host, caller.software)


APIS: tuple[Api, ...] = (
    MessageApi(wire.GetTelemetrySubscriptionsRequest, get_telemetry_subscriptions),
    MessageApi(wire.PushTelemetryRequest, push_telemetry),
)
