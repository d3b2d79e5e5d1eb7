"""The settings of the REST listeners, with the names of Kafka Connect (RestServerConfig of Kafka 4.1)."""

from __future__ import annotations

import csv
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

from tidelog_connect.rest.response_headers import HeaderRule, parse_header_rules
from tidelog_foundation.config import between, parse_config, setting
from tidelog_foundation.config.validators import not_empty, one_of
from tidelog_foundation.errors import ConfigError
from tidelog_foundation.security.ssl_settings import SSL_KEYS, SslSettings

HTTP: Final = "http"
HTTPS: Final = "https"
LISTENERS_TLS: Final = "listeners.https."
ADMIN_TLS: Final = "admin.listeners.https."
BASIC_AUTHENTICATION: Final = "org.apache.kafka.connect.rest.basic.auth.extension.BasicAuthSecurityRestExtension"
_METHODS: Final = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE")
_DEFAULT_METHODS: Final = ("GET", "POST", "HEAD")
"""Those of Jetty's CrossOriginFilter."""
_PORTS: Final = range(1, 65_536)


@dataclass(frozen=True, slots=True)
class Address:
    """An address that the worker listens on. An empty host means all addresses of the machine."""

    scheme: str
    host: str
    port: int

    @property
    def has_tls(self) -> bool:
        """True for HTTPS."""
        return self.scheme == HTTPS


def parse_addresses(urls: Sequence[str]) -> tuple[Address, ...]:
    """Return the addresses of listeners such as ``https://0.0.0.0:8443``.

    Raises:
        ValueError: One is malformed, or occurs twice.
    """
    found = tuple(map(_parse_address, urls))
    if len({(each.host, each.port) for each in found}) < len(found):
        raise ValueError("an address occurs twice")
    return found


def _parse_address(url: str) -> Address:
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        port = None
    if port not in _PORTS or parts.scheme not in (HTTP, HTTPS) or parts.path not in ("", "/") or parts.query:
        raise ValueError(f"{url} must be http://HOST:PORT or https://HOST:PORT")
    assert port is not None
    return Address(parts.scheme, parts.hostname or "", port)


def _listeners(urls: tuple[str, ...]) -> None:
    not_empty(urls)
    parse_addresses(urls)


def _admin_listeners(urls: tuple[str, ...] | None) -> None:
    parse_addresses([url for url in urls or () if url])


def _extensions(names: tuple[str, ...]) -> None:
    unknown = [name for name in names if name not in (BASIC_AUTHENTICATION, BASIC_AUTHENTICATION.rpartition(".")[2])]
    if unknown or len(names) > 1:
        raise ValueError(f"must be {BASIC_AUTHENTICATION} or empty; other extensions are Java's")


def _methods(text: str) -> None:
    unknown = [each for each in _parsed_methods(text) if each not in _METHODS]
    if unknown:
        raise ValueError(f"{unknown[0]} is not a method of the API: {', '.join(_METHODS)}")


def _parsed_methods(text: str) -> tuple[str, ...]:
    return tuple(each.strip().upper() for each in text.split(",") if each.strip())


def _origins(text: str) -> None:
    for origin in _parsed_origins(text):
        if origin != "*" and not re.fullmatch(r"https?://[^/\s]+", origin):
            raise ValueError(f"{origin} must be * or an origin such as https://example.org")


def _parsed_origins(text: str) -> tuple[str, ...]:
    return tuple(each.strip() for each in text.split(",") if each.strip())


def _header_rules(text: str) -> tuple[HeaderRule, ...]:
    return parse_header_rules(next(csv.reader([text], skipinitialspace=True), []))


# Not slotted: the settings of a worker inherit it beside a class with slots.
@dataclass(frozen=True, kw_only=True)
class RestSettings:
    """The REST listeners, and who may use them."""

    listeners: tuple[str, ...] = setting(
        ("http://127.0.0.1:8083",),
        "The addresses of the REST API: http://HOST:PORT or https://HOST:PORT. An empty host means all addresses of "
        "the machine. HTTPS needs listeners.https.ssl.keystore.location and the like.",
        _listeners,
    )
    admin_listeners: tuple[str, ...] | None = setting(
        None,
        "The addresses that serve /admin/loggers, which listeners do not serve then. Empty: it is not served at all. "
        "Not set: listeners serve it.",
        _admin_listeners,
    )
    rest_advertised_listener: str | None = setting(
        None,
        "The protocol, http or https, by which other workers call this one. Defaults to http if listeners have it.",
        one_of(HTTP, HTTPS),
    )
    rest_advertised_host_name: str | None = setting(
        None, "The host by which other workers call this one; by default, that of the listener.", not_empty
    )
    rest_advertised_port: int | None = setting(
        None, "The port by which other workers call this one; by default, that of the listener.", between(1, 65_535)
    )
    rest_extension_classes: tuple[str, ...] = setting(
        (),
        f"{BASIC_AUTHENTICATION} requires a name and a password of rest.basic.auth.credentials.file for each request.",
        _extensions,
    )
    rest_basic_auth_credentials_file: str | None = setting(
        None,
        "The properties file with a password for each name (NAME=PASSWORD), as the option file of Kafka Connect's "
        "PropertyFileLoginModule. It is read at the start.",
        not_empty,
    )
    access_control_allow_origin: str = setting(
        "", "The origins, separated by commas, whose pages may use the API from a browser, or * for all.", _origins
    )
    access_control_allow_methods: str = setting(
        "",
        "The methods for requests from these origins, separated by commas. Defaults to GET, POST and HEAD.",
        _methods,
    )
    response_http_headers_config: str = setting(
        "",
        "Headers of all responses, separated by commas: set, add, setDate or addDate, then NAME:VALUE. The value of a "
        "date is in milliseconds from now. Put a rule with commas in double quotes.",
        _header_rules,
    )
    rest_max_request_bytes: int = setting(
        1024**2, "The maximum size of a request's body, in bytes.", between(1024, 100 * 1024**2)
    )

    def __post_init__(self) -> None:
        if bool(self.rest_extension_classes) is not bool(self.rest_basic_auth_credentials_file):
            raise ValueError(
                "rest.extension.classes with BasicAuthSecurityRestExtension and rest.basic.auth.credentials.file "
                "need each other"
            )
        if self.access_control_allow_methods and not self.access_control_allow_origin:
            raise ValueError("access.control.allow.methods has no effect without access.control.allow.origin")
        scheme = self.rest_advertised_listener
        if scheme is not None and scheme not in {each.scheme for each in self.addresses}:
            raise ValueError(f"rest.advertised.listener: no address of listeners has the protocol {scheme}")

    @property
    def addresses(self) -> tuple[Address, ...]:
        """The addresses of ``listeners``."""
        return parse_addresses(self.listeners)

    @property
    def admin_addresses(self) -> tuple[Address, ...] | None:
        """The addresses of ``admin.listeners``; None if it is not set or empty."""
        return None if self.admin_listeners is None else parse_addresses([x for x in self.admin_listeners if x])

    @property
    def advertised(self) -> Address:
        """The address by which other workers call this one."""
        schemes = (self.rest_advertised_listener,) if self.rest_advertised_listener else (HTTP, HTTPS)
        own = next(each for scheme in schemes for each in self.addresses if each.scheme == scheme)
        host = self.rest_advertised_host_name or own.host
        return Address(own.scheme, host, self.rest_advertised_port or own.port)

    @property
    def allowed_origins(self) -> tuple[str, ...]:
        """The origins of ``access.control.allow.origin``."""
        return _parsed_origins(self.access_control_allow_origin)

    @property
    def allowed_methods(self) -> tuple[str, ...]:
        """The methods of ``access.control.allow.methods``."""
        return _parsed_methods(self.access_control_allow_methods) or _DEFAULT_METHODS

    @property
    def header_rules(self) -> tuple[HeaderRule, ...]:
        """The rules of ``response.http.headers.config``."""
        return _header_rules(self.response_http_headers_config)

    def check_tls(self, tls: SslSettings | None, admin_tls: SslSettings | None) -> None:
        """Check that addresses with TLS have its settings, and that these have an address.

        Raises:
            ConfigError: Some are missing, or have no effect.
        """
        of_admin = self.admin_addresses or ()
        if any(each.has_tls for each in self.addresses) and tls is None:
            raise ConfigError(f"listeners: https needs {LISTENERS_TLS}ssl.keystore.location and ...type")
        if any(each.has_tls for each in of_admin) and admin_tls is None and tls is None:
            raise ConfigError(f"admin.listeners: https needs {ADMIN_TLS}ssl.keystore.location and ...type")
        if admin_tls is not None and not any(each.has_tls for each in of_admin):
            raise ConfigError(f"{ADMIN_TLS}ssl settings have no effect: admin.listeners have no https")


def is_tls_key(key: str) -> bool:
    """Tell whether a key is a setting of the REST listeners' TLS."""
    return key.startswith((LISTENERS_TLS, ADMIN_TLS))


def tls_settings(raw: Mapping[str, str], prefix: str) -> SslSettings | None:
    """Return the settings of TLS with a prefix, such as ``listeners.https.``; None without any.

    Raises:
        ConfigError: A key is unknown, or a value is not valid.
    """
    own = {key.removeprefix(prefix): value for key, value in raw.items() if key.startswith(prefix)}
    unknown = [key for key in own if key not in SSL_KEYS]
    if unknown:
        raise ConfigError(f'unknown configuration "{prefix}{unknown[0]}"')
    return parse_config(SslSettings, own) if own else None
