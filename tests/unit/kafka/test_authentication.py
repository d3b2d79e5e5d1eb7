"""The SASL exchange of a connection, frame by frame, as Kafka's SaslServerAuthenticator."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sasl_clients import (
    authenticate,
    authenticate_response,
    handshake,
    handshake_response,
    mechanisms,
    plain,
)

from tidelog_foundation.sasl import Authenticated, AuthenticationFailed, Challenge, Deferred, SaslContext
from tidelog_foundation.security import Principal
from tidelog_node.kafka.protocol.api_keys import ApiKey
from tidelog_node.kafka.protocol.headers import RequestHeader
from tidelog_node.kafka.server.authentication import Authentication, Failure, Now, Reply, Session

_NOW = Now(wall_ms=1_000_000, monotonic_ms=50_000)
_ALICE = Principal("User", "alice")
_VERSIONS = struct.pack(">hhih", ApiKey.API_VERSIONS, 0, 7, -1)
_METADATA = struct.pack(">hhih", ApiKey.METADATA, 1, 7, -1) + bytes(4)
UNSUPPORTED_SASL_MECHANISM, ILLEGAL_SASL_STATE, SASL_AUTHENTICATION_FAILED = 33, 34, 58


class Exchange:
    """An exchange, with a fake of the ApiVersions API."""

    def __init__(self, previous: Session | None = None, max_session_ms: int = 0) -> None:
        self.versions: list[int] = []
        self.versions_error = 0
        context = SaslContext("SASL_SSL", "127.0.0.1", is_encrypted=True)
        self.core = Authentication(mechanisms(max_session_ms), context, self._answer_versions, previous)

    def _answer_versions(self, header: RequestHeader, frame: bytes) -> bytes:
        self.versions.append(header.version)
        return struct.pack(">h", self.versions_error) + b"apis"

    def reply(self, frame: bytes) -> Reply:
        outcome = self.core.receive(frame, _NOW)
        assert isinstance(outcome, Reply), outcome
        return outcome

    def body(self, frame: bytes) -> bytes:
        body = self.reply(frame).body
        assert body is not None
        return body

    def failure(self, frame: bytes) -> Failure:
        outcome = self.core.receive(frame, _NOW)
        assert isinstance(outcome, Failure), outcome
        assert self.core.session is None
        return outcome


def begun(mechanism: str = "PLAIN", version: int = 1, previous: Session | None = None, max_ms: int = 0) -> Exchange:
    exchange = Exchange(previous, max_ms)
    assert handshake_response(exchange.body(handshake(mechanism, version)), version).error_code == 0
    return exchange


@pytest.mark.parametrize("version", [0, 1, 2])
def test_client_is_authenticated_by_versions_handshake_and_token(version: int) -> None:
    exchange = Exchange()
    assert exchange.reply(_VERSIONS).to_frame() == struct.pack(">iih", 10, 7, 0) + b"apis"
    assert handshake_response(exchange.body(handshake())).mechanisms == ["PLAIN", "STEPS"]
    assert exchange.core.session is None

    answer = authenticate_response(exchange.body(plain(version=version)), version)

    assert (answer.error_code, answer.error_message, bytes(answer.auth_bytes)) == (0, "", b"")
    assert answer.session_lifetime_ms == 0
    assert exchange.core.session == Session(_ALICE, "PLAIN")


def test_tokens_after_handshake_0_have_no_header() -> None:
    exchange = begun("STEPS", version=0)
    assert exchange.reply(b"again").to_frame() == b"\0\0\0\x04more"
    assert exchange.reply(b"user alice").to_frame() == b"\0\0\0\x07welcome"
    assert exchange.core.session == Session(_ALICE, "STEPS")


def test_wrong_token_after_handshake_0_gets_no_reply() -> None:
    failure = begun(version=0).failure(b"\0alice\0wrong")
    assert failure.reply is None
    assert failure.is_delayed


@pytest.mark.parametrize("token", [b"\0alice\0wrong", b"\0nobody\0wonderland", b"\xff"])
def test_refused_credentials_get_one_text_that_does_not_say_why(token: bytes) -> None:
    failure = begun().failure(authenticate(token))
    assert failure.reply is not None
    answer = authenticate_response(failure.reply.body or b"")
    assert answer.error_code == SASL_AUTHENTICATION_FAILED
    assert answer.error_message in {
        "Authentication failed: Invalid username or password",
        "Authentication failed during authentication due to invalid credentials with SASL mechanism PLAIN",
    }
    assert failure.is_delayed
    assert "wonderland" not in failure.reason


def test_reason_of_a_refusal_is_not_in_the_reply() -> None:
    failure = begun("STEPS").failure(authenticate(b"canary"))
    assert failure.reason == "canary of the log"
    assert failure.reply is not None
    assert b"canary" not in (failure.reply.body or b"")


def test_reason_of_a_refusal_is_logged_for_a_client_that_does_not_confirm_it() -> None:
    exchange = begun("STEPS")
    assert bytes(authenticate_response(exchange.body(authenticate(b"confirm"))).auth_bytes) == b"refused"
    assert exchange.core.refusal == "the token is bad"
    assert exchange.failure(_METADATA).reason.startswith("the token is bad; then invalid request")
    assert exchange.core.refusal is None
    exchange = begun("STEPS")
    exchange.body(authenticate(b"confirm"))
    assert exchange.failure(authenticate(b"x")).reason == "the token is bad; then canary of the log"


def test_unknown_mechanism_is_refused_with_the_enabled_ones() -> None:
    failure = Exchange().failure(handshake("CRAM-MD5\n" * 9))
    assert failure.reply is not None
    answer = handshake_response(failure.reply.body or b"")
    assert (answer.error_code, answer.mechanisms) == (UNSUPPORTED_SASL_MECHANISM, ["PLAIN", "STEPS"])
    assert failure.is_delayed
    assert "\n" not in failure.reason


@pytest.mark.parametrize("frame", [_METADATA, b"", b"\x60\x82\x01GSSAPI token", plain(), handshake(version=2)])
def test_first_frame_that_is_neither_versions_nor_handshake_closes_at_once(frame: bytes) -> None:
    failure = Exchange().failure(frame)
    assert failure.reply is None
    assert not failure.is_delayed


def test_second_successful_versions_request_closes_at_once() -> None:
    exchange = Exchange()
    exchange.reply(_VERSIONS)
    assert not exchange.failure(_VERSIONS).is_delayed
    assert exchange.versions == [0]


def test_versions_may_be_requested_again_after_an_error() -> None:
    exchange = Exchange()
    exchange.versions_error = 35
    exchange.reply(_VERSIONS)
    exchange.versions_error = 0
    exchange.reply(_VERSIONS)
    exchange.reply(handshake())


@pytest.mark.parametrize("frame", [handshake(), _VERSIONS])
def test_request_in_the_middle_of_the_mechanism_is_an_illegal_state(frame: bytes) -> None:
    failure = begun().failure(frame)
    assert failure.reply is not None
    assert (failure.reply.body or b"")[:2] == struct.pack(">h", ILLEGAL_SASL_STATE)
    assert failure.is_delayed


def test_other_requests_in_the_middle_of_the_mechanism_close_without_being_read() -> None:
    failure = begun().failure(_METADATA)
    assert (failure.reply, failure.is_delayed) == (None, False)


def test_exchange_without_end_is_bounded() -> None:
    exchange = begun("STEPS")
    for _ in range(63):
        exchange.reply(authenticate(b"again"))
    assert "at most 64 requests" in exchange.failure(authenticate(b"again")).reason


def test_session_lasts_as_long_as_the_setting_and_the_credential_allow() -> None:
    exchange = begun("STEPS", max_ms=5_000)
    answer = authenticate_response(exchange.body(authenticate(b"user alice")))
    assert answer.session_lifetime_ms == 5_000
    assert exchange.core.session == Session(_ALICE, "STEPS", _NOW.monotonic_ms + 5_000)

    exchange = begun("STEPS", max_ms=5_000)
    answer = authenticate_response(exchange.body(authenticate(b"until alice 300")))
    assert answer.session_lifetime_ms == 300
    assert exchange.core.session == Session(_ALICE, "STEPS", _NOW.monotonic_ms + 300, is_token=True)

    exchange = begun("STEPS")
    assert authenticate_response(exchange.body(authenticate(b"until alice -7"))).session_lifetime_ms == 0
    assert exchange.core.session == Session(_ALICE, "STEPS", _NOW.monotonic_ms, is_token=True)


def test_reauthentication_renews_the_session_of_the_same_principal() -> None:
    exchange = begun("STEPS", previous=Session(_ALICE, "STEPS", 1), max_ms=5_000)
    exchange.body(authenticate(b"user alice"))
    assert exchange.core.session == Session(_ALICE, "STEPS", _NOW.monotonic_ms + 5_000)


def test_reauthentication_may_not_change_the_principal() -> None:
    failure = begun("STEPS", previous=Session(_ALICE, "STEPS", 1)).failure(authenticate(b"user bob"))
    assert failure.reply is not None
    answer = authenticate_response(failure.reply.body or b"")
    assert answer.error_code == SASL_AUTHENTICATION_FAILED
    assert answer.error_message == "Cannot change principals during re-authentication from User.alice: User.bob"


def test_reauthentication_may_not_change_the_mechanism() -> None:
    failure = begun("STEPS", previous=Session(_ALICE, "PLAIN", 1)).failure(authenticate(b"user alice"))
    assert failure.reply is None
    assert failure.is_delayed


def test_reauthentication_begins_with_the_handshake() -> None:
    assert Exchange(Session(_ALICE, "PLAIN", 1)).failure(_VERSIONS).reply is None


def test_deferred_step_continues_with_its_outcome() -> None:
    exchange = begun("STEPS")
    deferred = exchange.core.receive(authenticate(b"later again"), _NOW)
    assert isinstance(deferred, Deferred)
    assert exchange.core.is_deferred
    assert deferred.work() == Challenge(b"more")

    challenge = exchange.core.resolve(Challenge(b"more"), _NOW)
    assert isinstance(challenge, Reply)
    assert exchange.core.session is None
    exchange.core.receive(authenticate(b"later user alice"), _NOW)
    exchange.core.resolve(Authenticated(_ALICE), _NOW)
    assert exchange.core.session == Session(_ALICE, "STEPS")


def test_deferred_step_that_fails_is_a_refusal() -> None:
    exchange = begun("STEPS")
    exchange.core.receive(authenticate(b"later"), _NOW)
    failure = exchange.core.resolve(AuthenticationFailed("no keys"), _NOW)
    assert isinstance(failure, Failure)
    assert failure.reason == "no keys"


_FRAMES = st.one_of(
    st.sampled_from([_VERSIONS, _METADATA, handshake(), handshake("STEPS"), handshake(version=0), plain("eve", "x")]),
    st.binary(max_size=40),
    st.builds(lambda key, rest: struct.pack(">h", key) + rest, st.integers(-1, 100), st.binary(max_size=40)),
    st.builds(authenticate, st.binary(max_size=20), st.integers(0, 2)),
)


@given(st.lists(_FRAMES, max_size=6))
def test_no_sequence_of_frames_without_credentials_authenticates(frames: list[bytes]) -> None:
    exchange = Exchange()
    for frame in frames:
        outcome = exchange.core.receive(frame, _NOW)
        assert exchange.core.session is None or b"user" in frame
        if not isinstance(outcome, Reply):
            return
