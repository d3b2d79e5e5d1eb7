"""The SASL of a node's listeners, and its logins to other nodes and to controllers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from functools import partial

from tidelog_foundation.config.endpoints import NamedListener
from tidelog_foundation.metrics import Family
from tidelog_foundation.sasl import SaslLogin
from tidelog_foundation.sasl.login_counts import no_logins
from tidelog_foundation.sasl.settings import ListenerSaslSettings
from tidelog_foundation.security.mechanisms import Accounts, ServedMechanism, own_login, served_mechanism
from tidelog_foundation.transport.session_service import SessionService
from tidelog_node.kafka.server.authentication import ListenerMechanism
from tidelog_node.kafka.server.logins import ListenerSasl
from tidelog_node.server.dynamic_config import DynamicNodeConfig

_SECOND_MS = 1_000


class NodeSasl:
    """The mechanisms of all listeners with SASL. They work from :meth:`start` to :meth:`stop`."""

    def __init__(
        self,
        settings: DynamicNodeConfig,
        accounts: Accounts,
        admit: Callable[[str, str], Awaitable[None]] | None = None,
    ) -> None:
        """Build the mechanisms, which look up ``accounts`` at each login.

        ``admit`` waits until a login over gRPC may begin, by the names of its listener and host, or refuses it.

        Raises:
            ConfigError: A listener's mechanism is not supported, or its settings are invalid.
        """
        self._accounts = accounts
        self._admit = admit
        self._served: list[ServedMechanism] = []
        self.listeners: dict[str, ListenerSasl] = {}
        """The SASL of each Kafka listener with it, by the listener's name."""
        for listener in settings.current.kafka_listeners:
            sasl = settings.listener_security[listener.name].sasl
            if sasl is not None:
                delay_ms = settings.current.connection_failed_authentication_delay_ms
                self.listeners[listener.name] = ListenerSasl(
                    self._mechanisms(sasl), sasl.max_receive_size, delay_ms / _SECOND_MS, listener.has_tls
                )
        self._sessions = {x.name: self._grpc_sessions(settings, x) for x in settings.current.grpc_listeners}
        config = settings.current
        self.login = _own_login(
            settings,
            config.inter_broker_listener,
            "sasl.mechanism.inter.broker.protocol",
            config.sasl_mechanism_inter_broker_protocol,
        )
        """The login to other nodes, None if the inter-broker listener has no SASL."""
        self.login_to_controllers = _own_login(
            settings,
            config.controller_listener,
            "sasl.mechanism.controller.protocol",
            config.sasl_mechanism_controller_protocol,
        )
        """The login to controllers, None if their listener has no SASL."""

    def sessions(self, listener: str) -> SessionService | None:
        """Return the logins and sessions of a gRPC listener, None if it has no SASL."""
        return self._sessions[listener]

    def families(self) -> Iterable[Family]:
        """Return the metrics of logins to the gRPC listeners."""
        yield from no_logins()
        for sessions in self._sessions.values():
            if sessions is not None:
                yield from sessions.families()

    def start(self) -> None:
        """Start the work of the mechanisms in the background."""
        for each in self._served:
            each.start()

    def stop(self) -> None:
        """End the work of the mechanisms."""
        for each in self._served:
            each.stop()

    def _grpc_sessions(self, settings: DynamicNodeConfig, listener: NamedListener) -> SessionService | None:
        sasl = settings.listener_security[listener.name].sasl
        if sasl is None:
            return None
        mechanisms = {name: each.mechanism for name, each in self._mechanisms(sasl).items()}
        admit = None if self._admit is None else partial(self._admit, listener.name)
        return SessionService(sasl, mechanisms, is_encrypted=listener.has_tls, admit=admit)

    def _mechanisms(self, sasl: ListenerSaslSettings) -> dict[str, ListenerMechanism]:
        found = {}
        for name, settings in sasl.mechanisms.items():
            served = served_mechanism(sasl.listener, settings, self._accounts)
            self._served.append(served)
            found[name] = ListenerMechanism(served.mechanism, served.max_session_ms)
        return found


def _own_login(settings: DynamicNodeConfig, listener: NamedListener, key: str, mechanism: str) -> SaslLogin | None:
    """Return the login with the mechanism that the setting ``key`` names, None for a listener without SASL."""
    sasl = settings.listener_security[listener.name].sasl
    return None if sasl is None else own_login(listener.name, sasl.enabled(mechanism, key))
