"""A certificate authority for clusters on one machine and for tests, and the stores of what it issues.

Its private key is in memory or in a file without a password. A cluster on a network uses the authority of its
organization.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
    pkcs12,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from tidelog_foundation.dataclass import dataclass
from tidelog_foundation.errors import ConfigError
from tidelog_foundation.replaced_files import replace_file

_DAY: Final = timedelta(days=1)
_OWN_LIFETIME: Final = 3650 * _DAY
_LIFETIME: Final = 365 * _DAY
_PRIVATE, _PUBLIC = 0o600, 0o644
LOOPBACK: Final = ("localhost", "127.0.0.1", "::1")
"""The names of this machine in the certificates of servers."""


@dataclass(frozen=True, slots=True)
class Issued:
    """A private key with its certificate, and the certificate of the authority."""

    key: ec.EllipticCurvePrivateKey
    certificate: x509.Certificate
    authority: x509.Certificate

    def key_pem(self, password: str | None = None) -> str:
        """Return the private key, encrypted if there is a password."""
        encryption = BestAvailableEncryption(password.encode()) if password else NoEncryption()
        return self.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, encryption).decode()

    @property
    def certificate_pem(self) -> str:
        """The certificate."""
        return self.certificate.public_bytes(Encoding.PEM).decode()

    def write_pem(self, path: Path, password: str | None = None) -> Path:
        """Write the key and the certificate into one file, which only its owner can read."""
        return replace_file(path, (self.key_pem(password) + self.certificate_pem).encode(), _PRIVATE)

    def write_pkcs12(self, path: Path, password: str) -> Path:
        """Write the key and both certificates into a PKCS12 store, which only its owner can read."""
        encryption = BestAvailableEncryption(password.encode())
        data = pkcs12.serialize_key_and_certificates(b"me", self.key, self.certificate, [self.authority], encryption)
        return replace_file(path, data, _PRIVATE)


class Authority:
    """An authority that issues certificates for servers and clients."""

    def __init__(self, name: str = "Tidelog CA") -> None:
        """Create an authority with a new key."""
        self._key = ec.generate_private_key(ec.SECP256R1())
        subject = _named(name)
        self.certificate = (
            _builder(subject, subject, self._key, _OWN_LIFETIME)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(self._key.public_key()), critical=False)
            .add_extension(_AUTHORITY_USAGE, critical=True)
            .sign(self._key, hashes.SHA256())
        )

    @classmethod
    def open(cls, path: Path, name: str = "Tidelog CA") -> Authority:
        """Return the authority that :meth:`Issued.write_pem` or an earlier call has written, or create the file.

        Raises:
            ConfigError: The file is not one of an authority.
            OSError: It cannot be read or written.
        """
        authority = cls(name)
        if not path.exists():
            replace_file(path, (_unencrypted(authority._key) + authority.pem).encode(), _PRIVATE)
            return authority
        data = path.read_bytes()
        try:
            key = load_pem_private_key(data, None)
            authority.certificate = x509.load_pem_x509_certificate(data)
        except (ValueError, TypeError) as error:
            raise ConfigError(f"{path} has no key and certificate of an authority in PEM") from error
        if not isinstance(key, ec.EllipticCurvePrivateKey):
            raise ConfigError(f"{path} has a key that is not of an elliptic curve")
        authority._key = key
        return authority

    @property
    def pem(self) -> str:
        """The certificate of the authority, which clients and servers trust."""
        return self.certificate.public_bytes(Encoding.PEM).decode()

    def write_pem(self, path: Path) -> Path:
        """Write the certificate, without the key."""
        return replace_file(path, self.pem.encode(), _PUBLIC)

    def issue(
        self,
        name: str | x509.Name,
        hosts: Sequence[str] = LOOPBACK,
        valid_for: timedelta = _LIFETIME,
        key: ec.EllipticCurvePrivateKey | None = None,
    ) -> Issued:
        """Issue a certificate for a name, or a common name, and for a server's hosts. Without hosts it is a client's.

        ``valid_for`` is negative for a certificate that has expired.
        """
        key = key or ec.generate_private_key(ec.SECP256R1())
        subject = name if isinstance(name, x509.Name) else _named(name)
        builder = (
            _builder(subject, self.certificate.subject, key, valid_for)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_BOTH_SIDES if hosts else _CLIENT_SIDE, critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()), critical=False)
        )
        if hosts:
            builder = builder.add_extension(x509.SubjectAlternativeName(list(map(_host, hosts))), critical=False)
        return Issued(key, builder.sign(self._key, hashes.SHA256()), self.certificate)


def hosts_in(store: Path) -> list[str]:
    """Return the hosts of the certificate in a PEM file; none if it is a client's, or there is no such file.

    Raises:
        ConfigError: The file has no certificate.
    """
    if not store.exists():
        return []
    try:
        certificate = x509.load_pem_x509_certificate(store.read_bytes())
    except ValueError as error:
        raise ConfigError(f"{store} has no certificate: remove it to create another one") from error
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return []
    return [str(name.value) for name in names]


_BOTH_SIDES: Final = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH])
_CLIENT_SIDE: Final = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH])
_AUTHORITY_USAGE: Final = x509.KeyUsage(
    digital_signature=True,
    key_cert_sign=True,
    crl_sign=True,
    content_commitment=False,
    key_encipherment=False,
    data_encipherment=False,
    key_agreement=False,
    encipher_only=False,
    decipher_only=False,
)


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, valid_for: timedelta
) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return x509.CertificateBuilder(
        issuer_name=issuer,
        subject_name=subject,
        public_key=key.public_key(),
        serial_number=x509.random_serial_number(),
        not_valid_before=min(now, now + valid_for) - _DAY,
        not_valid_after=now + valid_for,
    )


def _named(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _unencrypted(key: ec.EllipticCurvePrivateKey) -> str:
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()


def _host(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)
