"""The public keys of an issuer of tokens: a JSON Web Key Set (RFC 7517), within limits, without I/O.

Only keys for asymmetric signatures are used. Others are left out: symmetric keys, keys for encryption, and keys of
types, curves or sizes that are unknown or too small.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

import jwt
from cryptography.hazmat.primitives.asymmetric import rsa

from tidelog_foundation.dataclass import dataclass

MAX_DOCUMENT_BYTES: Final = 1_048_576
MAX_KEYS: Final = 1_000
_RSA_BITS: Final = range(2_048, 16_385)
_CURVES: Final = MappingProxyType(
    {("EC", "P-256"): "ES256", ("EC", "P-384"): "ES384", ("EC", "P-521"): "ES512", ("OKP", "Ed25519"): "EdDSA"}
)
_RSA_ALGORITHMS: Final = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512")
ALGORITHMS: Final = frozenset((*_RSA_ALGORITHMS, *_CURVES.values()))
"""The signature algorithms of tokens. All are asymmetric: neither ``none`` nor HMAC is among them."""


class InvalidKeySet(Exception):
    """A document that is not a usable key set."""


@dataclass(frozen=True, slots=True)
class VerificationKey:
    """A public key, its id if it has one, and the algorithms of the signatures that it may verify."""

    key_id: str | None
    algorithms: frozenset[str]
    key: Any


@dataclass(frozen=True, slots=True)
class KeySet:
    """The keys of an issuer at one time."""

    keys: tuple[VerificationKey, ...] = ()

    def find(self, key_id: str | None, algorithm: str) -> VerificationKey | None:
        """Return the only key for the algorithm with the id, or the only one if the token names no id."""
        found = [key for key in self.keys if algorithm in key.algorithms and (key_id is None or key.key_id == key_id)]
        return found[0] if len(found) == 1 else None


def parse_key_set(document: bytes) -> KeySet:
    """Return the usable keys of a document.

    Raises:
        InvalidKeySet: The document is too large, is not a key set, or has no usable key.
    """
    if len(document) > MAX_DOCUMENT_BYTES:
        raise InvalidKeySet(f"the key set has more than {MAX_DOCUMENT_BYTES} bytes")
    try:
        content = json.loads(document)
    except (ValueError, RecursionError) as error:
        raise InvalidKeySet("the key set is not JSON") from error
    listed = content.get("keys") if isinstance(content, dict) else None
    if not isinstance(listed, list):
        raise InvalidKeySet('the key set has no list "keys"')
    if len(listed) > MAX_KEYS:
        raise InvalidKeySet(f"the key set has {len(listed)} keys, {MAX_KEYS} are the limit")
    keys = tuple(key for key in map(_verification_key, listed) if key is not None)
    if not keys:
        raise InvalidKeySet("the key set has no key for an asymmetric signature")
    return KeySet(keys)


def _verification_key(entry: object) -> VerificationKey | None:
    if not isinstance(entry, dict) or entry.get("use", "sig") != "sig":
        return None
    algorithms = _algorithms(entry)
    if not algorithms:
        return None
    try:
        key = jwt.PyJWK(_public_part(entry), algorithm=min(algorithms)).key
    except (jwt.PyJWTError, ValueError, TypeError, KeyError):
        return None
    if isinstance(key, rsa.RSAPublicKey) and key.key_size not in _RSA_BITS:
        return None
    key_id = entry.get("kid")
    return VerificationKey(key_id if isinstance(key_id, str) else None, algorithms, key)


def _algorithms(entry: Mapping[str, Any]) -> frozenset[str]:
    """Return the algorithms that a key may verify by its type, and by its own ``alg`` if it has one."""
    if entry.get("kty") == "RSA":
        possible = frozenset(_RSA_ALGORITHMS)
    else:
        curve = _CURVES.get((str(entry.get("kty")), str(entry.get("crv"))))
        possible = frozenset() if curve is None else frozenset((curve,))
    return possible & {entry["alg"]} if isinstance(entry.get("alg"), str) else possible


def _public_part(entry: Mapping[str, Any]) -> dict[str, Any]:
    return {name: entry[name] for name in ("kty", "crv", "n", "e", "x", "y") if name in entry}
