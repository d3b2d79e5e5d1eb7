"""TLS of gRPC: the credentials of servers and channels, and the principals of callers."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Final, cast

import grpc
import grpc.aio

from tidelog_foundation.errors import ConfigError
from tidelog_foundation.security import ANONYMOUS, Principal
from tidelog_foundation.security.certificate_store import CertificateStore, TlsMaterial
from tidelog_foundation.security.principal_mapping import PrincipalMapping
from tidelog_foundation.security.ssl_settings import REQUESTED, REQUIRED, TLS_1_2, TLS_1_3, SslSettings

_CERTIFICATE: Final = "x509_pem_cert"
_KNOWN_PEERS: Final = 1_024


def server_credentials(certificates: CertificateStore) -> grpc.ServerCredentials:
    """Return the credentials of a listener. New connections use the store's current certificates.

    Raises:
        ConfigError: gRPC does not support a setting.
    """
    _check(certificates)
    initial = certificates.current
    is_required = certificates.settings.ssl_client_auth == REQUIRED
    fetch = cast(Callable[[], grpc.ServerCertificateConfiguration], _changes(certificates, initial))
    return grpc.dynamic_ssl_server_credentials(
        _configuration(initial), fetch, require_client_authentication=is_required
    )


def channel_credentials(certificates: CertificateStore) -> grpc.ChannelCredentials:
    """Return the credentials of a channel that a server opens, with the store's current certificates.

    Raises:
        ConfigError: gRPC does not support a setting.
    """
    if certificates.settings.ssl_endpoint_identification_algorithm is None:
        raise ConfigError(
            f"listener {certificates.name}: ssl.endpoint.identification.algorithm is empty, but gRPC always checks the "
            f"host of a certificate"
        )
    material = certificates.current
    return grpc.ssl_channel_credentials(material.authorities, material.key.key_pem(), material.key.chain_pem)


def identify_callers(settings: SslSettings) -> Callable[[grpc.aio.ServicerContext[Any, Any]], Principal]:
    """Return a function from a call to the principal of the caller's certificate.

    The function raises TidelogError with SASL_AUTHENTICATION_FAILED if no rule maps the certificate.
    """
    # Imported late: a server without TLS needs no cryptography.
    from cryptography import x509

    from tidelog_foundation.security.distinguished_name import distinguished_name

    mapping = PrincipalMapping(settings.ssl_principal_mapping_rules)

    @functools.lru_cache(_KNOWN_PEERS)
    def principal_of(certificate: bytes) -> Principal:
        return mapping.principal_of(distinguished_name(x509.load_pem_x509_certificate(certificate).subject))

    def identify(rpc: grpc.aio.ServicerContext[Any, Any]) -> Principal:
        found = rpc.auth_context().get(_CERTIFICATE)
        return principal_of(next(iter(found))) if found else ANONYMOUS

    return identify


def _check(certificates: CertificateStore) -> None:
    settings = certificates.settings
    fault = ""
    if settings.ssl_client_auth == REQUESTED:
        fault = "ssl.client.auth is requested, but gRPC has only required and none"
    elif settings.ssl_cipher_suites:
        fault = "ssl.cipher.suites is set, but gRPC chooses the suites itself"
    elif set(settings.ssl_enabled_protocols) != {TLS_1_2, TLS_1_3}:
        fault = f"ssl.enabled.protocols is {','.join(settings.ssl_enabled_protocols)}, but gRPC enables both versions"
    if fault:
        raise ConfigError(f"listener {certificates.name}: {fault}; listener.name.<name>. sets a key for one listener")


def _configuration(material: TlsMaterial) -> grpc.ServerCertificateConfiguration:
    return grpc.ssl_server_certificate_configuration(
        [(material.key.key_pem(), material.key.chain_pem)], material.authorities
    )


def _changes(
    certificates: CertificateStore, initial: TlsMaterial
) -> Callable[[], grpc.ServerCertificateConfiguration | None]:
    """Return the function that gRPC calls on its threads before each handshake; None means no change."""
    given = initial

    def fetch() -> grpc.ServerCertificateConfiguration | None:
        nonlocal given
        current = certificates.current
        if current is given:
            return None
        given = current
        return _configuration(current)

    return fetch
