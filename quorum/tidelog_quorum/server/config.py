"""The settings of a controller's process. Keys and defaults are Kafka's where Kafka has them."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

from tidelog_foundation.authorization.settings import AuthorizerSettings
from tidelog_foundation.config import at_least, not_empty, one_of, setting
from tidelog_foundation.config.endpoints import (
    GRPC,
    has_tls,
    listener_protocol,
    parse_addresses,
    parse_listener,
    parse_voters,
)
from tidelog_foundation.config.health import HealthSettings
from tidelog_foundation.config.settings import config_key, setting_of
from tidelog_foundation.monitoring.settings import MonitoringSettings
from tidelog_foundation.sasl.settings import SaslSettings
from tidelog_foundation.security.ssl_settings import SslSettings
from tidelog_quorum.controller.config import ControllerConfig
from tidelog_quorum.raft.core.config import RaftConfig, SnapshotConfig
from tidelog_quorum.raft.core.voters import Voter, VoterSet

TIDELOG = "tidelog"
PYSYNCOBJ = "pysyncobj"
_ANY_HOST = ("0.0.0.0", "::")


@dataclass(frozen=True, slots=True, kw_only=True)
class QuorumConfig(ControllerConfig, HealthSettings, MonitoringSettings, SslSettings, SaslSettings, AuthorizerSettings):
    """The properties of ``tidelog-quorum``, including those that govern the controller's decisions.

    Raises:
        ValueError: values that are inconsistent; ``parse_config`` makes it a ConfigError.
    """

    node_id: int = setting(
        doc="This controller's id, unique among the controllers.", check=at_least(0), config_type="INT"
    )
    listeners: str = setting(
        doc="The address to listen on: GRPC://host:port, with TLS GRPC_SSL://host:port, with SASL "
        "GRPC_SASL_SSL://host:port or GRPC_SASL_PLAINTEXT://host:port.",
        check=parse_listener,
    )
    advertised_listeners: str | None = setting(
        None,
        "The address under which others reach this controller. Defaults to a voter's address in "
        "controller.quorum.voters.",
        parse_listener,
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
        self._check_membership()
        if self.controller_quorum_engine == PYSYNCOBJ:
            self._check_pysyncobj()
        elif self.controller_quorum_pysyncobj_voters:
            raise ValueError("controller.quorum.pysyncobj.voters is only used with controller.quorum.engine=pysyncobj")
        self.raft_config()

    @property
    def voters(self) -> VoterSet:
        """The configured voters; empty with bootstrap servers only."""
        named = parse_voters(self.controller_quorum_voters) if self.controller_quorum_voters else {}
        return VoterSet(Voter(voter_id, host, port) for voter_id, (host, port) in named.items())

    @property
    def bootstrap(self) -> list[tuple[str, int]]:
        """The (host, port) of each controller to ask for the quorum."""
        return parse_addresses(self.controller_quorum_bootstrap_servers or "")

    @property
    def listener(self) -> tuple[str, int]:
        """The (host, port) to listen on."""
        return parse_listener(self.listeners)

    @property
    def security_protocol(self) -> str:
        """The security protocol of the listener, which is also its name, and of connections to other controllers."""
        return listener_protocol(self.listeners)

    @property
    def has_tls(self) -> bool:
        """True if the listener and the connections to other controllers have TLS."""
        return has_tls(self.security_protocol)

    @property
    def advertised(self) -> tuple[str, int]:
        """The (host, port) by which others reach this controller."""
        voter = self.voters.get(self.node_id)
        if voter is not None:
            return voter.host, voter.port
        return parse_listener(self.advertised_listeners or self.listeners)

    @property
    def pysyncobj_voters(self) -> dict[int, tuple[str, int]]:
        """The (host, port) of each voter's pysyncobj, by id."""
        return parse_voters(self.controller_quorum_pysyncobj_voters or "")

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

    def _check_membership(self) -> None:
        if not self.controller_quorum_voters and not self.controller_quorum_bootstrap_servers:
            raise ValueError("controller.quorum.voters or controller.quorum.bootstrap.servers must be set")
        voter = self.voters.get(self.node_id)
        if voter is None:
            self._check_observer()
        elif self._advertises_other_than((voter.host, voter.port)):
            raise ValueError(
                f"advertised.listeners {self.advertised_listeners} is not the address of voter {self.node_id} in "
                f"controller.quorum.voters {self.controller_quorum_voters}"
            )

    def _advertises_other_than(self, address: tuple[str, int]) -> bool:
        return self.advertised_listeners is not None and parse_listener(self.advertised_listeners) != address

    def _check_observer(self) -> None:
        if not self.controller_quorum_bootstrap_servers:
            raise ValueError(
                f"node.id {self.node_id} is not in controller.quorum.voters {self.controller_quorum_voters}; to follow "
                "the log without a vote it needs controller.quorum.bootstrap.servers"
            )
        host, port = self.advertised
        if host in _ANY_HOST or not port:
            raise ValueError(
                f"others cannot reach controller {self.node_id} at {host}:{port}: set advertised.listeners"
            )

    def _check_pysyncobj(self) -> None:
        if not self.controller_quorum_pysyncobj_voters:
            raise ValueError("controller.quorum.engine=pysyncobj needs controller.quorum.pysyncobj.voters")
        if self.security_protocol != GRPC:
            text = "controller.quorum.engine=pysyncobj neither encrypts nor authenticates: listeners must be "
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
