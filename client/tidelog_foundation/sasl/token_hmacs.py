"""The HMACs of delegation tokens, and their use as passwords of SCRAM (KIP-48).

As in Kafka, a token's HMAC is HMAC-SHA-512 of its id with ``delegation.token.secret.key``, and the password of its
SCRAM credential is the HMAC in base64.
"""

from __future__ import annotations

import hmac as hashing
from collections.abc import Mapping
from typing import Final

from tidelog_foundation.requests.delegation_tokens import DelegationToken

Tokens = Mapping[str, DelegationToken]
_DIGEST: Final = "sha512"


def token_hmac(secret_key: str, token_id: str) -> bytes:
    """Return the HMAC of a token."""
    return hashing.digest(secret_key.encode(), token_id.encode(), _DIGEST)


class TokenHmacs:
    """Finds tokens by their HMACs. It computes the HMAC of each token once."""

    def __init__(self, secret_key: str) -> None:
        self._secret_key = secret_key
        self._ids: dict[bytes, str] = {}
        self._known: Tokens = {}

    def find(self, tokens: Tokens, hmac: bytes) -> DelegationToken | None:
        """Return the token with an HMAC, or None. ``tokens`` are all tokens by id, an immutable map."""
        if tokens is not self._known:
            self._follow(tokens)
        token_id = self._ids.get(hmac)
        return None if token_id is None else tokens.get(token_id)

    def _follow(self, tokens: Tokens) -> None:
        for token_id in self._known.keys() - tokens.keys():
            self._ids.pop(token_hmac(self._secret_key, token_id), None)
        for token_id in tokens.keys() - self._known.keys():
            self._ids[token_hmac(self._secret_key, token_id)] = token_id
        self._known = tokens
