"""TLS contexts of Python's ssl module, made from the TLS settings and their key material."""

from __future__ import annotations

import re
import secrets
import ssl
import tempfile
from typing import TYPE_CHECKING, Final

from tidelog_foundation.errors import ConfigError
from tidelog_foundation.security.ssl_settings import NONE, REQUIRED, TLS_1_2, TLS_1_3, SslSettings

if TYPE_CHECKING:
    from tidelog_foundation.security.key_material import KeyMaterial

_VERSIONS: Final = {TLS_1_2: ssl.TLSVersion.TLSv1_2, TLS_1_3: ssl.TLSVersion.TLSv1_3}
_TLS_1_3_SUITES: Final = frozenset(("TLS_AES_128_GCM_SHA256", "TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256"))
_JAVA_SUITE: Final = re.compile(r"TLS_(?P<exchange>\w+)_WITH_(?P<cipher>\w+)_(?P<hash>SHA\d*)")
_TOKEN_BYTES: Final = 32


def server_context(settings: SslSettings, material: KeyMaterial, authorities: bytes | None) -> ssl.SSLContext:
    """Return the context of a listener.

    Raises:
        ConfigError: The settings contradict each other, or the library does not support a cipher suite.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_CIPHER_SERVER_PREFERENCE
    if settings.ssl_client_auth != NONE:
        is_required = settings.ssl_client_auth == REQUIRED
        context.verify_mode = ssl.CERT_REQUIRED if is_required else ssl.CERT_OPTIONAL
        _trust(context, authorities)
    return _configured(context, settings, material)


def client_context(settings: SslSettings, material: KeyMaterial | None, authorities: bytes | None) -> ssl.SSLContext:
    """Return the context of connections to other servers. Without authorities it trusts the operating system's.

    Raises:
        ConfigError: The settings contradict each other, or the library does not support a cipher suite.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = settings.ssl_endpoint_identification_algorithm is not None
    if authorities is None:
        context.load_default_certs()
    else:
        _trust(context, authorities)
    return _configured(context, settings, material)


def check_client_auth(settings: SslSettings, authorities: bytes | None) -> None:
    """Raise if a listener should request certificates without a trust store.

    Raises:
        ConfigError: The operating system's authorities would vouch for the names of clients.
    """
    if settings.ssl_client_auth != NONE and authorities is None:
        raise ConfigError(
            f"ssl.client.auth is {settings.ssl_client_auth} and needs ssl.truststore.location or "
            f"ssl.truststore.certificates: the authorities that may issue the certificates of clients"
        )


def _trust(context: ssl.SSLContext, authorities: bytes | None) -> None:
    assert authorities is not None, "check_client_auth is called first"
    context.load_verify_locations(cadata=authorities.decode())


def _configured(context: ssl.SSLContext, settings: SslSettings, material: KeyMaterial | None) -> ssl.SSLContext:
    _limit_versions_and_suites(context, settings)
    if material is not None:
        _load_chain(context, material)
    return context


def _limit_versions_and_suites(context: ssl.SSLContext, settings: SslSettings) -> None:
    versions = set(settings.ssl_enabled_protocols) or set(_VERSIONS)
    if settings.ssl_cipher_suites:
        versions &= _limit_suites(context, settings.ssl_cipher_suites)
        if not versions:
            protocols = ",".join(settings.ssl_enabled_protocols)
            raise ConfigError(f"ssl.cipher.suites has no suite of ssl.enabled.protocols {protocols}")
    enabled = [_VERSIONS[version] for version in sorted(versions)]
    context.minimum_version, context.maximum_version = enabled[0], enabled[-1]


def _limit_suites(context: ssl.SSLContext, suites: tuple[str, ...]) -> set[str]:
    """Enable only these cipher suites, and return the versions of TLS that they belong to.

    Python enables those of TLS 1.3 only together.
    """
    newest = _TLS_1_3_SUITES & set(suites)
    if newest and newest != _TLS_1_3_SUITES:
        missing = ", ".join(sorted(_TLS_1_3_SUITES - newest))
        raise ConfigError(f"ssl.cipher.suites names some suites of TLSv1.3 but not {missing}: name all three or none")
    others = [suite for suite in suites if suite not in newest]
    for suite in others:
        try:
            context.set_ciphers(_openssl_name(suite))
        except ssl.SSLError as error:
            raise ConfigError(f'ssl.cipher.suites: the suite "{suite}" is not supported') from error
    if others:
        context.set_ciphers(":".join(map(_openssl_name, others)))
    return ({TLS_1_3} if newest else set()) | ({TLS_1_2} if others else set())


def _openssl_name(suite: str) -> str:
    """Return OpenSSL's name of a suite of TLS 1.2, which Java and Kafka name as the standard does."""
    named = _JAVA_SUITE.fullmatch(suite)
    if named is None:
        return suite
    exchange = "" if named["exchange"] == "RSA" else named["exchange"].replace("_", "-") + "-"
    cipher = re.sub(r"AES_(\d+)", r"AES\1", named["cipher"]).replace("_CBC", "").replace("_", "-")
    return f"{exchange}{cipher}" + ("" if cipher.startswith("CHACHA20") else f"-{named['hash']}")


def _load_chain(context: ssl.SSLContext, material: KeyMaterial) -> None:
    """Load a key and its chain through a temporary file, as Python requires; the key in the file is encrypted."""
    # Imported late: a process without a key needs no cryptography.
    from cryptography.hazmat.primitives.serialization import BestAvailableEncryption

    token = secrets.token_hex(_TOKEN_BYTES)
    with tempfile.NamedTemporaryFile(prefix="tidelog-", suffix=".pem") as file:
        file.write(material.key_pem(BestAvailableEncryption(token.encode())) + material.chain_pem)
        file.flush()
        try:
            context.load_cert_chain(file.name, password=token)
        except ssl.SSLError as error:
            raise ConfigError(f"the certificate of {material.subject} cannot be used: {error.reason}") from error
