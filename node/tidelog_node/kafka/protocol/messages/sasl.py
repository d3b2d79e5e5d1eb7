"""SaslHandshake and SaslAuthenticate: the choice of a mechanism, and its tokens (KIP-43, KIP-152, KIP-368)."""

from __future__ import annotations

from tidelog_node.kafka.protocol.api_keys import ApiKey
from tidelog_node.kafka.protocol.fields import LAST_VERSION, STRING, Message, array, data, int16, int64, string


class SaslHandshakeRequest(Message, api=ApiKey.SASL_HANDSHAKE, versions=(0, 1), flexible=LAST_VERSION):
    """The client's mechanism. After version 0, tokens follow in frames of their own; after 1, in SaslAuthenticate."""

    mechanism: str = string()


class SaslHandshakeResponse(Message, answers=SaslHandshakeRequest):
    """The mechanisms of the listener."""

    error_code: int = int16()
    mechanisms: list[str] = array(STRING)


class SaslAuthenticateRequest(Message, api=ApiKey.SASL_AUTHENTICATE, versions=(0, 2), flexible=2):
    """A token of the client."""

    auth_bytes: bytes = data(is_secret=True)


class SaslAuthenticateResponse(Message, answers=SaslAuthenticateRequest):
    """A token of the server. ``session_lifetime_ms`` is the time to the next authentication; 0 means unlimited."""

    error_code: int = int16()
    error_message: str | None = string(nullable=0)
    auth_bytes: bytes = data(is_secret=True)
    session_lifetime_ms: int = int64(since=1)
