"""The APIs of client metrics: GetTelemetrySubscriptions and PushTelemetry (KIP-714)."""

from __future__ import annotations

from tidelog_foundation.errors import TidelogError
from tidelog_node import handlers
from tidelog_node.handlers.requests import telemetry as requests
from tidelog_node.kafka.apis.errors import code_of
from tidelog_node.kafka.protocol.messages import telemetry as wire
from tidelog_node.kafka.served import Api, Caller, KafkaNode, MessageApi
from tidelog_node.telemetry.client_telemetry import ClientOrigin


async def get_telemetry_subscriptions(
    node: KafkaNode, request: wire.GetTelemetrySubscriptionsRequest, caller: Caller
) -> wire.GetTelemetrySubscriptionsResponse:
    """Return the subscriptions that apply to a client, with its instance id."""
    asked = requests.GetTelemetrySubscriptionsRequest(request.client_instance_id)
    try:
        response = await handlers.get_telemetry_subscriptions(node.context, asked, _origin(caller))
    except TidelogError as error:
        return wire.GetTelemetrySubscriptionsResponse(error_code=code_of(error))
    return wire.GetTelemetrySubscriptionsResponse(
        client_instance_id=response.client_instance_id,
        subscription_id=response.subscription_id,
        accepted_compression_types=list(response.accepted_compression_types),
        push_interval_ms=response.push_interval_ms,
        telemetry_max_bytes=response.telemetry_max_bytes,
        delta_temporality=response.delta_temporality,
        requested_metrics=list(response.requested_metrics),
    )


async def push_telemetry(
    node: KafkaNode, request: wire.PushTelemetryRequest, caller: Caller
) -> wire.PushTelemetryResponse:
    """Take the metrics of a client."""
    pushed = requests.PushTelemetryRequest(
        request.client_instance_id,
        request.subscription_id,
        request.terminating,
        request.compression_type,
        bytes(request.metrics),
    )
    try:
        await handlers.push_telemetry(node.context, pushed, _origin(caller))
    except TidelogError as error:
        return wire.PushTelemetryResponse(error_code=code_of(error))
    return wire.PushTelemetryResponse()


def _origin(caller: Caller) -> ClientOrigin:
    return ClientOrigin(caller.client.client_id, caller.host, caller.software)


APIS: tuple[Api, ...] = (
    MessageApi(wire.GetTelemetrySubscriptionsRequest, get_telemetry_subscriptions),
    MessageApi(wire.PushTelemetryRequest, push_telemetry),
)
