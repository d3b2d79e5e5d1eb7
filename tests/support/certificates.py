"""A certificate authority of the tests, and stores of the certificates that it issues."""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    pkcs12,
)
from cryptography.x509.oid import NameOID

_DAY = timedelta(days=1)
HOSTS = ("localhost", "127.0.0.1")


@dataclass(frozen=True)
class Issued:
    """A private key with its certificate, and the certificate of the authority."""

    key: ec.EllipticCurvePrivateKey
    certificate: x509.Certificate
    authority: x509.Certificate

    def key_pem(self, password: str | None = None) -> str:
        encryption = BestAvailableEncryption(password.encode()) if password else NoEncryption()
        return self.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, encryption).decode()

    @property
    def certificate_pem(self) -> str:
        return self.certificate.public_bytes(Encoding.PEM).decode()

    def write_pem(self, path: Path, password: str | None = None) -> Path:
        """Write the key and the certificate into one file, which replaces an existing one as a whole."""
        return _write(path, (self.key_pem(password) + self.certificate_pem).encode())

    def write_pkcs12(self, path: Path, password: str) -> Path:
        encryption = BestAvailableEncryption(password.encode())
        data = pkcs12.serialize_key_and_certificates(b"me", self.key, self.certificate, [self.authority], encryption)
        return _write(path, data)


class Authority:
    """An authority that issues certificates for servers and clients."""

    def __init__(self, name: str = "Test CA") -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        self.certificate = (
            _builder(subject, subject, self._key, 365 * _DAY)
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(self._key.public_key()), critical=False)
            .add_extension(_KEY_USAGE, critical=True)
            .sign(self._key, hashes.SHA256())
        )

    @property
    def pem(self) -> str:
        return self.certificate.public_bytes(Encoding.PEM).decode()

    def write_pem(self, path: Path) -> Path:
        return _write(path, self.pem.encode())

    def issue(
        self,
        name: str | x509.Name,
        hosts: Sequence[str] = HOSTS,
        valid_for: timedelta = 90 * _DAY,
        key: ec.EllipticCurvePrivateKey | None = None,
    ) -> Issued:
        """Issue a certificate; ``valid_for`` may be negative for one that has expired."""
        key = key or ec.generate_private_key(ec.SECP256R1())
        subject = name if isinstance(name, x509.Name) else x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        builder = _builder(subject, self.certificate.subject, key, valid_for).add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()), critical=False
        )
        if hosts:
            builder = builder.add_extension(x509.SubjectAlternativeName(list(map(_name, hosts))), critical=False)
        return Issued(key, builder.sign(self._key, hashes.SHA256()), self.certificate)


_KEY_USAGE = x509.KeyUsage(
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
        not_valid_before=now - 400 * _DAY,
        not_valid_after=now + valid_for,
    )


def _name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _write(path: Path, data: bytes) -> Path:
    temporary = path.with_name(path.name + ".new")
    temporary.write_bytes(data)
    temporary.replace(path)
    return path
