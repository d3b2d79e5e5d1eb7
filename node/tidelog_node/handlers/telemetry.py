"""GetTelemetrySubscriptions and PushTelemetry: the metrics that clients push to this node (KIP-714)."""

from __future__ import annotations

from tidelog_foundation.errors import ErrorCode, error_for
from tidelog_node.handlers.context import NodeContext
from tidelog_node.handlers.requests import telemetry as requests
from tidelog_node.telemetry.client_telemetry import COMPRESSIONS, NO_ID, ClientOrigin, ClientTelemetry


async def get_telemetry_subscriptions(
    context: NodeContext, request: requests.GetTelemetrySubscriptionsRequest, origin: ClientOrigin
) -> requests.GetTelemetrySubscriptionsResponse:
    """Return the subscriptions that apply to a client, with its instance id.

    Raises:
        TidelogError: THROTTLING_QUOTA_EXCEEDED, the client asks too early; INVALID_REQUEST, its id is invalid;
            UNSUPPORTED_VERSION, this node takes no metrics.
    """
    telemetry = _receiver(context)
    instance_id, subscribed = telemetry.subscriptions_of(_checked_id(request.client_instance_id or NO_ID), origin)
    return requests.GetTelemetrySubscriptionsResponse(
        client_instance_id=instance_id,
        subscription_id=subscribed.subscription_id,
        accepted_compression_types=COMPRESSIONS,
        push_interval_ms=subscribed.interval_ms,
        telemetry_max_bytes=telemetry.max_bytes,
        delta_temporality=True,
        requested_metrics=subscribed.metrics,
    )


async def push_telemetry(
    context: NodeContext, request: requests.PushTelemetryRequest, origin: ClientOrigin
) -> requests.PushTelemetryResponse:
    """Take the metrics of a client.

    Raises:
        TidelogError: INVALID_REQUEST, THROTTLING_QUOTA_EXCEEDED, UNKNOWN_SUBSCRIPTION_ID, UNSUPPORTED_COMPRESSION_TYPE,
            TELEMETRY_TOO_LARGE, INVALID_RECORD; UNSUPPORTED_VERSION, this node takes no metrics.
    """
    await _receiver(context).push(
        _checked_id(request.client_instance_id or NO_ID),
        request.subscription_id,
        origin,
        request.compression_type,
        request.metrics,
        is_terminating=request.terminating,
    )
    return requests.PushTelemetryResponse()


def _receiver(context: NodeContext) -> ClientTelemetry:
    if context.telemetry is None:
        raise error_for(ErrorCode.UNSUPPORTED_VERSION, "this node takes no metrics of clients")
    return context.telemetry


def _checked_id(instance_id: bytes) -> bytes:
    if len(instance_id) != len(NO_ID):
        text = f"a client instance id has {len(NO_ID)} bytes, not {len(instance_id)}"
        raise error_for(ErrorCode.INVALID_REQUEST, text)
    return instance_id
