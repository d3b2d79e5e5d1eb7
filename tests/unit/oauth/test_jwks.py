from __future__ import annotations

import json
import time

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from token_issuer import Issuer, public_jwk, serving

from tidelog_foundation.oauth.http import ExchangeFailed, fetch_document
from tidelog_foundation.oauth.jwks import MAX_DOCUMENT_BYTES, MAX_KEYS, InvalidKeySet, parse_key_set
from tidelog_foundation.oauth.jwks_schedule import JwksSchedule
from tidelog_foundation.oauth.jwks_store import JwksStore


def key_set(*keys):
    return parse_key_set(json.dumps({"keys": keys}).encode())


def wait_until(condition, timeout_s=10.0):
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, "the condition does not hold in time"
        time.sleep(0.01)


def test_key_set_has_the_asymmetric_keys_for_signatures():
    curve = public_jwk(ec.generate_private_key(ec.SECP384R1()), "p384")
    edwards = jwt.algorithms.OKPAlgorithm.to_jwk(ed25519.Ed25519PrivateKey.generate().public_key(), as_dict=True)
    keys = key_set(
        curve,
        {**edwards, "kid": "ed"},
        {"kty": "oct", "k": "c2VjcmV0", "kid": "symmetric"},
        {**curve, "kid": "encryption", "use": "enc"},
        {**curve, "kid": "broken", "x": "AAAA"},
        {"kty": "EC", "crv": "secp256k1", "kid": "unknown curve"},
        "text",
    )
    assert [(key.key_id, set(key.algorithms)) for key in keys.keys] == [("p384", {"ES384"}), ("ed", {"EdDSA"})]


def test_key_set_leaves_out_a_short_rsa_key():
    short = rsa.generate_private_key(65_537, 1_024).public_key()
    with pytest.raises(InvalidKeySet):
        key_set(jwt.algorithms.RSAAlgorithm.to_jwk(short, as_dict=True))


def test_key_set_limits_a_key_to_its_own_algorithm():
    long = rsa.generate_private_key(65_537, 2_048).public_key()
    keys = key_set({**jwt.algorithms.RSAAlgorithm.to_jwk(long, as_dict=True), "kid": "r", "alg": "RS256"})
    assert keys.find("r", "RS256") is not None
    assert keys.find("r", "RS512") is None


def test_key_set_finds_a_key_without_an_id_only_if_it_is_the_only_one():
    first, second = (public_jwk(ec.generate_private_key(ec.SECP256R1()), name) for name in ("a", "b"))
    assert key_set(first).find(None, "ES256") is not None
    assert key_set(first, second).find(None, "ES256") is None
    assert key_set(first, second).find("b", "ES256") is not None


@pytest.mark.parametrize(
    "document",
    [b"", b"[]", b"{}", b'{"keys": 1}', b'{"keys": []}', b"[" * 100_000, b"\xff", b" " * (MAX_DOCUMENT_BYTES + 1)],
)
def test_key_set_that_is_unusable_is_refused(document):
    with pytest.raises(InvalidKeySet):
        parse_key_set(document)


def test_key_set_with_too_many_keys_is_refused():
    with pytest.raises(InvalidKeySet, match=str(MAX_KEYS)):
        key_set(*[{}] * (MAX_KEYS + 1))


def test_jwks_schedule_doubles_the_backoff_up_to_its_maximum():
    schedule = JwksSchedule(refresh_ms=60_000, retry_backoff_ms=100, retry_backoff_max_ms=300)
    pauses = []
    for _ in range(4):
        schedule.failed(1_000)
        pauses.append(schedule.next_attempt_ms - 1_000)
    assert pauses == [100, 200, 300, 300]
    schedule.succeeded(2_000)
    assert schedule.next_attempt_ms == 62_000


def test_jwks_schedule_fetches_for_unknown_keys_at_most_once_per_backoff():
    schedule = JwksSchedule(refresh_ms=60_000, retry_backoff_ms=100, retry_backoff_max_ms=300)
    schedule.succeeded(0)
    attempts = 0
    for now_ms in range(1_000):
        if schedule.expedite(now_ms):
            attempts += 1
            schedule.succeeded(now_ms)
    assert attempts == 4


def test_jwks_store_takes_over_a_new_key_after_a_token_names_it():
    issuer = Issuer()
    with serving() as endpoints:
        endpoints.answers["/jwks"] = (200, issuer.key_set())
        store = JwksStore(endpoints.url("/jwks"), JwksSchedule(3_600_000, 10, 20))
        store.start()
        try:
            wait_until(lambda: store.find("first", "ES256") is not None)
            issuer.rotate("second", keep=False)
            endpoints.answers["/jwks"] = (200, issuer.key_set())
            wait_until(lambda: store.find("second", "ES256") is not None)
            assert store.find("first", "ES256") is None
        finally:
            store.stop()


def test_jwks_store_keeps_its_keys_while_the_endpoint_fails(caplog):
    issuer = Issuer()
    with serving() as endpoints:
        endpoints.answers["/jwks"] = (200, issuer.key_set())
        store = JwksStore(endpoints.url("/jwks"), JwksSchedule(10, 10, 20))
        store.start()
        try:
            wait_until(lambda: store.find("first", "ES256") is not None)
            endpoints.answers["/jwks"] = (503, b"")
            wait_until(lambda: "the server answers 503" in caplog.text)
            assert store.find("first", "ES256") is not None
        finally:
            store.stop()


def test_fetch_follows_no_redirect_and_reads_no_more_than_the_limit(tmp_path):
    file = tmp_path / "keys.json"
    file.write_bytes(b"x" * 11)
    with serving() as endpoints:
        endpoints.answers |= {"/there": (302, file.as_uri().encode()), "/large": (200, b"x" * 11)}
        with pytest.raises(ExchangeFailed, match="302"):
            fetch_document(endpoints.url("/there"), 10)
        for url in (endpoints.url("/large"), file.as_uri()):
            with pytest.raises(ExchangeFailed, match="more than 10 bytes"):
                fetch_document(url, 10)
            assert fetch_document(url, 11) == b"x" * 11
        with pytest.raises(ExchangeFailed, match="cannot read"):
            fetch_document((tmp_path / "missing").as_uri(), 10)
