"""The validation of signed tokens (JWT, RFC 7519), as in Kafka's BrokerJwtValidator, without I/O and clock.

Rules:

- the signature's algorithm is asymmetric, and the key that the token names may verify it;
- ``exp`` and ``iat`` are required; the token has not expired, and ``nbf`` has passed, with the permitted clock skew;
- ``iss`` is the expected issuer, if there is one; ``aud`` contains one of the expected audiences. A token with an
  audience is refused if none is expected;
- the claim with the principal's name is required.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import jwt

from tidelog_foundation.dataclass import dataclass
from tidelog_foundation.oauth.jwks import ALGORITHMS, VerificationKey
from tidelog_foundation.oauth.token import (
    MAX_TOKEN_CHARACTERS,
    BearerToken,
    TokenRefused,
    scope_claim,
    text_claim,
    time_claim_ms,
)

_OPTIONS: Final[Any] = {
    # The times are checked here, by a clock that the caller provides.
    "verify_exp": False,
    "verify_nbf": False,
    "verify_iat": False,
    "verify_sub": False,
    "verify_jti": False,
    "require": ["exp", "iat"],
}


@dataclass(frozen=True, slots=True, kw_only=True)
class JwtRules:
    """The requirements for tokens, with the defaults of Kafka's ``sasl.oauthbearer.*``."""

    expected_issuer: str | None = None
    expected_audience: tuple[str, ...] = ()
    clock_skew_seconds: int = 30
    scope_claim_name: str = "scope"
    sub_claim_name: str = "sub"


class JwtValidator:
    """Validates the tokens of one listener.

    ``find_key`` returns the issuer's key for a key id and an algorithm, or None without such a key.
    """

    def __init__(self, rules: JwtRules, find_key: Callable[[str | None, str], VerificationKey | None]) -> None:
        self._rules = rules
        self._find_key = find_key
        self._decoder = jwt.PyJWT()

    def validate(self, token: str, now_ms: int) -> BearerToken:
        """Return the claims of a token.

        Raises:
            TokenRefused: The token is not valid.
        """
        if len(token) > MAX_TOKEN_CHARACTERS:
            raise TokenRefused(f"the token has {len(token)} characters, {MAX_TOKEN_CHARACTERS} are the limit")
        claims = self._verified_claims(token)
        expires_at_ms = self._check_times(claims, now_ms)
        rules = self._rules
        return BearerToken(
            text_claim(claims, rules.sub_claim_name), expires_at_ms, scope_claim(claims, rules.scope_claim_name)
        )

    def _verified_claims(self, token: str) -> dict[str, Any]:
        rules = self._rules
        try:
            key = self._key(jwt.get_unverified_header(token))
            return self._decoder.decode(
                token,
                key.key,
                algorithms=sorted(key.algorithms),
                audience=rules.expected_audience or None,
                issuer=rules.expected_issuer,
                options=_OPTIONS,
            )
        except (jwt.PyJWTError, ValueError, TypeError) as error:
            raise TokenRefused(f"{type(error).__name__}: {error}{self._expected(error)}") from error
        except RecursionError as error:
            raise TokenRefused("the token's JSON is nested too deeply") from error

    def _expected(self, error: Exception) -> str:
        """Return the setting that a token violates, for the log."""
        rules = self._rules
        if isinstance(error, jwt.InvalidIssuerError):
            return f"; sasl.oauthbearer.expected.issuer is {rules.expected_issuer}"
        if isinstance(error, jwt.InvalidAudienceError):
            return f"; sasl.oauthbearer.expected.audience is {', '.join(rules.expected_audience)}"
        return ""

    def _key(self, header: dict[str, Any]) -> VerificationKey:
        algorithm, key_id = header.get("alg"), header.get("kid")
        if algorithm not in ALGORITHMS:
            raise TokenRefused(f"the algorithm {str(algorithm)[:32]} is not permitted")
        key = self._find_key(key_id, algorithm)
        if key is None:
            raise TokenRefused(f"the issuer has no key {str(key_id)[:64]} for {algorithm}")
        return key

    def _check_times(self, claims: dict[str, Any], now_ms: int) -> int:
        """Return the time of expiry in milliseconds."""
        expires_at_ms = time_claim_ms(claims, "exp")
        issued_at_ms = time_claim_ms(claims, "iat")
        not_before_ms = time_claim_ms(claims, "nbf")
        if expires_at_ms is None or issued_at_ms is None:
            raise TokenRefused("the claim exp or iat is missing")
        skew_ms = self._rules.clock_skew_seconds * 1_000
        if now_ms - skew_ms >= expires_at_ms:
            raise TokenRefused(f"the token expired {(now_ms - expires_at_ms) // 1_000} s ago")
        if not_before_ms is not None and now_ms + skew_ms < not_before_ms:
            raise TokenRefused(f"the token is not valid before {(not_before_ms - now_ms) // 1_000} s from now")
        if expires_at_ms < max(issued_at_ms, not_before_ms or 0):
            raise TokenRefused("the token expires before it is issued or becomes valid")
        return expires_at_ms
