"""The settings that a controller decides by; the configuration of its process inherits them."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from functools import partial

from tidelog.config import TopicConfig, at_least, not_empty, setting
from tidelog.config.group import ConsumerGroupLimits
from tidelog.config.settings import setting_of

_limit = partial(setting_of, ConsumerGroupLimits)


@dataclass(frozen=True, slots=True)
class ControllerConfig:
    """What a controller decides by."""

    cluster_id: str = setting(check=not_empty, doc="The cluster's id; whoever has another one is refused.")
    broker_session_timeout_ms: int = setting(
        9_000,
        check=at_least(1),
        doc="A node that is silent for longer is fenced, in milliseconds; one whose process is gone is fenced at once.",
        config_type="INT",
    )
    num_partitions: int = setting(
        1, check=at_least(1), doc="The partitions of a topic that does not say how many.", config_type="INT"
    )
    default_replication_factor: int = setting(
        1, check=at_least(1), doc="The replicas of a topic that does not say how many.", config_type="INT"
    )
    delete_topic_enable: bool = setting(True, doc="Whether topics may be deleted.")
    min_insync_replicas: int = setting(
        1,
        check=at_least(1),
        doc="The in-sync replicas that acks=all needs, where neither topic nor cluster says.",
        config_type="INT",
    )
    unclean_leader_election_enable: bool = setting(
        False,
        doc="Whether a replica that was not in sync may lead when no other can, where neither topic nor cluster says: "
        "committed records are then lost.",
    )
    auto_leader_rebalance_enable: bool = setting(
        True, doc="Whether the leadership of partitions returns to their preferred replicas by itself."
    )
    leader_imbalance_check_interval_seconds: int = setting(
        300, check=at_least(1), doc="How often the controller looks whether leaders are to be moved back, in seconds."
    )
    leader_imbalance_per_broker_percentage: int = setting(
        10,
        check=at_least(0),
        doc="Leaders are moved back to a node when more than so many percent of the partitions that prefer it are led "
        "by others.",
        config_type="INT",
    )

    group_consumer_session_timeout_ms: int = _limit("group_consumer_session_timeout_ms")
    group_consumer_min_session_timeout_ms: int = _limit("group_consumer_min_session_timeout_ms")
    group_consumer_max_session_timeout_ms: int = _limit("group_consumer_max_session_timeout_ms")
    group_consumer_heartbeat_interval_ms: int = _limit("group_consumer_heartbeat_interval_ms")
    group_consumer_min_heartbeat_interval_ms: int = _limit("group_consumer_min_heartbeat_interval_ms")
    group_consumer_max_heartbeat_interval_ms: int = _limit("group_consumer_max_heartbeat_interval_ms")

    def group_limits(self) -> ConsumerGroupLimits:
        """Return the limits of what is set on groups."""
        fields = dataclasses.fields(ConsumerGroupLimits)
        return ConsumerGroupLimits(**{field.name: getattr(self, field.name) for field in fields})

    def topic_config(self) -> TopicConfig:
        """Return the settings of topics for which neither topic nor cluster says."""
        return TopicConfig(
            min_insync_replicas=self.min_insync_replicas,
            unclean_leader_election_enable=self.unclean_leader_election_enable,
        )
