"""The certificates of a node's listeners with TLS."""

from __future__ import annotations

from typing import Final

from tidelog_foundation.config.endpoints import SSL
from tidelog_foundation.security.certificate_store import CertificateStore
from tidelog_foundation.security.principal_mapping import PrincipalMapping
from tidelog_node.kafka.server.tls import ListenerTls
from tidelog_node.server.dynamic_config import DynamicNodeConfig

_ENCRYPTED: Final = (SSL,)


def listener_certificates(settings: DynamicNodeConfig) -> dict[str, CertificateStore]:
    """Return the certificates of each listener with TLS, by its name.

    Raises:
        ConfigError: A store is missing or invalid.
    """
    names = [x.name for x in settings.current.all_listeners if x.security_protocol in _ENCRYPTED]
    return {name: CertificateStore(name, settings.listener_ssl[name]) for name in names}


def listener_tls(certificates: CertificateStore) -> ListenerTls:
    """Return the TLS of a Kafka listener."""
    return ListenerTls(certificates, PrincipalMapping(certificates.settings.ssl_principal_mapping_rules))
