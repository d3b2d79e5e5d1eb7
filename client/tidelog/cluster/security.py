"""The security settings of clients, with confluent-kafka's keys, and the gRPC credentials made from them."""

from __future__ import annotations

import ssl
from dataclasses import dataclass, fields
from pathlib import Path

import grpc

from tidelog_foundation.config import setting
from tidelog_foundation.errors import ConfigError

_PLAINTEXT, _SSL = "plaintext", "ssl"


def _protocol(value: str) -> None:
    if value.lower() not in (_PLAINTEXT, _SSL):
        raise ConfigError(f'"{value}" is not supported: must be plaintext or ssl')


@dataclass(frozen=True, slots=True, kw_only=True)
class SecurityConfig:
    """The encryption of a client's connections."""

    security_protocol: str | None = setting(
        None,
        "ssl for connections with TLS, or plaintext, the default, with which all other settings of TLS have no effect. "
        "The latter are refused without this setting.",
        _protocol,
    )
    ssl_ca_location: str | None = setting(
        None, "The file with the certificates of trusted authorities in PEM. Defaults to those of the system."
    )
    ssl_ca_pem: str | None = setting(None, "The certificates of trusted authorities, in PEM.")
    ssl_certificate_location: str | None = setting(
        None, "The file with the client's certificate and its intermediate authorities, in PEM."
    )
    ssl_certificate_pem: str | None = setting(None, "The client's certificate, in PEM.")
    ssl_key_location: str | None = setting(None, "The file with the client's private key, in PEM.")
    ssl_key_pem: str | None = setting(None, "The client's private key, in PEM.", secret=True, config_type="PASSWORD")
    ssl_key_password: str | None = setting(
        None, "The password of an encrypted private key.", secret=True, config_type="PASSWORD"
    )
    ssl_keystore_location: str | None = setting(
        None, "A PKCS12 file with the client's private key and certificate, in place of the files in PEM."
    )
    ssl_keystore_password: str | None = setting(
        None, "The password of ssl.keystore.location.", secret=True, config_type="PASSWORD"
    )

    def channel_credentials(self) -> grpc.ChannelCredentials | None:
        """Return the credentials of the client's connections, None for connections without TLS.

        Raises:
            ConfigError: A file cannot be read, or the key is not that of the certificate.
        """
        if self.security_protocol is None:
            self._check_unused()
        if (self.security_protocol or _PLAINTEXT).lower() == _PLAINTEXT:
            return None
        key, chain = self._key_and_chain()
        return grpc.ssl_channel_credentials(self._authorities(), key, chain)

    def _check_unused(self) -> None:
        names = (field.name for field in fields(self) if field.name.startswith("ssl_"))
        given = next((name for name in names if getattr(self, name) is not None), None)
        if given is not None:
            raise ConfigError(f'configuration "{given.replace("_", ".")}" needs security.protocol=ssl')

    def _authorities(self) -> bytes | None:
        found = _text("ssl.ca", self.ssl_ca_location, self.ssl_ca_pem)
        if found is not None:
            _check_authorities(found)
            return found.encode()
        system = ssl.get_default_verify_paths().cafile
        return Path(system).read_bytes() if system is not None else None

    def _key_and_chain(self) -> tuple[bytes | None, bytes | None]:
        key = _text("ssl.key", self.ssl_key_location, self.ssl_key_pem)
        chain = _text("ssl.certificate", self.ssl_certificate_location, self.ssl_certificate_pem)
        if self.ssl_keystore_location is not None and (key is not None or chain is not None):
            raise ConfigError("ssl.keystore.location and a key or certificate in PEM exclude each other")
        if (key is None) is not (chain is None):
            raise ConfigError("the client's key (ssl.key.location) and its certificate must be given together")
        if key is None and self.ssl_keystore_location is None:
            return None, None
        return self._load(key, chain)

    def _load(self, key: str | None, chain: str | None) -> tuple[bytes, bytes]:
        try:
            from tidelog_foundation.security.key_material import load_key_material
        except ModuleNotFoundError as error:
            text = "a client with a certificate needs the package cryptography: pip install 'tidelog[tls]'"
            raise ConfigError(text) from error
        from tidelog_foundation.security.ssl_settings import PEM, PKCS12, SslSettings

        if key is None:
            settings = SslSettings(
                ssl_keystore_type=PKCS12,
                ssl_keystore_location=self.ssl_keystore_location,
                ssl_keystore_password=self.ssl_keystore_password,
            )
        else:
            settings = SslSettings(
                ssl_keystore_type=PEM,
                ssl_keystore_key=key,
                ssl_keystore_certificate_chain=chain,
                ssl_key_password=self.ssl_key_password,
            )
        material = load_key_material(settings)
        assert material is not None
        return material.key_pem(), material.chain_pem


def _text(key: str, location: str | None, pem: str | None) -> str | None:
    """Return the PEM text that one of two settings gives."""
    if location is None or pem is not None:
        if location is not None:
            raise ConfigError(f"{key}.location and {key}.pem exclude each other")
        return pem
    try:
        return Path(location).read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise ConfigError(f"cannot read {key}.location {location}: {error.strerror or error}") from error


def _check_authorities(pem: str) -> None:
    """Raise ConfigError for a text without certificates, which gRPC reports as a failed connection only."""
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(cadata=pem)
    except (ssl.SSLError, ValueError) as error:
        raise ConfigError(f"ssl.ca has no valid certificate in PEM: {error}") from error
