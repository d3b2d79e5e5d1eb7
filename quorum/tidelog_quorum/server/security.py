"""The security of a controller: its certificates, the identities of its callers, and its own logins."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import grpc
import grpc.aio

from tidelog_foundation.config.endpoints import NamedListener
from tidelog_foundation.errors import ConfigError
from tidelog_foundation.metrics import Family
from tidelog_foundation.sasl import SaslLogin
from tidelog_foundation.sasl.login_counts import no_logins
from tidelog_foundation.sasl.scram_credentials import MECHANISMS as SCRAM
from tidelog_foundation.sasl.scram_users import Credentials, ScramUsers
from tidelog_foundation.sasl.settings import ListenerSaslSettings
from tidelog_foundation.security.certificate_store import CertificateStore
from tidelog_foundation.security.listener_settings import listener_security
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
        """Load certificates and credentials. ``properties`` has the listener's prefixed keys.

        Raises:
            ConfigError: A setting is missing or invalid.
        """
        listener = NamedListener(config.security_protocol, *config.listener, config.security_protocol)
        of_listeners = listener_security(properties, (listener, *config.monitoring_listeners))
        settings = of_listeners[listener.name]
        self.certificates = (
            CertificateStore(listener.name, settings.ssl, has_contexts=False) if listener.has_tls else None
        )
        self.monitoring_certificates = {
            each.name: CertificateStore(each.name, of_listeners[each.name].ssl)
            for each in config.monitoring_listeners
            if each.has_tls
        }
        """The certificates of the monitoring ports with TLS, by the listener's name."""
        self.identify: Identify = identify_callers(settings.ssl) if self.certificates is not None else anyone
        """The function that identifies callers."""
        self._credentials: Callable[[], Credentials] = dict
        self._served: dict[str, ServedMechanism] = {}
        self._sessions: SessionService | None = None
        login: SaslLogin | None = None
        if settings.sasl is not None:
            login = self._serve(settings.sasl, config.sasl_mechanism_controller_protocol, is_encrypted=listener.has_tls)
        self.to_controllers = ChannelSecurity(self.certificates, login)
        """The security of connections to other controllers."""

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

    def follow(self, credentials: Callable[[], Credentials]) -> None:
        """Look up the users of SCRAM in these credentials."""
        self._credentials = credentials

    def add_to(self, server: grpc.aio.Server) -> None:
        """Serve logins, if the listener has SASL."""
        if self._sessions is not None:
            self._sessions.add_to(server)

    def families(self) -> Iterable[Family]:
        """Return the metrics of certificates and logins."""
        own = () if self.certificates is None else (self.certificates,)
        yield from certificate_families((*own, *self.monitoring_certificates.values()))
        yield from no_logins() if self._sessions is None else self._sessions.families()

    def start(self) -> None:
        """Start the background work of mechanisms."""
        for each in self._served.values():
            each.start()

    def stop(self) -> None:
        """End it."""
        for each in self._served.values():
            each.stop()

    def _serve(self, sasl: ListenerSaslSettings, own_mechanism: str, *, is_encrypted: bool) -> SaslLogin:
        """Make the mechanisms of the listener, and return the login at other controllers."""
        accounts = Accounts(ScramUsers(lambda: self._credentials()), tokens=ScramUsers(dict))
        self._served = {name: served_mechanism(sasl.listener, each, accounts) for name, each in sasl.mechanisms.items()}
        mechanisms = {name: each.mechanism for name, each in self._served.items()}
        self._sessions = SessionService(sasl, mechanisms, is_encrypted=is_encrypted)
        self.identify = self._sessions.identify
        own = sasl.enabled(own_mechanism, "sasl.mechanism.controller.protocol")
        if own_mechanism in SCRAM:
            raise ConfigError(
                f"sasl.mechanism.controller.protocol {own_mechanism}: controllers cannot log in to each other with it, "
                "because its users are in the metadata log that they elect a leader for; nodes can"
            )
        return own_login(sasl.listener, own)
