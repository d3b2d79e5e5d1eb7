"""The settings of mirror topics, which follow those of the sources while the topics are mirrors.

A report counts only from the leader of the topic's first partition in its current epoch. A promotion or a failover
begins a new epoch, so that no late report changes a topic that is no mirror any more.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from tidelog_foundation.errors import ErrorCode, error_for
from tidelog_foundation.ids import BrokerId
from tidelog_foundation.link_settings import MAX_SETTINGS_REPORTS, settings_to_change
from tidelog_foundation.requests.configs import (
    ConfigOperation,
    ConfigOperationType,
    ConfigResourceChange,
    ConfigResourceName,
    ConfigResourceType,
    IncrementalAlterConfigsRequest,
)
from tidelog_foundation.requests.links import (
    MirrorSettingsReport,
    MirrorTopicResult,
    ReportMirrorSettingsRequest,
    ReportMirrorSettingsResponse,
)
from tidelog_quorum.controller.brokers import check_broker_epoch
from tidelog_quorum.controller.configs import incremental_alter_configs
from tidelog_quorum.controller.result import Result
from tidelog_quorum.controller.state import ControllerState
from tidelog_quorum.metadata.image import MetadataImage, TopicImage


def report_mirror_settings(
    state: ControllerState, request: ReportMirrorSettingsRequest, now_ms: int
) -> Result[ReportMirrorSettingsResponse]:
    """Set and remove settings of mirror topics, so that they are those of the source. Each topic changes by itself.

    Raises:
        TidelogError: STALE_BROKER_EPOCH; INVALID_REQUEST: too many reports, or a topic twice.
    """
    image = state.latest
    broker = check_broker_epoch(image, request.broker_id, request.broker_epoch)
    if len(request.topics) > MAX_SETTINGS_REPORTS or len({each.topic_id for each in request.topics}) != len(
        request.topics
    ):
        text = f"broker {broker.broker_id} reports settings of {len(request.topics)} topics, with one of them twice or"
        raise error_for(ErrorCode.INVALID_REQUEST, f"{text} more than {MAX_SETTINGS_REPORTS}")
    changes = tuple(_changes(image, broker.broker_id, request.topics))
    altered = incremental_alter_configs(state, IncrementalAlterConfigsRequest(changes), now_ms)
    results = tuple(MirrorTopicResult(r.resource.name, r.error) for r in altered.response.resources)
    return Result(altered.records, ReportMirrorSettingsResponse(results), preparations=altered.preparations)


def _changes(
    image: MetadataImage, broker_id: BrokerId, reports: Iterable[MirrorSettingsReport]
) -> Iterator[ConfigResourceChange]:
    for report in reports:
        topic = image.topic_by_id(report.topic_id)
        if topic is None or not _is_leader(topic, broker_id, report):
            continue
        changes = settings_to_change(image.config_of_topic(topic.name), {s.name: s.value for s in report.settings})
        operations = tuple(
            ConfigOperation(name, ConfigOperationType.DELETE)
            if value is None
            else ConfigOperation(name, ConfigOperationType.SET, value)
            for name, value in sorted(changes.items())
        )
        if operations:
            yield ConfigResourceChange(ConfigResourceName(ConfigResourceType.TOPIC, topic.name), operations)


def _is_leader(topic: TopicImage, broker_id: BrokerId, report: MirrorSettingsReport) -> bool:
    first = topic.partitions[0]
    return first.is_mirror and (first.leader, first.leader_epoch) == (broker_id, report.leader_epoch)
