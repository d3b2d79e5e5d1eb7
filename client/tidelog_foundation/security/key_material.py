"""Private keys and certificates, read from the stores that the TLS settings name: PEM (KIP-651) or PKCS12."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import field
from datetime import datetime
from typing import Final, TypeVar

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
from cryptography.hazmat.primitives.asymmetric.ed448 import Ed448PrivateKey
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    KeySerializationEncryption,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
    pkcs12,
)

from tidelog_foundation.dataclass import dataclass
from tidelog_foundation.errors import ConfigError
from tidelog_foundation.limited_files import read_file
from tidelog_foundation.security.distinguished_name import distinguished_name
from tidelog_foundation.security.ssl_settings import JKS, MAX_STORE_BYTES, PEM, SslSettings

T = TypeVar("T")
SigningKey = RSAPrivateKey | EllipticCurvePrivateKey | Ed25519PrivateKey | Ed448PrivateKey
"""The kinds of private keys that certificates of TLS have."""
_BLOCK: Final = re.compile(r"-----BEGIN ([A-Z0-9 ]+)-----(.*?)-----END \1-----", re.DOTALL)
_LINE: Final = 64
_CERTIFICATES: Final = ("CERTIFICATE", "X509 CERTIFICATE", "TRUSTED CERTIFICATE")


@dataclass(frozen=True, slots=True)
class KeyMaterial:
    """A private key with its certificate chain, the owner's certificate first. Nothing shows the key."""

    chain: tuple[x509.Certificate, ...]
    _key: SigningKey = field(repr=False)

    @property
    def subject(self) -> str:
        """The distinguished name of the owner."""
        return distinguished_name(self.chain[0].subject)

    @property
    def expires(self) -> datetime:
        """The time at which the first certificate of the chain expires, in UTC."""
        return min(certificate.not_valid_after_utc for certificate in self.chain)

    @property
    def chain_pem(self) -> bytes:
        """The chain in PEM."""
        return _to_pem(self.chain)

    def key_pem(self, encryption: KeySerializationEncryption | None = None) -> bytes:
        """Return the private key in PEM."""
        return self._key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, encryption or NoEncryption())


def load_key_material(settings: SslSettings) -> KeyMaterial | None:
    """Return the key and the chain of the key store, or None if none is configured.

    Raises:
        ConfigError: The store cannot be read, or the key is not that of the certificate.
    """
    location, is_inline = settings.ssl_keystore_location, settings.ssl_keystore_key is not None
    if is_inline is not (settings.ssl_keystore_certificate_chain is not None):
        raise ConfigError("ssl.keystore.key and ssl.keystore.certificate.chain must be set together")
    if location is None and not is_inline:
        return None
    _check_store("keystore", settings.ssl_keystore_type, location, is_inline=is_inline)
    if location is not None and settings.ssl_keystore_type != PEM:
        return _checked(*_read_pkcs12_key(settings, location))
    if settings.ssl_keystore_password is not None:
        raise ConfigError("ssl.keystore.password is for PKCS12; the key in a PEM file has ssl.key.password")
    if location is not None:
        text, where = _read_text("ssl.keystore.location", location), f"ssl.keystore.location {location}"
        return _checked(_key(text, settings, where), _certificates(text, where), where)
    key = _key(settings.ssl_keystore_key or "", settings, "ssl.keystore.key")
    where = "ssl.keystore.certificate.chain"
    return _checked(key, _certificates(settings.ssl_keystore_certificate_chain or "", where), where)


def load_authorities(settings: SslSettings) -> bytes | None:
    """Return the certificates of the trust store in PEM, or None if none is configured.

    Raises:
        ConfigError: The store cannot be read, or has no certificate.
    """
    location, text = settings.ssl_truststore_location, settings.ssl_truststore_certificates
    if location is None and text is None:
        return None
    _check_store("truststore", settings.ssl_truststore_type, location, is_inline=text is not None)
    if location is None:
        return _to_pem(_certificates(text or "", "ssl.truststore.certificates"))
    where = f"ssl.truststore.location {location}"
    if settings.ssl_truststore_type == PEM:
        if settings.ssl_truststore_password is not None:
            raise ConfigError("ssl.truststore.password is for PKCS12, not for PEM")
        return _to_pem(_certificates(_read_text("ssl.truststore.location", location), where))
    store = _read_pkcs12("ssl.truststore.location", location, settings.ssl_truststore_password)
    found = [entry.certificate for entry in store.additional_certs]
    if not found:
        raise ConfigError(f"{where} has no certificate of an authority")
    return _to_pem(found)


def _check_store(kind: str, store_type: str, location: str | None, *, is_inline: bool) -> None:
    if location is not None and is_inline:
        raise ConfigError(f"ssl.{kind}.location and certificates in the settings are both given: set one of them")
    if store_type == JKS:
        raise ConfigError(
            f"ssl.{kind}.type is JKS, which is not supported: convert the store with keytool -importkeystore "
            f"-deststoretype PKCS12 and set ssl.{kind}.type=PKCS12, or use PEM"
        )
    if is_inline and store_type != PEM:
        raise ConfigError(f"ssl.{kind}.type is {store_type}: certificates in the settings need PEM")


def _checked(key: SigningKey, chain: Sequence[x509.Certificate], where: str) -> KeyMaterial:
    material = KeyMaterial(tuple(chain), key)
    public_keys = key.public_key(), chain[0].public_key()
    encoded = [each.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo) for each in public_keys]
    if encoded[0] != encoded[1]:
        raise ConfigError(f"{where}: the private key is not the key of the certificate of {material.subject}")
    return material


def _key(text: str, settings: SslSettings, where: str) -> SigningKey:
    blocks = [pem for kind, pem in _blocks(text) if kind.endswith("PRIVATE KEY")]
    if not blocks:
        raise ConfigError(f"{where} has no private key in PEM")
    password = settings.ssl_key_password
    key = _parsed(lambda: load_pem_private_key(blocks[0], password.encode() if password else None), where)
    return _signing_key(key, where)


def _signing_key(key: object, where: str) -> SigningKey:
    if not isinstance(key, SigningKey):
        raise ConfigError(f"{where} has a private key of a kind that TLS does not use: {type(key).__name__}")
    return key


def _certificates(text: str, where: str) -> list[x509.Certificate]:
    blocks = [pem for kind, pem in _blocks(text) if kind in _CERTIFICATES]
    if not blocks:
        raise ConfigError(f"{where} has no certificate in PEM")
    return [_parsed(lambda pem=pem: x509.load_pem_x509_certificate(pem), where) for pem in blocks]  # type: ignore[misc]


def _blocks(text: str) -> list[tuple[str, bytes]]:
    """Return the label and the PEM of each block. A properties file may have all of a block in one line."""
    return [(found[1], _normal(found[1], found[2])) for found in _BLOCK.finditer(text)]


def _normal(label: str, body: str) -> bytes:
    if "\n" not in body.strip():
        joined = "".join(body.split())
        body = "\n".join(["", *(joined[i : i + _LINE] for i in range(0, len(joined), _LINE)), ""])
    return f"-----BEGIN {label}-----{body}-----END {label}-----\n".encode()


def _read_pkcs12_key(settings: SslSettings, location: str) -> tuple[SigningKey, list[x509.Certificate], str]:
    store = _read_pkcs12("ssl.keystore.location", location, settings.ssl_keystore_password)
    where = f"ssl.keystore.location {location}"
    if store.key is None or store.cert is None:
        raise ConfigError(f"{where} has no private key with a certificate")
    return (
        _signing_key(store.key, where),
        [store.cert.certificate, *(entry.certificate for entry in store.additional_certs)],
        where,
    )


def _read_pkcs12(key: str, location: str, password: str | None) -> pkcs12.PKCS12KeyAndCertificates:
    data = read_file(location, MAX_STORE_BYTES, key)
    return _parsed(
        lambda: pkcs12.load_pkcs12(data, password.encode() if password is not None else None), f"{key} {location}"
    )


def _parsed(parse: Callable[[], T], where: str) -> T:
    """Return the result of a parser of the library, whose errors contain no part of the data."""
    try:
        return parse()
    except (ValueError, TypeError) as error:
        raise ConfigError(f"{where} cannot be read: {error}") from error


def _read_text(key: str, location: str) -> str:
    return read_file(location, MAX_STORE_BYTES, key).decode("utf-8", "replace")


def _to_pem(certificates: Sequence[x509.Certificate]) -> bytes:
    return b"".join(certificate.public_bytes(Encoding.PEM) for certificate in certificates)
