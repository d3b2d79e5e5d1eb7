"""Sessions of gRPC listeners with SASL: logins, calls, streams, expiry, and hostile callers."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from typing import Any

import grpc
import grpc.aio
import pytest
from google.protobuf.message import Message
from grpc_health.v1 import health, health_pb2
from support.metric_values import values

from tests.support.http2 import sent_of_message
from tests.support.sasl_clients import StepMechanism
from tidelog.v1 import admin_service_pb2, raft_service_pb2
from tidelog_foundation.errors import ErrorCode, TidelogError, error_for
from tidelog_foundation.sasl import Authenticated, SaslContext
from tidelog_foundation.sasl.login_counts import LOGINS, RELOGINS, SESSIONS
from tidelog_foundation.sasl.plain import PlainLogin, PlainMechanism
from tidelog_foundation.sasl.sessions import SessionLimits
from tidelog_foundation.sasl.settings import listener_sasl_settings
from tidelog_foundation.security import Principal
from tidelog_foundation.transport import error_from_rpc, open_channel, server_options
from tidelog_foundation.transport.budget import ByteBudget
from tidelog_foundation.transport.intake import Charge, Intake
from tidelog_foundation.transport.services import (
    Call,
    Caller,
    Method,
    Read,
    RequestStream,
    ResponseStream,
    Service,
    add_servicer,
)
from tidelog_foundation.transport.session_channel import log_in
from tidelog_foundation.transport.session_messages import (
    PART_BYTES,
    REQUEST_KEY,
    RESPONSES,
    AuthenticateRequest,
    AuthenticateResponse,
    authorization,
    metadata_of,
)
from tidelog_foundation.transport.session_service import SessionService

HEALTH = health_pb2.DESCRIPTOR.services_by_name["Health"]
RAFT = raft_service_pb2.DESCRIPTOR.services_by_name["RaftService"]
CHECK, WATCH = "/grpc.health.v1.Health/Check", "/grpc.health.v1.Health/Watch"
AUTHENTICATE = "/tidelog.v1.AuthenticationService/Authenticate"
ALICE, BOB = PlainLogin("alice", "a-secret"), PlainLogin("bob", "b-secret")
SERVING = health_pb2.HealthCheckResponse(status=health_pb2.HealthCheckResponse.SERVING)


class Door:
    """A server with one service behind a listener with SASL."""

    def __init__(self, sessions: SessionService, charge: Charge) -> None:
        self.sessions = sessions
        self.callers: list[str] = []
        self.metadata: dict[str, Any] = {}
        self.port = 0
        self._charge = charge
        self._server: grpc.aio.Server | None = None

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    async def start(self) -> None:
        self._server = server = grpc.aio.server()
        self.sessions.add_to(server)
        table = {"Check": Call(self._check, Message, Message), "Watch": ResponseStream(self._watch, Message, Message)}
        Service(HEALTH, table).add_to(server, Intake(self._charge), self.sessions.identify)
        self.port = server.add_insecure_port(f"127.0.0.1:{self.port}")
        await server.start()

    async def stop(self) -> None:
        assert self._server is not None
        await self._server.stop(0)

    async def _check(self, request: object, caller: Caller) -> Any:
        self.callers.append(str(caller.principal))
        self.metadata = dict(caller._rpc.invocation_metadata() or ())
        return SERVING

    async def _watch(self, request: object, caller: Caller) -> AsyncGenerator[Any, None]:
        while True:
            yield SERVING
            await asyncio.sleep(0.01)


def sessions_of(limits: SessionLimits | None = None, **keys: str) -> SessionService:
    given = {"sasl.enabled.mechanisms": "PLAIN", "connection.failed.authentication.delay.ms": "1"}
    own = {key.replace("_", "."): value for key, value in keys.items()}
    settings = listener_sasl_settings("GRPC", given | own, {})
    users = {login.username: login.password for login in (ALICE, BOB)}
    return SessionService(settings, {"PLAIN": PlainMechanism(users)}, is_encrypted=False, limits=limits)


@contextlib.asynccontextmanager
async def door(sessions: SessionService | None = None, charge: Charge | None = None) -> AsyncIterator[Door]:
    opened = Door(sessions or sessions_of(), charge or Charge(ByteBudget(1 << 20)))
    await opened.start()
    try:
        yield opened
    finally:
        await opened.stop()


async def check(channel: grpc.aio.Channel, *metadata: tuple[str, str]) -> None:
    options = {"metadata": metadata} if metadata else {}
    await channel.unary_unary(CHECK)(health_pb2.HealthCheckRequest().SerializeToString(), timeout=10, **options)


async def failure(call: Awaitable[object]) -> TidelogError:
    with pytest.raises(grpc.aio.AioRpcError) as raised:
        await call
    return error_from_rpc(raised.value)


def run(work: Callable[[], Any]) -> None:
    asyncio.run(asyncio.wait_for(work(), 30))


def test_caller_with_a_session_has_the_principal_of_its_login_in_all_its_calls() -> None:
    async def main() -> None:
        async with door() as at:
            for login in (ALICE, BOB):
                async with open_channel(at.address, login=login) as channel:
                    await asyncio.gather(*(check(channel) for _ in range(5)))
            assert at.callers == ["User:alice"] * 5 + ["User:bob"] * 5
            assert at.sessions.succeeded == 2, "concurrent calls share a login"
            families = tuple(at.sessions.families())
            assert values(families, LOGINS) == {("GRPC", "PLAIN", "success"): 2}
            assert values(families, SESSIONS) == {("GRPC",): 2}

    run(main)


@pytest.mark.parametrize("login", [PlainLogin("alice", "c4nary"), PlainLogin("mallory", "a-secret")])
def test_failed_login_is_refused_without_a_reason_and_counted(
    login: PlainLogin, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        async with door() as at, open_channel(at.address, login=login) as channel:
            error = await failure(check(channel))
            assert error.code is ErrorCode.SASL_AUTHENTICATION_FAILED
            assert error.message == "Authentication failed: Invalid username or password"
            assert (at.sessions.failed, at.callers) == (1, [])

    run(main)
    assert "A login from 127.0.0.1 at listener GRPC failed" in caplog.text
    assert login.password not in caplog.text


def test_failed_login_is_answered_after_the_delay() -> None:
    async def main() -> None:
        sessions = sessions_of(connection_failed_authentication_delay_ms="300")
        async with door(sessions) as at, open_channel(at.address, login=PlainLogin("alice", "wrong")) as channel:
            began = asyncio.get_running_loop().time()
            await failure(check(channel))
            assert asyncio.get_running_loop().time() - began >= 0.3

    run(main)


@pytest.mark.parametrize(
    ("metadata", "code", "status"),
    [
        pytest.param((), ErrorCode.ILLEGAL_SASL_STATE, "UNAUTHENTICATED", id="none"),
        pytest.param((("authorization", "Bearer x"),), ErrorCode.ILLEGAL_SASL_STATE, "UNAUTHENTICATED", id="scheme"),
        pytest.param((authorization("x"),), ErrorCode.NETWORK_EXCEPTION, "UNAUTHENTICATED", id="unknown"),
        pytest.param((authorization(""),), ErrorCode.NETWORK_EXCEPTION, "UNAUTHENTICATED", id="empty"),
        pytest.param((("authorization", "~" * 900),), ErrorCode.ILLEGAL_SASL_STATE, "UNAUTHENTICATED", id="garbage"),
    ],
)
def test_caller_without_a_valid_session_is_refused_before_its_request_is_received(
    metadata: tuple[tuple[str, str], ...], code: ErrorCode, status: str
) -> None:
    charged: list[int] = []

    class Counting(ByteBudget):
        async def take(self, size: int) -> None:
            charged.append(size)

    async def main() -> None:
        async with door(charge=Charge(Counting(1), free_bytes=-1)) as at, open_channel(at.address) as channel:
            with pytest.raises(grpc.aio.AioRpcError) as raised:
                await check(channel, *metadata)
            assert (error_from_rpc(raised.value).code, raised.value.code().name) == (code, status)
            with pytest.raises(grpc.aio.AioRpcError):
                await channel.unary_stream(WATCH)(b"").read()
            assert (charged, at.callers) == ([], [])

    run(main)


def test_session_of_another_server_is_replaced_by_a_login() -> None:
    async def main() -> None:
        async with door() as first, door() as second:
            async with open_channel(first.address, login=ALICE) as channel:
                await check(channel)
                await first.stop()
                first.sessions = sessions_of()
                await first.start()
                await asyncio.gather(*(check(channel) for _ in range(5)))
                assert first.sessions.succeeded == 1
            assert not second.sessions.succeeded

    run(main)


def test_stream_ends_when_its_session_does_and_the_next_one_has_another() -> None:
    async def main() -> None:
        sessions = sessions_of(SessionLimits(max_per_owner=1))
        async with door(sessions) as at, open_channel(at.address, login=ALICE) as channel:
            await log_in(channel)
            stream = channel.unary_stream(WATCH)(b"")
            await stream.read()
            async with open_channel(at.address, login=ALICE) as other:
                await check(other)

            async def read_all() -> None:
                while True:
                    await stream.read()

            assert (await failure(read_all())).code is ErrorCode.NETWORK_EXCEPTION
            while True:
                await log_in(channel)
                again = channel.unary_stream(WATCH)(b"")
                with contextlib.suppress(grpc.aio.AioRpcError):
                    await again.read()
                    break
            again.cancel()

    run(main)


def test_session_in_use_is_prolonged_before_it_expires_and_its_streams_continue(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # At 95 % of a short lifetime, a busy machine leaves too little time.
    monkeypatch.setattr("tidelog_foundation.transport.session_channel._RENEWAL", (0.1, 0.2))

    async def main() -> None:
        sessions = sessions_of(connections_max_reauth_ms="2000")
        async with door(sessions) as at, open_channel(at.address, login=ALICE) as channel:
            await log_in(channel)
            stream = channel.unary_stream(WATCH)(b"")
            while at.sessions.succeeded < 3:
                await stream.read()
            stream.cancel()

    run(main)


def test_session_is_not_prolonged_for_another_principal() -> None:
    async def main() -> None:
        async with door() as at, open_channel(at.address) as channel:
            token = (await authenticate(channel, b"\0alice\0a-secret"))[-1].session_token
            assert token
            error = await failure(authenticate(channel, b"\0bob\0b-secret", token=token))
            assert error.code is ErrorCode.SASL_AUTHENTICATION_FAILED

    run(main)


def test_failed_login_counts_as_a_further_one_only_with_the_session_of_an_earlier_one() -> None:
    async def main() -> None:
        async with door() as at, open_channel(at.address) as channel:
            token = (await authenticate(channel, b"\0alice\0a-secret"))[-1].session_token
            for named in ("", "invented", token):
                await failure(authenticate(channel, b"\0alice\0wrong", token=named))
            families = tuple(at.sessions.families())
            assert values(families, LOGINS)["GRPC", "PLAIN", "failure"] == 2
            assert values(families, RELOGINS) == {("GRPC", "PLAIN", "failure"): 1}

    run(main)


def test_session_of_a_password_is_not_prolonged_by_a_token_nor_the_reverse() -> None:
    class Either:
        """A mechanism whose client says with what it logs in."""

        name = "PLAIN"

        def server(self, context: SaslContext) -> Either:
            return self

        def evaluate(self, token: bytes, now_ms: int) -> Authenticated:
            return Authenticated(Principal("User", "alice"), b"", is_token=token == b"token")

    async def main() -> None:
        settings = listener_sasl_settings("GRPC", {"sasl.enabled.mechanisms": "PLAIN"}, {})
        sessions = SessionService(settings, {"PLAIN": Either()}, is_encrypted=False)
        async with door(sessions) as at, open_channel(at.address) as channel:
            for first, other in ((b"token", b"password"), (b"password", b"token")):
                session = (await authenticate(channel, first))[-1].session_token
                assert (await authenticate(channel, first, token=session))[-1].session_token == session
                error = await failure(authenticate(channel, other, token=session))
                assert error.code is ErrorCode.SASL_AUTHENTICATION_FAILED

    run(main)


class Barrier:
    """A guard that closes while streams are open."""

    is_closed = False

    def admit(self, method: str, caller: Caller) -> None:
        if self.is_closed:
            raise error_for(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)

    async def answer(self, method: str, request: Any, caller: Caller, handle: Any) -> Any:
        return await handle(request)


def test_open_streams_end_once_the_caller_may_not_open_them_any_more() -> None:
    async def echo(read: Read, caller: Caller) -> AsyncGenerator[Any, None]:
        while isinstance(await read(), bytes):
            yield RESPONSES.to_message(AuthenticateResponse(b""))

    async def watch(request: object, caller: Caller) -> AsyncGenerator[Any, None]:
        while True:
            yield SERVING
            await asyncio.sleep(0.01)

    async def main() -> None:
        server, guard, intake = grpc.aio.server(), Barrier(), Intake(Charge(ByteBudget(1)))
        table = {"Check": Call(watch, Message, Message), "Watch": ResponseStream(watch, Message, Message)}
        Service(HEALTH, table).add_to(server, intake, guard=guard)
        Service(RAFT, {"Exchange": RequestStream(echo)}).add_to(server, intake, guard=guard)
        port = server.add_insecure_port("127.0.0.1:0")
        await server.start()
        async with open_channel(f"127.0.0.1:{port}") as channel:
            watched = channel.unary_stream(WATCH)(b"")
            echoed = channel.stream_stream("/tidelog.v1.RaftService/Exchange")(timeout=10)
            await watched.read()
            await echoed.write(b"1")
            await echoed.read()
            guard.is_closed = True
            await echoed.write(b"2")

            async def read_all() -> None:
                while await watched.read() is not grpc.aio.EOF:
                    pass

            for reading in (asyncio.wait_for(read_all(), 5), echoed.read()):
                assert (await failure(reading)).code is ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        await server.stop(0)

    run(main)


async def authenticate(
    channel: grpc.aio.Channel, *auth_bytes: bytes, mechanism: str = "PLAIN", token: str = ""
) -> list[AuthenticateResponse]:
    """Return the server's responses to these tokens."""
    responses: list[AuthenticateResponse] = []
    for n, each in enumerate(auth_bytes):
        request = AuthenticateRequest(mechanism, each, token)
        if n:
            request = AuthenticateRequest(auth_bytes=each, exchange_id=responses[-1].exchange_id)
        responses.append(await send(channel, metadata_of(request)))
    return responses


async def send(channel: grpc.aio.Channel, *metadata: tuple[str, bytes]) -> AuthenticateResponse:
    """Return the server's response to one call."""
    raw = await channel.unary_unary(AUTHENTICATE)(b"", metadata=metadata, timeout=10)
    return RESPONSES.from_message(RESPONSES.message_type.FromString(raw))


@pytest.mark.parametrize(
    ("request_", "code"),
    [
        pytest.param(AuthenticateRequest("SCRAM-SHA-256", b"x"), ErrorCode.UNSUPPORTED_SASL_MECHANISM, id="mechanism"),
        pytest.param(AuthenticateRequest("", b""), ErrorCode.UNSUPPORTED_SASL_MECHANISM, id="empty"),
        pytest.param(AuthenticateRequest("PLAIN", b"\0"), ErrorCode.SASL_AUTHENTICATION_FAILED, id="malformed"),
        pytest.param(AuthenticateRequest(exchange_id=b"x" * 16), ErrorCode.REQUEST_TIMED_OUT, id="unknown exchange"),
        pytest.param(b"\xff\xff\xff", ErrorCode.INVALID_REQUEST, id="no message"),
        pytest.param(None, ErrorCode.INVALID_REQUEST, id="no metadata"),
    ],
)
def test_malformed_login_is_refused_with_few_words(
    request_: AuthenticateRequest | bytes | None, code: ErrorCode
) -> None:
    async def main() -> None:
        async with door() as at, open_channel(at.address) as channel:
            key = REQUEST_KEY if isinstance(request_, bytes) else "other-bin"
            sent = metadata_of(request_) if isinstance(request_, AuthenticateRequest) else (key, request_ or b"")
            error = await failure(send(channel, sent))
            assert error.code is code
            assert len(error.message) < 200

    run(main)


def steps() -> SessionService:
    settings = listener_sasl_settings("GRPC", {"sasl.enabled.mechanisms": "PLAIN"}, {})
    return SessionService(settings, {"PLAIN": StepMechanism()}, is_encrypted=False, max_logins=2)


def test_login_continues_over_several_calls_and_each_token_over_several_requests() -> None:
    async def main() -> None:
        async with door(steps()) as at, open_channel(at.address) as channel:
            first, last = await authenticate(channel, b"again", b"user alice")
            assert (first.auth_bytes, first.session_token) == (b"more", "")
            assert (last.auth_bytes, last.exchange_id, bool(last.session_token)) == (b"welcome", b"", True)
            # A login that has ended, and one in which a call is in progress, cannot be continued.
            ended = AuthenticateRequest(auth_bytes=b"user bob", exchange_id=first.exchange_id)
            assert (await failure(send(channel, metadata_of(ended)))).code is ErrorCode.REQUEST_TIMED_OUT
        user = PlainLogin("x" * 10_000, "y" * 10_000)
        accepting = SessionService(
            listener_sasl_settings("GRPC", {"sasl.enabled.mechanisms": "PLAIN"}, {}),
            {"PLAIN": PlainMechanism({user.username: user.password})},
            is_encrypted=False,
        )
        async with door(accepting) as at, open_channel(at.address, login=user) as channel:
            await check(channel)
            assert at.callers == [f"User:{user.username}"]

    run(main)


def test_token_above_the_limit_is_refused_before_its_rest_is_received() -> None:
    async def main() -> None:
        async with door() as at, open_channel(at.address) as channel:
            exchange_id, received = b"", 0

            async def send_all() -> None:
                nonlocal exchange_id, received
                while received < 1 << 20:
                    request = AuthenticateRequest("PLAIN", bytes(PART_BYTES), "", exchange_id, has_more=True)
                    exchange_id = (await send(channel, metadata_of(request))).exchange_id
                    received += PART_BYTES

            error = await failure(send_all())
            assert (error.code, received) == (ErrorCode.INVALID_REQUEST, 524_288)
            assert "sasl.server.max.receive.size" in error.message

    run(main)


def test_login_begins_once_it_is_admitted_and_one_that_prolongs_a_session_needs_no_admission() -> None:
    admitted: list[str] = []

    async def admit(host: str) -> None:
        admitted.append(host)
        if len(admitted) > 1:
            raise error_for(ErrorCode.REQUEST_TIMED_OUT, "too many")

    async def main() -> None:
        settings = listener_sasl_settings("GRPC", {"sasl.enabled.mechanisms": "PLAIN"}, {})
        sessions = SessionService(settings, {"PLAIN": StepMechanism()}, is_encrypted=False, admit=admit)
        async with door(sessions) as at, open_channel(at.address) as channel:
            session = (await authenticate(channel, b"again", b"user alice"))[-1].session_token
            assert (await authenticate(channel, b"user alice", token=session))[-1].session_token == session
            assert admitted == ["127.0.0.1"]
            for token in ("", "invented"):
                error = await failure(authenticate(channel, b"user alice", token=token))
                assert (error.code, error.message) == (ErrorCode.REQUEST_TIMED_OUT, "too many")
            assert len(sessions._exchanges) == 0

    run(main)


def test_abandoned_login_ends_with_its_time_and_leaves_its_place(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidelog_foundation.transport.login_exchanges.LOGIN_TIMEOUT_S", 0.2)

    async def main() -> None:
        async with door(steps()) as at, open_channel(at.address) as channel:
            [kept] = await authenticate(channel, b"again")
            await authenticate(channel, b"again")
            too_many = await failure(authenticate(channel, b"again"))
            assert (too_many.code, "too many logins" in too_many.message) == (ErrorCode.REQUEST_TIMED_OUT, True)
            while True:
                with contextlib.suppress(grpc.aio.AioRpcError):
                    await authenticate(channel, b"user alice")
                    break
            late = AuthenticateRequest(auth_bytes=b"user alice", exchange_id=kept.exchange_id)
            assert (await failure(send(channel, metadata_of(late)))).code is ErrorCode.REQUEST_TIMED_OUT

    run(main)


@pytest.mark.parametrize("path", [AUTHENTICATE, CHECK, WATCH, "/tidelog.v1.AdminService/CreateTopics", "/none"])
def test_message_of_a_caller_without_a_login_is_not_received(path: str) -> None:
    """gRPC has room for the beginning of a message; the rest is not sent before the server reads it."""

    async def main() -> None:
        server = grpc.aio.server(options=server_options(100 << 20))
        sessions = sessions_of()
        sessions.add_to(server)
        add_servicer(server, None, HEALTH, health.aio.HealthServicer())
        admin = admin_service_pb2.DESCRIPTOR.services_by_name["AdminService"]
        table: dict[str, Method] = {each.name: Call(_unreached, Message, Message) for each in admin.methods}
        Service(admin, table).add_to(server, Intake(Charge(ByteBudget(1 << 20))), sessions.identify)
        port = server.add_insecure_port("127.0.0.1:0")
        await server.start()
        assert await sent_of_message(port, path, size=16 << 20) <= 1 << 20
        await server.stop(0)

    run(main)


async def _unreached(request: object, caller: Caller) -> Any:
    raise AssertionError("a call without a login has reached a handler")


def test_client_with_sasl_learns_that_the_listener_has_none() -> None:
    async def main() -> None:
        server = grpc.aio.server()
        port = server.add_insecure_port("127.0.0.1:0")
        await server.start()
        async with open_channel(f"127.0.0.1:{port}", login=ALICE) as channel:
            error = await failure(check(channel))
            assert error.code is ErrorCode.ILLEGAL_SASL_STATE
            assert "no authentication with SASL" in error.message
        await server.stop(0)

    run(main)


def test_metadata_of_a_call_is_sent_beside_its_session() -> None:
    async def main() -> None:
        async with door() as at, open_channel(at.address, login=ALICE) as channel:
            await check(channel, ("key", "value"))
            assert at.metadata["key"] == "value"

    run(main)


def test_channel_shows_neither_its_password_nor_its_token() -> None:
    async def main() -> None:
        async with door() as at, open_channel(at.address, login=ALICE) as channel:
            await check(channel)
            texts = repr(channel) + repr(vars(channel)) + repr(ALICE)
            texts += repr(AuthenticateRequest("PLAIN", b"a-secret", "token-x"))
            assert "a-secret" not in texts
            assert "token-x" not in texts

    run(main)
