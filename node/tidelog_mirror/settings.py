"""The settings of a mirror: MirrorMaker 2's properties file, ``connect-mirror-maker.properties`` (KIP-382).

A flow ``A->B`` takes a setting from ``A->B.KEY``, ``B.KEY`` (settings of the worker, for example
``exactly.once.source.support``), or ``KEY``, in this order. A cluster's client takes its settings from ``A.KEY`` or
``KEY``. Settings of consumers and producers have the prefix ``consumer.`` and ``producer.``.
"""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterable, Mapping
from functools import partial
from typing import Final

from tidelog_foundation.config.settings import config_keys, int_setting, parse_config, setting, setting_of
from tidelog_foundation.config.validators import at_least, between, one_of
from tidelog_foundation.dataclass import dataclass
from tidelog_foundation.errors import ConfigError
from tidelog_foundation.link_settings import LinkConfig, parse_link_settings
from tidelog_foundation.logs.settings import LoggingSettings
from tidelog_foundation.monitoring.settings import MonitoringSettings
from tidelog_foundation.security.listener_settings import ListenerSecurity, listener_security
from tidelog_foundation.security.ssl_settings import is_listener_key
from tidelog_mirror.patterns import NameFilter, check_patterns
from tidelog_mirror.policy import IDENTITY_POLICY, POLICIES, ReplicationPolicy
from tidelog_mirror.topic_plan import TopicSelection

SOURCE: Final = "source"
TARGET: Final = "target"
EARLIEST: Final = "earliest"
LATEST: Final = "latest"
READ_COMMITTED: Final = "read_committed"
_DISABLED, _PREPARING, _ENABLED = "disabled", "preparing", "enabled"
_OF_WORKER: Final = ("exactly.once.source.support", "offset.flush.interval.ms", "offset.storage.")
"""Settings of Connect's workers, which belong to the target."""
_ROLES: Final = ("consumer.", "producer.")
MAX_CLUSTERS: Final = 100

WITHOUT_EFFECT: Final[Mapping[str, str]] = {
    "tasks.max": "one process copies all partitions of its flows",
    "connector.class": "there are no connectors",
    "key.converter": "records are not decoded",
    "value.converter": "records are not decoded",
    "header.converter": "records are not decoded",
    "dedicated.mode.enable.internal.rest": "there are no Connect workers",
    "listeners": "there is no REST API; metrics.listeners serves metrics",
    "plugin.path": "there are no plug-ins",
    "metric.reporters": "metrics.listeners serves metrics",
    "add.source.alias.to.metrics": "metrics have the label source",
    "admin.timeout.ms": "requests have a limit of ten seconds and are repeated",
    "consumer.poll.timeout.ms": "fetches wait as consumer.fetch.max.wait.ms says",
    "config.storage.replication.factor": "there is no topic of configurations",
    "status.storage.replication.factor": "there is no topic of statuses",
    "status.storage.partitions": "there is no topic of statuses",
    "consumer.max.poll.records": "batches are copied whole",
    "producer.acks": "it is always all",
    "producer.enable.idempotence": "it is always true",
    "producer.batch.size": "batches keep their size",
    "producer.linger.ms": "batches keep their size",
    "producer.compression.type": "batches keep their compression",
    "producer.buffer.memory": "consumer.fetch.max.bytes bounds the memory",
    "producer.max.in.flight.requests.per.connection": "it is always 1",
    "producer.retries": "producer.delivery.timeout.ms limits them",
}
"""Settings of MirrorMaker 2 and Connect that are accepted with a warning, with the reason why they change nothing."""

_positive_int = partial(int_setting, check=at_least(1))


def _replicas(doc: str, default: int = 3) -> int:
    number: int = int_setting(default, f"{doc}; -1 for the target's default.", between(-1, 32_767))
    return number


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowConfig:
    """The settings of a flow from one cluster to another."""

    enabled: bool = setting(False, "Whether the flow copies topics and groups.")
    topics: tuple[str, ...] = setting((".*",), "Names and regular expressions of the topics to copy.", check_patterns)
    topics_exclude: tuple[str, ...] = setting(
        (r"mm2.*\.internal", r".*\.replica", "__.*"),
        "Names and regular expressions of topics that are not copied. They prevail over topics.",
        check_patterns,
        aliases=("topics.blacklist",),
    )
    groups: tuple[str, ...] = setting(
        (".*",), "Names and regular expressions of groups with checkpoints.", check_patterns
    )
    groups_exclude: tuple[str, ...] = setting(
        ("console-consumer-.*", "connect-.*", "__.*"),
        "Names and regular expressions of groups without checkpoints. They prevail over groups.",
        check_patterns,
        aliases=("groups.blacklist",),
    )
    replication_factor: int = int_setting(
        2, "The replicas of remote topics that the mirror creates; -1 for the target's default.", between(-1, 32_767)
    )
    replication_policy_class: str = setting(
        POLICIES[0], "The policy of names: DefaultReplicationPolicy or IdentityReplicationPolicy.", one_of(*POLICIES)
    )
    replication_policy_separator: str = setting(".", "The text between the alias of a source and a topic's name.")
    replication_policy_internal_topic_separator_enabled: bool = setting(
        True, "Whether replication.policy.separator is also in the names of internal topics; else they have a dot."
    )
    refresh_topics_enabled: bool = setting(True, "Whether new topics and partitions are looked for while it runs.")
    refresh_topics_interval_seconds: int = _positive_int(600, "The interval of the search for topics, in seconds.")
    refresh_groups_enabled: bool = setting(True, "Whether new groups are looked for while it runs.")
    refresh_groups_interval_seconds: int = _positive_int(600, "The interval of the search for groups, in seconds.")
    sync_topic_configs_enabled: bool = setting(True, "Whether settings of topics are copied.")
    sync_topic_configs_interval_seconds: int = _positive_int(600, "The interval of copies of settings, in seconds.")
    config_properties_exclude: tuple[str, ...] = setting(
        (
            r"follower\.replication\.throttled\.replicas",
            r"leader\.replication\.throttled\.replicas",
            r"message\.timestamp\.difference\.max\.ms",
            r"message\.timestamp\.type",
            r"unclean\.leader\.election\.enable",
            r"min\.insync\.replicas",
        ),
        "Names and regular expressions of topics' settings that are not copied.",
        check_patterns,
        aliases=("config.properties.blacklist",),
    )
    use_defaults_from: str = setting(
        TARGET,
        "The cluster whose defaults apply to settings at their default: source or target.",
        one_of(SOURCE, TARGET),
    )
    sync_topic_acls_enabled: bool = setting(True, "Whether ACLs of topics are copied, without the right to write.")
    sync_topic_acls_interval_seconds: int = _positive_int(600, "The interval of copies of ACLs, in seconds.")
    emit_heartbeats_enabled: bool = setting(True, "Whether heartbeats are written to the target.")
    emit_heartbeats_interval_seconds: int = _positive_int(1, "The interval of heartbeats, in seconds.")
    heartbeats_topic_replication_factor: int = _replicas("The replicas of the topic heartbeats")
    emit_checkpoints_enabled: bool = setting(True, "Whether checkpoints of groups are written to the target.")
    emit_checkpoints_interval_seconds: int = _positive_int(60, "The interval of checkpoints, in seconds.")
    checkpoints_topic_replication_factor: int = _replicas("The replicas of the topic of checkpoints")
    sync_group_offsets_enabled: bool = setting(
        False, "Whether translated offsets are committed on the target, for groups without members there."
    )
    sync_group_offsets_interval_seconds: int = _positive_int(60, "The interval of these commits, in seconds.")
    emit_offset_syncs_enabled: bool = setting(
        True,
        "Whether offset syncs are written, without which there are no checkpoints.",
        key="emit.offset-syncs.enabled",
    )
    offset_lag_max: int = int_setting(100, "The offsets that a translation may be behind, at the end.", at_least(0))
    offset_syncs_topic_location: str = setting(
        SOURCE,
        "The cluster with the topic of offset syncs: source or target.",
        one_of(SOURCE, TARGET),
        key="offset-syncs.topic.location",
    )
    offset_syncs_topic_replication_factor: int = int_setting(
        3,
        "The replicas of the topic of offset syncs; -1 for its cluster's default.",
        between(-1, 32_767),
        key="offset-syncs.topic.replication.factor",
    )
    exactly_once_source_support: str = setting(
        _DISABLED,
        "enabled copies in transactions of the target, exactly once. preparing is the same as disabled.",
        one_of(_DISABLED, _PREPARING, _ENABLED),
    )
    offset_flush_interval_ms: int = int_setting(
        60_000, "The interval of commits of positions without exactly once, in milliseconds.", at_least(1)
    )
    offset_storage_replication_factor: int = _replicas("The replicas of the topic of positions")
    offset_storage_partitions: int = int_setting(
        25, "The partitions of the topic of positions, when it is created.", between(1, 1_000)
    )
    consumer_auto_offset_reset: str = setting(
        EARLIEST, "The start of a partition without a position: earliest or latest.", one_of(EARLIEST, LATEST)
    )
    consumer_isolation_level: str = setting(
        "read_uncommitted",
        "read_committed leaves out records of open and aborted transactions. Exactly once always does.",
        one_of("read_uncommitted", READ_COMMITTED),
    )
    consumer_fetch_min_bytes: int = _positive_int(1, "The bytes for which a fetch waits.")
    consumer_fetch_max_wait_ms: int = int_setting(
        500, "The longest wait of a fetch, in milliseconds.", between(0, 8_000)
    )
    consumer_fetch_max_bytes: int = int_setting(52_428_800, "The bytes of one fetch.", at_least(1024))
    consumer_max_partition_fetch_bytes: int = int_setting(1_048_576, "A partition's bytes in a fetch.", at_least(1024))
    producer_max_request_size: int = int_setting(
        1_048_576, "The bytes of batches in one request; a larger batch is a request of its own.", at_least(1024)
    )
    producer_delivery_timeout_ms: int = int_setting(
        120_000, "The time after which a batch that the target does not accept restarts the flow.", at_least(1_000)
    )
    producer_transaction_timeout_ms: int = int_setting(
        60_000, "The timeout of transactions, in milliseconds.", at_least(1_000)
    )

    @property
    def is_exactly_once(self) -> bool:
        """True if records are copied in transactions."""
        return self.exactly_once_source_support == _ENABLED

    @property
    def reads_committed(self) -> bool:
        """True if only committed records are copied."""
        return self.is_exactly_once or self.consumer_isolation_level == READ_COMMITTED

    @property
    def policy(self) -> ReplicationPolicy:
        """The policy of names."""
        separator = self.replication_policy_separator
        internal = separator if self.replication_policy_internal_topic_separator_enabled else "."
        return ReplicationPolicy(
            self.replication_policy_class.rpartition(".")[2] == IDENTITY_POLICY.rpartition(".")[2], separator, internal
        )

    @property
    def group_filter(self) -> NameFilter:
        """The groups with checkpoints."""
        return NameFilter(self.groups, self.groups_exclude)


@dataclass(frozen=True, slots=True)
class Flow:
    """A flow with its settings."""

    source: str
    target: str
    config: FlowConfig

    @property
    def name(self) -> str:
        """The flow's name: ``A->B``."""
        return f"{self.source}->{self.target}"

    @property
    def selection(self) -> TopicSelection:
        """The topics of the flow."""
        topics = NameFilter(self.config.topics, self.config.topics_exclude)
        return TopicSelection(self.config.policy, self.source, self.target, topics)

    @property
    def has_work(self) -> bool:
        """True if the flow copies, or emits heartbeats alone, as MirrorMaker 2 does for the opposite direction."""
        return self.config.enabled or self.config.emit_heartbeats_enabled


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessConfig(MonitoringSettings):
    """The settings of the process."""

    clusters: tuple[str, ...] = setting(doc="The aliases of the clusters, separated by commas.")
    logging_format: str = setting_of(LoggingSettings, "logging_format")
    logging_level: str = setting_of(LoggingSettings, "logging_level")


@dataclass(frozen=True, slots=True)
class MirrorConfig:
    """A whole file."""

    process: ProcessConfig
    monitoring: Mapping[str, ListenerSecurity]
    """The security of the monitoring port's listeners, by name: ``ssl.KEY``, or ``listener.name.https.ssl.KEY``."""
    clusters: Mapping[str, LinkConfig]
    """The settings of each cluster's clients, by alias."""
    flows: tuple[Flow, ...]
    """The flows that have work."""
    warnings: tuple[str, ...]
    """Settings without effect, with reasons."""


def describe_flow(flow: Flow) -> str:
    """Return one line about a flow for people."""
    config = flow.config
    if not config.enabled:
        return "heartbeats alone"
    groups = "offsets of groups are committed" if config.sync_group_offsets_enabled else "checkpoints of groups"
    guarantee = "exactly once" if config.is_exactly_once else "at least once"
    names = (
        "names are kept" if config.policy.is_identity else f"names begin with {flow.source}{config.policy.separator}"
    )
    return f"topics {', '.join(config.topics)}, {names}, {guarantee}, {groups}"


_OF_FLOW: Final = frozenset(config_keys(FlowConfig))
_OF_PROCESS: Final = frozenset(config_keys(ProcessConfig))
_OF_LINKS: Final = ("consumer.offset.", "topic.config.")
"""The beginnings of the settings of links that are not those of a client."""
_OF_CLIENT: Final = frozenset(key for key in config_keys(LinkConfig) if not key.startswith(_OF_LINKS))


def parse_mirror_settings(raw: Mapping[str, str]) -> MirrorConfig:
    """Return the settings of a file.

    Raises:
        ConfigError: A key is unknown, a value is invalid, or a cluster has no address. The text names the nearest key.
    """
    process = parse_config(ProcessConfig, {key: value for key, value in raw.items() if key in _OF_PROCESS})
    monitoring = listener_security(raw, process.monitoring_listeners)
    aliases = process.clusters
    _check_aliases(aliases)
    rest = {key: value for key, value in raw.items() if key not in _OF_PROCESS and not is_listener_key(key)}
    warnings = _check_keys(rest, aliases)
    flows = [
        Flow(source, target, _flow_config(rest, source, target))
        for source in aliases
        for target in aliases
        if source != target
    ]
    clusters = {alias: _client(rest, alias) for alias in aliases}
    return MirrorConfig(process, monitoring, clusters, tuple(flow for flow in flows if flow.has_work), tuple(warnings))


def _check_aliases(aliases: Collection[str]) -> None:
    if not 2 <= len(aliases) <= MAX_CLUSTERS or len(set(aliases)) != len(aliases):
        raise ConfigError(
            f"clusters: 2 to {MAX_CLUSTERS} different aliases are needed, not {', '.join(aliases) or 'none'}"
        )


def _check_keys(raw: Mapping[str, str], aliases: Collection[str]) -> list[str]:
    warnings = []
    for key in raw:
        prefix, rest = _split(key, aliases)
        known = _OF_FLOW | _OF_CLIENT if not prefix or "->" not in prefix else _OF_FLOW
        if prefix and "->" not in prefix and rest in _OF_FLOW and not rest.startswith((*_ROLES, *_OF_WORKER)):
            raise ConfigError(f'"{key}" is a setting of flows: set it as "{rest}" or as "SOURCE->{prefix}.{rest}"')
        if rest in known and rest != "bootstrap.servers":
            continue
        if rest == "bootstrap.servers" and prefix and "->" not in prefix:
            continue
        reason = WITHOUT_EFFECT.get(rest)
        if reason is None:
            raise ConfigError(_unknown(key, rest, aliases, known))
        warnings.append(f"{key} has no effect: {reason}")
    return warnings


def _unknown(key: str, rest: str, aliases: Collection[str], known: Iterable[str]) -> str:
    """Return an error text with the nearest setting under the same prefix, or the nearest alias."""
    names = [*known, *WITHOUT_EFFECT]
    prefix = key.removesuffix(rest)
    candidates = [prefix + name for name in names if prefix or name != "bootstrap.servers"]
    candidates += [f"{alias}.bootstrap.servers" for alias in aliases]
    candidates += [f"{a}->{b}.{name}" for a in aliases for b in aliases if a != b for name in _OF_FLOW]
    near = difflib.get_close_matches(key, candidates, n=1)
    hint = f'; did you mean "{near[0]}"?' if near else ""
    return f'unknown configuration "{key}"{hint}'


def _split(key: str, aliases: Collection[str]) -> tuple[str, str]:
    """Return the alias or flow before a setting's key, and the key."""
    for alias in sorted(aliases, key=len, reverse=True):
        if key.startswith(f"{alias}."):
            return alias, key[len(alias) + 1 :]
        if key.startswith(f"{alias}->"):
            for target in sorted(aliases, key=len, reverse=True):
                prefix = f"{alias}->{target}"
                if target != alias and key.startswith(f"{prefix}."):
                    return prefix, key[len(prefix) + 1 :]
    return "", key


def _flow_config(raw: Mapping[str, str], source: str, target: str) -> FlowConfig:
    found: dict[str, str] = {}
    for field_key in _OF_FLOW:
        owner = source if field_key.startswith("consumer.") else target
        # A flow is enabled by its own key alone, as in MirrorMaker 2.
        prefixes = (f"{source}->{target}.",) if field_key == "enabled" else (f"{source}->{target}.", f"{owner}.", "")
        for prefix in prefixes:
            if prefix + field_key in raw:
                found[field_key] = raw[prefix + field_key]
                break
    return parse_config(FlowConfig, _without_aliases(found, f"{source}->{target}"))


def _without_aliases(found: Mapping[str, str], flow: str) -> dict[str, str]:
    for name in ("topics", "groups", "config.properties"):
        if f"{name}.exclude" in found and f"{name}.blacklist" in found:
            raise ConfigError(f"flow {flow} has {name}.exclude and its former name {name}.blacklist")
    return dict(found)


def _client(raw: Mapping[str, str], alias: str) -> LinkConfig:
    found = {
        key: value for key in _OF_CLIENT for value in [raw.get(f"{alias}.{key}", raw.get(key))] if value is not None
    }
    if not found.get("bootstrap.servers"):
        raise ConfigError(f'missing required configuration "{alias}.bootstrap.servers": the addresses of the cluster')
    try:
        return parse_link_settings(found)
    except ConfigError as error:
        raise ConfigError(f"cluster {alias}: {error.message}") from error
