"""The HMACs of delegation tokens, and their use as passwords of SCRAM (KIP-48).

As in Kafka, a token's HMAC is HMAC-SHA-512 of its id with ``delegation.token.secret.key``, and the password of its
SCRAM credential is the HMAC in base64.
"""

from __future__ import annotations

import base64
import hmac as hashing
from collections.abc import Callable, Mapping
from functools import lru_cache
from hashlib import shake_256
from typing import Final

from tidelog_foundation.requests.delegation_tokens import DelegationToken
from tidelog_foundation.sasl.scram import ScramAccount
from tidelog_foundation.sasl.scram_credentials import (
    MIN_ITERATIONS,
    ScramCredential,
    ScramMechanism,
    credential_of,
    salted_password,
)

Tokens = Mapping[str, DelegationToken]
_DIGEST: Final = "sha512"
_MAX_CREDENTIALS: Final = 4_096


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


class TokenAccounts:
    """The tokens as accounts of SCRAM, for clients with the extension ``tokenauth``.

    ``tokens`` returns all tokens by id. A credential is derived when its token is first used, and the most recent ones
    are kept. All nodes derive the same.
    """

    def __init__(self, secret_key: str | None, tokens: Callable[[], Tokens]) -> None:
        """Without a ``secret_key`` there are no accounts."""
        self._secret_key = secret_key
        self._tokens = tokens
        self._credential = lru_cache(_MAX_CREDENTIALS)(self._derive)

    def find(self, mechanism: ScramMechanism, name: str) -> ScramAccount | None:
        """Return the account of a token by its id, or None. The first time takes milliseconds of CPU time."""
        token = self._tokens().get(name) if self._secret_key is not None else None
        if token is None:
            return None
        expires_at_ms = min(token.expiry_timestamp_ms, token.max_timestamp_ms)
        return ScramAccount(token.owner, self._credential(mechanism, name), expires_at_ms)

    def decoy(self, mechanism: ScramMechanism, name: str) -> ScramCredential:
        """Return a credential that no password fits, with the salt that a token of that id would have."""
        size = hashing.new(b"", digestmod=mechanism.digest).digest_size
        keys = shake_256(self._salt(mechanism, name) + b"decoy").digest(2 * size)
        return ScramCredential(self._salt(mechanism, name), keys[:size], keys[size:], MIN_ITERATIONS)

    def _derive(self, mechanism: ScramMechanism, token_id: str) -> ScramCredential:
        assert self._secret_key is not None, "find() has checked it"
        password = base64.b64encode(token_hmac(self._secret_key, token_id))
        salt = self._salt(mechanism, token_id)
        return credential_of(
            mechanism, salted_password(mechanism, password, salt, MIN_ITERATIONS), salt, MIN_ITERATIONS
        )

    def _salt(self, mechanism: ScramMechanism, token_id: str) -> bytes:
        text = f"{mechanism.sasl_name} {token_id}".encode()
        return hashing.digest((self._secret_key or "").encode() + b"salt", text, _DIGEST)
