"""Changes of settings of topics, groups, a broker (``"7"``) and all brokers (``""``) at run time (KIP-339, KIP-226).

Rules:

- a resource is changed as a whole or not at all, and has one error; a resource or a key that is named twice is refused;
- a change that replaces all settings of a resource (KIP-133) removes those that it does not name;
- the result is checked: keys, types, limits, and values that depend on each other, over the defaults in force;
- a key that topics do not have is refused unless it is removed; one that brokers do not have is kept (``foreign``);
- a group need not exist; its settings must be within this controller's limits, as in Kafka;
- a subscription to the metrics of clients (KIP-714) exists while it has settings; their number is limited;
- a broker's setting that is only read from its file is refused, and so is one that contradicts another layer's;
- ``cordoned.log.dirs`` is a setting of single brokers;
- with eligible leader replicas (KIP-966) ``min.insync.replicas`` is the same for all: it can neither be set on one
  broker nor removed from all of them;
- a change of a topic's ``min.insync.replicas`` drops the replicas that are no longer eligible leaders in the same
  entry, or before it if they are too many for one (``with_rule_changes``). (A change of
  ``unclean.leader.election.enable`` takes effect a moment later.)
"""

from __future__ import annotations

import contextlib
import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from typing import TypeVar

from tidelog_foundation.config import DynamicBrokerConfig, TopicConfig, describe, parse_config
from tidelog_foundation.config.broker import CORDONED_LOG_DIRS, READ_ONLY_BROKER_KEYS, override_broker_settings
from tidelog_foundation.config.changes import changed_value
from tidelog_foundation.config.client_metrics import MAX_SUBSCRIPTIONS, ClientMetricsConfig, check_subscription
from tidelog_foundation.config.foreign import check_foreign, check_foreign_count, foreign_info, is_foreign, with_effect
from tidelog_foundation.config.group import (
    ConsumerGroupLimits,
    GroupConfig,
    check_group_id,
    check_group_key,
    check_group_settings,
)
from tidelog_foundation.config.settings import SettingInfo, unknown_key
from tidelog_foundation.errors import ConfigError, ErrorCode, TidelogError, error_for
from tidelog_foundation.ids import BrokerId
from tidelog_foundation.requests.configs import (
    ConfigOperationType,
    ConfigResourceChange,
    ConfigResourceName,
    ConfigResourceResult,
    ConfigResourceType,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from tidelog_foundation.topic_names import validate_topic_name
from tidelog_quorum.controller.elections import changes_by_rules, ends_elr, rules_of
from tidelog_quorum.controller.partition_queue import MAX_CHANGES
from tidelog_quorum.controller.result import Result
from tidelog_quorum.controller.state import ControllerState
from tidelog_quorum.metadata.features import CLIENT_METRICS_VERSION, METADATA_VERSION, uses_elr
from tidelog_quorum.metadata.image import ConfigResource, MetadataImage
from tidelog_quorum.metadata.records import ConfigRecord, FeatureLevelRecord, MetadataRecord
from tidelog_quorum.metadata.topic_config import (
    ALL_BROKERS,
    MIN_INSYNC_REPLICAS,
    broker_settings,
    cluster_topic_defaults,
    override_topic_config,
)

R = TypeVar("R")

MAX_OPERATIONS_PER_REQUEST = 10_000
MAX_PARTITIONS_IN_ENTRY = 10_000
"""The maximum number of partitions that change together with the settings; both fill one entry."""
_TOPIC, _BROKER, _GROUP = ConfigResourceType.TOPIC, ConfigResourceType.BROKER, ConfigResourceType.GROUP
_CLIENT_METRICS = ConfigResourceType.CLIENT_METRICS
_BROKER_ID = re.compile(r"0|[1-9][0-9]{0,9}")
_SETTINGS: Mapping[ConfigResourceType, Mapping[str, SettingInfo]] = {
    _TOPIC: {info.key: info for info in describe(TopicConfig)},
    _BROKER: {info.key: info for info in describe(DynamicBrokerConfig)},
    _GROUP: {info.key: info for info in describe(GroupConfig)},
    _CLIENT_METRICS: {info.key: info for info in describe(ClientMetricsConfig)},
}


def incremental_alter_configs(
    state: ControllerState, request: IncrementalAlterConfigsRequest, now_ms: int
) -> Result[IncrementalAlterConfigsResponse]:
    """Change the resources that can be changed; each of the others gets its own error.

    Raises:
        TidelogError: POLICY_VIOLATION, the request has too many operations or changes too much in one step.
    """
    operations = sum(max(1, len(r.operations)) for r in request.resources)
    if operations > MAX_OPERATIONS_PER_REQUEST:
        text = f"{operations} changes in one request, more than {MAX_OPERATIONS_PER_REQUEST}"
        raise error_for(ErrorCode.POLICY_VIOLATION, text)
    counts = Counter((r.resource.type, r.resource.name) for r in request.resources)
    records: list[MetadataRecord] = []
    image = seen = state.latest
    results: dict[tuple[int, str], ConfigResourceResult] = {}
    for wanted in request.resources:
        key = (wanted.resource.type, wanted.resource.name)
        results[key] = ConfigResourceResult(wanted.resource)
        try:
            if counts[key] > 1:
                text = f"the resource {wanted.resource.name!r} is named {counts[key]} times"
                raise error_for(ErrorCode.INVALID_REQUEST, text)
            changed = _alter(seen, state.own, state.limits, wanted)
        except TidelogError as error:
            results[key] = ConfigResourceResult(wanted.resource, error.detached())
            continue
        records += changed
        if changed and wanted.resource.type == ConfigResourceType.BROKER:
            # The other resources must be consistent with this change.
            seen = seen.apply(seen.offset + 1, seen.epoch, changed)
    response = IncrementalAlterConfigsResponse(tuple(results.values()))
    return with_rule_changes(image, state.own, [] if request.validate_only else records, response)


def with_rule_changes(image: MetadataImage, own: TopicConfig, records: list[MetadataRecord], response: R) -> Result[R]:
    """Return ``records`` together with the partition changes that new election rules require.

    The changes belong in the same entry. Only changes that end an ELR may come before it, because they make a replica
    less eligible than necessary; if they are too many for one entry, they do. If the rules then do not change, because
    the leadership ends in between, a partition regains eligible replicas when its ISR next shrinks.

    Raises:
        TidelogError: POLICY_VIOLATION, the changes are too many for one entry.
    """
    concerned = _topics_concerned(image, records)
    if not concerned:
        return Result(records, response)
    after = image.apply(image.offset + 1, image.epoch, records)
    topics = (name for name in concerned if rules_of(after, name, own) != rules_of(image, name, own))
    changes = changes_by_rules(after, own, topics)
    if len(changes) <= MAX_CHANGES:
        return Result([*records, *changes], response)
    rest = [c for c in changes if not ends_elr(c)]
    if len(rest) > MAX_PARTITIONS_IN_ENTRY:
        text = (
            f"{len(rest)} partitions that nobody leads would have to change in one step, more than "
            f"{MAX_PARTITIONS_IN_ENTRY}: bring nodes with replicas of them back first"
        )
        raise error_for(ErrorCode.POLICY_VIOLATION, text)
    return Result([*records, *rest], response, preparations=[c for c in changes if ends_elr(c)])


def _topics_concerned(image: MetadataImage, records: list[MetadataRecord]) -> Collection[str]:
    """Return the topics in which replicas may no longer be eligible under the new rules."""
    settings = [r for r in records if isinstance(r, ConfigRecord) and r.name == MIN_INSYNC_REPLICAS]
    has_features = any(isinstance(r, FeatureLevelRecord) for r in records)
    if has_features or any(r.resource_type is _BROKER for r in settings):
        return image.topics.keys()
    return {r.resource_name for r in settings}


def _alter(
    image: MetadataImage, own: TopicConfig, limits: ConsumerGroupLimits, wanted: ConfigResourceChange
) -> list[ConfigRecord]:
    resource = _existing(image, wanted.resource)
    current = image.configs.get(resource, {})
    with _errors_of(resource):
        changes = dict(_changes(resource, current, wanted))
    _check_elr(image, resource, changes)
    settings = {name: value for name, value in {**current, **changes}.items() if value is not None}
    with _errors_of(resource):
        _check(image, own, limits, resource, settings)
    return [
        ConfigRecord(resource.type, resource.name, name, value)
        for name, value in changes.items()
        if value != current.get(name)
    ]


@contextlib.contextmanager
def _errors_of(resource: ConfigResource) -> Iterator[None]:
    """Report errors in a broker's settings as Kafka does: as INVALID_REQUEST (ConfigAdminManager)."""
    try:
        yield
    except ConfigError as error:
        if resource.type is not _BROKER:
            raise
        raise error_for(ErrorCode.INVALID_REQUEST, error.message) from error


def _existing(image: MetadataImage, resource: ConfigResourceName) -> ConfigResource:
    if resource.type == ConfigResourceType.TOPIC:
        validate_topic_name(resource.name)
        if resource.name not in image.topics:
            raise error_for(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {resource.name!r}")
        return ConfigResource(_TOPIC, resource.name)
    if resource.type == ConfigResourceType.GROUP:
        if not resource.name:
            raise error_for(ErrorCode.INVALID_REQUEST, "a group's id must not be empty: there are no defaults to set")
        check_group_id(resource.name)
        return ConfigResource(_GROUP, resource.name)
    if resource.type == _CLIENT_METRICS:
        return _subscription(image, resource.name)
    if resource.type != ConfigResourceType.BROKER:
        text = f"the type {resource.type} of resource {resource.name!r} is neither a topic nor a broker nor a group"
        raise error_for(ErrorCode.INVALID_REQUEST, text)
    if resource.name and not _BROKER_ID.fullmatch(resource.name):
        text = f'{resource.name!r} is no broker id, and not "" for all brokers'
        raise error_for(ErrorCode.INVALID_REQUEST, text)
    found = ConfigResource(_BROKER, resource.name)
    # Settings of a broker that has been unregistered since can still be removed.
    if resource.name and BrokerId(int(resource.name)) not in image.brokers and found not in image.configs:
        raise error_for(ErrorCode.BROKER_ID_NOT_REGISTERED, f"there is no broker {resource.name}")
    return found


def _subscription(image: MetadataImage, name: str) -> ConfigResource:
    check_subscription(name, {})
    if image.feature_levels.get(METADATA_VERSION, 0) < CLIENT_METRICS_VERSION:
        # A process of an earlier version could not read the record.
        needed = f"{METADATA_VERSION} {CLIENT_METRICS_VERSION}"
        text = f"subscriptions to client metrics need {needed}: upgrade the feature first"
        raise error_for(ErrorCode.UNSUPPORTED_VERSION, text)
    found = ConfigResource(_CLIENT_METRICS, name)
    if found not in image.configs:
        number = sum(resource.type is _CLIENT_METRICS for resource in image.configs)
        if number >= MAX_SUBSCRIPTIONS:
            text = f"there are {number} subscriptions to client metrics, the limit is {MAX_SUBSCRIPTIONS}"
            raise error_for(ErrorCode.POLICY_VIOLATION, text)
    return found


def _changes(
    resource: ConfigResource, current: Mapping[str, str], wanted: ConfigResourceChange
) -> Iterator[tuple[str, str | None]]:
    counts = Counter(o.name for o in wanted.operations)
    for operation in wanted.operations:
        name = operation.name
        if counts[name] > 1:
            raise error_for(ErrorCode.INVALID_REQUEST, f"the setting {name!r} is named {counts[name]} times")
        if operation.type == ConfigOperationType.DELETE:
            yield name, None
            continue
        value = changed_value(current.get(name), operation, _info(resource.type, name))
        if value is not None and resource.type is _BROKER and is_foreign(name):
            check_foreign(name, value, resource.name)
        yield name, value
    if wanted.replaces_all:
        yield from ((name, None) for name in current if name not in counts)


def _info(kind: ConfigResourceType, name: str) -> SettingInfo:
    info = _SETTINGS[kind].get(name)
    if info is None and kind is _BROKER and name in READ_ONLY_BROKER_KEYS:
        text = f"{name} cannot change at run time: a process reads it from its properties file when it starts"
        raise error_for(ErrorCode.INVALID_REQUEST, text)
    if info is None and kind is _BROKER:
        return foreign_info(name)
    if kind is _GROUP:
        check_group_key(name)
    if info is None and kind is _CLIENT_METRICS:
        raise error_for(ErrorCode.INVALID_REQUEST, unknown_key(name, _SETTINGS[kind]))
    if info is None:
        raise error_for(ErrorCode.INVALID_CONFIG, unknown_key(name, _SETTINGS[kind]))
    return info


def _check_elr(image: MetadataImage, resource: ConfigResource, changes: Mapping[str, str | None]) -> None:
    if resource.type is not _BROKER or MIN_INSYNC_REPLICAS not in changes or not uses_elr(image):
        return
    if resource != ALL_BROKERS:
        text = f"{MIN_INSYNC_REPLICAS} cannot be set on one broker while eligible leader replicas are in use"
        raise error_for(ErrorCode.INVALID_CONFIG, text)
    if changes[MIN_INSYNC_REPLICAS] is None:
        text = f"{MIN_INSYNC_REPLICAS} of all brokers cannot be removed while eligible leader replicas are in use"
        raise error_for(ErrorCode.INVALID_CONFIG, text)


def _check(
    image: MetadataImage,
    own: TopicConfig,
    limits: ConsumerGroupLimits,
    resource: ConfigResource,
    given: Mapping[str, str],
) -> None:
    settings = with_effect(given) if resource.type is _BROKER else given
    check_foreign_count(len(given) - len(settings))
    for name, value in settings.items():
        if not value.strip() and _SETTINGS[resource.type][name].config_type not in ("LIST", "STRING"):
            raise error_for(ErrorCode.INVALID_CONFIG, f'invalid value "" for configuration "{name}": must not be empty')
    if resource.type is _TOPIC:
        override_topic_config(settings, cluster_topic_defaults(image, own))
    elif resource.type is _GROUP:
        check_group_settings(settings, limits)
    elif resource.type is _CLIENT_METRICS:
        check_subscription(resource.name, settings)
    elif resource != ALL_BROKERS:
        parse_config(DynamicBrokerConfig, override_broker_settings(with_effect(broker_settings(image)), settings))
    else:
        if settings.get(CORDONED_LOG_DIRS, "").strip():
            text = f"{CORDONED_LOG_DIRS} can be set on single brokers only: no broker would be left for new partitions"
            raise error_for(ErrorCode.INVALID_CONFIG, text)
        parse_config(DynamicBrokerConfig, settings)
        for broker_id, others in _settings_of_single_brokers(image):
            try:
                parse_config(DynamicBrokerConfig, override_broker_settings(settings, with_effect(others)))
            except ConfigError as error:
                text = f"with what is set on broker {broker_id}: {error.message}"
                raise error_for(ErrorCode.INVALID_CONFIG, text) from error


def _settings_of_single_brokers(image: MetadataImage) -> Iterator[tuple[str, Mapping[str, str]]]:
    for resource, settings in image.configs.items():
        if resource.type is _BROKER and resource != ALL_BROKERS:
            yield resource.name, settings
