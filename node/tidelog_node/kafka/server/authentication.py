"""The SASL exchange of a connection without I/O or clock (Kafka's SaslServerAuthenticator; KIP-43, KIP-152, KIP-368).

A client may first ask for the APIs (ApiVersions). SaslHandshake then names a mechanism. Its tokens follow in
SaslAuthenticate requests or, after SaslHandshake 0, in frames without a header. Nothing else is understood here, so
that no byte of a client that is not authenticated reaches a handler.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum, auto
from struct import Struct
from typing import Final, NamedTuple, TypeAlias, TypeVar

from tidelog_foundation.dataclass import dataclass
from tidelog_foundation.errors import ErrorCode
from tidelog_foundation.sasl import (
    Authenticated,
    AuthenticationFailed,
    Challenge,
    Deferred,
    SaslContext,
    SaslMechanism,
    SaslServer,
    Step,
)
from tidelog_foundation.security import Principal
from tidelog_node.kafka.protocol.api_keys import ApiKey
from tidelog_node.kafka.protocol.codec import decode, encode
from tidelog_node.kafka.protocol.fields import Message
from tidelog_node.kafka.protocol.headers import RequestHeader, read_request_header, response_has_tags, response_head
from tidelog_node.kafka.protocol.messages import api_versions as versions_wire
from tidelog_node.kafka.protocol.messages import sasl as wire
from tidelog_node.kafka.protocol.reader import MalformedMessageError, Reader
from tidelog_node.kafka.protocol.writer import Writer

_LENGTH: Final = Struct(">i")
_MOST_FRAMES: Final = 64
"""The maximum number of frames of one exchange; that of no mechanism needs ten."""
_NO_ERROR: Final = b"\0\0"
_SHOWN_NAME: Final = 32
Q = TypeVar("Q", bound=Message)


class _State(Enum):
    """The next expected frame, as in Kafka's SaslState."""

    FIRST = auto()
    """ApiVersions or SaslHandshake, from a client that may not speak Kafka's protocol."""
    VERSIONS_OR_HANDSHAKE = auto()
    HANDSHAKE = auto()
    TOKEN = auto()
    DEFERRED = auto()
    """None before :meth:`Authentication.resolve`."""
    ENDED = auto()


class Now(NamedTuple):
    """A moment: milliseconds since 1970, and of a clock that never goes back."""

    wall_ms: int
    monotonic_ms: int


@dataclass(frozen=True, slots=True)
class ListenerMechanism:
    """A mechanism that a listener has enabled. ``max_session_ms`` is connections.max.reauth.ms."""

    mechanism: SaslMechanism
    max_session_ms: int = 0


@dataclass(frozen=True, slots=True)
class Session:
    """An authenticated client. After ``expires_ms``, of the clock that never goes back, it may only log in again."""

    principal: Principal
    mechanism: str
    expires_ms: int | None = None
    is_token: bool = False


@dataclass(frozen=True, slots=True)
class Reply:
    """A response, or for clients that use SaslHandshake 0 a token without a header."""

    body: bytes | None
    """None if a mechanism has no last token, and there is no header to send."""
    header: RequestHeader | None
    has_tags: bool = False

    def to_frame(self) -> bytes:
        """Return the bytes to send."""
        if self.body is None:
            return b""
        if self.header is None:
            return _LENGTH.pack(len(self.body)) + self.body
        return response_head(len(self.body), self.header.correlation_id, has_tags=self.has_tags) + self.body


@dataclass(frozen=True, slots=True)
class Failure:
    """The end of a failed exchange. ``reason`` is for the log. The connection is closed after the reply.

    A refused authentication ``is_delayed``: the reply, and the end of the connection, follow after
    connection.failed.authentication.delay.ms. Frames that do not belong to the protocol end it at once.
    """

    reason: str
    reply: Reply | None = None
    is_delayed: bool = True


Outcome: TypeAlias = Reply | Failure | Deferred
"""The reaction to a frame."""


class Authentication:
    """One exchange. ``session`` is set when it has succeeded, before its last reply.

    ``answer_versions`` answers ApiVersions with a body. With ``previous``, this is the re-authentication of that
    session, which begins with SaslHandshake and may change neither principal nor mechanism.
    """

    def __init__(
        self,
        mechanisms: Mapping[str, ListenerMechanism],
        context: SaslContext,
        answer_versions: Callable[[RequestHeader, bytes], bytes],
        previous: Session | None = None,
    ) -> None:
        self.session: Session | None = None
        self.refusal: str | None = None
        """The reason of a refusal that the client has yet to confirm, for the log."""
        self._mechanisms = mechanisms
        self._context = context
        self._answer_versions = answer_versions
        self._previous = previous
        self._state = _State.FIRST if previous is None else _State.HANDSHAKE
        self._frames = 0
        self._mechanism = ""
        self._server: SaslServer | None = None
        self._has_headers = False
        self._header: RequestHeader | None = None
        """The header of the SaslAuthenticate request that is being answered."""

    @property
    def mechanism(self) -> str:
        """The mechanism of the exchange, empty before the handshake."""
        return self._mechanism

    @property
    def is_deferred(self) -> bool:
        """True if the next call must be :meth:`resolve`."""
        return self._state is _State.DEFERRED

    def receive(self, frame: bytes, now: Now) -> Outcome:
        """Process one frame, without its length."""
        assert self._state not in (_State.DEFERRED, _State.ENDED), "no frame is expected"
        self._frames += 1
        try:
            if self._frames > _MOST_FRAMES:
                raise MalformedMessageError(f"an authentication takes at most {_MOST_FRAMES} requests")
            if self._state is _State.TOKEN:
                return self._receive_token(frame, now)
            return self._receive_request(frame)
        except MalformedMessageError as error:
            return self._fail(f"invalid request: {error}", is_delayed=False)

    def resolve(self, outcome: Challenge | Authenticated | AuthenticationFailed, now: Now) -> Outcome:
        """Continue with the outcome of deferred work."""
        assert self._state is _State.DEFERRED, "no work was deferred"
        self._state = _State.TOKEN
        if isinstance(outcome, AuthenticationFailed):
            return self._refuse(outcome.reason, outcome.public)
        return self._go_on(outcome, now)

    def _receive_request(self, frame: bytes) -> Outcome:
        header = _read_header(frame, (ApiKey.API_VERSIONS, ApiKey.SASL_HANDSHAKE))
        if header.api_key == ApiKey.API_VERSIONS:
            return self._receive_versions(header, frame)
        request = _decoded(wire.SaslHandshakeRequest, header, frame)
        self._has_headers = header.version > 0
        if request.mechanism not in self._mechanisms:
            text = f"the mechanism {request.mechanism[:_SHOWN_NAME]!a} is not enabled"
            return self._fail(text, self._handshake_reply(header, ErrorCode.UNSUPPORTED_SASL_MECHANISM.code))
        self._mechanism = request.mechanism
        self._server = self._mechanisms[request.mechanism].mechanism.server(self._context)
        self._state = _State.TOKEN
        return self._handshake_reply(header)

    def _receive_versions(self, header: RequestHeader, frame: bytes) -> Outcome:
        if self._state is _State.HANDSHAKE:
            raise MalformedMessageError("ApiVersions after ApiVersions, SaslHandshake was expected")
        body = self._answer_versions(header, frame)
        is_error = not body.startswith(_NO_ERROR)
        self._state = _State.VERSIONS_OR_HANDSHAKE if is_error else _State.HANDSHAKE
        return Reply(body, header)

    def _receive_token(self, frame: bytes, now: Now) -> Outcome:
        previous = self._previous
        if previous is not None and self._mechanism != previous.mechanism:
            text = f"re-authentication with {self._mechanism}, not with {previous.mechanism}"
            return self._fail(text)
        token = frame
        if self._has_headers:
            known = (ApiKey.API_VERSIONS, ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE)
            self._header = _read_header(frame, known)
            if self._header.api_key != ApiKey.SASL_AUTHENTICATE:
                return self._refuse_order(self._header, frame)
            token = bytes(_decoded(wire.SaslAuthenticateRequest, self._header, frame).auth_bytes)
        assert self._server is not None, "the handshake created it"
        try:
            step = self._server.evaluate(token, now.wall_ms)
        except AuthenticationFailed as error:
            return self._refuse(error.reason, error.public)
        return self._go_on(step, now)

    def _go_on(self, step: Step, now: Now) -> Outcome:
        if isinstance(step, Deferred):
            self._state = _State.DEFERRED
            return step
        if isinstance(step, Challenge):
            self.refusal = step.refusal
            return self._token_reply(step.token)
        previous = self._previous
        if previous is not None and previous.principal != step.principal:
            old, new = (f"{each.kind}.{each.name}" for each in (previous.principal, step.principal))
            text = f"Cannot change principals during re-authentication from {old}: {new}"
            return self._refuse(text, text)
        lifetime_ms = self._lifetime_ms(step, now)
        expires_ms = now.monotonic_ms + lifetime_ms if lifetime_ms is not None else None
        self.session = Session(step.principal, self._mechanism, expires_ms, step.is_token)
        self._state = _State.ENDED
        return self._token_reply(step.response, lifetime_ms or 0)

    def _lifetime_ms(self, step: Authenticated, now: Now) -> int | None:
        """Return the lifetime of the session, None if it is unlimited (KIP-368)."""
        longest = self._mechanisms[self._mechanism].max_session_ms
        limits = [longest] if longest > 0 else []
        if step.expires_at_ms is not None:
            limits.append(max(0, step.expires_at_ms - now.wall_ms))
        return min(limits, default=None)

    def _refuse(self, reason: str, public: str | None) -> Failure:
        """End the exchange with a text that does not say what is wrong with the credentials."""
        what = "authentication" if self._previous is None else "re-authentication"
        text = public or (
            f"Authentication failed during {what} due to invalid credentials with SASL mechanism {self._mechanism}"
        )
        return self._fail(reason, self._error_reply(ErrorCode.SASL_AUTHENTICATION_FAILED.code, text))

    def _refuse_order(self, header: RequestHeader, frame: bytes) -> Failure:
        """Answer ApiVersions or SaslHandshake in the middle of the mechanism's exchange."""
        code = ErrorCode.ILLEGAL_SASL_STATE.code
        text = f"{ApiKey(header.api_key).name} in the middle of the SASL exchange"
        if header.api_key == ApiKey.SASL_HANDSHAKE:
            _decoded(wire.SaslHandshakeRequest, header, frame)
            return self._fail(text, _reply(wire.SaslHandshakeResponse(code), header))
        _decoded(versions_wire.ApiVersionsRequest, header, frame)
        return self._fail(text, _reply(versions_wire.ApiVersionsResponse(code), header))

    def _fail(self, reason: str, reply: Reply | None = None, *, is_delayed: bool = True) -> Failure:
        self._state = _State.ENDED
        refusal, self.refusal = self.refusal, None
        told = reason if refusal in (None, reason) else f"{refusal}; then {reason}"
        return Failure(told, reply, is_delayed)

    def _handshake_reply(self, header: RequestHeader, error_code: int = 0) -> Reply:
        return _reply(wire.SaslHandshakeResponse(error_code, list(self._mechanisms)), header)

    def _token_reply(self, token: bytes | None, lifetime_ms: int = 0) -> Reply:
        if self._header is None:
            return Reply(token, None)
        response = wire.SaslAuthenticateResponse(auth_bytes=token or b"", session_lifetime_ms=lifetime_ms)
        return _reply(response, self._header)

    def _error_reply(self, code: int, text: str) -> Reply | None:
        """Return the error, None for clients that get tokens only: they learn it from the end of the connection."""
        return _reply(wire.SaslAuthenticateResponse(code, text), self._header) if self._header is not None else None


def _read_header(frame: bytes, expected: tuple[ApiKey, ...]) -> RequestHeader:
    header = read_request_header(frame)
    if header.api_key not in expected:
        raise MalformedMessageError(
            f"the request {header.api_key} is not one of {', '.join(key.name for key in expected)}: is the client "
            f"configured for another security protocol?"
        )
    return header


def _decoded(kind: type[Q], header: RequestHeader, frame: bytes) -> Q:
    first, last = kind.VERSIONS
    if not first <= header.version <= last:
        raise MalformedMessageError(f"{ApiKey(header.api_key).name} version {header.version} is not supported")
    reader = Reader(memoryview(frame), header.end)
    if header.version >= kind.FLEXIBLE:
        reader.skip_tagged_fields()
    return decode(kind, reader, header.version)


def _reply(message: Message, header: RequestHeader) -> Reply:
    writer = Writer()
    encode(message, writer, header.version)
    is_flexible = header.version >= message.FLEXIBLE
    body = b"".join(map(bytes, writer.chunks()))
    return Reply(body, header, response_has_tags(header.api_key, is_flexible=is_flexible))
