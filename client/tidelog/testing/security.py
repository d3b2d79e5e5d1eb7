"""The security of a local cluster: its authority, certificates, users and passwords, and the files of its clients.

Everything is in one folder that only its owner can read. A later cluster in the same folder has the same authority and
passwords, and new certificates.
"""

from __future__ import annotations

import importlib
import secrets
from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

from tidelog_foundation.config.endpoints import DEFAULT_PROTOCOL_MAP, GRPC_SASL_SSL, GRPC_SSL, SASL_SSL, SSL
from tidelog_foundation.errors import ConfigError

ADMIN: Final = "admin"
"""The user whom the cluster allows everything."""
SECURITY_FOLDER: Final = "security"
"""The folder's name in a cluster's data directory."""
LIBRDKAFKA_FILE, JAVA_FILE, PASSWORDS_FILE = "librdkafka.conf", "client.properties", "passwords.properties"
_NODE, _CONTROLLER = "node", "controller"
_SCRAM: Final = "SCRAM-SHA-512"
_SCRAM_MODULE: Final = "org.apache.kafka.common.security.scram.ScramLoginModule"
_PLAIN_MODULE: Final = "org.apache.kafka.common.security.plain.PlainLoginModule"
_PRINCIPALS: Final = "RULE:^CN=(node|controller)-[0-9]+$/$1/,RULE:^CN=([^,]+)$/$1/,DEFAULT"
"""Certificates of node-1 and node-2 are those of the principal User:node."""
_MODE, _FOLDER_MODE = 0o600, 0o700
_LIFETIME = timedelta(days=365)
_PASSWORD_BYTES = 24


class ClusterSecurity:
    """The files with which the processes and clients of one local cluster prove their identity.

    With the protocol ``ssl``, every process and every client has a certificate. With ``sasl_ssl``, servers have
    certificates, and users log in with SCRAM; servers log in to controllers with PLAIN, because the users of SCRAM are
    in the metadata log, which a controller knows only with the help of others. An authorizer denies everything to
    everyone but the user admin and the servers, until there are ACLs.
    """

    def __init__(self, protocol: str, folder: Path, users: Sequence[str] = (ADMIN,)) -> None:
        """Create the folder with the authority, and the certificates or passwords of the users.

        Raises:
            ConfigError: The protocol is unknown, or the folder has an invalid file of an authority.
            OSError: The folder cannot be written.
        """
        # The import is local because a cluster without security does not need cryptography.
        from tidelog_foundation.security.authority import Authority

        check_protocol(protocol)
        self.folder = folder
        self.has_sasl = protocol == SASL_SSL.lower()
        folder.mkdir(mode=_FOLDER_MODE, parents=True, exist_ok=True)
        self._authority = Authority.open(folder / "ca-key.pem")
        self._authority.write_pem(self._ca)
        self._users = tuple(users)
        self._is_new = not (folder / PASSWORDS_FILE).exists()
        if self.has_sasl:
            self._passwords = _open_passwords(folder / PASSWORDS_FILE, (*users, _NODE, _CONTROLLER))
        else:
            for user in users:
                self._authority.issue(user, hosts=()).write_pem(self._store(user))

    @property
    def grpc_protocol(self) -> str:
        """The security protocol of the gRPC listeners, and their name."""
        return GRPC_SASL_SSL if self.has_sasl else GRPC_SSL

    @property
    def kafka_protocol(self) -> str:
        """The security protocol of the Kafka listeners, and their name."""
        return SASL_SSL if self.has_sasl else SSL

    def common_settings(self) -> dict[str, object]:
        """Return the settings that all processes share."""
        settings: dict[str, object] = {
            "ssl.keystore.type": "PEM",
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self._ca),
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": f"User:{ADMIN};User:{_NODE};User:{_CONTROLLER}",
        }
        if self.has_sasl:
            return {**settings, "sasl.mechanism.controller.protocol": "PLAIN"}
        names = {"ssl.client.auth": "required", "ssl.principal.mapping.rules": _PRINCIPALS}
        return {**settings, **names, "controller.listener.names": self.grpc_protocol}

    def process_settings(self, name: str, host: str) -> dict[str, object]:
        """Issue the certificate of a process, such as ``node-1``, and return the settings of its own."""
        settings: dict[str, object] = {"ssl.keystore.location": str(self.issue(name, host))}
        if not self.has_sasl:
            return settings
        return settings | (self._node_logins() if name.startswith(_NODE) else self._controller_logins())

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

    def format(self, metadata_log_dir: Path) -> None:
        """Let a new cluster begin with the users, as ``tidelog quorum format`` does; each controller needs it.

        Raises:
            ConfigError: The cluster exists, and began without these users.
        """
        # By name, as the processes are started: the SDK does not depend on the servers.
        bootstrap: Any = importlib.import_module("tidelog_quorum.server.bootstrap_file")
        records: Any = importlib.import_module("tidelog_quorum.metadata.records")
        from tidelog_foundation.sasl.scram_arguments import parse_new_user
        from tidelog_foundation.sasl.scram_credentials import SALT_BYTES

        if not self.has_sasl:
            return
        if bootstrap.is_formatted(metadata_log_dir):
            if self._is_new:
                raise ConfigError(f"{metadata_log_dir} is of a cluster without the users of {self.folder}")
            return
        named = [(name, self._passwords[name]) for name in (*self._users, _NODE)]
        users = [(parse_new_user(f"{_SCRAM}=[name={name},password={password}]"), password) for name, password in named]
        bootstrap.write_bootstrap_records(
            metadata_log_dir,
            [
                records.UserScramCredentialRecord.of(
                    user.key, user.credential(password, secrets.token_bytes(SALT_BYTES))
                )
                for user, password in users
            ],
        )

    def client_settings(self, user: str = ADMIN) -> dict[str, str]:
        """Return the settings with which clients of Tidelog and of librdkafka connect as a user.

        Raises:
            ConfigError: There is no such user.
        """
        if self.has_sasl:
            return self._login(user, self.password(user))
        store = self._store_of(user)
        return {
            "security.protocol": "ssl",
            "ssl.ca.location": str(self._ca),
            "ssl.certificate.location": str(store),
            "ssl.key.location": str(store),
        }

    def profile_settings(self, user: str = ADMIN) -> dict[str, str]:
        """Return the same settings for a profile, with a reference in place of the password."""
        return self._login(user, self._reference(user)) if self.has_sasl else self.client_settings(user)

    def password(self, user: str = ADMIN) -> str:
        """Return the password of a user of a cluster with SASL.

        Raises:
            ConfigError: There is no such user.
        """
        if user not in self._users:
            raise ConfigError(f"there is no user {user} in {self.folder}")
        return self._passwords[user]

    def java_settings(self, user: str = ADMIN) -> dict[str, str]:
        """Return the settings with which Java's clients and Kafka's shell tools connect as a user.

        Raises:
            ConfigError: There is no such user.
        """
        trusted = {"ssl.truststore.type": "PEM", "ssl.truststore.location": str(self._ca)}
        if self.has_sasl:
            login = {"security.protocol": SASL_SSL, "sasl.mechanism": _SCRAM}
            return {**login, "sasl.jaas.config": _jaas(_SCRAM_MODULE, user, self.password(user)), **trusted}
        store = {"ssl.keystore.type": "PEM", "ssl.keystore.location": str(self._store_of(user))}
        return {"security.protocol": SSL, **store, **trusted}

    def write_client_files(self, kafka_bootstrap_servers: str) -> None:
        """Write the files for Kafka's clients as the user admin: one for librdkafka, and one for Java."""
        servers = {"bootstrap.servers": kafka_bootstrap_servers}
        _write_properties(self.folder / LIBRDKAFKA_FILE, {**servers, **self.client_settings()})
        _write_properties(self.folder / JAVA_FILE, {**servers, **self.java_settings()})

    def _node_logins(self) -> dict[str, object]:
        kafka = f"listener.name.{SASL_SSL.lower()}"
        own = self._reference(_NODE)
        return {
            "listener.security.protocol.map": f"{DEFAULT_PROTOCOL_MAP},CONTROLLER:{GRPC_SASL_SSL}",
            "controller.listener.names": "CONTROLLER",
            "sasl.enabled.mechanisms": _SCRAM,
            "sasl.mechanism.inter.broker.protocol": _SCRAM,
            f"{kafka}.{_SCRAM.lower()}.sasl.jaas.config": _jaas(_SCRAM_MODULE, _NODE, own),
            "listener.name.controller.sasl.enabled.mechanisms": "PLAIN",
            "listener.name.controller.plain.sasl.jaas.config": _jaas(_PLAIN_MODULE, _NODE, own),
        }

    def _controller_logins(self) -> dict[str, object]:
        known = {name: self._reference(name) for name in (_NODE, _CONTROLLER)}
        jaas = _jaas(_PLAIN_MODULE, _CONTROLLER, known[_CONTROLLER], known)
        return {
            "sasl.enabled.mechanisms": f"PLAIN,{_SCRAM}",
            f"listener.name.{GRPC_SASL_SSL.lower()}.plain.sasl.jaas.config": jaas,
        }

    def _login(self, user: str, password: str) -> dict[str, str]:
        return {
            "security.protocol": "sasl_ssl",
            "ssl.ca.location": str(self._ca),
            "sasl.mechanisms": _SCRAM,
            "sasl.username": user,
            "sasl.password": password,
        }

    def _reference(self, user: str) -> str:
        return f"${{file:{self.folder / PASSWORDS_FILE}:{user}}}"

    @property
    def _ca(self) -> Path:
        return self.folder / "ca.pem"

    def _store(self, name: str) -> Path:
        return self.folder / f"{name}.pem"

    def _store_of(self, user: str) -> Path:
        if user not in self._users:
            raise ConfigError(f"there is no user {user} in {self.folder}")
        return self._store(user)


def check_protocol(protocol: str) -> None:
    """Raise ConfigError unless a local cluster supports the security protocol."""
    known = (SSL.lower(), SASL_SSL.lower())
    if protocol not in known:
        raise ConfigError(f'invalid security "{protocol}" of a local cluster: must be {" or ".join(known)}')


def _open_passwords(path: Path, users: Iterable[str]) -> dict[str, str]:
    """Return the passwords in a file; new users get one."""
    from tidelog_foundation.config.process import load_properties

    kept = load_properties(path) if path.exists() else {}
    passwords = kept | {user: secrets.token_hex(_PASSWORD_BYTES) for user in users if user not in kept}
    _write_properties(path, passwords)
    return passwords


def _jaas(module: str, user: str, password: str, users: Mapping[str, str] | None = None) -> str:
    known = "".join(f' user_{name}="{each}"' for name, each in (users or {}).items())
    return f'{module} required username="{user}" password="{password}"{known};'


def _write_properties(path: Path, properties: Mapping[str, str]) -> None:
    path.touch(_MODE)
    path.write_text("".join(f"{key}={value}\n" for key, value in properties.items()))
