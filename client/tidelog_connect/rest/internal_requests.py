"""Signatures of the requests that workers forward to their leader (KIP-507).

The leader writes a session key to the topic of configurations, which only workers may read, and accepts a request that
is signed with it as one that another worker has authenticated. The headers are Kafka Connect's; the signature covers
method and target in addition to the body.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import secrets
from collections.abc import Mapping

SIGNATURE = "X-Connect-Authorization"
ALGORITHM = "X-Connect-Request-Signature-Algorithm"
_HMAC_SHA256 = "HmacSHA256"
_KEY_BYTES = 32


def new_session_key() -> str:
    """Return a random key, in base64."""
    return base64.b64encode(secrets.token_bytes(_KEY_BYTES)).decode()


def signature_headers(key: str, method: str, target: str, body: bytes) -> dict[str, str]:
    """Return the headers that sign a request; ``target`` is its path and query."""
    return {SIGNATURE: base64.b64encode(_digest(key, method, target, body)).decode(), ALGORITHM: _HMAC_SHA256}


def is_signed(key: str, headers: Mapping[str, str], method: str, target: str, body: bytes) -> bool:
    """Tell whether a request has a valid signature. An empty key signs nothing."""
    if not key or headers.get(ALGORITHM) != _HMAC_SHA256:
        return False
    try:
        given = base64.b64decode(headers.get(SIGNATURE, ""), validate=True)
    except binascii.Error:
        return False
    return hmac.compare_digest(given, _digest(key, method, target, body))


def _digest(key: str, method: str, target: str, body: bytes) -> bytes:
    signed = f"{method}\n{target}\n".encode() + hashlib.sha256(body).digest()
    return hmac.digest(base64.b64decode(key), signed, "sha256")
