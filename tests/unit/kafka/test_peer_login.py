"""The logins of nodes to each other: before the first request, and again before a session ends."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field

import pytest
from sasl_clients import mechanisms
from toy_listener import ToyListener, open_listener, run

from tidelog_foundation.errors import ErrorCode, TidelogError
from tidelog_foundation.sasl import SaslLogin
from tidelog_foundation.sasl.login_counts import Result
from tidelog_foundation.sasl.plain import PlainLogin
from tidelog_node.kafka.client.connections import PeerConnections
from tidelog_node.kafka.protocol.api_keys import ApiKey
from tidelog_node.kafka.protocol.writer import Writer
from tidelog_node.kafka.server.logins import ListenerSasl

NAME = "SASL_PLAINTEXT"
ALICE = PlainLogin("alice", "wonderland")


@dataclass
class Script:
    """A login of the mechanism STEPS that sends these tokens, and is complete after the last one."""

    tokens: list[bytes]
    mechanism: str = "STEPS"
    is_complete: bool = False
    answers: list[bytes] = field(default_factory=list)

    def client(self, host: str) -> Script:
        return Script(list(self.tokens), answers=self.answers)

    def first(self) -> bytes:
        return self.tokens.pop(0)

    def evaluate(self, challenge: bytes) -> bytes | None:
        self.answers.append(challenge)
        self.is_complete = not self.tokens and challenge == b"welcome"
        return self.tokens.pop(0) if self.tokens else None


def open_sasl(max_session_ms: int = 0) -> AbstractAsyncContextManager[ToyListener]:
    sasl: Mapping[str, ListenerSasl] = {NAME: ListenerSasl(mechanisms(max_session_ms), failure_delay_s=0.01)}
    return open_listener(names=(NAME,), sasl=sasl)


async def principal(connections: PeerConnections, listener: ToyListener) -> bytes:
    connection = await connections.take(f"127.0.0.1:{listener.listeners.ports[NAME]}", 5.0)
    body = Writer()
    body.buffer += b"principal"
    reader = await connection.send(ApiKey.METADATA, 1, body, is_flexible=False, timeout_s=5.0)
    return bytes(reader.view[reader.position :])


@pytest.mark.parametrize("login", [ALICE, Script([b"again", b"later again", b"user alice"])])
def test_node_logs_in_once_per_connection(login: SaslLogin) -> None:
    async def main() -> None:
        async with open_sasl() as listener:
            connections = PeerConnections("node-1", login=login)
            for _ in range(3):
                assert await principal(connections, listener) == b"User:alice"
            assert listener.listeners.login_counts.total(Result.SUCCESS) == 1
            connections.close()

    run(main)


def test_node_logs_in_again_before_its_session_ends() -> None:
    async def main() -> None:
        async with open_sasl(max_session_ms=2_000) as listener:
            connections = PeerConnections("node-1", login=ALICE)
            assert await principal(connections, listener) == b"User:alice"
            await asyncio.sleep(1.91)
            assert await principal(connections, listener) == b"User:alice"
            counts = listener.listeners.login_counts
            assert counts.total(Result.SUCCESS) == 1
            assert counts.total(Result.SUCCESS, is_again=True) == 1
            connections.close()

    run(main)


@pytest.mark.parametrize(
    ("login", "code", "text"),
    [
        (PlainLogin("alice", "canary"), ErrorCode.SASL_AUTHENTICATION_FAILED, "Invalid username or password"),
        (Script([], "OTHER"), ErrorCode.UNSUPPORTED_SASL_MECHANISM, "refuses the mechanism OTHER, it has PLAIN, STEPS"),
        (Script([b"again"]), ErrorCode.SASL_AUTHENTICATION_FAILED, "before its identity is verified"),
    ],
)
def test_refused_login_is_an_error_that_names_the_node_and_the_mechanism(
    login: SaslLogin, code: ErrorCode, text: str
) -> None:
    async def main() -> None:
        async with open_sasl() as listener:
            connections = PeerConnections("node-1", login=login)
            with pytest.raises(TidelogError, match=text) as raised:
                await principal(connections, listener)
            assert raised.value.code is code
            assert "the node at 127.0.0.1:" in raised.value.message
            assert "canary" not in raised.value.message

    run(main)


def test_node_without_a_login_is_refused() -> None:
    async def main() -> None:
        async with open_sasl() as listener:
            with pytest.raises(TidelogError) as raised:
                await principal(PeerConnections("node-1"), listener)
            assert raised.value.code is ErrorCode._TRANSPORT
            assert listener.begun == []

    run(main)
