from __future__ import annotations

import base64
import json

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from token_issuer import AUDIENCE, ISSUER, Issuer

from tidelog_foundation.oauth.jwks import parse_key_set
from tidelog_foundation.oauth.jwt_validator import JwtRules, JwtValidator
from tidelog_foundation.oauth.token import MAX_TOKEN_CHARACTERS, BearerToken, TokenRefused

NOW_S = 1_700_000_000
NOW_MS = NOW_S * 1_000
RULES = JwtRules(expected_issuer=ISSUER, expected_audience=(AUDIENCE, "other"))


@pytest.fixture(scope="module")
def issuer():
    return Issuer()


def validator(issuer, rules=RULES):
    return JwtValidator(rules, parse_key_set(issuer.key_set()).find)


def refusal(issuer, token, rules=RULES, now_ms=NOW_MS):
    with pytest.raises(TokenRefused) as refused:
        validator(issuer, rules).validate(token, now_ms)
    assert refused.value.status == "invalid_token"
    return refused.value.reason


def test_jwt_gives_its_principal_expiry_and_scopes(issuer):
    token = issuer.token(NOW_S, scope="read write")
    valid = BearerToken("alice", NOW_MS + 3_600_000, frozenset(("read", "write")))
    assert validator(issuer).validate(token, NOW_MS) == valid


def test_jwt_claims_have_the_configured_names(issuer):
    rules = JwtRules(expected_audience=(AUDIENCE,), sub_claim_name="client", scope_claim_name="roles")
    token = issuer.token(NOW_S, client="app", roles=["a", "b"], sub=None)
    assert validator(issuer, rules).validate(token, NOW_MS).principal_name == "app"
    assert validator(issuer, rules).validate(token, NOW_MS).scopes == {"a", "b"}


@pytest.mark.parametrize(
    ("claims", "reason"),
    [
        ({"exp": NOW_S - 30}, "expired 30 s ago"),
        ({"nbf": NOW_S + 31}, "not valid before 31 s"),
        ({"exp": None}, "exp"),
        ({"iat": None}, "iat"),
        ({"exp": NOW_S + 5, "iat": NOW_S + 6}, "expires before"),
        ({"exp": "soon"}, "not a number"),
        ({"exp": float("inf")}, "not a number"),
        ({"exp": True}, "not a number"),
        ({"iss": "https://evil.example"}, f"Invalid issuer; sasl.oauthbearer.expected.issuer is {ISSUER}"),
        ({"iss": None}, "iss"),
        ({"aud": "elsewhere"}, f"Audience doesn't match; sasl.oauthbearer.expected.audience is {AUDIENCE}, other"),
        ({"aud": None}, "aud"),
        ({"sub": None}, "sub"),
        ({"sub": " "}, "sub"),
        ({"sub": 7}, "sub"),
        ({"scope": 7}, "scope"),
    ],
)
def test_jwt_with_wrong_claims_is_refused(issuer, claims, reason):
    token = issuer.token(NOW_S, **claims)
    assert reason in refusal(issuer, token)


def test_jwt_is_valid_within_the_clock_skew(issuer):
    assert validator(issuer).validate(issuer.token(NOW_S, exp=NOW_S - 29, iat=NOW_S - 60), NOW_MS)
    assert validator(issuer).validate(issuer.token(NOW_S, nbf=NOW_S + 30), NOW_MS)


def test_jwt_with_an_audience_is_refused_if_none_is_expected(issuer):
    assert "udience" in refusal(issuer, issuer.token(NOW_S), JwtRules())
    assert validator(issuer, JwtRules()).validate(issuer.token(NOW_S, aud=None), NOW_MS)


def test_jwt_of_another_issuers_key_is_refused(issuer):
    stranger = Issuer()
    assert "Signature verification failed" in refusal(issuer, stranger.token(NOW_S))
    stranger.rotate("unknown")
    assert "no key unknown for ES256" in refusal(issuer, stranger.token(NOW_S))


def test_jwt_without_a_signature_is_refused(issuer):
    claims = {"sub": "alice", "iss": ISSUER, "aud": AUDIENCE, "iat": NOW_S, "exp": NOW_S + 60}
    for algorithm in ("none", "None", "NONE"):
        header = base64.urlsafe_b64encode(json.dumps({"alg": algorithm, "kid": "first"}).encode()).decode().rstrip("=")
        payload = base64.urlsafe_b64encode(json.dumps(claims).encode()).decode().rstrip("=")
        assert "not permitted" in refusal(issuer, f"{header}.{payload}.")


def test_jwt_signed_with_the_public_key_as_hmac_secret_is_refused():
    key = rsa.generate_private_key(65_537, 2_048)
    numbers = jwt.algorithms.RSAAlgorithm.to_jwk(key.public_key(), as_dict=True)
    keys = parse_key_set(json.dumps({"keys": [{**numbers, "kid": "rsa"}]}).encode())
    secret = key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    claims = {"sub": "eve", "iss": ISSUER, "aud": AUDIENCE, "iat": NOW_S, "exp": NOW_S + 60}
    forged = _hmac_token(claims, secret)
    with pytest.raises(TokenRefused, match="HS256 is not permitted"):
        JwtValidator(RULES, keys.find).validate(forged, NOW_MS)
    signed = jwt.encode(claims, key, algorithm="PS384", headers={"kid": "rsa"})
    assert JwtValidator(RULES, keys.find).validate(signed, NOW_MS).principal_name == "eve"


def test_jwt_that_names_its_own_key_is_refused(issuer):
    own = ec.generate_private_key(ec.SECP256R1())
    jwk = jwt.algorithms.ECAlgorithm.to_jwk(own.public_key(), as_dict=True)
    claims = {"sub": "eve", "iss": ISSUER, "aud": AUDIENCE, "iat": NOW_S, "exp": NOW_S + 60}
    token = jwt.encode(claims, own, algorithm="ES256", headers={"jwk": jwk, "kid": "first"})
    assert "Signature verification failed" in refusal(issuer, token)


@pytest.mark.parametrize(
    "token",
    [
        "",
        "a",
        "a.b.c",
        "e30.e30.",
        ".".join(base64.urlsafe_b64encode(b"[" * 30_000).decode().rstrip("=") for _ in range(3))[:60_000],
        "x" * (MAX_TOKEN_CHARACTERS + 1),
    ],
)
def test_jwt_that_is_malformed_is_refused(issuer, token):
    assert refusal(issuer, token)


def test_jwt_with_a_header_of_strange_types_is_refused(issuer):
    for header in ({"alg": ["ES256"]}, {"alg": {}, "kid": "first"}, {"alg": "ES256", "kid": 7}):
        start = base64.urlsafe_b64encode(json.dumps(header).encode()).decode().rstrip("=")
        assert refusal(issuer, f"{start}.e30.AAAA")


def _hmac_token(claims, secret):
    """Sign with a public key as the secret, which PyJWT itself refuses to do."""
    import hashlib
    import hmac

    parts = [json.dumps({"alg": "HS256", "kid": "rsa"}), json.dumps(claims)]
    signed = ".".join(base64.urlsafe_b64encode(part.encode()).decode().rstrip("=") for part in parts)
    signature = hmac.new(secret, signed.encode(), hashlib.sha256).digest()
    return f"{signed}.{base64.urlsafe_b64encode(signature).decode().rstrip('=')}"
