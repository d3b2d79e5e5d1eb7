"""The security of a controller's listeners: certificates, identities of callers, and the controller's own logins."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import grpc
import grpc.aio

from tidelog_foundation.config.connections import LIMIT_KEYS
from tidelog_foundation.config.endpoints import NamedListener
from tidelog_foundation.errors import ConfigError
from tidelog_foundation.metrics import Family
from tidelog_foundation.sasl import SaslLogin
from tidelog_foundation.sasl.login_counts import no_logins
from tidelog_foundation.sasl.scram_credentials import MECHANISMS as SCRAM
from tidelog_foundation.sasl.scram_users import Credentials, ScramUsers
from tidelog_foundation.sasl.settings import ListenerSaslSettings
from tidelog_foundation.security.certificate_store import CertificateStore
from tidelog_foundation.security.listener_settings import ListenerSecurity, listener_security
from tidelog_foundation.security.mechanisms import Accounts, ServedMechanism, own_login, served_mechanism
from tidelog_foundation.security.metrics import certificate_families
from tidelog_foundation.transport.channels import ChannelSecurity
from tidelog_foundation.transport.credentials import identify_callers, server_credentials
from tidelog_foundation.transport.services import Identify, anyone
from tidelog_foundation.transport.session_service import SessionService
from tidelog_quorum.server.config import QuorumConfig


class QuorumSecurity:
    """The security that a controller's settings describe. Its mechanisms work from :meth:`start` to :meth:`stop`."""

    def __init__(self, config: QuorumConfig, properties: Mapping[str, str]) -> None:
        """Load certificates and credentials. ``properties`` has the prefixed keys of listeners.

        Raises:
            ConfigError: A setting is missing or invalid.
        """
        listeners = config.controller_listeners.bound
        settings = listener_security(properties, (*listeners, *config.monitoring_listeners), LIMIT_KEYS)
        self._credentials: Callable[[], Credentials] = dict
        accounts = Accounts(ScramUsers(lambda: self._credentials()), tokens=ScramUsers(dict))
        self.listeners = {x.name: ServedListener(x, settings[x.name], accounts) for x in listeners}
        """The security of each listener, by its name."""
        self.monitoring_certificates = {
            each.name: CertificateStore(each.name, settings[each.name].ssl)
            for each in config.monitoring_listeners
            if each.has_tls
        }
        """The certificates of the monitoring ports with TLS, by the listener's name."""
        first, sasl = self.listeners[config.first_listener.name], settings[config.first_listener.name].sasl
        login = None if sasl is None else _own_login(sasl, config.sasl_mechanism_controller_protocol)
        self.to_controllers = ChannelSecurity(first.certificates, login)
        """The security of connections to other controllers, that of the first listener."""

    @property
    def certificates(self) -> list[CertificateStore]:
        """The certificates of the listeners with TLS."""
        return [x.certificates for x in self.listeners.values() if x.certificates is not None]

    def follow(self, credentials: Callable[[], Credentials]) -> None:
        """Look up the users of SCRAM in these credentials."""
        self._credentials = credentials

    def families(self) -> Iterable[Family]:
        """Return the metrics of certificates and logins."""
        yield from certificate_families((*self.certificates, *self.monitoring_certificates.values()))
        yield from no_logins()
        for each in self.listeners.values():
            yield from each.families()

    def start(self) -> None:
        """Start the background work of mechanisms."""
        for each in self.listeners.values():
            each.start()

    def stop(self) -> None:
        """End it."""
        for each in self.listeners.values():
            each.stop()


class ServedListener:
    """The security of one listener. :meth:`start` and :meth:`stop` are those of its mechanisms."""

    def __init__(self, listener: NamedListener, settings: ListenerSecurity, accounts: Accounts) -> None:
        """Load the listener's certificates and credentials; mechanisms look up ``accounts`` at each login.

        Raises:
            ConfigError: A setting is missing or invalid.
        """
        self.listener = listener
        self.certificates = (
            CertificateStore(listener.name, settings.ssl, has_contexts=False) if listener.has_tls else None
        )
        self.identify: Identify = identify_callers(settings.ssl) if self.certificates is not None else anyone
        """The function that identifies callers."""
        self._served: dict[str, ServedMechanism] = {}
        self._sessions: SessionService | None = None
        if settings.sasl is not None:
            self._serve(settings.sasl, accounts)

    @property
    def credentials(self) -> grpc.ServerCredentials | None:
        """The credentials of the listener, None without TLS.

        Raises:
            ConfigError: gRPC does not support a setting.
        """
        return server_credentials(self.certificates) if self.certificates is not None else None

    @property
    def has_logins(self) -> bool:
        """True if callers log in with SASL."""
        return self._sessions is not None

    def add_to(self, server: grpc.aio.Server) -> None:
        """Serve logins, if the listener has SASL."""
        if self._sessions is not None:
            self._sessions.add_to(server)

    def families(self) -> Iterable[Family]:
        """Return the metrics of logins."""
        return () if self._sessions is None else self._sessions.families()

    def start(self) -> None:
        """Start the background work of mechanisms."""
        for each in self._served.values():
            each.start()

    def stop(self) -> None:
        """End it."""
        for each in self._served.values():
            each.stop()

    def _serve(self, sasl: ListenerSaslSettings, accounts: Accounts) -> None:
        self._served = {name: served_mechanism(sasl.listener, each, accounts) for name, each in sasl.mechanisms.items()}
        mechanisms = {name: each.mechanism for name, each in self._served.items()}
        self._sessions = SessionService(sasl, mechanisms, is_encrypted=self.listener.has_tls)
        self.identify = self._sessions.identify


def _own_login(sasl: ListenerSaslSettings, mechanism: str) -> SaslLogin:
    """Return the login at other controllers."""
    own = sasl.enabled(mechanism, "sasl.mechanism.controller.protocol")
    if mechanism in SCRAM:
        raise ConfigError(
            f"sasl.mechanism.controller.protocol {mechanism}: controllers cannot log in to each other with it, "
            "because its users are in the metadata log that they elect a leader for; nodes can"
        )
    return own_login(sasl.listener, own)
