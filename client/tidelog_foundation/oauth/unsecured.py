"""Tokens without a signature, for development, as in Kafka's OAuthBearerUnsecuredValidatorCallbackHandler.

Anybody can make such a token, with any name. A listener accepts them only if its ``sasl.jaas.config`` has an option
``unsecuredValidator...``.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Mapping
from typing import Any, Final

from tidelog_foundation.dataclass import dataclass
from tidelog_foundation.errors import ConfigError
from tidelog_foundation.oauth.token import (
    INSUFFICIENT_SCOPE,
    MAX_TOKEN_CHARACTERS,
    BearerToken,
    TokenRefused,
    scope_claim,
    text_claim,
    time_claim_ms,
)

OPTION_PREFIX: Final = "unsecuredValidator"
_PRINCIPAL_CLAIM: Final = f"{OPTION_PREFIX}PrincipalClaimName"
_SCOPE_CLAIM: Final = f"{OPTION_PREFIX}ScopeClaimName"
_REQUIRED_SCOPE: Final = f"{OPTION_PREFIX}RequiredScope"
_CLOCK_SKEW: Final = f"{OPTION_PREFIX}AllowableClockSkewMs"
UNSECURED_OPTIONS: Final = (_PRINCIPAL_CLAIM, _SCOPE_CLAIM, _REQUIRED_SCOPE, _CLOCK_SKEW)


@dataclass(frozen=True, slots=True)
class UnsecuredValidator:
    """Validates the claims of tokens without a signature."""

    principal_claim_name: str = "sub"
    scope_claim_name: str = "scope"
    required_scope: frozenset[str] = frozenset()
    clock_skew_ms: int = 0

    @classmethod
    def from_options(cls, options: Mapping[str, str]) -> UnsecuredValidator:
        """Return the validator that options of a login module describe.

        Raises:
            ConfigError: An option has an invalid value.
        """
        skew = options.get(_CLOCK_SKEW, "").strip() or "0"
        if not (skew.isascii() and skew.isdigit()):
            raise ConfigError(f'invalid value "{skew}" for option {_CLOCK_SKEW}: must be a number of milliseconds')
        return cls(
            options.get(_PRINCIPAL_CLAIM, "").strip() or "sub",
            options.get(_SCOPE_CLAIM, "").strip() or "scope",
            frozenset(options.get(_REQUIRED_SCOPE, "").split()),
            int(skew),
        )

    def validate(self, token: str, now_ms: int) -> BearerToken:
        """Return the claims of a token.

        Raises:
            TokenRefused: The token is not valid.
        """
        claims = _claims(token)
        name = text_claim(claims, self.principal_claim_name)
        expires_at_ms = self._check_times(claims, now_ms)
        scopes = scope_claim(claims, self.scope_claim_name)
        if missing := self.required_scope - scopes:
            scope = " ".join(sorted(self.required_scope))
            raise TokenRefused(f"the token lacks the scope {min(missing)}", INSUFFICIENT_SCOPE, scope)
        return BearerToken(name, expires_at_ms, scopes)

    def _check_times(self, claims: Mapping[str, object], now_ms: int) -> int:
        expires_at_ms = time_claim_ms(claims, "exp")
        issued_at_ms, not_before_ms = time_claim_ms(claims, "iat"), time_claim_ms(claims, "nbf")
        if expires_at_ms is None:
            raise TokenRefused("the claim exp is missing")
        if now_ms - self.clock_skew_ms >= expires_at_ms:
            raise TokenRefused(f"the token expired {(now_ms - expires_at_ms) // 1_000} s ago")
        if issued_at_ms is not None and issued_at_ms > now_ms + self.clock_skew_ms:
            raise TokenRefused(f"the token is issued {(issued_at_ms - now_ms) // 1_000} s from now")
        if expires_at_ms <= max(issued_at_ms or 0, not_before_ms or 0):
            raise TokenRefused("the token expires before it is issued or becomes valid")
        if issued_at_ms is not None and not_before_ms is not None and not_before_ms < issued_at_ms:
            raise TokenRefused("the token is valid before it is issued")
        return expires_at_ms


def decode_part(part: str) -> dict[str, Any]:
    """Return the JSON object in one part of a token. Signatures are not verified.

    Raises:
        TokenRefused: The part is not a JSON object in base64url.
    """
    try:
        content = json.loads(base64.b64decode(part + "=" * (-len(part) % 4), altchars=b"-_", validate=True))
    except (binascii.Error, ValueError, RecursionError) as error:
        raise TokenRefused("a part of the token is not JSON in base64url") from error
    if not isinstance(content, dict):
        raise TokenRefused("a part of the token is not a JSON object")
    return content


def _claims(token: str) -> dict[str, Any]:
    if len(token) > MAX_TOKEN_CHARACTERS:
        raise TokenRefused(f"the token has {len(token)} characters, {MAX_TOKEN_CHARACTERS} are the limit")
    parts = token.split(".")
    if len(parts) != 3:
        raise TokenRefused(f"the token has {len(parts)} parts instead of 3")
    header, payload, signature = parts
    if decode_part(header).get("alg") != "none" or signature:
        raise TokenRefused("the token has a signature: the listener accepts unsecured tokens only")
    return decode_part(payload)
