"""The settings that a controller decides by; the process reads them from its properties file."""

from __future__ import annotations

from dataclasses import dataclass

from tidelog.config import TopicConfig, at_least, not_empty, setting


@dataclass(frozen=True, slots=True)
class ControllerConfig:
    """What a controller decides by."""

    cluster_id: str = setting(check=not_empty, doc="The cluster's id: who has another one is refused.")
    broker_session_timeout_ms: int = setting(
        9_000, check=at_least(1), doc="A node that is silent for longer is fenced, in milliseconds."
    )
    num_partitions: int = setting(1, check=at_least(1), doc="The partitions of a topic that does not say how many.")
    default_replication_factor: int = setting(
        1, check=at_least(1), doc="The replicas of a topic that does not say how many."
    )
    delete_topic_enable: bool = setting(True, doc="Whether topics may be deleted.")
    min_insync_replicas: int = setting(
        1, check=at_least(1), doc="The in-sync replicas that acks=all needs, where neither topic nor cluster says."
    )
    unclean_leader_election_enable: bool = setting(
        False, doc="Whether a replica that was not in sync may lead, where neither topic nor cluster says."
    )
    auto_leader_rebalance_enable: bool = setting(
        True, doc="Whether the leadership returns to the preferred replicas by itself."
    )
    leader_imbalance_check_interval_seconds: int = setting(
        300, check=at_least(1), doc="How often that is looked after."
    )
    leader_imbalance_per_broker_percentage: int = setting(
        10,
        check=at_least(0),
        doc="A broker leads too few when others lead more than so many percent of the partitions that prefer it.",
    )

    def topic_config(self) -> TopicConfig:
        """Return the settings of topics for which neither topic nor cluster says."""
        return TopicConfig(
            min_insync_replicas=self.min_insync_replicas,
            unclean_leader_election_enable=self.unclean_leader_election_enable,
        )
