"""SaslHandshake and SaslAuthenticate where a client must not send them, as in Kafka's KafkaApis.

A listener with SASL answers them itself until the client is authenticated, and when it authenticates again. What
reaches these functions comes from an authenticated client, or to a listener without SASL.
"""

from __future__ import annotations

from tidelog_foundation.errors import ErrorCode
from tidelog_node.kafka.protocol.messages import sasl as wire
from tidelog_node.kafka.served import Api, Caller, KafkaNode, MessageApi

_TEXT = "SaslAuthenticate request received after successful authentication"


async def sasl_handshake(
    node: KafkaNode, request: wire.SaslHandshakeRequest, caller: Caller
) -> wire.SaslHandshakeResponse:
    """Return ILLEGAL_SASL_STATE."""
    return wire.SaslHandshakeResponse(ErrorCode.ILLEGAL_SASL_STATE.code)


async def sasl_authenticate(
    node: KafkaNode, request: wire.SaslAuthenticateRequest, caller: Caller
) -> wire.SaslAuthenticateResponse:
    """Return ILLEGAL_SASL_STATE."""
    return wire.SaslAuthenticateResponse(ErrorCode.ILLEGAL_SASL_STATE.code, _TEXT)


APIS: tuple[Api, ...] = (
    MessageApi(wire.SaslHandshakeRequest, sasl_handshake),
    MessageApi(wire.SaslAuthenticateRequest, sasl_authenticate),
)
