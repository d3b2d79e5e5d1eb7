"""The settings of topics that a cluster link copies: what is read, what is reported, and what is logged."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Mapping
from types import SimpleNamespace
from typing import Any

import pytest

from tidelog_foundation.errors import ErrorCode, TidelogError, error_for
from tidelog_foundation.ids import BrokerEpoch, BrokerId, LeaderEpoch, TopicId
from tidelog_foundation.link_settings import MAX_SETTINGS_REPORTS, parse_link_settings
from tidelog_foundation.requests.links import (
    MirrorTopicResult,
    ReportMirrorSettingsRequest,
    ReportMirrorSettingsResponse,
)
from tidelog_node.links.topic_settings import TopicSettings

Settings = dict[str, dict[str, str]]


class Cluster:
    """A source, the leading controller, and this node's image, each with settings of topics."""

    def __init__(self, on_source: Settings, own: Settings) -> None:
        self.on_source = on_source
        self.own = own
        self.errors: dict[str, TidelogError] = {}
        self.refused: dict[str, TidelogError] = {}
        self.asked: list[Collection[str]] = []
        self.reported: list[ReportMirrorSettingsRequest] = []

    async def settings_of_topics(self, topics: Collection[str]) -> tuple[Settings, dict[str, TidelogError]]:
        self.asked.append(topics)
        return {t: self.on_source[t] for t in topics if t in self.on_source}, dict(self.errors)

    async def ask(self, request: ReportMirrorSettingsRequest, timeout_s: float) -> ReportMirrorSettingsResponse:
        self.reported.append(request)
        names = [topic_id.decode() for topic_id in (each.topic_id for each in request.topics)]
        return ReportMirrorSettingsResponse(tuple(MirrorTopicResult(name, self.refused.get(name)) for name in names))

    def config_of_topic(self, name: str) -> Mapping[str, str]:
        return self.own.get(name, {})

    def task(self, *mirrors: tuple[str, int], is_current: bool = True) -> TopicSettings:
        """Return the task of a link whose mirrors this node leads."""
        worker: Any = SimpleNamespace(
            mirrors={(TopicId(name.encode()), index): mirror(name, is_current) for name, index in mirrors},
            source=self,
            link=SimpleNamespace(name="link"),
            config=parse_link_settings({"bootstrap.servers": "source:9092", "topic.config.sync.ms": "100"}),
        )
        node: Any = SimpleNamespace(broker_id=BrokerId(1), metadata=SimpleNamespace(image=self), controller=self)
        return TopicSettings(worker, node, lambda: BrokerEpoch(7))


def mirror(name: str, is_current: bool) -> Any:
    return SimpleNamespace(
        partition=SimpleNamespace(topic=name, topic_id=TopicId(name.encode())),
        term=SimpleNamespace(leader_epoch=LeaderEpoch(3)),
        is_current=is_current,
    )


def test_leaders_of_first_partitions_report_settings_that_differ() -> None:
    same = {"retention.ms": "5", "min.insync.replicas": "1"}
    cluster = Cluster({"a": {"retention.ms": "6"}, "b": same, "c": {}}, {"b": {"retention.ms": "5"}})
    asyncio.run(cluster.task(("a", 0), ("b", 0), ("c", 1)).copy())
    assert cluster.asked == [["a", "b"]]
    [request] = cluster.reported
    [report] = request.topics
    assert (request.broker_id, request.broker_epoch, report.topic_id, report.leader_epoch) == (1, 7, b"a", 3)
    assert [(s.name, s.value) for s in report.settings] == [("retention.ms", "6")]


def test_leader_of_the_past_reports_nothing() -> None:
    cluster = Cluster({"a": {"retention.ms": "6"}}, {})
    asyncio.run(cluster.task(("a", 0), is_current=False).copy())
    assert not cluster.reported


def test_topics_are_read_and_reported_in_parts() -> None:
    names = [f"t{number:03}" for number in range(MAX_SETTINGS_REPORTS + 1)]
    cluster = Cluster({name: {"retention.ms": "6"} for name in names}, {})
    asyncio.run(cluster.task(*((name, 0) for name in names)).copy())
    assert [len(part) for part in cluster.asked] == [MAX_SETTINGS_REPORTS, 1]
    assert [len(request.topics) for request in cluster.reported] == [MAX_SETTINGS_REPORTS, 1]


def test_failures_are_logged_once_each(caplog: pytest.LogCaptureFixture) -> None:
    cluster = Cluster({"a": {"retention.ms": "6"}}, {})
    cluster.errors["b"] = error_for(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "no right")
    cluster.refused["a"] = error_for(ErrorCode.INVALID_CONFIG, "no such value")
    task = cluster.task(("a", 0), ("b", 0))

    async def copy_twice() -> None:
        for _ in range(2):
            await task.copy()
        cluster.own["a"] = cluster.on_source["a"]
        await task.copy()
        cluster.own["a"] = {}
        await task.copy()

    with caplog.at_level(logging.WARNING):
        asyncio.run(copy_twice())
    about = [("a" if "of topic a" in record.getMessage() else "b") for record in caplog.records]
    assert about == ["b", "a", "a"]


def test_source_that_does_not_answer_is_tried_again() -> None:
    class Silent(Cluster):
        async def settings_of_topics(self, topics: Collection[str]) -> tuple[Settings, dict[str, TidelogError]]:
            self.asked.append(topics)
            raise error_for(ErrorCode._TRANSPORT, "no answer")

    cluster = Silent({}, {})
    task = cluster.task(("a", 0))

    async def run() -> None:
        running = asyncio.create_task(task.run())
        async with asyncio.timeout(20):
            while len(cluster.asked) < 2:  # noqa: ASYNC110 - the task has no event
                await asyncio.sleep(0.01)
        running.cancel()
        await asyncio.wait([running])

    asyncio.run(run())
