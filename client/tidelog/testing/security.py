"""The security of a local cluster: its authority, the certificates of its processes and users, and clients' files.

Everything is in one folder that only its owner can read. A later cluster in the same folder has the same authority, and
new certificates.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Final

from tidelog_foundation.config.endpoints import GRPC_SSL, SSL
from tidelog_foundation.errors import ConfigError

ADMIN: Final = "admin"
"""The user whom the cluster allows everything."""
SECURITY_FOLDER: Final = "security"
"""The folder's name in a cluster's data directory."""
LIBRDKAFKA_FILE, JAVA_FILE = "librdkafka.conf", "client.properties"
_MODE, _FOLDER_MODE = 0o600, 0o700
_LIFETIME = timedelta(days=365)


class ClusterSecurity:
    """The files with which the processes and clients of one local cluster prove their identity.

    ``protocol`` is that of the Kafka listeners: with ``ssl``, every process and every client has a certificate.
    """

    def __init__(self, protocol: str, folder: Path, users: Sequence[str] = (ADMIN,)) -> None:
        """Create the folder with the authority and the users' certificates.

        Raises:
            ConfigError: The protocol is unknown, or the folder has an invalid file of an authority.
            OSError: The folder cannot be written.
        """
        # The import is local because a cluster without security does not need cryptography.
        from tidelog_foundation.security.authority import Authority

        check_protocol(protocol)
        self.folder = folder
        folder.mkdir(mode=_FOLDER_MODE, parents=True, exist_ok=True)
        self._authority = Authority.open(folder / "ca-key.pem")
        self._authority.write_pem(self._ca)
        for user in users:
            self._authority.issue(user, hosts=()).write_pem(self._store(user))

    @property
    def grpc_protocol(self) -> str:
        """The security protocol of the gRPC listeners, and their name."""
        return GRPC_SSL

    @property
    def kafka_protocol(self) -> str:
        """The security protocol of the Kafka listeners, and their name."""
        return SSL

    def common_settings(self) -> dict[str, object]:
        """Return the settings that all processes share."""
        return {
            "ssl.keystore.type": "PEM",
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self._ca),
            "ssl.client.auth": "required",
            "ssl.principal.mapping.rules": "RULE:^CN=([^,]+)$/$1/,DEFAULT",
            "controller.listener.names": self.grpc_protocol,
        }

    def process_settings(self, name: str, host: str) -> dict[str, object]:
        """Issue the certificate of a process, such as ``node-1``, and return the settings of its own."""
        return {"ssl.keystore.location": str(self.issue(name, host))}

    def issue(self, name: str, host: str, valid_for: timedelta = _LIFETIME) -> Path:
        """Issue a new certificate of a process; a running process takes it over. Return the file."""
        from tidelog_foundation.security.authority import LOOPBACK

        hosts = dict.fromkeys((*LOOPBACK, host))
        return self._authority.issue(name, list(hosts), valid_for).write_pem(self._store(name))

    def spoil(self, name: str, kind: str) -> None:
        """Replace the certificate of a process by one that has ``expired``, or by half of its file (``broken``)."""
        if kind == "expired":
            self.issue(name, "localhost", timedelta(days=-1))
            return
        store = self._store(name)
        half = store.with_suffix(".half")
        half.touch(_MODE)
        half.write_bytes(store.read_bytes()[: store.stat().st_size // 2])
        half.replace(store)

    def client_settings(self, user: str = ADMIN) -> dict[str, str]:
        """Return the settings with which clients of Tidelog and of librdkafka connect as a user.

        Raises:
            ConfigError: There is no such user.
        """
        store = self._store_of(user)
        return {
            "security.protocol": "ssl",
            "ssl.ca.location": str(self._ca),
            "ssl.certificate.location": str(store),
            "ssl.key.location": str(store),
        }

    def java_settings(self, user: str = ADMIN) -> dict[str, str]:
        """Return the settings with which Java's clients and Kafka's shell tools connect as a user.

        Raises:
            ConfigError: There is no such user.
        """
        return {
            "security.protocol": "SSL",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(self._store_of(user)),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self._ca),
        }

    def write_client_files(self, kafka_bootstrap_servers: str) -> None:
        """Write the files for Kafka's clients as the user admin: one for librdkafka, and one for Java."""
        servers = {"bootstrap.servers": kafka_bootstrap_servers}
        _write_properties(self.folder / LIBRDKAFKA_FILE, {**servers, **self.client_settings()})
        _write_properties(self.folder / JAVA_FILE, {**servers, **self.java_settings()})

    @property
    def _ca(self) -> Path:
        return self.folder / "ca.pem"

    def _store(self, name: str) -> Path:
        return self.folder / f"{name}.pem"

    def _store_of(self, user: str) -> Path:
        store = self._store(user)
        if not store.exists():
            raise ConfigError(f"there is no user {user} in {self.folder}")
        return store


def check_protocol(protocol: str) -> None:
    """Raise ConfigError unless a local cluster supports the security protocol."""
    if protocol != SSL.lower():
        raise ConfigError(f'invalid security "{protocol}" of a local cluster: must be ssl')


def _write_properties(path: Path, properties: Mapping[str, str]) -> None:
    path.touch(_MODE)
    path.write_text("".join(f"{key}={value}\n" for key, value in properties.items()))
