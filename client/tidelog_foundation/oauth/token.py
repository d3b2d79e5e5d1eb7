"""Validated bearer tokens, and the reasons for which a token is refused."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Final

from tidelog_foundation.dataclass import dataclass

INVALID_TOKEN: Final = "invalid_token"
INSUFFICIENT_SCOPE: Final = "insufficient_scope"
MAX_TOKEN_CHARACTERS: Final = 65_536
"""The most characters of a token that a server decodes."""


@dataclass(frozen=True, slots=True)
class BearerToken:
    """The claims of a valid token that the server uses. The token itself is not kept."""

    principal_name: str
    expires_at_ms: int
    scopes: frozenset[str]


class TokenRefused(Exception):
    """A token that is not valid. ``reason`` is for the server's log: it does not contain the token.

    ``status`` and ``scope`` are for the client (RFC 7628, section 3.2.2).
    """

    def __init__(self, reason: str, status: str = INVALID_TOKEN, scope: str | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.status = status
        self.scope = scope


def time_claim_ms(claims: Mapping[str, object], name: str) -> int | None:
    """Return a claim with a time in milliseconds, or None without the claim.

    Raises:
        TokenRefused: The claim is not a finite number.
    """
    value = claims.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise TokenRefused(f"the claim {name} is not a number")
    return int(value * 1_000)


def text_claim(claims: Mapping[str, object], name: str) -> str:
    """Return a claim with text, without white space around it.

    Raises:
        TokenRefused: The claim is missing, empty or not text.
    """
    value = claims.get(name)
    if not isinstance(value, str) or not value.strip():
        raise TokenRefused(f"the claim {name} is missing or is no text")
    return value.strip()


def scope_claim(claims: Mapping[str, object], name: str) -> frozenset[str]:
    """Return the scopes of a token: a text with spaces between them, or a list of texts.

    Raises:
        TokenRefused: The claim is neither.
    """
    value = claims.get(name)
    if value is None:
        return frozenset()
    if isinstance(value, str):
        return frozenset(value.split())
    if isinstance(value, list) and all(isinstance(scope, str) and scope.strip() for scope in value):
        return frozenset(scope.strip() for scope in value)
    raise TokenRefused(f"the claim {name} is neither a text nor a list of texts")
