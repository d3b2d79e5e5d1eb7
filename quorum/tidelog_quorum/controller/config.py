"""The settings that govern a controller's decisions; the configuration of its process inherits them."""

from __future__ import annotations

import dataclasses
from functools import partial

from tidelog_foundation.config import TopicConfig, at_least, not_empty, setting
from tidelog_foundation.config.group import ConsumerGroupLimits
from tidelog_foundation.config.settings import setting_of
from tidelog_foundation.dataclass import dataclass
from tidelog_foundation.quotas.rate import Windows
from tidelog_foundation.sasl.token_settings import TokenKey

_limit = partial(setting_of, ConsumerGroupLimits)


@dataclass(frozen=True, slots=True)
class ControllerConfig:
    """The settings that govern a controller's decisions."""

    cluster_id: str = setting(doc="The cluster's id; processes with another id are refused.", check=not_empty)
    broker_session_timeout_ms: int = setting(
        9_000,
        "The time without a heartbeat after which a node is fenced, in milliseconds. A node whose process is "
        "gone is fenced immediately.",
        at_least(1),
        config_type="INT",
    )
    num_partitions: int = setting(1, "The default number of partitions of a topic.", at_least(1), config_type="INT")
    default_replication_factor: int = setting(
        1, "The default number of replicas of a topic.", at_least(1), config_type="INT"
    )
    delete_topic_enable: bool = setting(True, "Whether topics may be deleted.")
    min_insync_replicas: int = setting(
        1,
        "The minimum size of the ISR for a produce request with acks=all. The settings of the cluster and of "
        "topics override it.",
        at_least(1),
        config_type="INT",
    )
    unclean_leader_election_enable: bool = setting(
        False,
        "Whether a replica outside the ISR may be elected leader if no other can, which loses committed "
        "records. The settings of the cluster and of topics override it.",
    )
    auto_leader_rebalance_enable: bool = setting(
        True, "Whether the controller moves leadership back to preferred replicas automatically."
    )
    leader_imbalance_check_interval_seconds: int = setting(
        300, "The interval between checks of the leader imbalance, in seconds.", at_least(1)
    )
    leader_imbalance_per_broker_percentage: int = setting(
        10,
        "The percentage of partitions with this preferred leader but another leader, above which the "
        "controller moves leadership back to a node.",
        at_least(0),
        config_type="INT",
    )
    delegation_token_secret_key: str | None = setting_of(TokenKey, "delegation_token_secret_key")
    delegation_token_max_lifetime_ms: int = setting(
        7 * 24 * 3_600_000, "The longest lifetime of a delegation token, in milliseconds, and its default.", at_least(1)
    )
    delegation_token_expiry_time_ms: int = setting(
        24 * 3_600_000,
        "The time after which a delegation token expires if it is not renewed, in milliseconds.",
        at_least(1),
    )
    delegation_token_expiry_check_interval_ms: int = setting(
        3_600_000, "The interval at which expired delegation tokens are removed, in milliseconds.", at_least(1)
    )

    controller_quota_window_num: int = setting(
        11,
        "The number of windows whose unused mutations a client may make up for at once, for the quota "
        "controller_mutation_rate.",
        at_least(1),
        config_type="INT",
    )
    controller_quota_window_size_seconds: int = setting(
        1, "The length of a window of the quota controller_mutation_rate, in seconds.", at_least(1), config_type="INT"
    )
    group_consumer_session_timeout_ms: int = _limit("group_consumer_session_timeout_ms")
    group_consumer_min_session_timeout_ms: int = _limit("group_consumer_min_session_timeout_ms")
    group_consumer_max_session_timeout_ms: int = _limit("group_consumer_max_session_timeout_ms")
    group_consumer_heartbeat_interval_ms: int = _limit("group_consumer_heartbeat_interval_ms")
    group_consumer_min_heartbeat_interval_ms: int = _limit("group_consumer_min_heartbeat_interval_ms")
    group_consumer_max_heartbeat_interval_ms: int = _limit("group_consumer_max_heartbeat_interval_ms")

    def group_limits(self) -> ConsumerGroupLimits:
        """Return the limits on group settings."""
        fields = dataclasses.fields(ConsumerGroupLimits)
        return ConsumerGroupLimits(**{field.name: getattr(self, field.name) for field in fields})

    def quota_windows(self) -> Windows:
        """Return the windows of the quota of mutations."""
        return Windows(self.controller_quota_window_num, self.controller_quota_window_size_seconds * 1_000)

    def topic_config(self) -> TopicConfig:
        """Return the default settings of topics, which topic and cluster settings override."""
        return TopicConfig(
            min_insync_replicas=self.min_insync_replicas,
            unclean_leader_election_enable=self.unclean_leader_election_enable,
        )
