"""The certificates of a node's listeners with TLS."""

from __future__ import annotations

import grpc

from tidelog_foundation.security.certificate_store import CertificateStore
from tidelog_foundation.security.principal_mapping import PrincipalMapping
from tidelog_foundation.transport.credentials import identify_callers, server_credentials
from tidelog_foundation.transport.services import Identify, anyone
from tidelog_node.kafka.server.tls import ListenerTls
from tidelog_node.server.dynamic_config import DynamicNodeConfig


def listener_certificates(settings: DynamicNodeConfig) -> dict[str, CertificateStore]:
    """Return the certificates of each listener with TLS, and of connections to controllers, by the listener's name.

    Raises:
        ConfigError: A store is missing or invalid.
    """
    config = settings.current
    listeners = (*config.all_listeners, config.controller_listener, *config.monitoring_listeners)
    return {
        x.name: CertificateStore(x.name, settings.listener_security[x.name].ssl, has_contexts=not x.speaks_grpc)
        for x in listeners
        if x.has_tls
    }


def listener_tls(certificates: CertificateStore, *, has_sasl: bool) -> ListenerTls:
    """Return the TLS of a Kafka listener. With SASL, certificates do not determine principals."""
    rules = certificates.settings.ssl_principal_mapping_rules
    return ListenerTls(certificates, None if has_sasl else PrincipalMapping(rules))


def grpc_credentials(certificates: CertificateStore | None) -> grpc.ServerCredentials | None:
    """Return the credentials of a gRPC listener with these certificates, None without TLS.

    Raises:
        ConfigError: gRPC does not support a setting.
    """
    return server_credentials(certificates) if certificates is not None else None


def callers_of(certificates: CertificateStore | None) -> Identify:
    """Return the function that identifies the callers of a gRPC listener with these certificates."""
    return identify_callers(certificates.settings) if certificates is not None else anyone
