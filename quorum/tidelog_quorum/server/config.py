"""The settings of a controller's process. Keys and defaults are Kafka's where Kafka has them."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from tidelog_foundation.authorization.settings import AuthorizerSettings
from tidelog_foundation.config import at_least, describe, not_empty, one_of, parse_config, setting
from tidelog_foundation.config.connections import LIMIT_KEYS, ConnectionLimits, own_limits
from tidelog_foundation.config.endpoints import (
    ANY_HOST,
    DEFAULT_PROTOCOL_MAP,
    GRPC,
    HTTPS,
    ControllerListeners,
    NamedListener,
    parse_addresses,
    parse_advertised_listeners,
    parse_controller_listeners,
    parse_listener_names,
    parse_listeners,
    parse_protocol_map,
    parse_voters,
)
from tidelog_foundation.config.health import HealthSettings
from tidelog_foundation.config.kafka_file import RoleSettings, controller_settings
from tidelog_foundation.config.settings import config_key, setting_of
from tidelog_foundation.dataclass import dataclass
from tidelog_foundation.errors import ConfigError
from tidelog_foundation.logs.settings import LoggingSettings
from tidelog_foundation.monitoring.settings import MonitoringSettings
from tidelog_foundation.requests.addresses import ControllerEndpoint
from tidelog_foundation.sasl.settings import SaslSettings
from tidelog_foundation.security.ssl_settings import SslSettings, is_listener_key, with_listener_settings
from tidelog_quorum.controller.config import ControllerConfig
from tidelog_quorum.raft.core.config import RaftConfig, SnapshotConfig
from tidelog_quorum.raft.core.endpoints import Endpoints
from tidelog_quorum.raft.core.voters import Voter, VoterSet
from tidelog_quorum.server.connection_settings import ConnectionSettings

logger = logging.getLogger(__name__)

TIDELOG = "tidelog"
PYSYNCOBJ = "pysyncobj"
_NO_HOSTS = (ANY_HOST, "0.0.0.0", "::")


def read_controller_properties(file: Mapping[str, str]) -> dict[str, str]:
    """Return the settings of a controller in a properties file, and log a warning of those without meaning.

    Raises:
        ConfigError: the file is that of a process without a controller.
    """
    found = select_controller_properties(file)
    if found.warning is not None:
        logger.warning("%s", found.warning)
    return found.properties


def select_controller_properties(file: Mapping[str, str]) -> RoleSettings:
    """Return the settings of a controller in a properties file.

    Raises:
        ConfigError: the file is that of a process without a controller.
    """
    return controller_settings(file, {info.key for info in describe(QuorumConfig)})


def parse_quorum_config(properties: Mapping[str, str]) -> QuorumConfig:
    """Return the settings of a controller; those with the prefix of its first listener replace those without.

    Raises:
        ConfigError: A setting is missing or invalid.
    """
    try:
        listeners = [x.name for x in parse_listeners(properties.get("listeners", ""))]
        preferred = parse_listener_names(properties.get("controller.listener.names", ",".join(listeners)))
    except ConfigError:
        # The parser of all settings names the one that is wrong, and does not show it if it is secret.
        return parse_config(QuorumConfig, {key: value for key, value in properties.items() if not is_listener_key(key)})
    first = [name for name in preferred if name in listeners]
    own = with_listener_settings(properties, *first, *listeners, HTTPS, others=LIMIT_KEYS)
    config = parse_config(QuorumConfig, own)
    config.connection_limits(properties)
    return config


@dataclass(frozen=True, slots=True, kw_only=True)
class QuorumConfig(
    ControllerConfig,
    ConnectionSettings,
    HealthSettings,
    LoggingSettings,
    MonitoringSettings,
    SslSettings,
    SaslSettings,
    AuthorizerSettings,
):
    """The properties of ``tidelog-quorum``, including those that govern the controller's decisions.

    Raises:
        ValueError: values that are inconsistent; ``parse_config`` makes it a ConfigError.
    """

    node_id: int = setting(
        doc="This controller's id, unique among the controllers.", check=at_least(0), config_type="INT"
    )
    listeners: str = setting(
        doc="The addresses to listen on, as NAME://host:port,NAME://host:port,...: GRPC, with TLS GRPC_SSL, with SASL "
        "GRPC_SASL_SSL or GRPC_SASL_PLAINTEXT, or names of listener.security.protocol.map.",
        check=parse_listeners,
    )
    listener_security_protocol_map: str = setting(
        DEFAULT_PROTOCOL_MAP,
        "The security protocol of each listener, as NAME:PROTOCOL,NAME:PROTOCOL,...: GRPC, GRPC_SSL, GRPC_SASL_SSL or "
        "GRPC_SASL_PLAINTEXT.",
        parse_protocol_map,
    )
    controller_listener_names: str | None = setting(
        None,
        "The names of all listeners. This controller calls the others at their listener with the first name, and with "
        "its security; controller.quorum.voters has the addresses of that one. Defaults to the names in the order of "
        "listeners.",
        parse_listener_names,
    )
    advertised_listeners: str | None = setting(
        None,
        "The addresses under which others reach this controller, as NAME://host:port,NAME://host:port,... The first "
        "listener's defaults to a voter's address in controller.quorum.voters, the others' to that in listeners.",
        parse_advertised_listeners,
    )
    controller_quorum_voters: str | None = setting(
        None,
        "The initial voters: id@host:port,id@host:port,... Later changes by add-voter and remove-voter are in"
        " the metadata log and take precedence. The controller also tries these addresses to find voters that"
        " have moved.",
        parse_voters,
    )
    controller_quorum_bootstrap_servers: str | None = setting(
        None,
        "Addresses of controllers, as host:port,host:port,... A controller with this setting need not be in "
        "controller.quorum.voters: it follows the log without a vote until add-voter gives it one.",
        parse_addresses,
    )
    controller_quorum_engine: str = setting(
        TIDELOG,
        "The implementation of Raft: tidelog, or pysyncobj for development on one machine, which can lose "
        "acknowledged changes.",
        one_of(TIDELOG, PYSYNCOBJ),
    )
    controller_quorum_pysyncobj_voters: str | None = setting(
        None,
        "The loopback addresses of the voters' pysyncobj protocol with that engine: id@host:port,...",
        parse_voters,
    )
    metadata_log_dir: str = setting(doc="The directory of the metadata log.", check=not_empty)
    metadata_log_max_record_bytes_between_snapshots: int = setting_of(SnapshotConfig, "max_bytes_between")
    metadata_log_max_snapshot_interval_ms: int = setting_of(SnapshotConfig, "max_interval_ms")
    controller_quorum_election_timeout_ms: int = setting_of(RaftConfig, "election_timeout_ms")
    controller_quorum_heartbeat_interval_ms: int = setting(
        0,
        "The interval between heartbeats of a leader to its followers, in milliseconds; 0 is a third of the "
        "election timeout.",
        at_least(0),
    )
    controller_quorum_append_max_bytes: int = setting_of(RaftConfig, "max_append_bytes")
    controller_quorum_append_max_inflight: int = setting_of(RaftConfig, "max_inflight_appends")
    controller_quorum_append_max_inflight_bytes: int = setting_of(RaftConfig, "max_inflight_bytes")
    controller_quorum_snapshot_trailing_entries: int = setting_of(RaftConfig, "max_trailing_entries")
    controller_quorum_snapshot_trailing_bytes: int = setting_of(RaftConfig, "max_trailing_bytes")
    controller_quorum_snapshot_chunk_bytes: int = setting_of(SnapshotConfig, "chunk_bytes")
    controller_quorum_observers_max: int = setting_of(RaftConfig, "max_observers")

    def __post_init__(self) -> None:
        self._check_membership(self.controller_listeners)
        if self.controller_quorum_engine == PYSYNCOBJ:
            self._check_pysyncobj()
        elif self.controller_quorum_pysyncobj_voters:
            raise ValueError("controller.quorum.pysyncobj.voters is only used with controller.quorum.engine=pysyncobj")
        self.check_connections(self.connection_failed_authentication_delay_ms)
        self.raft_config()

    @property
    def voters(self) -> VoterSet:
        """The configured voters; empty with bootstrap servers only."""
        named = parse_voters(self.controller_quorum_voters) if self.controller_quorum_voters else {}
        name = self.first_listener.name
        return VoterSet(Voter.at(voter_id, host, port, listener=name) for voter_id, (host, port) in named.items())

    @property
    def bootstrap(self) -> list[tuple[str, int]]:
        """The (host, port) of each controller to ask for the quorum."""
        return parse_addresses(self.controller_quorum_bootstrap_servers or "")

    @property
    def controller_listeners(self) -> ControllerListeners:
        """The listeners, in the order of ``controller.listener.names``, and their advertised addresses."""
        return parse_controller_listeners(
            self.listeners,
            self.listener_security_protocol_map,
            self.controller_listener_names,
            self.advertised_listeners,
            self._own_voter_address(),
        )

    @property
    def first_listener(self) -> NamedListener:
        """The listener by whose name, and with whose security, this controller calls the others."""
        return self.controller_listeners.first

    @property
    def protected_listener(self) -> str | None:
        """The first listener if there are others, to which limits of all listeners do not apply."""
        return self.first_listener.name if len(self.controller_listeners.bound) > 1 else None

    @property
    def advertised(self) -> Endpoints:
        """The addresses by which others reach this controller."""
        shown = self.controller_listeners.advertised
        return Endpoints(ControllerEndpoint(x.host, x.port, x.name) for x in shown)

    @property
    def pysyncobj_voters(self) -> dict[int, tuple[str, int]]:
        """The (host, port) of each voter's pysyncobj, by id."""
        return parse_voters(self.controller_quorum_pysyncobj_voters or "")

    def connection_limits(self, properties: Mapping[str, str]) -> ConnectionLimits:
        """Return the limits of the listeners. ``properties`` has the prefixed keys of single ones.

        Raises:
            ConfigError: A limit of a single listener is invalid.
        """
        return self.limits_with(own_limits(properties, self.controller_listeners.bound))

    def raft_config(self) -> RaftConfig:
        """Return the timeouts and limits of the quorum."""
        values = self._settings_of(RaftConfig)
        values["heartbeat_interval_ms"] = values["heartbeat_interval_ms"] or values["election_timeout_ms"] // 3
        return RaftConfig(**values)

    def snapshot_config(self) -> SnapshotConfig:
        """Return the settings of snapshots and their transfer."""
        return SnapshotConfig(**self._settings_of(SnapshotConfig))

    def _settings_of(self, config: type[RaftConfig | SnapshotConfig]) -> dict[str, Any]:
        """Return the values of the properties whose keys the fields of ``config`` name."""
        return {field.name: getattr(self, config_key(field).replace(".", "_")) for field in fields(config)}

    def _own_voter_address(self) -> tuple[str, int] | None:
        return parse_voters(self.controller_quorum_voters).get(self.node_id) if self.controller_quorum_voters else None

    def _check_membership(self, listeners: ControllerListeners) -> None:
        if not self.controller_quorum_voters and not self.controller_quorum_bootstrap_servers:
            raise ValueError("controller.quorum.voters or controller.quorum.bootstrap.servers must be set")
        voter = self._own_voter_address()
        if voter is None:
            self._check_observer()
        elif self._advertises_other_than(voter):
            raise ValueError(
                f"advertised.listeners {self.advertised_listeners} has another address of {listeners.first.name} than "
                f"that of voter {self.node_id} in controller.quorum.voters {self.controller_quorum_voters}"
            )
        for shown in listeners.advertised:
            if shown.host in _NO_HOSTS or not shown.port:
                raise ValueError(f"others cannot reach controller {self.node_id} at {shown}: set advertised.listeners")

    def _advertises_other_than(self, address: tuple[str, int]) -> bool:
        shown = parse_advertised_listeners(self.advertised_listeners) if self.advertised_listeners else ()
        return any(x.name == self.first_listener.name and (x.host, x.port) != address for x in shown)

    def _check_observer(self) -> None:
        if not self.controller_quorum_bootstrap_servers:
            raise ValueError(
                f"node.id {self.node_id} is not in controller.quorum.voters {self.controller_quorum_voters}; to follow "
                "the log without a vote it needs controller.quorum.bootstrap.servers"
            )

    def _check_pysyncobj(self) -> None:
        if not self.controller_quorum_pysyncobj_voters:
            raise ValueError("controller.quorum.engine=pysyncobj needs controller.quorum.pysyncobj.voters")
        if [x.security_protocol for x in self.controller_listeners.bound] != [GRPC]:
            text = "controller.quorum.engine=pysyncobj neither encrypts nor authenticates: listeners must be one "
            raise ValueError(f"{text}GRPC://host:port")
        if self.has_authorizer:
            raise ValueError(
                f"controller.quorum.engine=pysyncobj does not authorize: authorizer.class.name must not be set, but is "
                f"{self.authorizer_class_name}"
            )
        if self.controller_quorum_bootstrap_servers:
            raise ValueError(
                "controller.quorum.engine=pysyncobj cannot change its voters: it takes no "
                "controller.quorum.bootstrap.servers"
            )
        if set(self.pysyncobj_voters) != set(self.voters.ids):
            raise ValueError(
                f"controller.quorum.pysyncobj.voters names {sorted(self.pysyncobj_voters)}, controller.quorum.voters "
                f"names {list(self.voters.ids)}"
            )
