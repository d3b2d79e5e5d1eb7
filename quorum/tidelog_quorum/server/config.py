"""The settings of a controller's process. Keys and defaults are Kafka's where Kafka has them."""

from __future__ import annotations

from dataclasses import dataclass

from tidelog.config import at_least, not_empty, setting
from tidelog.config.endpoints import parse_listener, parse_voters
from tidelog_quorum.controller.state_machine import ControllerConfig
from tidelog_quorum.raft.core.config import RaftConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class QuorumConfig:
    """What ``tidelog-quorum`` reads from its properties file.

    Raises:
        ValueError: values that do not fit each other; :func:`~tidelog.config.parse_config` makes it a ConfigError.
    """

    node_id: int = setting(check=at_least(0), doc="This controller's id among the voters.")
    cluster_id: str = setting(check=not_empty, doc="The cluster's id; whoever has another one is refused.")
    listeners: str = setting(check=parse_listener, doc="Where to listen: GRPC://host:port.")
    advertised_listeners: str | None = setting(
        None,
        check=parse_listener,
        doc="How others reach this controller: must be its address in controller.quorum.voters, which is the default.",
    )
    controller_quorum_voters: str = setting(
        check=parse_voters, doc="All controllers, this one included: id@host:port,id@host:port,..."
    )
    metadata_log_dir: str = setting(check=not_empty, doc="The folder of the metadata log.")
    controller_quorum_election_timeout_ms: int = setting(
        1_000, check=at_least(20), doc="How long a voter waits for a leader before it asks for votes."
    )
    controller_quorum_heartbeat_interval_ms: int = setting(
        100, check=at_least(1), doc="How often a leader shows the other voters that it lives."
    )
    broker_session_timeout_ms: int = setting(
        9_000, check=at_least(1), doc="A node that is silent for longer is fenced, in milliseconds."
    )
    num_partitions: int = setting(1, check=at_least(1), doc="The partitions of a topic that does not say how many.")
    default_replication_factor: int = setting(
        1, check=at_least(1), doc="The replicas of a topic that does not say how many."
    )

    def __post_init__(self) -> None:
        address = self.voters.get(self.node_id)
        if address is None:
            raise ValueError(
                f"node.id {self.node_id} is not in controller.quorum.voters {self.controller_quorum_voters}"
            )
        if self.advertised_listeners is not None and parse_listener(self.advertised_listeners) != address:
            raise ValueError(
                f"advertised.listeners {self.advertised_listeners} is not the address of voter {self.node_id} in "
                f"controller.quorum.voters {self.controller_quorum_voters}"
            )
        self.raft_config()

    @property
    def voters(self) -> dict[int, tuple[str, int]]:
        """The (host, port) of each voter by id."""
        return parse_voters(self.controller_quorum_voters)

    @property
    def listener(self) -> tuple[str, int]:
        """The (host, port) to listen on."""
        return parse_listener(self.listeners)

    def controller_config(self) -> ControllerConfig:
        """Return what the controller decides by."""
        return ControllerConfig(
            cluster_id=self.cluster_id,
            broker_session_timeout_ms=self.broker_session_timeout_ms,
            num_partitions=self.num_partitions,
            default_replication_factor=self.default_replication_factor,
        )

    def raft_config(self) -> RaftConfig:
        """Return the times of the quorum."""
        return RaftConfig(
            election_timeout_ms=self.controller_quorum_election_timeout_ms,
            heartbeat_interval_ms=self.controller_quorum_heartbeat_interval_ms,
        )
