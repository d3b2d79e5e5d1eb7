"""The SASL of a node's Kafka listeners, and its login to other nodes."""

from __future__ import annotations

from tidelog_foundation.errors import ConfigError
from tidelog_foundation.sasl import SaslLogin
from tidelog_foundation.sasl.settings import ListenerSaslSettings
from tidelog_foundation.security.mechanisms import Accounts, ServedMechanism, own_login, served_mechanism
from tidelog_node.kafka.server.authentication import ListenerMechanism
from tidelog_node.kafka.server.logins import ListenerSasl
from tidelog_node.server.dynamic_config import DynamicNodeConfig

_SECOND_MS = 1_000


class NodeSasl:
    """The mechanisms of all Kafka listeners with SASL. They work from :meth:`start` to :meth:`stop`."""

    def __init__(self, settings: DynamicNodeConfig, accounts: Accounts) -> None:
        """Build the mechanisms, which look up ``accounts`` at each login.

        Raises:
            ConfigError: A listener's mechanism is not supported, or its settings are invalid.
        """
        self._accounts = accounts
        self._served: list[ServedMechanism] = []
        self.listeners: dict[str, ListenerSasl] = {}
        """The SASL of each listener with it, by the listener's name."""
        for listener in settings.current.kafka_listeners:
            sasl = settings.listener_security[listener.name].sasl
            if sasl is not None:
                delay_ms = settings.current.connection_failed_authentication_delay_ms
                self.listeners[listener.name] = ListenerSasl(
                    self._mechanisms(sasl), sasl.max_receive_size, delay_ms / _SECOND_MS, listener.has_tls
                )
        self.login = _login_to_nodes(settings)
        """The login to other nodes, None if the inter-broker listener has no SASL."""

    def start(self) -> None:
        """Start the work of the mechanisms in the background."""
        for each in self._served:
            each.start()

    def stop(self) -> None:
        """End the work of the mechanisms."""
        for each in self._served:
            each.stop()

    def _mechanisms(self, sasl: ListenerSaslSettings) -> dict[str, ListenerMechanism]:
        found = {}
        for name, settings in sasl.mechanisms.items():
            served = served_mechanism(sasl.listener, settings, self._accounts)
            self._served.append(served)
            found[name] = ListenerMechanism(served.mechanism, served.max_session_ms)
        return found


def _login_to_nodes(settings: DynamicNodeConfig) -> SaslLogin | None:
    listener = settings.current.inter_broker_listener
    sasl = settings.listener_security[listener.name].sasl
    if sasl is None:
        return None
    name = settings.current.sasl_mechanism_inter_broker_protocol
    if name not in sasl.mechanisms:
        raise ConfigError(
            f"sasl.mechanism.inter.broker.protocol {name} is not in sasl.enabled.mechanisms of the inter-broker "
            f"listener {listener.name}: {', '.join(sasl.mechanisms)}"
        )
    return own_login(listener.name, sasl.mechanisms[name])
