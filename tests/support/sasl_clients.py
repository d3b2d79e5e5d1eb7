"""The requests of SASL clients in bytes, and mechanisms for tests."""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass, field

from tidelog_foundation.sasl import Authenticated, AuthenticationFailed, Challenge, Deferred, SaslContext, Step
from tidelog_foundation.sasl.plain import PlainMechanism
from tidelog_foundation.security import Principal
from tidelog_node.kafka.protocol.api_keys import ApiKey
from tidelog_node.kafka.protocol.codec import decode, encode
from tidelog_node.kafka.protocol.fields import Message
from tidelog_node.kafka.protocol.messages import sasl as wire
from tidelog_node.kafka.protocol.reader import Reader
from tidelog_node.kafka.protocol.writer import Writer
from tidelog_node.kafka.server.authentication import ListenerMechanism

USERS = PlainMechanism({"alice": "wonderland", "bob": "builder"})


@dataclass
class StepMechanism:
    """A mechanism that obeys the client's token.

    The tokens are ``again``, ``user NAME``, ``until NAME MS``, ``later``, ``bug``, and ``confirm`` for a refusal that
    the client has to confirm.
    """

    name: str = "STEPS"
    threads: list[Callable[[], Challenge | Authenticated]] = field(default_factory=list)

    def server(self, context: SaslContext) -> StepMechanism:
        return self

    def evaluate(self, token: bytes, now_ms: int) -> Step:
        word, *rest = token.decode("latin-1").split(" ")
        if word == "later":
            return Deferred(lambda: self._work(" ".join(rest).encode(), now_ms))
        return self._work(token, now_ms)

    def _work(self, token: bytes, now_ms: int) -> Challenge | Authenticated:
        word, *rest = token.decode("latin-1").split(" ")
        if word == "again":
            return Challenge(b"more")
        if word == "confirm":
            return Challenge(b"refused", refusal="the token is bad")
        if word == "user":
            return Authenticated(Principal("User", rest[0]), b"welcome")
        if word == "until":
            return Authenticated(Principal("User", rest[0]), b"welcome", now_ms + int(rest[1]), is_token=True)
        if word == "bug":
            raise ZeroDivisionError("a bug")
        raise AuthenticationFailed("canary of the log")


def mechanisms(max_session_ms: int = 0) -> dict[str, ListenerMechanism]:
    return {each.name: ListenerMechanism(each, max_session_ms) for each in (USERS, StepMechanism())}


def handshake(mechanism: str = "PLAIN", version: int = 1, correlation_id: int = 1) -> bytes:
    return _frame(wire.SaslHandshakeRequest(mechanism), version, correlation_id)


def authenticate(token: bytes, version: int = 2, correlation_id: int = 2) -> bytes:
    return _frame(wire.SaslAuthenticateRequest(token), version, correlation_id)


def plain(user: str = "alice", password: str = "wonderland", version: int = 2) -> bytes:
    return authenticate(f"\0{user}\0{password}".encode(), version)


def prefixed(frame: bytes) -> bytes:
    return struct.pack(">i", len(frame)) + frame


def handshake_response(body: bytes, version: int = 1) -> wire.SaslHandshakeResponse:
    return decode(wire.SaslHandshakeResponse, Reader(memoryview(body)), version)


def authenticate_response(body: bytes, version: int = 2) -> wire.SaslAuthenticateResponse:
    return decode(wire.SaslAuthenticateResponse, Reader(memoryview(body)), version)


def _frame(message: Message, version: int, correlation_id: int) -> bytes:
    writer = Writer()
    encode(message, writer, version)
    head = struct.pack(">hhih", ApiKey(message.API_KEY), version, correlation_id, 2) + b"me"
    tags = b"\0" if version >= message.FLEXIBLE else b""
    return head + tags + b"".join(map(bytes, writer.chunks()))
