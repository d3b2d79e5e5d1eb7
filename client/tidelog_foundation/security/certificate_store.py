"""The current key material of TLS settings, which follows the files that the settings name (as KIP-687 proposes).

A server calls :meth:`CertificateStore.refresh` periodically. Changed files are read and checked before they replace
what is in use: a key without its certificate, or a certificate that has expired, changes nothing. Connections that
exist keep what they began with.
"""

from __future__ import annotations

import asyncio
import logging
import os
import ssl
from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from functools import cached_property
from typing import TYPE_CHECKING, Final

from tidelog_foundation.dataclass import dataclass
from tidelog_foundation.errors import ConfigError
from tidelog_foundation.security.contexts import check_client_auth, client_context, server_context
from tidelog_foundation.security.ssl_settings import SslSettings

if TYPE_CHECKING:
    from tidelog_foundation.security.key_material import KeyMaterial

logger = logging.getLogger(__name__)
_CHECK_INTERVAL_S: Final = 2.0
_NOTICE: Final = timedelta(days=30)
_REMINDER: Final = timedelta(days=1)
_Version = tuple[tuple[int, int, int] | None, ...]


# Without slots, for the cached properties.
@dataclass(frozen=True)
class TlsMaterial:
    """The key material of a server, and Python's contexts of its listener and of its own connections."""

    settings: SslSettings
    key: KeyMaterial
    authorities: bytes | None

    @cached_property
    def server(self) -> ssl.SSLContext:
        """The context of accepted connections.

        Raises:
            ConfigError: The settings contradict each other, or the library does not support a cipher suite.
        """
        return server_context(self.settings, self.key, self.authorities)

    @cached_property
    def client(self) -> ssl.SSLContext:
        """The context of connections to other servers.

        Raises:
            ConfigError: As for :attr:`server`.
        """
        return client_context(self.settings, self.key, self.authorities)


class CertificateStore:
    """The material of one server's TLS settings. ``current`` is replaced as a whole when the files have changed."""

    def __init__(self, name: str, settings: SslSettings, *, has_contexts: bool = True) -> None:
        """Load the material. ``name`` is the listener's, for messages.

        ``has_contexts`` is false for gRPC, which needs none of Python's contexts: they are not made then.

        Raises:
            ConfigError: There is no key store, or a store is invalid. The message names the listener.
        """
        self.name = name
        self.settings = settings
        self._has_contexts = has_contexts
        self._version = self._read_version()
        self.current = self._load()
        self._reminded: datetime | None = None

    def refresh(self, now: datetime) -> None:
        """Replace the material if its files have changed and are valid, and log what expires within 30 days.

        This reads files.
        """
        version = self._read_version()
        if version != self._version:
            self._version = version
            self._reload(now)
        self._remind(now)

    def _reload(self, now: datetime) -> None:
        try:
            loaded = self._load()
            if loaded.key.expires <= now:
                raise ConfigError(f"the certificate of {loaded.key.subject} has expired at {loaded.key.expires}")
        except ConfigError as error:
            logger.error("The changed certificates of listener %s are refused, the old ones stay: %s", self.name, error)
            return
        self.current, self._reminded = loaded, None
        logger.info(
            "Listener %s uses the new certificate of %s, which expires at %s",
            self.name,
            loaded.key.subject,
            loaded.key.expires,
        )

    def _remind(self, now: datetime) -> None:
        key = self.current.key
        if key.expires - now > _NOTICE or (self._reminded is not None and now - self._reminded < _REMINDER):
            return
        self._reminded = now
        verb = "has expired" if key.expires <= now else "expires soon,"
        logger.warning("The certificate of %s of listener %s %s at %s", key.subject, self.name, verb, key.expires)

    def _load(self) -> TlsMaterial:
        # Imported late: servers import this module, and one without TLS needs no cryptography, which takes 8 MB.
        from tidelog_foundation.security.key_material import load_authorities, load_key_material

        settings = self.settings
        try:
            key = load_key_material(settings)
            if key is None:
                raise ConfigError("TLS needs ssl.keystore.location, or ssl.keystore.key with its certificate chain")
            authorities = load_authorities(settings)
            check_client_auth(settings, authorities)
            material = TlsMaterial(settings, key, authorities)
            if self._has_contexts:
                material.server, material.client  # noqa: B018  # they raise
            return material
        except ConfigError as error:
            raise ConfigError(f"listener {self.name}: {error.message}") from error

    def _read_version(self) -> _Version:
        return tuple(map(_file_version, (self.settings.ssl_keystore_location, self.settings.ssl_truststore_location)))


def client_contexts(certificates: CertificateStore | None) -> Callable[[], ssl.SSLContext] | None:
    """Return a function that returns the present context of connections to other servers; None without certificates."""
    return None if certificates is None else lambda: certificates.current.client


async def watch_certificates(stores: Iterable[CertificateStore], interval_s: float = _CHECK_INTERVAL_S) -> None:
    """Refresh the stores periodically, until cancelled."""
    stores = tuple(stores)
    while True:
        for store in stores:
            await asyncio.to_thread(store.refresh, datetime.now(UTC))
        await asyncio.sleep(interval_s)


def _file_version(path: str | None) -> tuple[int, int, int] | None:
    """Return a value that differs once the file has changed; a symbolic link's target counts."""
    if path is None:
        return None
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_ino, status.st_size, status.st_mtime_ns
