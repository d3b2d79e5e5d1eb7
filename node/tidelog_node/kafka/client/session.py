"""The login of a connection to another node, and its session (Kafka's SaslClientAuthenticator; KIP-152, KIP-368)."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from typing import Final, Protocol

from tidelog_foundation.errors import ErrorCode, TidelogError, error_for
from tidelog_foundation.sasl import AuthenticationFailed, SaslClient, SaslLogin
from tidelog_node.kafka.protocol.api_keys import ApiKey
from tidelog_node.kafka.protocol.codec import decode
from tidelog_node.kafka.protocol.fields import Message
from tidelog_node.kafka.protocol.messages import sasl as wire
from tidelog_node.kafka.protocol.reader import Reader

_WITH_HEADERS: Final = 1
"""The version of SaslHandshake after which tokens are in SaslAuthenticate requests."""
_EARLIEST: Final = 0.85
_LATEST: Final = 0.95
"""The part of a session's lifetime after which a client authenticates again, as in Kafka."""
_SECOND_MS: Final = 1_000


class Ask(Protocol):
    """Sends a request on the connection."""

    def __call__(self, request: Message, version: int) -> Awaitable[Reader]:
        """Return the body of the response."""


class PeerSession:
    """The session of one connection to ``host``. ``peer`` is the other node's name in errors."""

    def __init__(self, login: SaslLogin, host: str, peer: str) -> None:
        self._login = login
        self._host = host
        self._peer = peer
        self._renewal: float | None = None

    def ends_soon(self) -> bool:
        """Return whether it is time to log in again."""
        return self._renewal is not None and time.monotonic() >= self._renewal

    async def log_in(self, version_of: Callable[[ApiKey, tuple[int, int]], int], ask: Ask) -> None:
        """Exchange tokens until both sides are satisfied. Tokens are computed in threads.

        Raises:
            TidelogError: UNSUPPORTED_SASL_MECHANISM, SASL_AUTHENTICATION_FAILED, or an error of the connection.
            MalformedMessageError: The other side does not speak the protocol.
        """
        version = version_of(ApiKey.SASL_HANDSHAKE, (_WITH_HEADERS, wire.SaslHandshakeRequest.VERSIONS[1]))
        request = wire.SaslHandshakeRequest(self._login.mechanism)
        answer = decode(wire.SaslHandshakeResponse, await ask(request, version), version)
        if answer.error_code:
            raise self._not_enabled(answer)
        version = version_of(ApiKey.SASL_AUTHENTICATE, wire.SaslAuthenticateRequest.VERSIONS)
        try:
            lifetime_ms = await self._exchange(version, ask)
        except AuthenticationFailed as error:
            raise self._failed(error.reason) from error
        self._renewal = None
        if lifetime_ms:
            self._renewal = time.monotonic() + random.uniform(_EARLIEST, _LATEST) * lifetime_ms / _SECOND_MS

    async def _exchange(self, version: int, ask: Ask) -> int:
        client, token = await asyncio.to_thread(_begin, self._login, self._host)
        while True:
            reader = await ask(wire.SaslAuthenticateRequest(token), version)
            answer = decode(wire.SaslAuthenticateResponse, reader, version)
            if answer.error_code:
                raise self._failed(answer.error_message or "")
            is_complete = client.is_complete
            following = None if is_complete else await asyncio.to_thread(client.evaluate, bytes(answer.auth_bytes))
            if following is None:
                _check_complete(client)
                return answer.session_lifetime_ms
            token = following

    def _not_enabled(self, answer: wire.SaslHandshakeResponse) -> TidelogError:
        text = f"{self._peer} refuses the mechanism {self._login.mechanism}, it has {', '.join(answer.mechanisms)}"
        return error_for(answer.error_code, text)

    def _failed(self, reason: str) -> TidelogError:
        text = f"the login to {self._peer} with {self._login.mechanism} has failed: {reason}"
        return error_for(ErrorCode.SASL_AUTHENTICATION_FAILED, text)


def _check_complete(client: SaslClient) -> None:
    if not client.is_complete:
        raise AuthenticationFailed("the server has ended the exchange before its identity is verified")


def _begin(login: SaslLogin, host: str) -> tuple[SaslClient, bytes]:
    client = login.client(host)
    return client, client.first()
