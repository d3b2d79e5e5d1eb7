"""The TLS settings of clients and listeners, with Kafka's keys and defaults (SslConfigs, BrokerSecurityConfigs)."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from typing import Final

from tidelog_foundation.config.settings import config_keys, setting
from tidelog_foundation.config.validators import each_of, not_empty, one_of
from tidelog_foundation.dataclass import dataclass
from tidelog_foundation.errors import ConfigError
from tidelog_foundation.sasl.settings import is_sasl_key
from tidelog_foundation.security.principal_mapping import PrincipalMapping

PEM: Final = "PEM"
PKCS12: Final = "PKCS12"
JKS: Final = "JKS"
TLS_1_2: Final = "TLSv1.2"
TLS_1_3: Final = "TLSv1.3"
HTTPS: Final = "https"
NONE: Final = "none"
REQUESTED: Final = "requested"
REQUIRED: Final = "required"
LISTENER_PREFIX: Final = "listener.name."
MAX_STORE_BYTES: Final = 4 * 1024**2
"""The largest file of keys or certificates that is read."""
_STORE_TYPE: Final = "PEM or PKCS12. Kafka's default, JKS, is refused when a file is configured."


# Not slotted: the settings of nodes and of controllers inherit it beside a class with slots.
@dataclass(frozen=True, kw_only=True)
class SslSettings:
    """The settings of TLS. On a server, ``listener.name.<name>.<key>`` overrides a key for one listener."""

    ssl_keystore_type: str = setting(JKS, f"The format of the key store: {_STORE_TYPE}", one_of(PEM, PKCS12, JKS))
    ssl_keystore_location: str | None = setting(
        None,
        "The file with the private key and the certificate chain. A server reads a changed file again without a "
        "restart, and keeps what it has if the new file is invalid.",
        not_empty,
    )
    ssl_keystore_password: str | None = setting(
        None, "The password of a key store of type PKCS12.", secret=True, config_type="PASSWORD"
    )
    ssl_key_password: str | None = setting(
        None, "The password of the private key, if it is encrypted.", secret=True, config_type="PASSWORD"
    )
    ssl_keystore_key: str | None = setting(
        None,
        "The private key in PEM, in place of ssl.keystore.location, with ssl.keystore.type=PEM.",
        secret=True,
        config_type="PASSWORD",
    )
    ssl_keystore_certificate_chain: str | None = setting(
        None,
        "The certificate of ssl.keystore.key, followed by those of its intermediate authorities, in PEM.",
        secret=True,
        config_type="PASSWORD",
    )
    ssl_truststore_type: str = setting(JKS, f"The format of the trust store: {_STORE_TYPE}", one_of(PEM, PKCS12, JKS))
    ssl_truststore_location: str | None = setting(
        None,
        "The file with the certificates of trusted authorities. Clients without one trust those of the operating "
        "system. A server reads a changed file again without a restart.",
        not_empty,
    )
    ssl_truststore_password: str | None = setting(
        None, "The password of a trust store of type PKCS12.", secret=True, config_type="PASSWORD"
    )
    ssl_truststore_certificates: str | None = setting(
        None,
        "The certificates of trusted authorities in PEM, in place of ssl.truststore.location, with "
        "ssl.truststore.type=PEM.",
        secret=True,
        config_type="PASSWORD",
    )
    ssl_client_auth: str = setting(
        NONE,
        "Whether a listener requests the certificates of clients: required, requested (a client may have none) or "
        "none. The first two need a trust store.",
        one_of(REQUIRED, REQUESTED, NONE),
    )
    ssl_enabled_protocols: tuple[str, ...] = setting(
        (TLS_1_2, TLS_1_3), "The enabled versions of TLS: TLSv1.2, TLSv1.3 or both.", each_of(TLS_1_2, TLS_1_3)
    )
    ssl_cipher_suites: tuple[str, ...] = setting(
        (),
        "The enabled cipher suites, by their names in Java or OpenSSL; all secure ones if empty. Those of TLSv1.3 are "
        "enabled together: name all three or none.",
    )
    ssl_endpoint_identification_algorithm: str | None = setting(
        HTTPS,
        "https: a client checks that the server's certificate is for the host that it connects to. Empty: it does "
        "not. Nodes and controllers apply it to their connections to each other.",
        one_of(HTTPS),
    )
    ssl_principal_mapping_rules: str = setting(
        "DEFAULT",
        "The rules that map the distinguished name of a client's certificate to the name of its principal: "
        "RULE:pattern/replacement/[LU],...,DEFAULT (KIP-371). The first rule whose pattern matches the whole name "
        "applies; DEFAULT is the name itself.",
        PrincipalMapping,
    )


SSL_KEYS: Final = frozenset(config_keys(SslSettings))


def is_listener_key(key: str) -> bool:
    """Return whether a key is the setting of one listener: ``listener.name.<name>.<key>``."""
    return key.startswith(LISTENER_PREFIX)


def with_listener_settings(
    properties: Mapping[str, str], *listeners: str, others: Container[str] = ()
) -> dict[str, str]:
    """Return the properties of a process; the first listener's prefixed TLS keys replace those without the prefix.

    Other prefixed keys are left out. ``others`` are keys of listeners that are not about security.

    Raises:
        ConfigError: A prefixed key is not a setting of one of the listeners.
    """
    own = {key: value for key, value in properties.items() if not is_listener_key(key)}
    for key, value in properties.items():
        if is_listener_key(key):
            listener, name = split_listener_key(key, [x.lower() for x in listeners])
            if name not in SSL_KEYS and not is_sasl_key(name) and name not in others:
                raise ConfigError(f'configuration "{key}": "{name}" is not a setting of single listeners')
            if name in SSL_KEYS and listener == listeners[0].lower():
                own[name] = value
    return own


def split_listener_key(key: str, listeners: Iterable[str]) -> tuple[str, str]:
    """Return the listener, one of ``listeners`` in lower case, and the rest of its prefixed key.

    Raises:
        ConfigError: The key names none of the listeners.
    """
    rest = key.removeprefix(LISTENER_PREFIX)
    # A longer name first: a listener's name may contain a dot.
    for name in sorted(listeners, key=len, reverse=True):
        if rest.startswith(f"{name}."):
            return name, rest.removeprefix(f"{name}.")
    raise ConfigError(f'configuration "{key}" names none of the listeners: {", ".join(listeners)}')
