"""The security settings of clients, with confluent-kafka's keys, and the channels made from them."""

from __future__ import annotations

import ssl
from collections.abc import Iterable
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Final

import grpc
import grpc.aio

from tidelog.cluster.sasl import OAuthCallback, SaslConfig
from tidelog_foundation.config import setting
from tidelog_foundation.config.endpoints import SSL
from tidelog_foundation.errors import ConfigError, ErrorCode, error_for
from tidelog_foundation.limited_files import read_file
from tidelog_foundation.sasl import SaslLogin
from tidelog_foundation.sasl.replaceable_login import ReplaceableLogin
from tidelog_foundation.transport import open_channel
from tidelog_foundation.transport.diagnosis import TlsContext
from tidelog_foundation.transport.session_channel import CLIENT_BACKOFF_S

if TYPE_CHECKING:
    from tidelog_foundation.security.key_material import KeyMaterial

_PLAINTEXT = "PLAINTEXT"
_SASL = ("SASL_PLAINTEXT", "SASL_SSL")
_TLS = (SSL, "SASL_SSL")


@dataclass(frozen=True, slots=True)
class ClientSecurity:
    """The security of a client's connections: TLS with ``credentials``, SASL with ``login``."""

    credentials: grpc.ChannelCredentials | None = field(default=None, repr=False)
    login: SaslLogin | None = None
    tls_context: TlsContext | None = field(default=None, repr=False)
    """The same TLS for connections to Kafka listeners; None without TLS."""

    def open_channel(
        self, address: str, client_id: str = "", options: Iterable[tuple[str, int | str]] = ()
    ) -> grpc.aio.Channel:
        """Return a channel to ``host:port``, which connects and logs in on the first call."""
        return open_channel(address, client_id, options, self.credentials, self.login, CLIENT_BACKOFF_S)

    def replace_credentials(self, username: str, password: str) -> None:
        """Use another name and password for later logins; see ``set_sasl_credentials`` of the clients.

        Raises:
            TidelogError: _INVALID_ARG, one is empty, or the mechanism is not PLAIN or SCRAM.
        """
        if not username or not password:
            raise error_for(ErrorCode._INVALID_ARG, "the username and the password must not be empty")
        if not isinstance(self.login, ReplaceableLogin):
            text = "set_sasl_credentials() needs sasl.mechanisms=PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512"
            raise error_for(ErrorCode._INVALID_ARG, text)
        self.login.replace(username, password)


OPEN: Final = ClientSecurity()
"""Connections without encryption and authentication."""


def _protocol(value: str) -> None:
    if value.upper() not in (_PLAINTEXT, SSL, *_SASL):
        raise ConfigError(f'"{value}" is not supported: must be plaintext, ssl, sasl_plaintext or sasl_ssl')


@dataclass(frozen=True, slots=True, kw_only=True)
class SecurityConfig(SaslConfig):
    """The encryption and authentication of a client's connections."""

    security_protocol: str | None = setting(
        None,
        "plaintext, the default; ssl for connections with TLS; sasl_plaintext or sasl_ssl to authenticate with SASL. "
        "With plaintext, all other settings of TLS and SASL have no effect; they are refused without this setting.",
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

    def client_security(self, oauth_cb: OAuthCallback | None = None) -> ClientSecurity:
        """Return the security of the client's connections. ``oauth_cb`` returns the tokens of OAUTHBEARER.

        Raises:
            ConfigError: The settings contradict each other, or a file cannot be read.
        """
        protocol = (self.security_protocol or _PLAINTEXT).upper()
        if self.security_protocol is None:
            self._check_unused("ssl_", "ssl or sasl_ssl")
        if self.security_protocol is None or protocol == SSL:
            self._check_unused("sasl_", "sasl_ssl or sasl_plaintext")
        login = self.login(oauth_cb) if protocol in _SASL else None
        if protocol not in _TLS:
            return ClientSecurity(login=login)
        authorities, material = self._authorities(), self._material()
        pair = (None, None) if material is None else (material.key_pem(), material.chain_pem)
        credentials = grpc.ssl_channel_credentials(authorities, *pair)
        return ClientSecurity(credentials, login, lambda: _tls_context(authorities, material))

    def _check_unused(self, prefix: str, protocols: str) -> None:
        own = (field for field in fields(self) if field.name.startswith(prefix))
        given = next((field.name for field in own if getattr(self, field.name) != field.default), None)
        if given is not None:
            raise ConfigError(f'configuration "{given.replace("_", ".")}" needs security.protocol={protocols}')

    def _authorities(self) -> bytes | None:
        found = _text("ssl.ca", self.ssl_ca_location, self.ssl_ca_pem)
        if found is not None:
            _check_authorities(found)
            return found.encode()
        system = ssl.get_default_verify_paths().cafile
        return Path(system).read_bytes() if system is not None else None

    def _material(self) -> KeyMaterial | None:
        key = _text("ssl.key", self.ssl_key_location, self.ssl_key_pem)
        chain = _text("ssl.certificate", self.ssl_certificate_location, self.ssl_certificate_pem)
        if self.ssl_keystore_location is not None and (key is not None or chain is not None):
            raise ConfigError("ssl.keystore.location and a key or certificate in PEM exclude each other")
        if (key is None) is not (chain is None):
            raise ConfigError("the client's key (ssl.key.location) and its certificate must be given together")
        if key is None and self.ssl_keystore_location is None:
            return None
        return self._load(key, chain)

    def _load(self, key: str | None, chain: str | None) -> KeyMaterial:
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
        return material


def _text(key: str, location: str | None, pem: str | None) -> str | None:
    """Return the PEM text that one of two settings gives."""
    if location is None or pem is not None:
        if location is not None:
            raise ConfigError(f"{key}.location and {key}.pem exclude each other")
        return pem
    from tidelog_foundation.security.ssl_settings import MAX_STORE_BYTES

    return read_file(location, MAX_STORE_BYTES, f"{key}.location").decode("utf-8", "replace")


def _check_authorities(pem: str) -> None:
    """Raise ConfigError for a text without certificates, which gRPC reports as a failed connection only."""
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(cadata=pem)
    except (ssl.SSLError, ValueError) as error:
        raise ConfigError(f"ssl.ca has no valid certificate in PEM: {error}") from error


def _tls_context(authorities: bytes | None, material: KeyMaterial | None) -> ssl.SSLContext:
    if material is not None:
        from tidelog_foundation.security.contexts import client_context
        from tidelog_foundation.security.ssl_settings import SslSettings

        return client_context(SslSettings(), material, authorities)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    if authorities is None:
        context.load_default_certs()
    else:
        context.load_verify_locations(cadata=authorities.decode())
    return context
