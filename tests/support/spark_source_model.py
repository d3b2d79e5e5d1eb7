"""A model of a cluster and of Spark around the source's planning: topics that come, go and return, and a query that
crashes between any two steps.

`ModelQuery` holds what Spark holds: the offset log as text, the commits, and a sink that takes each batch once. The
planning is `TidelogStreamReader`'s own; only the look at the logs and the reading of ranges are the model's.
"""

from __future__ import annotations

import functools
import json
import logging
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from tidelog_foundation.ids import TopicId
from tidelog_spark.source import losses as source_losses
from tidelog_spark.source.losses import Loss, LossReason, report_losses, retention_loss, topic_loss
from tidelog_spark.source.offsets import OffsetRange, resolve_offsets
from tidelog_spark.source.options import ReadPlan, parse_options, stream_plan
from tidelog_spark.source.positions import OffsetBound
from tidelog_spark.source.reader import TidelogStreamReader
from tidelog_spark.source.schema import spark_schema
from tidelog_spark.source.stream_offsets import Logs, StreamOffsets, from_json

Place = tuple[TopicId, int, int]
"""Topic id, partition and offset of a record."""


@dataclass
class ModelTopic:
    """A topic's first offset and end per partition."""

    name: str
    topic_id: TopicId
    starts: list[int]
    ends: list[int]


class ModelCluster:
    """Topics by name; a topic that is created again has another id."""

    def __init__(self) -> None:
        self.topics: dict[str, ModelTopic] = {}
        self.every: dict[TopicId, ModelTopic] = {}

    def create(self, name: str, partitions: int) -> None:
        topic_id = TopicId((len(self.every) + 1).to_bytes(16, "big"))
        self.topics[name] = self.every[topic_id] = ModelTopic(name, topic_id, [0] * partitions, [0] * partitions)

    def logs(self, is_selected: Callable[[str], bool]) -> Logs:
        topics = [topic for topic in self.topics.values() if is_selected(topic.name)]
        places = [(topic, index) for topic in topics for index in range(len(topic.ends))]
        return Logs(
            {topic.name: topic.topic_id for topic in topics},
            {(topic.name, index): topic.starts[index] for topic, index in places},
            {(topic.name, index): topic.ends[index] for topic, index in places},
        )


class ModelBounds:
    """`LogBounds` of a model."""

    def __init__(self, cluster: ModelCluster, is_selected: Callable[[str], bool]) -> None:
        self._cluster = cluster
        self._is_selected = is_selected

    def look(self, known: Mapping[str, TopicId] | None = None) -> Logs:
        return self._cluster.logs(self._is_selected)

    def resolve(self, bound: OffsetBound) -> list[StreamOffsets]:
        logs = self._cluster.logs(self._is_selected)
        return [StreamOffsets(resolve_offsets(bound.of(logs.latest), logs.earliest, logs.latest), logs.ids)]


_SCHEMA = spark_schema(False)


@functools.cache
def _plan(options: tuple[tuple[str, str], ...]) -> ReadPlan:
    return stream_plan(parse_options({"bootstrap.servers": "model:1", "failOnDataLoss": "false", **dict(options)}))


class ModelReader(TidelogStreamReader):
    """The reader of a model's cluster; `places` stands for ``read``."""

    def __init__(self, cluster: ModelCluster, options: Mapping[str, str]) -> None:
        super().__init__(_plan(tuple(options.items())), _SCHEMA)
        self._cluster = cluster
        self.lost_by_tasks = 0

    def _log_bounds(self) -> Any:
        return ModelBounds(self._cluster, self._plan.options.topics.has_topic)

    def places(self, planned: OffsetRange) -> Iterator[Place]:
        key = (planned.topic, planned.partition)
        topic = self._cluster.topics.get(planned.topic)
        first, end = planned.start_offset, planned.end_offset
        if topic is None or topic.topic_id != planned.topic_id:
            new_id = topic.topic_id if topic else None
            self._lose(topic_loss(key, planned.topic_id, first, end, new_id))
            return
        start = min(topic.starts[planned.partition], end)
        assert end <= topic.ends[planned.partition], f"{planned} is planned beyond the log"
        if first < start:
            self._lose(retention_loss(key, planned.topic_id, first, start, (start, end)))
        for offset in range(max(first, start), end):
            yield topic.topic_id, planned.partition, offset

    def _lose(self, loss: Loss) -> None:
        self.lost_by_tasks += loss.size
        report_losses([loss], fail_on_data_loss=False)


class Crash(Exception):
    """The end of the driver's process."""


STEPS = ("planned the end", "logged the end", "planned the ranges", "read", "written", "committed")


@dataclass
class ModelQuery:
    """A streaming query and its checkpoint."""

    cluster: ModelCluster
    options: dict[str, str]
    offset_log: list[str] = field(default_factory=list)
    committed: int = 0
    sink: dict[int, list[Place]] = field(default_factory=dict)
    lost: set[Place] = field(default_factory=set)
    ended: set[TopicId] = field(default_factory=set)
    reader: ModelReader | None = None

    def trigger(self, crash_after: str = "", meanwhile: Callable[[], None] = lambda: None) -> bool:
        """Run one micro-batch; return whether there was one. A crash ends the reader.

        ``meanwhile`` happens between planning and reading.
        """
        try:
            return self._trigger(crash_after, meanwhile)
        except Crash:
            self.reader = None
            return True

    def available_now(self) -> None:
        """Run a new process of the query with Trigger.AvailableNow."""
        self.reader = ModelReader(self.cluster, self.options)
        self.reader.prepareForTriggerAvailableNow()
        batches = 0
        while self.trigger():
            batches += 1
            assert batches < 500, "the query does not end"
        self.reader = None

    def _trigger(self, crash_after: str, meanwhile: Callable[[], None]) -> bool:
        self.reader = self.reader or ModelReader(self.cluster, self.options)
        previous = self.offset_log[self.committed - 1] if self.committed else None
        start = json.loads(previous) if previous else self.reader.initialOffset()
        if len(self.offset_log) == self.committed:
            end = json.dumps(self.reader.latestOffset(start, self.reader.getDefaultReadLimit()))
            losses = self.reader.losses
            assert losses.total + self.reader.lost_by_tasks <= losses.at_most, "more is lost than the progress says"
            self._crash_if("planned the end", crash_after)
            if end == previous:
                return False
            self.offset_log.append(end)
            self._crash_if("logged the end", crash_after)
        parts = self.reader.partitions(start, json.loads(self.offset_log[self.committed]))
        self._crash_if("planned the ranges", crash_after)
        meanwhile()
        rows = [place for part in parts for place in self.reader.places(part.value)]
        self._crash_if("read", crash_after)
        self.sink.setdefault(self.committed, rows)
        self._crash_if("written", crash_after)
        self.committed += 1
        self._crash_if("committed", crash_after)
        return True

    def _crash_if(self, step: str, crash_after: str) -> None:
        if step == crash_after:
            raise Crash(step)

    def note(self, loss: Loss) -> None:
        """Take a loss that the source has logged."""
        self.lost.update(
            (loss.topic_id, loss.partition, offset) for offset in range(loss.start_offset, loss.end_offset)
        )
        if loss.reason in (LossReason.DELETION, LossReason.RECREATION):
            self.ended.add(loss.topic_id)

    def check(self) -> None:
        """Check that each record behind the start was read once or counted as lost, and none twice.

        The end of a deleted topic is not known, only that it is lost; nor are topics that no checkpoint has.
        """
        ends = [from_json(json.loads(text)) for text in self.offset_log]
        first = ends[0].start
        assert first is not None
        found = Counter(place for rows in self.sink.values() for place in rows)
        assert not [place for place, count in found.items() if count > 1], "records were read twice"
        logged = {topic_id for end in (first, *ends) for topic_id in end.ids.values()}
        for place in self._expected(first):
            is_unknown = place[0] not in logged or place[0] in self.ended
            is_alive = self.cluster.topics.get(self.cluster.every[place[0]].name) is self.cluster.every[place[0]]
            assert place in found or place in self.lost or (is_unknown and not is_alive), f"{place} was not read"

    def _expected(self, first: StreamOffsets) -> Iterator[Place]:
        for topic_id, topic in self.cluster.every.items():
            if topic_id < first.ids.get(topic.name, b""):
                continue
            has_started = topic_id == first.ids.get(topic.name)
            for partition, end in enumerate(topic.ends):
                start = first.offsets.get((topic.name, partition), 0) if has_started else 0
                yield from ((topic_id, partition, offset) for offset in range(start, end))


class LossListener(logging.Handler):
    """Passes the losses that the source logs to a query."""

    def __init__(self, query: ModelQuery) -> None:
        super().__init__()
        self._query = query

    def emit(self, record: logging.LogRecord) -> None:
        for loss in getattr(record, "losses", ()):
            self._query.note(loss)

    def __enter__(self) -> LossListener:
        source_losses.log.addHandler(self)
        return self

    def __exit__(self, *_: object) -> None:
        source_losses.log.removeHandler(self)
